"""The template of `workbench-cpu`: one for every direct convolution, and for winograd's products.

Each spatial axis is split into three loops, each reduction axis into two. From the outside in:

    batch and the outer spatial loops, one parallel loop
    middle spatial loops; the block of outputs below them gathers in a buffer of its own
    outer reduction loops
    inner spatial and inner reduction loops, in the order that `order` says; the last one is a vector of outputs along x

`pad_at` 0 pads the whole input beforehand, 1 pads in the parallel loop what an iteration of it reads. `unroll` is the number of steps up to which loops
are unrolled.

Winograd pads beforehand: its products do not read the input. Around them are its transforms, which no knob changes: parallel loops over channels and, for the
input, rows of tiles, and in them a loop over tiles or filters; in that half of the transform, then the other. The elements of a half and what they are made of
are unrolled, so that of the transforms' matrices only the numbers are left that are not 0. Neighbouring tiles are neighbours in memory, for LLVM to make
vectors of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tvm

from workbench.kernels.conv import WINOGRAD_TILE, slots
from workbench.kernels.conv_shape import shape_of
from workbench.kernels.tir.definitions import compute, main_block
from workbench.schema import Workload

__all__ = ["schedule"]


def schedule(workload: Workload, config: Mapping[str, Any]) -> tvm.IRModule:
    """See `workbench.kernels.tir.schedule`."""
    sch = tvm.s_tir.Schedule(compute(workload, halves=True))
    block = main_block(sch, workload)
    if workload.kernel == "conv2d_winograd":
        padding = _transforms(sch, workload)
        # A batch of one stands where the inputs' batch is in the other kinds.
        sch.add_unit_loop(sch.fuse(*sch.get_loops(block)[:2]))
    else:
        padding = _padding(sch, block)
    parallel = _tile(sch, block, workload, config)
    if config.get("pad_at"):
        sch.compute_at(padding, parallel, preserve_unit_loops=True)
    else:
        sch.parallel(sch.fuse(*sch.get_loops(padding)[:2]))
    return sch.mod


def _tile(sch: tvm.s_tir.Schedule, block: Any, workload: Workload, config: Mapping[str, Any]) -> Any:
    axes = slots(workload)
    gathered = sch.cache_write(block, 0, "global")
    loops = sch.get_loops(block)
    batch, rest = loops[0], loops[1:]
    tiles = {
        axis: sch.split(loop, factors=list(config[f"tile_{axis}"]), preserve_unit_iters=True)
        for axis, loop in zip((*axes.spatial, *axes.reduction), rest, strict=True)
    }
    outer, middle, inner = ([tiles[axis][level] for axis in axes.spatial] for level in range(3))
    steps, within = ([tiles[axis][level] for axis in axes.reduction] for level in range(2))
    nest = [*within, *inner[:-1]] if config["order"] else [*inner[:-1], *within]
    sch.reorder(batch, *outer, *middle, *steps, *nest, inner[-1])

    parallel = sch.fuse(batch, *outer)
    sch.parallel(parallel)
    sch.reverse_compute_at(gathered, middle[-1], preserve_unit_loops=True)
    sch.vectorize(sch.get_loops(gathered)[-1])
    sch.annotate(parallel, "pragma_auto_unroll_max_step", config["unroll"])
    sch.annotate(parallel, "pragma_unroll_explicit", 1)
    sch.vectorize(inner[-1])
    sch.decompose_reduction(block, steps[0])
    return parallel


def _padding(sch: tvm.s_tir.Schedule, block: Any) -> Any:
    # Of the two inputs' stages the one that pads stays; what comes before it, and the turned filters of a transposed convolution, are computed where read.
    padding = None
    for stage in sch.get_producers(block):
        while earlier := list(sch.get_producers(stage)):
            sch.compute_inline(earlier[0])
        if sch.get(stage).reads[0].source.name == "data":
            padding = stage
        else:
            sch.compute_inline(stage)
    return padding


def _transforms(sch: tvm.s_tir.Schedule, workload: Workload) -> Any:
    """Schedule everything of winograd but its products and the stage that pads, which is given back."""
    for name in ("B", "A", "G", "input_tile"):
        sch.compute_inline(sch.get_sblock(name))
    row, column, channel, filters, summed = sch.get_loops(sch.get_sblock("kernel_pack"))
    _transform(sch, "kernel_pack", [channel], filters, [row, column], summed)
    row, column, channel, tiles, summed = sch.get_loops(sch.get_sblock("data_pack"))
    rows, columns = sch.split(tiles, factors=[None, math.ceil(shape_of(workload).output[1] / WINOGRAD_TILE)], preserve_unit_iters=True)
    _transform(sch, "data_pack", [channel, rows], columns, [row, column], summed)
    channel, tiles, row, column, summed = sch.get_loops(sch.get_sblock("inverse"))
    _transform(sch, "inverse", [channel], tiles, [row, column], summed)
    sch.parallel(sch.fuse(*sch.get_loops(sch.get_sblock("conv2d_winograd"))[:2]))
    return sch.get_sblock("data_pad")


def _transform(sch: tvm.s_tir.Schedule, name: str, outer: list[Any], inner: Any, elements: list[Any], summed: Any) -> None:
    sch.reorder(*outer, inner, *elements, summed)
    half = sch.get_sblock(f"{name}_half")
    sch.compute_at(half, inner)
    *half_elements, half_summed = sch.get_loops(half)[-3:]
    for loop in (sch.fuse(*half_elements), half_summed, sch.fuse(*elements), summed):
        sch.unroll(loop)
    sch.parallel(sch.fuse(*outer))
