"""What the GPU template's configurations ask for: worked out by hand, against TVM's own check, and as a condition on a space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import tir_child

from workbench.errors import SpaceError
from workbench.kernels import kernel, limits, networks
from workbench.kernels.limits import GpuLimits
from workbench.schema import Workload

InChild = Callable[..., Any]


def layer(name: str, **params: Any) -> Workload:
    return kernel(name).workload({"n": 1, "ci": 64, "h": 56, "w": 56, "co": 96, "kh": 3, "kw": 3, "stride": 1, "padding": 1, **params})


# Beside the networks and MetaTune's kernels: strides that differ, dilation, groups, several outputs a channel, inputs of another number.
MORE = (
    layer("conv2d", n=4, stride=(1, 3), dilation=(2, 1)),
    layer("conv2d", co=128, groups=8),
    layer("depthwise_conv2d", co=256, stride=2),
    kernel("conv1d").workload({"n": 2, "ci": 48, "w": 500, "co": 64, "kw": 9, "stride": 4, "padding": 0, "groups": 4, "dilation": 3}),
    kernel("conv2d_transpose").workload({"n": 2, "ci": 32, "h": 20, "w": 30, "co": 48, "kh": 4, "kw": 5, "stride": (2, 3), "padding": 1}),
)


def asked(workload: Workload, **tiles: tuple[int, ...]) -> dict[str, int]:
    space = kernel(workload.kernel).space(workload, "workbench-gpu")
    return {name: int(column[0]) for name, column in asdict(limits.demand(workload, [space.index({**space.config(0), **tiles})])).items()}


def test_by_hand() -> None:
    # 12 channels and 4 x 7 outputs a block: with 8 input channels, 3 x 1 of the filter at a time it reads 8 x 6 x 7 of the input and 12 x 8 x 3 weights.
    tiles = {"tile_f": (8, 2, 2, 3), "tile_y": (14, 1, 4, 1), "tile_x": (8, 1, 7, 1), "tile_rc": (8, 8), "tile_ry": (1, 3), "tile_rx": (3, 1)}
    found = asked(layer("conv2d"), **tiles)
    assert found == {"threads": 56, "threads_z": 2, "shared_bytes": 4 * (8 * 6 * 7 + 12 * 8 * 3), "local_bytes": 24, "virtual_threads": 2}
    # Stride 2: (4 - 1) 2 + 3 rows by (7 - 1) 2 + 1 columns. Dilation 2 after that: (4 - 1) 2 + (3 - 1) 2 + 1 rows.
    tiles |= {"tile_y": (7, 1, 4, 1), "tile_x": (4, 1, 7, 1)}
    assert asked(layer("conv2d", stride=2), **tiles)["shared_bytes"] == 4 * (8 * 9 * 13 + 12 * 8 * 3)
    assert asked(layer("conv2d", stride=2, padding=2, dilation=2), **tiles)["shared_bytes"] == 4 * (8 * 11 * 13 + 12 * 8 * 3)
    # Groups of 12 channels: a block reads one group's inputs. With 6 channels a group it reads two.
    assert asked(layer("conv2d", groups=8, stride=2), **{**tiles, "tile_rc": (1, 8)})["shared_bytes"] == 4 * (8 * 9 * 13 + 12 * 8 * 3)
    assert asked(layer("conv2d", groups=16, stride=2), **{**tiles, "tile_rc": (1, 4)})["shared_bytes"] == 4 * (8 * 9 * 13 + 12 * 4 * 3)
    # Depthwise with one output channel of each input channel: as many of one as of the other.
    tiles = {"tile_f": (8, 2, 2, 3), "tile_y": (14, 1, 4, 1), "tile_x": (8, 1, 7, 1), "tile_ry": (1, 3), "tile_rx": (3, 1)}
    assert asked(layer("depthwise_conv2d", ci=96), **tiles)["shared_bytes"] == 4 * (12 * 6 * 7 + 12 * 3)
    # Winograd: 36 products, one a block; 14 x 14 tiles of the 56 x 56 outputs.
    tiles = {"tile_y": (8, 2, 3, 2), "tile_x": (14, 1, 14, 1), "tile_rc": (4, 16)}
    found = asked(layer("conv2d_winograd"), **tiles)
    assert found == {"threads": 42, "threads_z": 1, "shared_bytes": 4 * 16 * (12 + 14), "local_bytes": 16, "virtual_threads": 2}


def test_what_is_over_a_limit_is_named() -> None:
    workload = layer("conv2d")
    space = kernel("conv2d").space(workload, "workbench-gpu")
    plain = space.config(0)
    wide = {**plain, "tile_f": (1, 1, 96, 1), "tile_x": (4, 1, 14, 1)}
    deep = {**plain, "tile_f": (1, 96, 1, 1), "tile_rc": (1, 64), "tile_ry": (1, 3), "tile_rx": (1, 3)}
    indices = [space.index(config) for config in (plain, wide, deep)]
    found = {name: column.tolist() for name, column in limits.exceeded(workload, indices).items()}
    assert found == {
        "threads": [False, True, False],
        "threads_z": [False, True, False],
        "shared_bytes": [False, False, True],
        "local_bytes": [False, False, False],
        "virtual_threads": [False, False, True],
    }
    assert limits.exceeded(workload, indices, GpuLimits(threads=1344, threads_z=96))["threads"].tolist() == [False, False, False]
    with pytest.raises(SpaceError, match="out of range"):
        limits.demand(workload, [space.size])


def test_a_space_within_the_limits() -> None:
    workload = layer("depthwise_conv2d", co=64)
    space = kernel(workload.kernel).space(workload, "workbench-gpu")
    indices = space.sample(20_000, 3)
    broken = np.any(list(limits.exceeded(workload, indices).values()), axis=0)
    condition = limits.constraint(workload)
    assert (space.restrict(condition).satisfies(indices) == ~broken).all()
    assert 0 < broken.sum() < len(indices)
    assert "1,024 threads, 64 threads_z, 49,152 shared_bytes, 524,288 local_bytes, 64 virtual_threads" in condition.text
    assert condition != limits.constraint(workload, GpuLimits(threads=512))


def agreement(workloads: list[Workload], count: int, seed: int, in_tvm_process: InChild) -> tuple[int, int, list[tuple[Workload, int]]]:
    """Configurations that TVM's check allows and refuses, and those that it judges otherwise than the rule."""
    bounds = GpuLimits()
    tvm_names = {"max_threads_per_block": bounds.threads, "max_thread_z": bounds.threads_z, "max_shared_memory_per_block": bounds.shared_bytes}
    allowed = refused = 0
    differ = []
    for workload in workloads:
        # TVM does not look at virtual threads, and takes its time to write thousands of them out.
        space = kernel(workload.kernel).space(workload, "workbench-gpu")
        few = limits.constraint(workload, GpuLimits(*4 * (2**62,), virtual_threads=bounds.virtual_threads))
        indices = [int(index) for index in space.restrict(few).sample(count, seed)]
        verdicts = in_tvm_process(tir_child.verdicts, workload, indices, {**tvm_names, "max_local_memory_per_block": bounds.local_bytes})
        ours = ~np.any(list(limits.exceeded(workload, indices).values()), axis=0)
        allowed, refused = allowed + sum(verdicts), refused + count - sum(verdicts)
        differ += [(workload, index) for index, mine, theirs in zip(indices, ours, verdicts, strict=True) if mine != theirs]
    return allowed, refused, differ


def test_agrees_with_tvm(in_tvm_process: InChild) -> None:
    kinds = {workload.kernel: workload for workload in networks.by_id().values()}
    assert len(kinds) == 6
    allowed, refused, differ = agreement([*kinds.values(), *MORE], 4, 1, in_tvm_process)
    assert differ == []
    assert allowed > 4
    assert refused > 4


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_agrees_with_tvm_on_5000(in_tvm_process: InChild) -> None:
    workloads = [*networks.by_id().values(), *MORE]
    count = -(-5000 // len(workloads))
    allowed, refused, differ = agreement(workloads, count, 2, in_tvm_process)
    print(f"{allowed + refused} configurations: {allowed} within TVM's limits, {refused} not; {len(differ)} judged otherwise: {differ}")
    assert min(allowed, refused) > 1000
    assert len(differ) <= 0.001 * (allowed + refused)
