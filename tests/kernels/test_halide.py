"""Blur and FFT: the schedules of Table IV, counted and compared with the published rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.errors import UsageError
from workbench.kernels import blur, fft, kernel


def test_blur_on_a_cpu() -> None:
    found = kernel("blur")
    space = found.space(found.workload({"n": 1024}))
    assert space.size == 10**4
    # s1 is free; of s2 >= s3 >= s4 there are C(10 + 2, 3) = 220.
    assert len(space.members()) == 10 * 220
    values = space.decode(space.members())
    assert (values["s3"] <= values["s2"]).all()
    assert (values["s4"] <= values["s3"]).all()
    assert space.satisfies([space.index({"s1": 8, "s2": 256, "s3": 128, "s4": 8})]).all()  # the auto-scheduler's own, in the paper
    assert not space.satisfies([space.index({"s1": 8, "s2": 128, "s3": 256, "s4": 8})]).any()
    assert found.complexity is not None
    assert found.complexity({"n": np.array([1024, 2048])}).tolist() == [2**20, 2**22]


def test_blur_on_a_gpu_has_1176_instances() -> None:
    found = kernel("blur_gpu")
    assert len(blur.SIZES) * found.space(found.workload({"n": 1024})).size == 1176


def test_fft() -> None:
    found = kernel("fft")
    assert [found.space(found.workload({"n": n})).size for n in fft.SIZES] == [3 * 4**5, 4 * 5**5, 5 * 6**5, 6 * 7**5]
    assert found.complexity is not None
    assert found.flop is not None
    assert found.complexity({"n": 16}) == 64
    assert found.flop({"n": 16}) == 5 * 256 * 8
    for n in (12, 2, 64.0, "64", None):
        with pytest.raises(UsageError, match="n is"):
            found.space(found.workload({"n": n}))


def test_our_schedules_of_blur_on_a_gpu_fill_the_image() -> None:
    found = kernel("blur_gpu")
    whole = found.space(found.workload({"n": 1024}), "workbench")
    assert len(whole.members()) == 196
    assert whole.names == found.space(found.workload({"n": 1024})).names
    small = found.space(found.workload({"n": 48}), "workbench")
    seen = [small.config(int(index)) for index in small.members()]
    assert {config["y_split"] for config in seen} == {1, 2, 4, 8, 16}
    assert {(config["x_tile"], config["vector"]) for config in seen} == {(x, v) for x in (1, 2, 4, 8, 16) for v in (2, 4, 8, 16) if x * v in (2, 4, 8, 16)}
    with pytest.raises(UsageError, match="n is 33"):
        found.space(found.workload({"n": 33}), "workbench")


def test_published_blur_rows(expected_tables: Path) -> None:
    found = kernel("blur")
    space = found.space(found.workload({"n": 1024}))
    rows = pd.read_parquet(expected_tables / "halide_blur_cpu.parquet").dropna(subset=["v1_vec_split"])
    columns = {"s1": "v1_vec_split", "s2": "v2_split_x", "s3": "v3_split_y", "s4": "v4_inner_vec"}
    indices = space.encode({knob: rows[column].to_numpy() for knob, column in columns.items()})
    assert space.satisfies(indices).all()
    assert set(rows["image_size"]) == set(blur.SIZES)
    rows = pd.read_parquet(expected_tables / "halide_blur_gpu_quadro.parquet")
    gpu = kernel("blur_gpu")
    space = gpu.space(gpu.workload({"n": 1024}))
    columns = {"y_split": "split_y_v1", "x_tile": "gpu_tile_x_v2", "vector": "vector_width_v3"}
    for _, group in rows.groupby("image_size"):
        indices = space.encode({knob: group[column].to_numpy() for knob, column in columns.items()})
        assert sorted(indices) == list(range(space.size))


def test_published_fft_rows(expected_tables: Path) -> None:
    found = kernel("fft")
    for name in ("halide_fft_cpu", "halide_fft_gpu"):
        for n, group in pd.read_parquet(expected_tables / f"{name}.parquet").groupby("size"):
            space = found.space(found.workload({"n": int(n)}))
            assert len(space.encode({f"s{i}": group[f"v{i}"].to_numpy() for i in range(1, 7)})) == len(group)
