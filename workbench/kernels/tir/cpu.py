"""The template of `workbench-cpu`: one for every direct convolution.

Each spatial axis is split into three loops, each reduction axis into two. From the outside in:

    batch and the outer spatial loops, one parallel loop
    middle spatial loops; the block of outputs below them gathers in a buffer of its own
    outer reduction loops
    inner spatial and inner reduction loops, in the order that `order` says; the last one is a vector of outputs along x

`pad_at` 0 pads the whole input beforehand, 1 pads in the parallel loop what an iteration of it reads. `unroll` is the number of steps up to which loops
are unrolled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm

from workbench.kernels.conv import slots
from workbench.kernels.tir.definitions import compute, main_block
from workbench.schema import Workload

__all__ = ["schedule"]


def schedule(workload: Workload, config: Mapping[str, Any]) -> tvm.IRModule:
    """See `workbench.kernels.tir.schedule`."""
    axes = slots(workload)
    sch = tvm.s_tir.Schedule(compute(workload))
    block = main_block(sch, workload)
    padding = _padding(sch, block)
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
    if config["pad_at"]:
        sch.compute_at(padding, parallel, preserve_unit_loops=True)
    else:
        sch.parallel(sch.fuse(*sch.get_loops(padding)[:2]))
    sch.annotate(parallel, "pragma_auto_unroll_max_step", config["unroll"])
    sch.annotate(parallel, "pragma_unroll_explicit", 1)
    sch.vectorize(inner[-1])
    sch.decompose_reduction(block, steps[0])
    return sch.mod


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
