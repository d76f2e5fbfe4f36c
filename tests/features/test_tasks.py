"""Tuning tasks: invented frames in the formats of the data sets that have spaces, and the published ones where they are in reach."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.data.columns import knob_columns, workload_columns
from workbench.data.datasets import Dataset, load_dataset
from workbench.errors import DataError, SpaceError, UsageError
from workbench.features.hardware import HardwareTerms
from workbench.features.knobs import KnobVectors
from workbench.features.supergraph import SuperGraphs
from workbench.features.tasks import MeasuredTask, TuningTask, aligned, tasks_of
from workbench.kernels import kernel
from workbench.kernels.base import Kernel
from workbench.kernels.recorded import YOLO
from workbench.schema import Device, Workload

CPU = Device("invented-cpu", "cpu", peak_gflops=100.0, bandwidth_gb_s=20.0, max_threads=4)
GPU = Device("invented-gpu", "gpu", peak_gflops=1e3, bandwidth_gb_s=100.0)
OUTCOMES = ("ok", "ok", "run_error", "ok")


def layer(co: int) -> Workload:
    return kernel("conv2d").workload({"n": 1, "ci": 8, "h": 12, "w": 12, "co": co, "kh": 3, "kw": 3, "stride": (1, 1), "padding": (1, 1)})


def rows_of(workload: Workload, space_name: str, indices: list[int], seconds: list[float], status: tuple[str, ...], **more: Any) -> list[dict[str, Any]]:
    space = kernel(workload.kernel).space(workload, space_name)
    plain = workload.params if workload.kernel == "convolution" else workload_columns(workload)
    return [
        {**plain, **knob_columns(space.config(index)), "index": index, "time_s": time if outcome == "ok" else np.nan, "status": outcome, **more}
        for index, time, outcome in zip(indices, seconds, status, strict=True)
    ]


def dataset(name: str, rows: list[dict[str, Any]], found: Kernel, device: Device, parameters: tuple[str, ...], knobs: tuple[str, ...]) -> Dataset:
    return Dataset(name, pd.DataFrame(rows), found, device, parameters, knobs)


def test_our_own_measurements() -> None:
    first, second = layer(16), layer(32)
    more = {"space": "workbench-cpu", "compile_s": 0.25}
    rows = rows_of(second, "workbench-cpu", [7, 9, 11, 7], [0.1, 0.2, 0.3, 0.4], OUTCOMES, **more)
    rows += rows_of(first, "workbench-cpu", [7, 5, 6, 5], [1e-3, 2e-3, 1.0, 1e-3], OUTCOMES, **more)
    knobs = tuple(knob_columns(kernel("conv2d").space(first, "workbench-cpu").config(0)))
    tasks = tasks_of(dataset("invented", rows, kernel("conv2d"), CPU, tuple(workload_columns(first)), knobs))
    assert [measured.task.workload for measured in tasks] == [second, first]
    assert [measured.task.name for measured in tasks] == [second.key, first.key]
    measured = tasks[0]
    assert (measured.task.device, measured.task.space_name, measured.task.space.name) == (CPU, "workbench-cpu", "workbench-cpu")
    # The median of what was measured twice; a failure has no time and no speed.
    assert measured.indices.tolist() == [7, 9, 11]
    assert measured.valid.tolist() == [True, True, False]
    np.testing.assert_allclose(measured.time_s, [0.25, 0.2, np.nan])
    gflop = kernel("conv2d").flop(second.params) / 1e9  # type: ignore[misc]
    np.testing.assert_allclose(measured.throughput, [gflop / 0.25, gflop / 0.2, 0])
    np.testing.assert_allclose(measured.label, [0.8, 1, 0])
    assert measured.best == pytest.approx(gflop / 0.2)
    np.testing.assert_array_equal(measured.build_s, [0.25] * 3)
    np.testing.assert_array_equal(measured.vectors, measured.task.vectors([7, 9, 11]))
    # Some rows alone keep their own best.
    some = measured.rows([2, 0])
    assert (len(some), some.indices.tolist(), some.valid.tolist()) == (2, [11, 7], [False, True])
    assert some.label.tolist() == [0, 1]


def test_one_failure_among_attempts_is_a_failure() -> None:
    rows = rows_of(layer(16), "workbench-cpu", [3, 3, 4], [0.1, 0.2, 0.3], ("ok", "wrong_result", "ok"), space="workbench-cpu")
    (measured,) = tasks_of(dataset("invented", rows, kernel("conv2d"), CPU, tuple(workload_columns(layer(16))), ()))
    assert measured.valid.tolist() == [False, True]
    assert measured.throughput[0] == 0
    assert np.isnan(measured.time_s[0])
    assert np.isnan(measured.build_s).all()  # not recorded


def flextensor(lines: list[int], layers: list[str]) -> Dataset:
    rows = []
    for line, name in zip(lines, layers, strict=True):
        workload = YOLO[name.partition("|")[0]]
        space = kernel("flextensor_conv2d").space(workload)
        config = knob_columns(space.config(int(space.sample(1, line)[0])))
        p = workload.params
        plain = {key: p[key] for key in ("n", "ci", "h", "w", "co", "kh", "kw")} | {"stride": p["stride"][0], "padding": p["padding"][0]}  # type: ignore[index]
        rows.append({"layer": name, "line": line, **plain, **config, "time_s": 1e-3 * line, "status": "ok"})
    parameters = ("n", "ci", "h", "w", "co", "kh", "kw", "stride", "padding")
    tiles = tuple(name for name in rows[0] if name.startswith("tile_"))
    return dataset("invented", rows, kernel("flextensor_conv2d"), GPU, parameters, (*tiles, "unroll_max_step", "unroll_explicit"))


def test_flextensors_lines() -> None:
    # Early lines, and rows of which it is not known which layer they are of, are left out.
    tasks = tasks_of(flextensor([10, 700, 701, 702, 703], ["yolo3", "yolo3", "yolo7", "yolo14|yolo15", "yolo3"]))
    assert [measured.task.name for measured in tasks] == ["yolo3", "yolo7"]
    measured = tasks[0]
    assert measured.task.workload == YOLO["yolo3"]
    assert measured.task.space.name == "flextensor"
    np.testing.assert_allclose(measured.time_s, [0.7, 0.703])
    # Indices are of the rows' own tiles.
    space = measured.task.space
    assert measured.indices.tolist() == [int(space.sample(1, line)[0]) for line in (700, 703)]


@pytest.mark.parametrize("space", ["convolution", "convolution_milo"])
def test_kernel_tuners_knobs(space: str) -> None:
    image = kernel("convolution")
    workload = image.workload({"w": 64, "h": 48, "kw": 5, "kh": 3})
    members = image.space(workload, space).members()[[5, 2, 9]].tolist()
    rows = rows_of(workload, space, members, [1.0, 2.0, 4.0], ("ok", "ok", "ok"))
    for row in rows:
        del row["index"]
    knobs = image.space(workload, space).names
    (measured,) = tasks_of(dataset("invented", rows, image, GPU, ("w", "h", "kw", "kh"), knobs))
    assert measured.indices.tolist() == members
    assert measured.task.space.name == space
    assert measured.label.tolist() == [1, 0.5, 0.25]
    # Terms are of what lies in shared memory, which is a choice in one of the spaces.
    assert any(name.startswith("hardware ") for name in measured.task.columns) == (space == "convolution")
    assert {"workload w", "workload h", "workload kw", "workload kh", "workload flop"} < set(measured.task.columns)
    with pytest.raises(DataError, match="data set invented: no space of kernel 'convolution' has its knobs block_size_x"):
        tasks_of(dataset("invented", rows, image, GPU, ("w", "h", "kw", "kh"), ("block_size_x",)))


def test_nothing_valid_has_no_best() -> None:
    rows = rows_of(layer(16), "workbench-cpu", [3, 4], [0.1, 0.2], ("timeout", "run_error"), space="workbench-cpu")
    with pytest.raises(DataError, match=r"data set invented: no configuration of .* is valid, so there is no best to compare with"):
        tasks_of(dataset("invented", rows, kernel("conv2d"), CPU, tuple(workload_columns(layer(16))), ()))


@pytest.mark.parametrize(("space", "device"), [("workbench-gpu", GPU), ("workbench-cpu", CPU)])
def test_vectors_by_name(space: str, device: Device) -> None:
    task = TuningTask("layer", kernel("conv2d"), layer(16), device, space)
    indices = task.space.sample(40, 0)
    found = dict(zip(task.columns, task.vectors(indices).T, strict=True))
    assert len(found) == len(task.columns)
    knobs, terms = KnobVectors(task.space), HardwareTerms(task.kernel, task.workload, device, space)
    for prefix, features in (("knob", knobs), ("hardware", terms)):
        for name, column in zip(features.columns, features.of(indices).T, strict=True):
            np.testing.assert_array_equal(found[f"{prefix} {name}"], column)
    np.testing.assert_allclose(found["workload co"], np.log2(17), rtol=1e-6)
    np.testing.assert_allclose(found["workload stride_h"], 1)
    np.testing.assert_allclose(found["workload flop"], np.log2(kernel("conv2d").flop(layer(16).params)), rtol=1e-6)  # type: ignore[misc]
    assert task.vectors([]).shape == (0, len(task.columns))
    with pytest.raises(SpaceError, match="index -1 is out of range"):
        task.vectors([-1])
    assert task.has_graphs
    for one, other in zip(task.graphs(indices), SuperGraphs(task.kernel, task.workload, space, logarithms=True).of(indices), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_task_without_nests_has_its_knobs_and_sizes() -> None:
    gemm = kernel("gemm")
    task = TuningTask("gemm", gemm, gemm.workload({"m": 64, "n": 32, "k": 16}), GPU)
    assert task.columns == (*(f"knob {name}" for name in KnobVectors(task.space).columns), "workload m", "workload n", "workload k", "workload flop")
    assert not task.has_graphs
    with pytest.raises(UsageError, match="configurations of the space 'clblast' of kernel 'gemm' have no super-graphs"):
        task.graphs([0])


def test_columns_are_aligned_by_name() -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = aligned(vectors, ("a", "b", "c"), ("c", "d", "a"))
    np.testing.assert_array_equal(found, [[2, 0, 0], [5, 0, 3]])
    assert found.dtype == np.float32
    assert aligned(vectors[:0], ("a", "b", "c"), ("d",)).shape == (0, 1)


@pytest.fixture(scope="module")
def published() -> dict[str, MeasuredTask]:
    if not os.environ.get("WORKBENCH_MIRROR"):
        pytest.skip("WORKBENCH_MIRROR is not set: the published measurements are out of reach")
    return {measured.task.name: measured for measured in tasks_of(load_dataset("titanxp-conv2d"))}


def test_flextensors_layers(published: dict[str, MeasuredTask]) -> None:
    assert sorted(published) == sorted(f"yolo{i}" for i in range(1, 14))
    frame = load_dataset("titanxp-conv2d").frame
    frame = frame[(frame["line"] >= 600) & (frame["layer"] == "yolo3")]
    measured = published["yolo3"]
    tiles = [name for name in frame if name.startswith("tile_")]
    groups = frame.groupby([*tiles, "unroll_max_step", "unroll_explicit"])
    assert len(measured) == groups.ngroups
    assert measured.valid.sum() == (groups["status"].agg(lambda status: (status == "ok").all())).sum()
    assert np.nanmin(measured.time_s) == pytest.approx(groups["time_s"].median()[groups["status"].agg(lambda status: (status == "ok").all())].min())
    assert 0.9 < measured.valid.mean() < 0.97
    assert measured.label.max() == 1
    # Tiles of a row are those of its index.
    knobs = measured.task.space.decode(measured.indices)
    assert (knobs["tile_c"].prod(axis=1) == 192).all()


def test_flextensors_blocks_hold_at_most_48_kib(published: dict[str, MeasuredTask]) -> None:
    # What the nest says is fetched at once explains which configurations fail: its shared tiles are the ones that ran.
    over = within = ran_over = ran_within = 0
    for measured in published.values():
        column = measured.vectors[:, measured.task.columns.index("hardware shared_bytes")]
        beyond = column > np.log2(48 * 1024) + 1e-4
        over, ran_over = over + beyond.sum(), ran_over + measured.valid[beyond].sum()
        kept = measured.vectors[:, measured.task.columns.index("hardware within_limits")] == 1
        within, ran_within = within + kept.sum(), ran_within + measured.valid[kept].sum()
    assert over > 1000
    assert ran_over <= 1
    assert ran_within / within > 0.94
    rows, ran = sum(map(len, published.values())), sum(measured.valid.sum() for measured in published.values())
    assert (ran - ran_within) / (rows - within) < 0.1


@pytest.mark.parametrize(("name", "rows"), [("kt-convolution-rtx-2080-ti", 6768), ("kt-convolution-milo-a4000", 4362)])
def test_kernel_tuners_tables_are_whole(name: str, rows: int) -> None:
    if not os.environ.get("WORKBENCH_MIRROR"):
        pytest.skip("WORKBENCH_MIRROR is not set: the published measurements are out of reach")
    (measured,) = tasks_of(load_dataset(name))
    assert sorted(measured.indices.tolist()) == measured.task.space.members().tolist()
    assert len(measured) == rows
