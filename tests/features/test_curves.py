"""Curve features: by hand, against their definition loop by loop, and for every kind on both targets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from workbench.errors import UsageError
from workbench.features.curves import BUFFERS, CURVES, SAMPLES, CurveVectors
from workbench.features.loops import LoopVectors
from workbench.kernels import kernel
from workbench.schema import Workload

CASES = [
    *((name, space) for name in ("conv2d", "depthwise_conv2d", "conv1d_transpose", "conv2d_winograd") for space in ("workbench-cpu", "workbench-gpu")),
    ("flextensor_conv2d", "flextensor"),
]


def of(name: str, **params: Any) -> Workload:
    shape = {"n": 2, "ci": 8, "h": 10, "w": 12, "co": 8, "kh": 3, "kw": 3, "stride": 1, "padding": 1, **params}
    return kernel(name).workload({key: value for key, value in shape.items() if not (name.startswith("conv1d") and key in ("h", "kh"))})


def test_by_hand() -> None:
    """Ten outputs in two blocks of five threads; sums over four channels, two at once, and a filter of three."""
    workload = kernel("conv1d").workload({"n": 1, "ci": 4, "w": 12, "co": 1, "kw": 3, "stride": 1, "padding": 0})
    space = kernel("conv1d").space(workload, "workbench-gpu")
    tiles = {"tile_f": (1, 1, 1, 1), "tile_x": (2, 1, 5, 1), "tile_rc": (2, 2), "tile_rx": (1, 3)}
    vectors = CurveVectors(kernel("conv1d"), workload, "workbench-gpu")
    found = vectors.of([space.index({**tiles, "auto_unroll_max_step": 0, "unroll_explicit": 0})])
    at = {name: float(found[0, i]) for i, name in enumerate(vectors.columns)}
    log = math.log2
    # A sum is one place of its thread: what repeats it is 3 elements, with 2 channels 6, in 2 steps 12, of 5 threads 60, in 2 blocks 120.
    assert [at[f"sums.count_at_reuse.{i}"] for i in (0, 3, 7, 19)] == [0, 0, 0, 0]
    assert [at[f"sums.count_at_reuse.{i}.after"] for i in (0, 1, 3, 5, 6, 7)] == pytest.approx(
        [0, 1, 3 - log(6), 5 - log(12), 6 - log(60), 7 - log(120)], abs=1e-5
    )
    assert [at[f"sums.reuse_at_count.{i}"] for i in (0, 19)] == pytest.approx([log(120), log(120)], abs=1e-5)
    # Data that has been fetched: 3 places, with 2 channels 6, twice by 2 steps, 30 by 5 threads, and again in 2 blocks.
    assert [at[f"data.reuse_at_count.{i}"] for i in range(6)] == pytest.approx([0, 0, 0, 1, 1, 2], abs=1e-5)
    assert [at[f"data.reuse_at_count.{i}.after"] for i in (1, 2, 3, 4, 5)] == pytest.approx([1, 2 - log(3), 3 - log(6), 4 - log(6), 5 - log(30)], abs=1e-5)
    assert [at[f"data.count_at_reuse.{i}"] for i in (0, 1, 2)] == pytest.approx([log(6), log(30), log(30)], abs=1e-5)
    # Iterations down to the loops: 2 blocks, 10 threads, 20 steps, 40 with the channels at once, 120 in all.
    assert [at[f"data.count_at_topdown.{i}.after"] for i in (1, 3, 4, 5, 6, 7)] == pytest.approx(
        [0, 2, 4 - log(10), 5 - log(20), 6 - log(40), 7 - log(120)], abs=1e-5
    )


def by_definition(vectors: LoopVectors, index: int) -> list[float]:
    """One configuration's features from its loops' numbers, in plain Python."""
    (nest,) = (nest for places, nest in vectors.kernel.loop_nest(vectors.workload, [index], vectors.space).parts if len(places))
    (update,) = (statement for statement in nest.statements if statement.name == "update")
    buffers = {name: access.buffer for access in update.accesses for name in BUFFERS if access.buffer.startswith(name)}
    buffers |= {"data": buffers.get("data", "padded")}
    table = vectors.of([index])[0]
    found = []
    for buffer in BUFFERS:
        columns = {"topdown": "topdown", **{of: f"update.{buffers[buffer]}.{of}" for of in ("count", "reuse")}}
        points = {}
        for of, column in columns.items():
            numbers = [table[vectors.nodes.index(nest.names[loop]), vectors.columns.index(column)] for loop in nest.paths[update.loop]]
            points[of] = sorted([0.0, *(math.log2(number) for number in numbers)])
        for x, y in CURVES:
            for i in range(SAMPLES):
                last = max(j for j, place in enumerate(points[x]) if place <= i + 1e-6)
                found += [points[y][last], i - points[x][last]]
    return found


@pytest.mark.parametrize(("name", "space"), CASES)
def test_curves_are_what_the_definition_says(name: str, space: str) -> None:
    found, workload = kernel(name), of(name)
    indices = found.space(workload, space).sample(12, 0)
    curves, loops = CurveVectors(found, workload, space), LoopVectors(found, workload, space)
    table = curves.of(indices)
    assert table.shape == (12, 480) == (12, len(curves.columns))
    assert table.dtype == np.float32
    np.testing.assert_allclose(table, [by_definition(loops, int(index)) for index in indices], atol=2e-5)
    # What is sorted ascends, and no point is beyond its sample.
    samples = table.reshape(12, len(BUFFERS), len(CURVES), SAMPLES, 2)
    assert (np.diff(samples[..., 0], axis=-1) >= 0).all()
    assert (samples[..., 1] >= -1e-5).all()


def test_columns_are_the_same_for_all() -> None:
    names = {CurveVectors(kernel(name), of(name), space).columns for name, space in CASES}
    assert len(names) == 1
    assert len(set(next(iter(names)))) == 480
    curves = CurveVectors(kernel("conv2d"), of("conv2d"), "workbench-gpu")
    assert curves.of([]).shape == (0, 480)


def test_a_stream_gives_all() -> None:
    curves = CurveVectors(kernel("conv1d"), of("conv1d"), "workbench-cpu")
    indices = curves.kernel.space(curves.workload, curves.space).sample(500, 1)
    whole, seen = curves.of(indices), []
    for places, piece in curves.stream(indices, rows=60):
        assert 0 < len(places) == len(piece) <= 60
        np.testing.assert_array_equal(piece, whole[places])
        seen += places.tolist()
    assert sorted(seen) == list(range(500))


def test_what_has_no_curves() -> None:
    with pytest.raises(UsageError, match="at least one row, not -1"):
        next(CurveVectors(kernel("conv2d"), of("conv2d"), "workbench-gpu").stream([0], rows=-1))
    with pytest.raises(UsageError, match="the space 'autotvm' of kernel 'conv2d' have no loop nests"):
        CurveVectors(kernel("conv2d"), of("conv2d"), "autotvm")
