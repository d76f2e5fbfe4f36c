"""Stopped at any moment, a series of convolutions loses no measurement that was handed out, leaves no process behind, and goes on where it was."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import faulty_convolution as faulty
import psutil
import pytest
from faulty_convolution import index, runner

from workbench.data.store import Store
from workbench.errors import UsageError
from workbench.measure.runner import measure_missing
from workbench.schema import Status

SERIES = """
import sys
import faulty_convolution as faulty
from workbench.data.store import Store
from workbench.measure.runner import measure_missing
faulty.install()
path, *indices = sys.argv[1:]
with Store(path) as store, faulty.runner(ahead=3, limits=faulty.tvm.Limits(run_s=1000, build_s=1000)) as runner:
    for measurement in measure_missing(store, runner, [int(i) for i in indices]):
        print(measurement.index, *runner.pids, flush=True)
print("finished", flush=True)
"""


@pytest.fixture(autouse=True)
def _space(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty.install(monkeypatch.setattr)


def started(folder: Path, wanted: list[int]) -> subprocess.Popen[str]:
    """A process that measures into a store of a folder, in which it also keeps what is temporary."""
    (folder / "temporary").mkdir(exist_ok=True)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(folder / "temporary")}
    return subprocess.Popen(
        [sys.executable, "-c", SERIES, str(folder / "s.db"), *map(str, wanted)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        # Tests that were started in the background ignore Ctrl-C, and what they start inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def stored(folder: Path) -> list[int | None]:
    with Store(folder / "s.db") as store:
        return [m.index for m in store.rows()]


def gone(pids: set[int]) -> bool:
    deadline = time.monotonic() + 10
    while alive := {pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE}:
        if time.monotonic() > deadline:
            return False
        pids = alive
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments_nothing_acknowledged_is_lost(tmp_path: Path, rounds: int) -> None:
    wanted = [index(behaviour, turn) for turn in range(3 * rounds) for behaviour in ("fine", "no schedule", "crash running")]
    chance, acknowledged = random.Random(rounds), []
    for _ in range(rounds):
        process = started(tmp_path, wanted)
        assert process.stdout is not None
        pids = set()
        for _ in range(chance.randint(1, 6)):
            found, *children = map(int, process.stdout.readline().split())
            acknowledged.append(found)
            pids |= set(children)
        time.sleep(chance.random() * 0.1)
        process.kill()
        acknowledged += [int(line.split()[0]) for line in process.communicate()[0].splitlines()]
        assert pids
        assert gone(pids), "a child outlived its parent"
        kept = stored(tmp_path)
        assert kept == wanted[: len(kept)]
        assert kept[: len(acknowledged)] == acknowledged
        acknowledged = kept  # the last one may be on the disk and not yet said
    assert 0 < len(acknowledged) < len(wanted)
    out, _ = started(tmp_path, wanted).communicate(timeout=120)
    assert [line.split()[0] for line in out.splitlines()] == [*map(str, wanted[len(acknowledged) :]), "finished"]
    assert stored(tmp_path) == wanted


@pytest.mark.parametrize("during", ["hang building", "hang running"])
def test_interrupted_it_leaves_no_process_and_no_library(tmp_path: Path, during: str) -> None:
    wanted = [index("fine"), *(index(during, turn) for turn in range(20))]
    process = started(tmp_path, wanted)
    assert process.stdout is not None
    found, *pids = map(int, process.stdout.readline().split())
    assert found == wanted[0]
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, complaint = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert complaint.splitlines()[-1] == "KeyboardInterrupt"
    assert gone(set(pids))
    assert list((tmp_path / "temporary").iterdir()) == []
    acknowledged = [found, *(int(line.split()[0]) for line in out.splitlines())]
    assert stored(tmp_path)[: len(acknowledged)] == acknowledged == wanted[: len(acknowledged)]
    done = len(stored(tmp_path))
    assert done < len(wanted)
    with Store(tmp_path / "s.db") as store, runner() as here:
        assert next(measure_missing(store, here, wanted)).index == wanted[done]


def test_two_at_once_share_a_store(tmp_path: Path) -> None:
    wanted = [index(behaviour, turn) for turn in range(6) for behaviour in ("fine", "no schedule")]
    both = [started(tmp_path, wanted), started(tmp_path, wanted[::-1])]
    outs = [process.communicate(timeout=60)[0].splitlines() for process in both]
    assert [out[-1] for out in outs] == ["finished", "finished"]
    said = Counter(int(line.split()[0]) for out in outs for line in out[:-1])
    assert said == Counter(stored(tmp_path))
    assert set(said) == set(wanted)
    assert max(said.values()) <= 2
    with Store(tmp_path / "s.db") as store:
        assert store.verify() == said.total()


def test_a_series_has_one_way_of_measuring_for_all_its_workloads(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        with runner() as here:
            assert [m.status for m in measure_missing(store, here, [index("fine")])] == [Status.OK]
        with runner(workload=faulty.OTHER) as here:
            # What is done is done of a workload.
            assert [m.status for m in measure_missing(store, here, [index("fine")])] == [Status.OK]
            assert [m.status for m in measure_missing(store, here, [index("fine"), index("wrong")])] == [Status.WRONG_RESULT]
            assert [m.status for m in measure_missing(store, here, [index("fine")], times=2)] == [Status.OK]
        with (
            runner(threads=2) as here,
            pytest.raises(UsageError, match=r"compiler 'compiler of 1 threads', .* 2 threads'; use another store"),
        ):
            list(measure_missing(store, here, [index("noisy")]))
        with runner() as here:
            here.best_s = None
            list(measure_missing(store, here, []))
            assert here.best_s == min(m.time_s for m in store.rows(workload=faulty.WORKLOAD) if m.time_s is not None)
