"""The audit on synthetic frames, whose numbers are invented, and on published sets where the mirror is there."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import pandas as pd
import pytest

from workbench.audit import audit
from workbench.audit.limits import exceeded
from workbench.data.datasets import Dataset, load_dataset
from workbench.errors import DataError
from workbench.kernels.base import Kernel
from workbench.schema import Device

GPU = Device("invented-gpu", "gpu", "Invented", peak_gflops=1000.0)
CPU = Device("invented-cpu", "cpu")
KERNEL = Kernel("invented", "Invented", ("n",), flop=lambda p: 2 * np.asarray(p["n"], dtype=float) ** 3)


def dataset(frame: pd.DataFrame, *, knobs: tuple[str, ...] = ("a", "b"), parameters: tuple[str, ...] = (), device: Device = CPU) -> Dataset:
    frame = frame if "status" in frame else frame.assign(status="ok")
    return Dataset("invented", frame, KERNEL, device, parameters, knobs)


def grid(rows: int = 400, noise: float = 0.05, seed: int = 0) -> pd.DataFrame:
    """Invented times that two knobs explain."""
    rng = np.random.default_rng(seed)
    a, b = 2 ** rng.integers(0, 8, rows), 2 ** rng.integers(0, 8, rows)
    time = 1e-3 * (a / 16 + 16 / a) * np.sqrt(b) * np.exp(noise * rng.normal(size=rows))
    return pd.DataFrame({"a": a, "b": b, "time_s": time})


def test_signal_passes() -> None:
    report = audit(dataset(grid()))
    assert report.passed
    assert report.reasons == []
    assert report.signal_r2 is not None
    assert report.signal_r2 > 0.8
    assert [task.task for task in report.tasks] == ["all"]


def test_shuffled_times_fail() -> None:
    frame = grid()
    frame["time_s"] = np.random.default_rng(1).permutation(frame["time_s"].to_numpy())
    report = audit(dataset(frame))
    assert not report.passed
    assert any("too little of log time" in reason for reason in report.reasons)


def test_times_that_follow_the_row_number_fail_on_order_too() -> None:
    rng = np.random.default_rng(2)
    frame = grid()
    frame["time_s"] = 1e-3 * (2 + np.sin(np.arange(len(frame)) / 40)) * np.exp(0.05 * rng.normal(size=len(frame)))
    report = audit(dataset(frame))
    assert not report.passed
    assert report.order_r2 is not None
    assert report.order_r2 > 0.5
    assert any("row order explains more" in reason for reason in report.reasons)


def test_order_fails_even_where_knobs_explain_something() -> None:
    frame = grid(noise=0.0)
    drift = np.exp(2.5 * np.sin(np.arange(len(frame)) / 30))
    report = audit(dataset(frame.assign(time_s=np.sqrt(frame["time_s"]) * drift)))
    assert report.order_beyond_r2 is not None
    assert report.order_beyond_r2 > max(0.0, report.signal_r2 or 0.0)
    assert not report.passed


def test_a_file_sorted_by_its_knobs_is_not_accused() -> None:
    report = audit(dataset(grid().sort_values(["a", "b"], ignore_index=True)))
    assert report.passed
    assert report.order_r2 is not None
    assert report.order_r2 > 0.3  # the row number stands for the knobs,
    assert report.order_beyond_r2 is not None
    assert report.order_beyond_r2 < 0.05  # and says nothing beyond them


def test_a_drift_is_noted_but_does_not_fail() -> None:
    frame = grid(1000)
    report = audit(dataset(frame.assign(time_s=frame["time_s"] * np.where(np.arange(1000) < 500, 1, 2.2))))
    assert report.passed
    assert any("drift" in note for note in report.notes)


def test_repeats_do_not_leak_between_folds() -> None:
    # 100 configurations with one random time each, four rows a configuration: a forest with repeats on both sides would score near 1.
    rng = np.random.default_rng(3)
    base = pd.DataFrame({"a": np.arange(100), "b": rng.permutation(100), "time_s": rng.lognormal(size=100)})
    report = audit(dataset(pd.concat([base] * 4, ignore_index=True)))
    assert not report.passed
    assert (report.signal_r2 or 0) < 0.1


def test_duplicates_and_their_spread_by_hand() -> None:
    frame = grid(300)
    frame["a"] = np.arange(300)
    repeats = pd.DataFrame({"a": [0, 1, 1], "b": frame["b"][[0, 1, 1]].to_numpy(), "time_s": frame["time_s"][[0, 1, 1]].to_numpy() * [1.5, 1.2, 1.1]})
    found = audit(dataset(pd.concat([frame, repeats], ignore_index=True))).duplicates
    assert found.rows == 3
    assert found.share == pytest.approx(3 / 303)
    assert found.spread_median == pytest.approx((1.5 + 1.2) / 2)
    assert found.spread_p90 == pytest.approx(1.2 + 0.9 * 0.3)
    assert audit(dataset(frame)).duplicates.spread_median is None


def test_failures_are_counted_and_not_learnt_from() -> None:
    frame = grid(400).assign(status="ok")
    frame.loc[:99, "status"] = "timeout"
    frame.loc[:99, "time_s"] = np.nan
    report = audit(dataset(frame))
    assert report.passed
    assert (report.rows, report.timed_rows) == (400, 300)
    assert report.status_share == {"ok": 0.75, "timeout": 0.25}


def test_impossible_configurations_with_a_time_fail() -> None:
    frame = grid(400).rename(columns={"a": "block_size_x", "b": "block_size_y"})
    frame["status"] = "ok"
    over = frame["block_size_x"] * frame["block_size_y"] > 1024
    report = audit(dataset(frame, knobs=("block_size_x", "block_size_y"), device=GPU))
    assert report.impossible.timed == report.impossible.rows == int(over.sum()) > 0
    assert not report.passed
    assert any("cannot run (over 1,024 threads a block)" in reason for reason in report.reasons)
    # the same rows as failures are what an honest set has
    frame.loc[over, ["status", "time_s"]] = ["run_error", np.nan]
    honest = audit(dataset(frame, knobs=("block_size_x", "block_size_y"), device=GPU))
    assert honest.passed
    assert (honest.impossible.rows, honest.impossible.timed) == (int(over.sum()), 0)
    # and a CPU has no such limit
    assert audit(dataset(frame, knobs=("block_size_x", "block_size_y"))).impossible.rules == ()


def test_speed_above_the_peak_fails() -> None:
    # n = 1000: 2 GFLOP, so 2 ms is the device's peak of 1,000 GFLOP/s
    frame = grid(400).assign(n=1000)
    slow = audit(dataset(frame.assign(time_s=frame["time_s"] / frame["time_s"].min() * 2.5e-3), parameters=("n",), device=GPU))
    assert slow.passed
    assert slow.peak.highest_share == pytest.approx(0.8)
    assert slow.peak.above == 0
    fast = audit(dataset(frame.assign(time_s=frame["time_s"] / frame["time_s"].median() * 2e-3), parameters=("n",), device=GPU))
    assert not fast.passed
    assert fast.peak.share_above == pytest.approx(0.5, abs=0.05)
    assert any("peak of 1000 GFLOP/s" in reason for reason in fast.reasons)


def test_constant_times_fail() -> None:
    frame = grid(300)
    frame["time_s"] = 1e-3 * (1 + 0.05 * frame["a"].rank(pct=True))
    report = audit(dataset(frame))
    assert not report.passed
    assert report.tasks[0].constant
    assert any("hardly vary" in reason for reason in report.reasons)
    equal = audit(dataset(frame.assign(time_s=1e-3)))
    assert equal.signal_r2 is None
    assert any("no task has varying times" in reason for reason in equal.reasons)


def test_each_workload_is_a_task_where_it_has_enough_rows() -> None:
    frames = [grid(200, seed=n).assign(n=n) for n in (64, 128)] + [grid(10).assign(n=256)]
    report = audit(dataset(pd.concat(frames, ignore_index=True), parameters=("n",)))
    assert [task.task for task in report.tasks] == ["n=64", "n=128"]
    assert report.skipped_tasks == 1
    assert report.passed


def test_tasks_that_differ_only_between_each_other_have_no_signal() -> None:
    # Workloads are a hundredfold apart, knobs explain nothing inside one: pooled rows would show a high R2.
    rng = np.random.default_rng(5)
    frames = [grid(200, seed=n).assign(n=n, time_s=n**2 * 1e-6 * rng.lognormal(sigma=0.3, size=200)) for n in (10, 100)]
    assert not audit(dataset(pd.concat(frames, ignore_index=True), parameters=("n",))).passed


def test_rows_that_are_workloads_of_their_own_are_pooled() -> None:
    rng = np.random.default_rng(6)
    n = rng.integers(1, 1024, 500)
    frame = pd.DataFrame({"n": n, "threads": rng.integers(1, 5, 500)})
    report = audit(dataset(frame.assign(time_s=1e-9 * n**2.0 / frame["threads"]), parameters=("n",), knobs=("threads",)))
    assert [task.task for task in report.tasks] == ["all"]
    assert report.passed


def test_knobs_may_be_text_tuples_or_missing() -> None:
    frame = grid(300)
    frame["order"] = np.where(frame["a"] > 8, "xyz", "zyx")
    frame["tile"] = [(int(v), 1) for v in frame["a"]]
    frame["optional"] = pd.array([int(v) if v > 2 else None for v in frame["b"]], dtype="Int64")
    assert audit(dataset(frame, knobs=("order", "tile", "optional"))).passed


def test_report_is_json_and_reproducible() -> None:
    frame = grid(300)
    first, second = audit(dataset(frame), seed=3), audit(dataset(frame), seed=3)
    assert first == second
    record = json.loads(json.dumps(first.to_dict(), allow_nan=False))
    assert record["passed"] is True
    assert record["thresholds"]["signal_min_r2"] == 0.26
    assert record["tasks"][0]["constant"] is False


def test_frames_that_cannot_be_audited() -> None:
    frame = grid(100)
    few = audit(dataset(frame.head(10)))
    assert not few.passed
    assert few.reasons == ["10 timed rows; at least 60 are needed"]
    assert few.to_dict()["verdict"] == few.verdict == "too few rows to tell"
    none = audit(dataset(frame.assign(status="timeout", time_s=np.nan)))
    assert not none.passed
    assert none.verdict == "failed"
    assert not audit(dataset(frame, knobs=())).passed
    with pytest.raises(DataError, match="no column 'b'"):
        audit(dataset(frame.drop(columns="b")))
    with pytest.raises(DataError, match=r"row 4 has status ok and time 0 s"):
        audit(dataset(frame.assign(time_s=np.where(np.arange(100) == 4, 0.0, 1.0))))


class TestLimits:
    def test_threads_of_tvm_tiles(self) -> None:
        frame = pd.DataFrame({f"tile_{axis}_{part}": [1, 1] for axis in "fyx" for part in range(4)})
        frame["tile_f_2"], frame["tile_y_2"] = [32, 33], [32, 32]
        assert exceeded(frame, GPU)["over 1,024 threads a block"].tolist() == [False, True]

    def test_tiles_of_three_parts_have_no_thread_axis(self) -> None:
        # one log may hold kernels with 4-way and with 3-way tiles: parts that a row does not have are missing
        frame = pd.DataFrame({"tile_x_2": [64, 64], "tile_y_2": [32, 32], "tile_x_3": [1, None], "tile_y_3": [1, None]})
        assert exceeded(frame, GPU)["over 1,024 threads a block"].tolist() == [True, False]

    def test_shared_memory_of_a_convolution_tile(self) -> None:
        frame = pd.DataFrame(
            {"block_size_x": [32, 32], "block_size_y": [8, 8], "tile_size_x": 1, "tile_size_y": [12, 16], "filter_height": 15, "filter_width": 15}
        )
        # (8 * 12 + 14) * (32 + 14) * 4 = 20,240 bytes and (8 * 16 + 14) * 46 * 4 = 26,128: both fit
        assert not exceeded(frame, GPU)["over 48 KiB of shared memory"].any()
        # at tile_size_x = 3, 110 * (96 + 14) * 4 = 48,400 fits in 49,152 and 142 * 110 * 4 = 62,480 does not, except in AMD's 64 KiB, or without shared memory
        wide = frame.assign(tile_size_x=3)
        assert exceeded(wide, GPU)["over 48 KiB of shared memory"].tolist() == [False, True]
        assert not exceeded(wide, Device("amd", "gpu", "AMD invented"))["over 64 KiB of shared memory"].any()
        assert not exceeded(wide.assign(use_shmem=0), GPU)["over 48 KiB of shared memory"].any()

    def test_shared_memory_of_gemm_and_of_flextensor(self) -> None:
        gemm = pd.DataFrame({"SA": [1, 1], "SB": [1, 0], "KWG": 64, "MWG": 128, "NWG": 128})
        assert exceeded(gemm, GPU)["over 48 KiB of shared memory"].tolist() == [True, False]  # 65,536 and 32,768 bytes
        tiles = {f"tile_{axis}_{part}": [1, 1] for axis in "nfyx" for part in range(4)} | {f"tile_{axis}_{part}": [1, 1] for axis in "crs" for part in range(3)}
        # one channel of 110 x 110 floats is 48,400 bytes, plus one weight; at stride 2 it is 219 x 219
        conv = pd.DataFrame(tiles).assign(tile_y_1=110, tile_x_3=110, stride=[1, 2])
        assert exceeded(conv, GPU)["over 48 KiB of shared memory"].tolist() == [False, True]

    def test_unknown_templates_are_not_judged(self) -> None:
        assert exceeded(pd.DataFrame({"a": [4096]}), GPU) == {}


def published(name: str) -> Dataset:
    if not os.environ.get("WORKBENCH_MIRROR"):
        pytest.skip("WORKBENCH_MIRROR is not set: the published sets are out of reach")
    return load_dataset(name)


@pytest.mark.parametrize(
    ("name", "workloads"),
    [("titanxp-conv2d", 3), pytest.param("titanxp-conv2d", None, marks=pytest.mark.slow), ("kt-convolution-rtx-2080-ti", None), ("halide-blur-i5", None)],
)
def test_published_sets_pass_and_their_shuffled_copies_fail(name: str, workloads: int | None) -> None:
    """The whole set, or its first workloads."""
    data = published(name)
    if workloads:
        number = data.frame.groupby(list(data.parameters), sort=False).ngroup()
        data = dataclasses.replace(data, frame=data.frame[number < workloads].reset_index(drop=True))
    report = audit(data)
    assert report.passed, report.reasons
    # The shuffle is inside each workload, so that it cannot fail merely by mixing sizes.
    frame = data.frame.copy()
    rng = np.random.default_rng(0)
    ok = frame["status"] == "ok"
    varying = [p for p in data.parameters if len(frame[p].unique()) > 1]
    groups = frame[ok].groupby(varying, dropna=False)["time_s"] if varying else None
    shuffled = groups.transform(lambda t: rng.permutation(t.to_numpy())) if groups is not None else rng.permutation(frame.loc[ok, "time_s"].to_numpy())
    frame.loc[ok, "time_s"] = shuffled
    failed = audit(dataclasses.replace(data, frame=frame))
    assert not failed.passed
    assert any("too little of log time" in reason for reason in failed.reasons)
