"""Recorded tables answer as they were recorded, and a store that several tunings share answers all of them alike. All numbers are invented."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from invented_runner import WORKLOAD, Invented
from test_export_tvm import fill

from workbench.data.datasets import load_dataset
from workbench.data.store import Store
from workbench.errors import DataError, MissingData, SpaceError, StoreError
from workbench.features.tasks import MeasuredTask, TuningTask, tasks_of
from workbench.kernels import kernel
from workbench.kernels.conv import CPU
from workbench.measure.export import export
from workbench.measure.replay import Cached, Replay
from workbench.measure.tvm import series
from workbench.schema import Device, Status


@pytest.fixture
def table() -> MeasuredTask:
    """Fifty configurations in no order, one in five a failure."""
    task = TuningTask("small", kernel("conv2d"), WORKLOAD, Device("invented-cpu", "cpu"), CPU)
    rng = np.random.default_rng(0)
    valid = np.arange(50) % 5 != 3
    throughput = np.where(valid, rng.uniform(1, 9, 50), 0.0)
    build_s, run_s = rng.uniform(0.1, 0.2, 50), np.where(valid, rng.uniform(0.2, 0.3, 50), np.nan)
    return MeasuredTask(task, task.space.sample(50, rng), throughput, valid, np.where(valid, 1e-3, np.nan), build_s, run_s)


def test_a_table_answers_in_the_order_of_the_question(table: MeasuredTask) -> None:
    rows = np.random.default_rng(1).permutation(50)[:20]
    answer = Replay(table)(table.indices[rows])
    for name in ("throughput", "valid", "build_s", "run_s"):
        np.testing.assert_array_equal(getattr(answer, name), getattr(table, name)[rows])
    assert np.isnan(answer.run_s[~answer.valid]).all()
    assert (answer.throughput[~answer.valid] == 0).all()


def test_what_was_not_measured_is_an_error_that_says_what_to_do(table: MeasuredTask) -> None:
    other = next(found for found in range(table.task.space.size) if found not in set(table.indices.tolist()))
    with pytest.raises(DataError, match=rf"small: configuration {other} was not measured \(1 of 2 asked for\); its table has 50 .*Candidates"):
        Replay(table)(np.array([table.indices[0], other]))
    assert not Replay(table).exhaustive


@pytest.mark.parametrize("name", ["kt-convolution-rtx-2080-ti", "kt-convolution-milo-a4000"])
def test_kernel_tuners_tables_are_whole_spaces_with_what_each_row_took(name: str) -> None:
    try:
        dataset = load_dataset(name)
    except MissingData as error:
        pytest.skip(str(error))
    (table,) = tasks_of(dataset)
    replay = Replay(table)
    assert replay.exhaustive
    answer = replay(table.task.space.members())
    assert np.isfinite(answer.build_s).all()
    assert np.isfinite(answer.run_s[answer.valid]).all()
    ok = dataset.frame["status"] == "ok"
    assert np.nansum(answer.run_s) == pytest.approx((dataset.frame["n_rep"] * dataset.frame["time_s"])[ok].sum())


TUNING = """
import sys
import numpy as np
from invented_runner import Invented
from workbench.data.store import Store
from workbench.measure.replay import Cached
path, batch, *indices = sys.argv[1:]
indices = np.array([int(i) for i in indices])
said = lambda measurement: print("measured", measurement.index, flush=True)
with Store(path) as store, Invented() as runner:
    answers = Cached(store, runner, said)
    for start in range(0, len(indices), int(batch)):
        part = indices[start : start + int(batch)]
        answer = answers(part)
        for row in zip(part, answer.throughput, answer.valid, answer.build_s, answer.run_s):
            print("answer", *(value.item() for value in row), flush=True)
print("finished", flush=True)
"""


def tuning(path: Path, wanted: list[int], batch: int = 4) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, "-c", TUNING, str(path), str(batch), *map(str, wanted)], stdout=subprocess.PIPE, text=True, env=env)


def lines(out: str, kind: str) -> list[str]:
    return [line.removeprefix(f"{kind} ") for line in out.splitlines() if line.startswith(kind)]


def test_a_store_is_asked_first_and_the_runner_for_what_is_missing(tmp_path: Path) -> None:
    seen: list[int | None] = []
    with Store(tmp_path / "s.db") as store, Invented() as runner:
        wanted = np.arange(1000, 1008)
        answers = Cached(store, runner, lambda measurement: seen.append(measurement.index))
        first = answers(wanted[1:4])
        assert seen == wanted[1:4].tolist()
        whole = answers(wanted[::-1])
        assert seen == [*wanted[1:4], *wanted[:3:-1], wanted[0]]
        assert [row.index for row in store.rows()] == seen
        records = {row.index: row for row in store.rows()}
        again = answers(wanted[::-1])
        assert len(store) == 8
        with pytest.raises(SpaceError):
            answers(np.array([runner.space.size]))
    flop = kernel("conv2d").flop
    assert flop is not None
    for place, found in enumerate(wanted[::-1]):
        row = records[int(found)]
        assert whole.throughput[place] == (0.0 if row.time_s is None else flop(WORKLOAD.params) / 1e9 / row.time_s)
        assert whole.valid[place] == (row.status is Status.OK)
        assert whole.run_s[place] == sum(row.times_s) or not row.times_s
    np.testing.assert_array_equal(np.isnan(whole.build_s), [records[int(found)].status is Status.INVALID_CONFIG for found in wanted[::-1]])
    np.testing.assert_array_equal(np.isnan(whole.run_s), ~whole.valid)
    assert (~whole.valid).sum() == 3
    for name in ("throughput", "valid", "build_s", "run_s"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(again, name))
        np.testing.assert_array_equal(getattr(whole, name)[4:7][::-1], getattr(first, name))


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments_a_tuning_goes_on_and_measures_nothing_twice(tmp_path: Path, kills: int) -> None:
    chance = random.Random(kills)
    wanted = chance.sample(range(100_000), 25 * kills)
    acknowledged: list[str] = []
    for _ in range(kills):
        process = tuning(tmp_path / "s.db", wanted)
        assert process.stdout is not None
        out = "".join(process.stdout.readline() for _ in range(len(acknowledged) + chance.randint(1, 20)))
        time.sleep(chance.random() * 0.01)
        process.kill()
        out += process.communicate()[0]
        acknowledged += lines(out, "measured")
    with Store(tmp_path / "s.db") as store:
        kept = [row.index for row in store.rows()]
    assert kept == wanted[: len(kept)]
    assert set(map(int, acknowledged)) <= set(kept)
    assert 0 < len(kept) < len(wanted)
    out, _ = tuning(tmp_path / "s.db", wanted).communicate(timeout=60)
    assert out.splitlines()[-1] == "finished"
    with Store(tmp_path / "s.db") as store:
        assert [row.index for row in store.rows()] == wanted
    replayed, _ = tuning(tmp_path / "s.db", wanted, batch=7).communicate(timeout=60)
    assert lines(replayed, "measured") == []
    assert lines(replayed, "answer") == lines(out, "answer")


def test_two_tunings_at_once_share_what_either_has_measured(tmp_path: Path) -> None:
    wanted = list(range(500, 580))
    both = [tuning(tmp_path / "s.db", wanted), tuning(tmp_path / "s.db", wanted[::-1])]
    outs = [process.communicate(timeout=60)[0] for process in both]
    assert [out.splitlines()[-1] for out in outs] == ["finished", "finished"]
    said = [lines(out, "measured") for out in outs]
    assert sorted(map(int, said[0] + said[1])) == wanted, "each is measured once, by one of the two"
    assert sorted(lines(outs[0], "answer")) == sorted(lines(outs[1], "answer"))


def test_a_cache_that_became_a_data_set_replays_bit_for_bit(tmp_path: Path, root: Path) -> None:
    runner = Invented()
    runner.device, runner.series, runner.provenance = Device("some-cpu", "cpu"), series("conv2d", "some-cpu"), {}
    with Store(tmp_path / "s.db") as store:
        fill(store, WORKLOAD, trials=20)
        asked = np.array([row.index for row in store.rows()])[1:20]  # the first one has two measurements, of which a data set has the faster
        answer = Cached(store, runner)(asked)
        export(store, "conv-cpu-x", root)
    (table,) = tasks_of(load_dataset("conv-cpu-x-conv2d"))
    replayed = Replay(table)(asked)
    for name in ("throughput", "valid", "build_s", "run_s"):
        np.testing.assert_array_equal(getattr(replayed, name), getattr(answer, name))
    assert not replayed.valid.all()


def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store, Invented() as runner:
        (tmp_path / "s.db.lock").mkdir()
        with pytest.raises(StoreError, match=r"s\.db\.lock: cannot be written"):
            Cached(store, runner)(np.array([1000]))
