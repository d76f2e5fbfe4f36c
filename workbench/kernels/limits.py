"""What a configuration of `workbench-gpu` asks of a GPU, and which limits it breaks: from the knobs alone, for whole arrays of configurations.

The figures are those of the code that `kernels.tir` generates; TVM's own check of it (`s_tir.analysis.verify_gpu_code`) says the same of threads and memory.
One case is beyond it: where the output channels of a block are neither whole groups nor part of one, TVM does not always find out which input channels they
need, and fetches more of them than are counted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.kernels import kernel
from workbench.kernels.conv import GPU, slots
from workbench.kernels.conv_shape import shape_of
from workbench.schema import Workload
from workbench.space import Constraint

__all__ = ["Demand", "GpuLimits", "constraint", "demand", "exceeded"]

_FLOAT = 4
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class GpuLimits:
    """What one block may take. The defaults are those of every CUDA capability (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")
    but for virtual threads, whose number bounds the size of the source: each of them is written out.
    """

    threads: int = 1024
    threads_z: int = 64
    shared_bytes: int = 48 * 1024
    local_bytes: int = 512 * 1024
    virtual_threads: int = 64


@dataclass(frozen=True)
class Demand:
    """What each of n configurations asks for, [n] each.

    Attributes:
        threads, threads_z: of a block, in all and along z.
        shared_bytes: of a block: what its threads fetch at once of the input and of the filters.
        local_bytes: of a thread: its sums.
        virtual_threads: whose work each thread does.
    """

    threads: Ints
    threads_z: Ints
    shared_bytes: Ints
    local_bytes: Ints
    virtual_threads: Ints


def demand(workload: Workload, indices: ArrayLike) -> Demand:
    """What configurations `indices` [n] of a workload ask for. Raises UsageError or SpaceError for a workload or an index that cannot be."""
    return _demand(workload, kernel(workload.kernel).space(workload, GPU).decode(indices))


def exceeded(workload: Workload, indices: ArrayLike, limits: GpuLimits | None = None) -> dict[str, NDArray[np.bool_]]:
    """Limit -> which of `indices` [n] break it."""
    return _exceeded(demand(workload, indices), limits or GpuLimits())


def constraint(workload: Workload, limits: GpuLimits | None = None) -> Constraint:
    """The condition that a configuration keeps within the limits, for `Space.restrict`."""
    limits = limits or GpuLimits()
    knobs = tuple(f"tile_{axis}" for axis in (*slots(workload).spatial, *slots(workload).reduction))

    def within(*columns: Ints) -> NDArray[np.bool_]:
        broken = _exceeded(_demand(workload, dict(zip(knobs, columns, strict=True))), limits)
        return ~np.any(list(broken.values()), axis=0)

    return Constraint(f"at most {', '.join(f'{value:,} {name}' for name, value in asdict(limits).items())} in a block of {workload.key}", knobs, within)


def _exceeded(asked: Demand, limits: GpuLimits) -> dict[str, NDArray[np.bool_]]:
    return {name: getattr(asked, name) > limit for name, limit in asdict(limits).items()}


def _demand(workload: Workload, values: Mapping[str, NDArray[Any]]) -> Demand:
    axes = slots(workload)
    tiles = {axis: values[f"tile_{axis}"].astype(np.int64, copy=False) for axis in (*axes.spatial, *axes.reduction)}
    spatial = [tiles[axis] for axis in axes.spatial]
    return Demand(
        threads=_product(tile[:, 2] for tile in spatial),
        threads_z=spatial[0][:, 2],
        shared_bytes=_FLOAT * _fetched(workload, tiles),
        local_bytes=_FLOAT * _product(tile[:, 1] * tile[:, 3] for tile in spatial),
        virtual_threads=_product(tile[:, 1] for tile in spatial),
    )


def _product(factors: Iterable[Ints]) -> Ints:
    product: Ints = reduce(np.multiply, factors)
    return product


def _fetched(workload: Workload, tiles: Mapping[str, Ints]) -> Ints:
    """Floats of the input and of the filters that a block's threads hold at once: what one outer step of the reduction reads."""
    shape = shape_of(workload)
    block = {axis: tile[:, 1] * tile[:, 2] * tile[:, 3] for axis, tile in tiles.items() if axis in slots(workload).spatial}
    inner = {axis: tile[:, 1] for axis, tile in tiles.items() if axis not in block}
    if workload.kernel == "conv2d_winograd":
        return block["b"] * inner["rc"] * (block["x"] + block["y"])
    # A transposed convolution reads an input with zeros between its elements, one by one.
    strides = len(shape.stride) * (1,) if shape.transposed else shape.stride
    spatial = ("y", "x")[-len(shape.size) :]
    reach = _product((block[axis] - 1) * stride + (inner[f"r{axis}"] - 1) * gap + 1 for axis, stride, gap in zip(spatial, strides, shape.dilation, strict=True))
    filters = _product(inner[f"r{axis}"] for axis in spatial)
    per_group = shape.co // shape.groups
    groups = _parts(block["f"], per_group)
    if workload.kernel == "depthwise_conv2d":
        return groups * reach + groups * np.where(groups > 1, per_group, block["f"]) * filters
    depth = (groups - 1) * (shape.ci // shape.groups) + inner["rc"]
    return depth * reach + block["f"] * inner["rc"] * filters


def _parts(length: Ints, part: int) -> Ints:
    """Most parts of `part` elements that a run of `length` elements touches, where runs begin at every multiple of their length."""
    return (length - np.gcd(length, part) + part - 1) // part + 1
