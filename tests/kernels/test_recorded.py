"""Recorded kernels: their constraints leave exactly the configurations that were recorded exhaustively."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.kernels.recorded import YOLO
from workbench.space import Split

IMAGE = {"w": 4096, "h": 4096, "kw": 15, "kh": 15}
CUBE = {"m": 4096, "n": 4096, "k": 4096}


EXHAUSTIVE = pytest.mark.parametrize(
    ("name", "space_name", "params", "combinations", "members", "file"),
    [
        ("convolution", "convolution", IMAGE, 16_896, 6_768, "convolution__RTX_2080_Ti"),
        ("convolution", "convolution_milo", IMAGE, 10_240, 4_362, "convolution_milo__A100"),
        ("gemm", "clblast", CUBE, 82_944, 17_956, "gemm__RTX_2080_Ti"),
    ],
)


@EXHAUSTIVE
def test_counts(name: str, space_name: str, params: dict[str, int], combinations: int, members: int, file: str) -> None:
    found = kernel(name)
    space = found.space(found.workload(params), space_name)
    assert space.size == combinations
    assert len(space.members()) == members


@EXHAUSTIVE
def test_recorded_rows(name: str, space_name: str, params: dict[str, int], combinations: int, members: int, file: str, expected_tables: Path) -> None:
    found = kernel(name)
    workload = found.workload(params)
    space = found.space(workload, space_name)
    rows = pd.read_parquet(expected_tables / f"{file}.parquet")
    indices = space.encode({knob: rows[knob].to_numpy() for knob in space.names})
    np.testing.assert_array_equal(np.sort(indices), space.members())
    np.testing.assert_allclose(found.flop(workload.params) / 1e9, rows["gflop"])


def test_yolo_layers() -> None:
    assert list(YOLO) == [f"yolo{i}" for i in range(1, 16)]
    assert len(set(YOLO.values())) == 15
    found = kernel("flextensor_conv2d")
    for layer in YOLO.values():
        assert found.workload(layer.params) == layer
    # 64 filters, 224 x 224 outputs: C(9, 3) = 84 and C(8, 3) C(4, 3) = 224 splits in four; 3 channels and 7 x 7 in three each: 3; and 4 x 2 unrollings.
    assert found.space(YOLO["yolo1"]).radix == (84, 224, 224, 3, 3, 3, 4, 2)


def test_flextensor_rows(expected_tables: Path) -> None:
    found = kernel("flextensor_conv2d")
    rows = pd.read_parquet(expected_tables / "titanxp_conv2d_yolo.parquet")
    for name, group in rows.groupby("layer"):
        layer = YOLO[str(name).split("|")[0]]
        space = found.space(layer)
        values = {k.name: group[[f"{k.name}_{i}" for i in range(k.parts)] if isinstance(k, Split) else k.name].to_numpy() for k in space.knobs}
        indices = space.encode(values)
        np.testing.assert_array_equal(space.decode(indices)["tile_f"], values["tile_f"])
        np.testing.assert_allclose(found.flop(layer.params) / 1e9, group["gflop"])
        over = ~space.restrict(found.at_most_threads(1024)).satisfies(indices)
        assert not group["valid"].to_numpy()[over].any()
    assert len(rows) == 29_571


def test_sizes_must_be_whole() -> None:
    for name, params, named in (("convolution", {**IMAGE, "kw": 0}, "kw is 0"), ("gemm", {**CUBE, "k": 1.5}, "k is 1.5"), ("blur", {"n": True}, "n is True")):
        found = kernel(name)
        with pytest.raises(UsageError, match=named):
            found.space(found.workload(params))
