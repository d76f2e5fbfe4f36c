"""The runner and its child: whatever a candidate does is a record, the next one is measured, and what was acknowledged stays."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import faulty_problem as faulty
import psutil
import pytest

from workbench.data.store import Store
from workbench.errors import UsageError, WorkbenchError
from workbench.measure.halide import Limits, Runner, halide_workload, series
from workbench.measure.runner import candidates, measure_missing
from workbench.schema import Device, Measurement, Status

WORKLOAD = halide_workload("blur", 1024)
LIMITS = Limits(build_s=1.0, search_s=1.0, run_s=1.0, start_s=30.0)


def runner(**options: object) -> Runner:
    return Runner(WORKLOAD, **{"device": Device("here", "cpu"), "limits": LIMITS, "check_share": 1.0, "problem": "faulty_problem:Faulty", **options})  # type: ignore[arg-type]


def index(s1: int, s2: int = 2) -> int:
    return runner().space.index({"s1": s1, "s2": s2, "s3": 2, "s4": 2})


def measured(behaviour: int) -> tuple[Measurement, Measurement]:
    """What a candidate of that behaviour becomes, and a good one after it."""
    with runner() as here:
        first, second = here.measure([index(behaviour), index(faulty.FINE)])
    assert second.status is Status.OK
    return first, second


@pytest.mark.parametrize(
    ("behaviour", "status", "reason", "compiled"),
    [
        (faulty.HANG_BUILDING, Status.TIMEOUT, "compiling: no answer in 1 s", False),
        (faulty.CRASH_BUILDING, Status.COMPILE_ERROR, "compiling: it was ended by SIGABRT; its last words: 'about to crash'", False),
        (faulty.RAISE_BUILDING, Status.COMPILE_ERROR, "compiling: ValueError: no such schedule in two lines", False),
        (faulty.HANG_RUNNING, Status.TIMEOUT, "running: no answer in 1 s", True),
        (faulty.CRASH_RUNNING, Status.RUN_ERROR, "running: it was ended by SIGABRT; its last words: 'about to crash'", True),
        (faulty.RAISE_RUNNING, Status.RUN_ERROR, "running: ValueError: no such schedule in two lines", True),
        (faulty.WRONG, Status.WRONG_RESULT, "running: relative error 1.0", True),
    ],
)
def test_a_failure_is_a_record_and_the_next_candidate_is_measured(behaviour: int, status: Status, reason: str, compiled: bool) -> None:
    first, _ = measured(behaviour)
    assert (first.status, first.error, first.time_s, first.times_s) == (status, reason, None, ())
    assert (first.compile_s == 0.25) is compiled


def test_what_a_candidate_prints_is_no_answer() -> None:
    assert measured(faulty.NOISY)[0].status is Status.OK


def test_a_good_record_is_whole() -> None:
    before = time.time()
    with runner() as here:
        (found,) = here.measure([index(faulty.FINE)])
    assert found.time_s == min(found.times_s)
    assert found.time_s == pytest.approx(0.001, rel=0.5)
    assert len(found.times_s) == 7
    assert found.timestamp is not None
    assert before - 1 <= found.timestamp <= time.time()
    assert (found.device, found.space, found.index, found.config["s1"], found.compile_s) == ("here", "workbench", index(faulty.FINE), faulty.FINE, 0.25)
    assert found.workload.params == {"n": 1024, "threads": 1}
    assert found.host
    assert found.load is not None


def test_an_unchecked_result_passes_and_the_share_is_kept() -> None:
    with runner(check_share=0.0) as here:
        (found,) = here.measure([index(faulty.WRONG)])
    assert found.status is Status.OK
    some = runner(check_share=0.3)
    wrong = [index(faulty.WRONG, 2**p) for p in range(1, 11)]
    with some:
        statuses = [m.status for m in some.measure(wrong)]
    with runner(check_share=0.3) as again:
        assert [m.status for m in again.measure(wrong)] == statuses
    assert set(statuses) == {Status.OK, Status.WRONG_RESULT}


def test_a_hopeless_candidate_gets_one_repeat_and_an_autoscheduler_all_it_needs() -> None:
    with runner(limits=Limits(run_s=10.0)) as here:
        fine, slow, baseline = here.measure([index(faulty.FINE), index(faulty.SLOW), "Mullapudi2016"])
    assert [len(fine.times_s), len(slow.times_s)] == [7, 1]
    assert 3 <= len(baseline.times_s) <= 4
    assert here.best_s == fine.time_s


def test_autoschedulers_are_records_of_their_own_name() -> None:
    with runner() as here:
        fine, failed = here.measure(["Mullapudi2016", "Li2018"])
    assert (fine.space, fine.index, fine.config, fine.compile_s) == ("autoscheduler", None, {"scheduler": "Mullapudi2016"}, 0.5)
    assert (failed.status, failed.config) == (Status.COMPILE_ERROR, {"scheduler": "Li2018"})
    assert here.schedules == {"Mullapudi2016": "schedule for 1"}


def test_a_race_gives_every_repeat_of_every_candidate() -> None:
    with runner(limits=Limits(run_s=10.0)) as here:
        fine, slow = here.race([index(faulty.FINE), "Mullapudi2016"], repeats=2)
        assert len(fine) == len(slow) == 2
        assert max(fine) < min(slow)
        with pytest.raises(WorkbenchError, match=r"was not finished: .*no such schedule"):
            here.race([index(faulty.FINE), index(faulty.RAISE_BUILDING)])


def test_a_child_that_does_not_start_is_one_line() -> None:
    with runner(problem="faulty_problem:Unbuildable") as here, pytest.raises(WorkbenchError, match=r"does not start \(it ended with exit code 1; .*no image"):
        next(here.measure([index(faulty.FINE)]))


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(UsageError, match="'mm' has no Halide pipeline"):
        halide_workload("mm", 64)
    with pytest.raises(UsageError, match="threads is 0"):
        halide_workload("blur", 64, 0)
    with pytest.raises(UsageError, match="power of two"):
        halide_workload("fft", 48)
    with pytest.raises(UsageError, match="cannot pin to CPU 4096"):
        runner(pin=[4096])


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not pin processes")
def test_pinned_with_its_threads_and_nothing_that_steers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a Dask worker sets: with it large tiles go back to the system after each use.
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.setenv("HL_JIT_TARGET", "host-no_asserts")
    cpu = min(os.sched_getaffinity(0))
    with Runner(halide_workload("blur", 1024, 2), pin=[cpu], device=Device("here", "cpu"), problem="faulty_problem:Faulty") as here:
        next(here.measure([index(faulty.FINE)]))
        assert here.pid is not None
        assert os.sched_getaffinity(here.pid) == {cpu}
        environment = psutil.Process(here.pid).environ()
        assert {name: value for name, value in environment.items() if name.startswith(("HL_", "MALLOC_"))} == {"HL_NUM_THREADS": "2"}


def test_a_longer_series_continues_a_shorter_one() -> None:
    space = runner().space
    long = candidates(space, 300, seed=5)
    assert candidates(space, 20, seed=5) == long[:20]
    assert candidates(space, 20, seed=6) != long[:20]
    assert len(set(long)) == 300
    assert space.satisfies(long).all()
    assert len(candidates(space, 10**6)) == 2200


def test_a_series_has_one_way_of_measuring(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        with runner() as here:
            list(measure_missing(store, here, [index(faulty.FINE)]))
        note = json.loads(store.note(series(WORKLOAD, "here")) or "")
        assert "the minimum" in note["policy"]
        assert "10 times slower" in note["policy"]
        assert note["compiler"].startswith("Halide ")
        with runner(seed=1) as here, pytest.raises(UsageError, match="have seed '0', these would have '1'; use another store"):
            list(measure_missing(store, here, [index(faulty.NOISY)]))


def test_resumed_where_it_was(tmp_path: Path) -> None:
    wanted = [index(behaviour) for behaviour in (faulty.FINE, faulty.RAISE_BUILDING, faulty.NOISY)]
    with Store(tmp_path / "s.db") as store, runner() as here:
        assert [m.index for m in measure_missing(store, here, wanted[:2])] == wanted[:2]
        # A failure is done too; what the store has of another device or workload is not.
        assert [m.index for m in measure_missing(store, here, wanted)] == wanted[2:]
        assert [m.index for m in measure_missing(store, here, [*wanted, "Li2018"])] == [None]
        assert [m.index for m in measure_missing(store, here, wanted[:1], times=2)] == wanted[:1]
        assert len(store) == 5
    with Store(tmp_path / "s.db") as store, runner(device=Device("elsewhere", "cpu")) as there:
        assert [m.index for m in measure_missing(store, there, wanted)] == wanted
    with Store(tmp_path / "s.db") as store, runner() as here:
        assert list(measure_missing(store, here, wanted)) == []
        assert here.best_s == min(m.time_s for m in store.rows(device="here") if m.time_s is not None)


SERIES = """
import sys
from workbench.data.store import Store
from workbench.measure.halide import Limits, Runner, halide_workload
from workbench.measure.runner import measure_missing
from workbench.schema import Device
path, *indices = sys.argv[1:]
options = {"device": Device("here", "cpu"), "problem": "faulty_problem:Faulty", "limits": Limits(run_s=1000)}
with Store(path) as store, Runner(halide_workload("blur", 1024), **options) as runner:
    for measurement in measure_missing(store, runner, [int(i) for i in indices]):
        print(runner.pid, measurement.index, flush=True)
"""


def started(path: Path, wanted: list[int]) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, "-c", SERIES, str(path), *map(str, wanted)], stdout=subprocess.PIPE, text=True, env=env)


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_killed_at_random_moments_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    wanted = [index(faulty.FINE, 2**p) for p in range(1, 11)] + [index(faulty.NOISY, 2**p) for p in range(1, 11)]
    path, chance, acknowledged = tmp_path / "s.db", random.Random(1), list[int]()
    for _ in range(4):
        process = started(path, wanted)
        assert process.stdout is not None
        for _ in range(chance.randint(1, 4)):
            pid, found = map(int, process.stdout.readline().split())
            acknowledged.append(found)
        time.sleep(chance.random() * 0.02)
        process.kill()
        acknowledged += [int(line.split()[1]) for line in process.stdout.read().splitlines()]
        process.wait()
        assert gone(pid), "the child outlived its parent"
        with Store(path) as store:
            stored = [m.index for m in store.rows()]
            assert stored == wanted[: len(stored)]
            assert stored[: len(acknowledged)] == acknowledged
            acknowledged = [i for i in stored if i is not None]  # the last one may be on the disk and not yet said
    process = started(path, wanted)
    out, _ = process.communicate(timeout=60)
    assert [int(line.split()[1]) for line in out.splitlines()] == wanted[len(acknowledged) :]
    with Store(path) as store:
        assert [m.index for m in store.rows()] == wanted
        assert store.verify() == len(wanted)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_hanging_child_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    process = started(tmp_path / "s.db", [index(faulty.FINE), index(faulty.HANG_RUNNING)])
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[0])
    time.sleep(0.3)
    assert psutil.pid_exists(pid)
    process.kill()
    process.wait()
    process.stdout.close()
    assert gone(pid)
