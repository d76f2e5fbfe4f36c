"""Convolutions: AutoTVM's spaces against hand-made values, Table 1 of MetaTune, and the logs that list index and knob values side by side."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.schema import Workload
from workbench.space import Choice, Space, Split


def shape(ci: int, size: int, co: int, k: int, stride: Any = (1, 1), padding: Any = (0, 0), **more: Any) -> dict[str, Any]:
    return {"n": 1, "ci": ci, "h": size, "w": size, "co": co, "kh": k, "kw": k, "stride": stride, "padding": padding, **more}


def of_row(row: Any) -> dict[str, Any]:
    size = {name: int(row[column]) for name, column in {"n": "N", "ci": "C", "h": "H", "w": "W", "co": "K", "kh": "R", "kw": "S"}.items()}
    pairs = {"stride": ("stride_h", "stride_w"), "padding": ("pad_top", "pad_left", "pad_bottom", "pad_right"), "dilation": ("dilation_h", "dilation_w")}
    return {**size, **{name: tuple(int(row[c]) for c in columns) for name, columns in pairs.items()}}


def expected_values(entity: str) -> dict[str, Any]:
    return {name: tuple(value) if kind == "sp" else value for name, kind, value in json.loads(entity)}


def test_counts_of_table_1() -> None:
    """MetaTune's Table 1: tile_x 140, tile_y 140, tile_f 120, tile_rc 8, tile_rx 2, tile_ry 2, unroll step 3, unroll explicit 2."""
    conv = kernel("conv2d")
    space = conv.space(conv.workload(shape(128, 112, 128, 3, padding=(1, 1))))
    counts = dict(zip(space.names, space.radix, strict=True))
    table = {"tile_x": 140, "tile_y": 140, "tile_f": 120, "tile_rc": 8, "tile_rx": 2, "tile_ry": 2, "auto_unroll_max_step": 3, "unroll_explicit": 2}
    assert counts == table
    assert space.size == 140 * 140 * 120 * 8 * 2 * 2 * 3 * 2 == 451_584_000


def test_decode_by_hand() -> None:
    """co = 2, 4 x 4 outputs, ci = 2, 1 x 1 filter: 4, 10, 10, 2, 1, 1, 3, 2 options."""
    conv = kernel("conv2d")
    space = conv.space(conv.workload(shape(2, 4, 2, 1)))
    assert space.radix == (4, 10, 10, 2, 1, 1, 3, 2)
    # Options of 4 in four parts, in order: (4,1,1,1) (2,2,1,1) (1,4,1,1) (2,1,2,1) (1,2,2,1) (1,1,4,1) (2,1,1,2) (1,2,1,2) (1,1,2,2) (1,1,1,4).
    index = 2 + 4 * (4 + 10 * (8 + 10 * (1 + 2 * (2 + 3 * 1))))
    assert space.config(index) == {
        "tile_f": (1, 1, 2, 1),
        "tile_y": (1, 2, 2, 1),
        "tile_x": (1, 1, 2, 2),
        "tile_rc": (1, 2),
        "tile_ry": (1, 1),
        "tile_rx": (1, 1),
        "auto_unroll_max_step": 1500,
        "unroll_explicit": 1,
    }


def test_depthwise_and_winograd_by_hand() -> None:
    depthwise = kernel("depthwise_conv2d")
    space = depthwise.space(depthwise.workload(shape(2, 6, 4, 3)))
    assert dict(zip(space.names, space.radix, strict=True)) == {"tile_f": 10, "tile_y": 10, "tile_x": 10, "auto_unroll_max_step": 3, "unroll_explicit": 2}
    assert space.knobs[3].options.tolist() == [0, 256, 1500]
    winograd = kernel("conv2d_winograd")
    # A height that divides by 8 takes tiles of 4 x 4 outputs: (4 + 2)^2 products, 2 x 2 tiles of the 8 x 8 image; 14 does not: 4^2 products, 7 x 7 tiles.
    for size, tile_b, tiles in ((8, (36, 1, 1, 1), 4), (14, (16, 1, 1, 1), 49)):
        space = winograd.space(winograd.workload(shape(4, size, 8, 3, padding=1)))
        tiles_of_0 = {"tile_b": tile_b, "tile_y": (8, 1, 1, 1), "tile_x": (tiles, 1, 1, 1), "tile_rc": (4, 1)}
        assert space.config(0) == {**tiles_of_0, "auto_unroll_max_step": 0, "unroll_explicit": 0}
        assert space.knobs[4].options.tolist() == [0, 128, 1500]


def test_spaces_of_the_gpu_template() -> None:
    """One table of slots: the knobs of every kind, in order, with the extents that they split."""
    flat = {"n": 2, "ci": 6, "w": 20, "co": 4, "kw": 3, "stride": 2, "padding": 1}
    deep = {**flat, "h": 10, "kh": 5}
    square = {**deep, "kh": 3, "stride": 1}
    tiles = {
        ("conv2d", 512): (deep, {"f": 4, "y": 4, "x": 10}, {"rc": 6, "ry": 5, "rx": 3}),
        ("depthwise_conv2d", 256): ({**deep, "co": 12}, {"f": 12, "y": 4, "x": 10}, {"ry": 5, "rx": 3}),
        ("conv1d", 512): (flat, {"f": 4, "x": 10}, {"rc": 6, "rx": 3}),
        ("conv1d_transpose", 512): (flat, {"f": 4, "x": 39}, {"rc": 6, "rx": 3}),
        ("conv2d_transpose", 512): (deep, {"f": 4, "y": 21, "x": 39}, {"rc": 6, "ry": 5, "rx": 3}),
        # 36 products of 4 x 6 by 6 x (2 inputs of 3 x 5 tiles).
        ("conv2d_winograd", 128): (square, {"y": 4, "x": 30}, {"rc": 6}),
    }
    for (name, step), (params, spatial, reduction) in tiles.items():
        found = kernel(name)
        workload = found.workload(params)
        batch = (Choice("tile_b", ((36, 1, 1, 1),)),) if name == "conv2d_winograd" else ()
        splits = (*(Split(f"tile_{axis}", size, 4) for axis, size in spatial.items()), *(Split(f"tile_{axis}", size, 2) for axis, size in reduction.items()))
        unroll = (Choice("auto_unroll_max_step", (0, step, 1500)), Choice("unroll_explicit", (0, 1)))
        assert found.space(workload, "workbench-gpu") == Space("workbench-gpu", (*batch, *splits, *unroll))
        threads = [knob for knob in found.space(workload, "workbench-gpu").names if knob.startswith("tile_") and not knob.startswith("tile_r")]
        assert list(found.threads["workbench-gpu"]) == threads


def test_spaces_of_the_cpu_template() -> None:
    conv = kernel("conv2d")
    space = conv.space(conv.workload(shape(6, 10, 4, 3, groups=2)), "workbench-cpu")
    spatial = tuple(Split(f"tile_{axis}", size, 3) for axis, size in {"f": 4, "y": 8, "x": 8}.items())
    reduction = tuple(Split(f"tile_{axis}", size, 2) for axis, size in {"rc": 3, "ry": 3, "rx": 3}.items())
    assert space.knobs == (*spatial, *reduction, Choice("order", (0, 1)), Choice("pad_at", (0, 1)), Choice("unroll", (0, 16, 64)))
    assert "workbench-cpu" not in conv.threads
    winograd = kernel("conv2d_winograd")
    space = winograd.space(winograd.workload(shape(6, 10, 4, 3, n=2)), "workbench-cpu")
    # 36 products of 4 x 6 by 6 x (2 inputs of 2 x 2 tiles), which read nothing that could be padded.
    products = (Choice("tile_b", ((36, 1, 1),)), Split("tile_y", 4, 3), Split("tile_x", 8, 3), Split("tile_rc", 6, 2))
    assert space.knobs == (*products, Choice("order", (0, 1)), Choice("unroll", (0, 16, 64)))


def test_an_index_of_the_gpu_template_by_hand() -> None:
    """A kernel of 64 channels on 56 x 56 outputs: tile_f has 84 options, tile_y and tile_x 80 each, tile_rc 7, the filter's two each."""
    conv = kernel("conv2d")
    space = conv.space(conv.workload(shape(64, 56, 64, 3, padding=1)), "workbench-gpu")
    assert space.radix == (84, 80, 80, 7, 2, 2, 3, 2)
    # The second option of tile_f moves a factor of 2 next to the leading tile, the last one of tile_rx makes all of it inner.
    assert space.config(1 + 84 * 80 * 80 * 7 * 2) == {
        "tile_f": (32, 2, 1, 1),
        "tile_y": (56, 1, 1, 1),
        "tile_x": (56, 1, 1, 1),
        "tile_rc": (64, 1),
        "tile_ry": (3, 1),
        "tile_rx": (1, 3),
        "auto_unroll_max_step": 0,
        "unroll_explicit": 0,
    }


def test_work_by_hand() -> None:
    params = kernel("conv2d").workload(shape(3, 224, 64, 7, stride=(2, 2), padding=(3, 3))).params
    assert kernel("conv2d").complexity(params) == 64 * 112 * 112 * 3 * 49
    assert kernel("conv2d").flop(params) == kernel("conv2d_winograd").flop(params) == 2 * 118_013_952
    params = kernel("depthwise_conv2d").workload(shape(32, 10, 32, 3, stride=1, padding=(1, 1, 1, 1))).params
    assert kernel("depthwise_conv2d").flop(params) == 2 * 32 * 100 * 9
    # Stride 2 on 8 rows with 1 above and 2 below, dilation 2: 8 + 3 - 5 = 6 rows to start from, 4 of them taken.
    params = kernel("conv2d").workload({**shape(1, 8, 1, 3, stride=(2, 1), padding=(1, 0, 2, 0)), "dilation": (2, 1)}).params
    assert kernel("conv2d").complexity(params) == 4 * 6 * 9


def test_work_of_columns_equals_work_of_workloads() -> None:
    conv = kernel("conv2d")
    layers = [shape(3, 224, 64, 7, 2, 3), shape(64, 56, 128, 3, 1, 1), shape(512, 7, 512, 1, 1, 0)]
    columns = {name: np.array([layer[name] for layer in layers]) for name in layers[0]}
    assert conv.flop(columns).tolist() == [conv.flop(layer) for layer in layers]


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("conv2d", shape(0, 8, 4, 3), "ci is 0"),
        ("conv2d", shape(4, 8, 4, 3, stride=(1, 0)), r"stride is \(1, 0\)"),
        ("conv2d", shape(4, 8, 4, 3, stride=(1, 1, 1)), "stride is"),
        ("conv2d", shape(4, 8, 4, 3, padding=(-1, 0)), "padding is"),
        ("conv2d", shape(4, 8, 4, 3.0), "kh is 3.0"),
        ("conv2d", shape(4, 2, 4, 3), "the output would be 0 x 0"),
        ("conv2d", shape(4, 8, 4, 3, groups=4), "groups is 4"),
        ("depthwise_conv2d", shape(4, 8, 6, 3), "co is 6, ci 4"),
        ("depthwise_conv2d", shape(4, 8, 8, 3, groups=2), "groups 2"),
        ("conv2d_winograd", shape(4, 8, 4, 3, stride=2), "stride 1"),
    ],
)
def test_what_cannot_be_convolved(name: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kernel(name).space(kernel(name).workload(params))


def test_winograd_of_the_workbench_has_filters_of_3_x_3() -> None:
    winograd = kernel("conv2d_winograd")
    with pytest.raises(UsageError, match="the filter is 5 x 5; the workbench's winograd has 3 x 3"):
        winograd.space(winograd.workload(shape(4, 8, 4, 5)), "workbench-gpu")
    with pytest.raises(UsageError, match="stride 1"):
        winograd.space(winograd.workload(shape(4, 8, 4, 3, stride=2)), "workbench-gpu")


def test_a_workload_without_a_parameter() -> None:
    with pytest.raises(UsageError, match="'ci' is missing"):
        kernel("conv2d").space(Workload("conv2d", {"n": 1}))


def test_tophub(expected_tables: Path) -> None:
    """TopHub lists index and knob values: all but one record agree, and that one was edited by hand upstream."""
    records = pd.read_parquet(expected_tables / "tophub_cuda_decoded.parquet")
    total, agree, misses = Counter[str](), Counter[str](), []
    for _, row in records.iterrows():
        found = kernel(row["op"])
        space = found.space(found.workload(of_row(row)))
        total[row["op"]] += 1
        listed = expected_values(row["entity_json"])
        if space.config(row["config_index"]) == listed:
            agree[row["op"]] += 1
            assert space.index(listed) == row["config_index"]
        else:
            misses.append((row["config_index"], row["decode_check"]))
    assert total == {"conv2d": 558, "depthwise_conv2d": 97, "conv2d_winograd": 68}
    assert agree == {"conv2d": 557, "depthwise_conv2d": 97, "conv2d_winograd": 68}
    assert [check for _, check in misses] == ["mismatch:tile_f"]


def groups_of_samples(path: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    names = {"topi_nn_conv2d": "conv2d", "topi_nn_depthwise_conv2d_nchw": "depthwise_conv2d"}
    samples = pd.read_parquet(path)
    keys = ["op", "N", "C", "H", "W", "K", "R", "S", "stride_h", "stride_w", "pad_top", "pad_left", "pad_bottom", "pad_right", "dilation_h", "dilation_w"]
    for key, group in samples.groupby(keys):
        yield names[key[0]], group


def test_every_decode_sample(expected_tables: Path) -> None:
    rows = 0
    for name, group in groups_of_samples(expected_tables / "autotvm_config_decode_samples.parquet"):
        found = kernel(name)
        workload = found.workload(of_row(group.iloc[0]))
        space = found.space(workload)
        assert (group["space_size"] == space.size).all()
        decoded = space.decode(group["config_index"].to_numpy())
        for knob, values in decoded.items():
            columns = [f"{knob}_{part}" for part in range(values.shape[1])] if values.ndim == 2 else knob
            np.testing.assert_array_equal(values, group[columns].to_numpy(dtype=np.int64), err_msg=knob)
        np.testing.assert_array_equal(space.encode(decoded), group["config_index"])
        threads = np.prod([decoded[tile][:, part] for tile, part in found.threads["autotvm"].items()], axis=0)
        np.testing.assert_array_equal(threads, group["threads_per_block"])
        np.testing.assert_array_equal(space.restrict(found.at_most_threads(1024)).satisfies(group["config_index"]), group["threads_per_block"] <= 1024)
        np.testing.assert_allclose(found.flop(workload.params) / 1e9, group["gflop"])
        rows += len(group)
    assert rows == 4800
