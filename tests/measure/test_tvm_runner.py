"""The runner of convolutions and its children: whatever a candidate does is a record, and the next one is measured."""

from __future__ import annotations

import os
import time
from pathlib import Path

import faulty_convolution as faulty
import psutil
import pytest
from faulty_convolution import index, runner

from workbench.errors import BuildError, UsageError, WorkbenchError
from workbench.kernels.conv import CPU
from workbench.measure.runner import candidates
from workbench.measure.tvm import Limits, Runner
from workbench.schema import Device, Status
from workbench.space import Space, Split


@pytest.fixture(autouse=True)
def _space(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty.install(monkeypatch.setattr)


def built_by(here: Runner) -> list[Path]:
    return list(Path(here._scratch.name).iterdir())


def test_every_fault_is_a_record_and_the_next_candidate_is_measured() -> None:
    expected = {
        "hang building": (Status.TIMEOUT, "building: no answer in 1 s"),
        "crash building": (Status.COMPILE_ERROR, "building: it was ended by SIGABRT; its last words: 'about to crash'"),
        "refuse building": (Status.COMPILE_ERROR, "building: ValueError: no such loop in two lines"),
        "no schedule": (Status.INVALID_CONFIG, "building: ValueError: the tile does not fit"),
        "allocate building": (Status.COMPILE_ERROR, "building: MemoryError:"),
        "no library": (Status.RUN_ERROR, "running: FileNotFoundError:"),
        "hang running": (Status.TIMEOUT, "running: no answer in 1 s"),
        "crash running": (Status.RUN_ERROR, "running: it was ended by SIGABRT; its last words: 'about to crash'"),
        "refuse running": (Status.RUN_ERROR, "running: ValueError: no such loop in two lines"),
        "allocate running": (Status.RUN_ERROR, "running: MemoryError:"),
        "wrong": (Status.WRONG_RESULT, "running: the result is 2"),
        "clock": (Status.RUN_ERROR, "running: a repeat took 0.0 s: the clock cannot tell"),
        "orphan": (Status.RUN_ERROR, "running: it ended with exit code 3; its last words: "),
    }
    assert set(expected) == {*faulty.BUILDING, *faulty.RUNNING}
    wanted = [candidate for behaviour in expected for candidate in (index(behaviour), index("fine"))]
    with runner() as here:
        found = list(here.measure(wanted))
        assert built_by(here) == []
    assert [m.index for m in found] == wanted
    for bad, good in zip(found[::2], found[1::2], strict=True):
        status, reason = expected[str(bad.config["behaviour"])]
        assert (bad.status, bad.time_s, bad.times_s, bad.error[: len(reason)]) == (status, None, (), reason)
        assert (bad.compile_s is None) == reason.startswith("building")
        assert good.status is Status.OK
    orphan = int(found[-2].error.split("'")[1])
    assert not psutil.pid_exists(orphan) or psutil.Process(orphan).status() == psutil.STATUS_ZOMBIE


def test_a_good_record_is_whole() -> None:
    before = time.time()
    with runner() as here:
        found, noisy = here.measure([index("fine", 7), index("noisy")])
        assert here.best_s == min(found.times_s + noisy.times_s)
        assert here.provenance["compiler"] == "compiler of 1 threads"
        assert "threads: 1" in here.provenance["policy"]
    assert noisy.status is Status.OK
    assert found.time_s == min(found.times_s) == pytest.approx(0.001, rel=0.5)
    assert len(found.times_s) == 7
    assert found.timestamp is not None
    assert before - 1 <= found.timestamp <= time.time()
    assert (found.device, found.space, found.index, found.config) == ("here", CPU, index("fine", 7), {"behaviour": "fine", "turn": 7})
    assert found.workload == faulty.WORKLOAD
    assert found.compile_s is not None
    assert 0 < found.compile_s < 1
    assert found.host
    assert found.load is not None


def test_a_hopeless_candidate_gets_one_repeat() -> None:
    with runner(limits=Limits(run_s=10.0)) as here:
        slow, fine, hopeless = here.measure([index("slow"), index("fine"), index("slow")])
    assert [len(m.times_s) for m in (slow, fine, hopeless)] == [4, 7, 1]


def test_what_is_built_waits_and_is_removed_when_nobody_wants_it() -> None:
    with runner(ahead=4) as here:
        measured = here.measure(index("slowly built", turn) for turn in range(100))
        next(measured)
        time.sleep(1.0)
        assert len(built_by(here)) == 4
        start = time.monotonic()
        assert [next(measured).status for _ in range(4)] == [Status.OK] * 4
        assert time.monotonic() - start < 0.8  # which building in turn takes at least
        measured.close()  # type: ignore[attr-defined]
        assert [m.status for m in here.measure([index("fine")])] == [Status.OK]
        assert built_by(here) == []


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(UsageError, match="cannot pin to CPU 4096"):
        runner(pin=[4096])
    with pytest.raises(UsageError, match="0 threads on all CPUs; use 1 or more"):
        runner(threads=0)
    with pytest.raises(UsageError, match=r"2 threads on 1 CPUs; .*as many CPUs to pin to"):
        runner(threads=2, pin=[min(os.sched_getaffinity(0))])
    with runner(seed=13) as here, pytest.raises(WorkbenchError, match=r'"co":4.*cannot be made \(MemoryError: no room for the inputs\); free memory'):
        list(here.measure([index("fine")]))


@pytest.mark.parametrize("names", [{"template": "faulty_convolution:Unbuildable"}, {"programs": "faulty_convolution:Unbuildable"}])
def test_a_child_that_does_not_start_is_one_line(names: dict[str, str]) -> None:
    with pytest.raises(BuildError, match=r"does not start \(it ended with exit code 1; .*no compiler.*install the package apache-tvm"), runner(**names) as here:
        list(here.measure([index("fine")]))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not pin processes")
def test_programs_run_where_they_are_pinned_with_their_threads_and_nothing_that_steers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.setenv("TVM_NUM_THREADS", "7")
    cpus = os.sched_getaffinity(0)
    timed = max(cpus)
    with runner(pin=[timed], device=Device("here", "cpu")) as here:
        next(here.measure([index("fine")]))
        builder, worker = here.pids
        assert os.sched_getaffinity(worker) == {timed}
        assert os.sched_getaffinity(builder) == (cpus - {timed} or {timed})
        environment = psutil.Process(worker).environ()
        steering = {name: value for name, value in environment.items() if name.startswith(("TVM_", "MALLOC_"))}
        assert steering == {"TVM_NUM_THREADS": "1", "TVM_BIND_THREADS": "0"}
        assert f"pinned to CPU {timed}" in here.provenance["policy"]


def test_a_longer_series_continues_a_shorter_one_in_a_space_of_any_size() -> None:
    for tiles in (2, 4):
        space = Space(CPU, tuple(Split(f"tile_{axis}", 720, tiles) for axis in "fyx"))
        long = candidates(space, 2500, seed=5)
        assert candidates(space, 20, seed=5) == long[:20]
        assert candidates(space, 1100, seed=5) == long[:1100]
        assert candidates(space, 20, seed=6) != long[:20]
        assert len(set(long)) == 2500
    assert len(candidates(Space(CPU, (Split("tile_f", 8, 2),)), 100)) == 4
