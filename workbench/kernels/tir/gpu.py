"""The template of `workbench-gpu`: one for every convolution, on a GPU's blocks and threads.

Each spatial axis is split into four loops (block, virtual thread, thread, inner), each reduction axis into two. From the outside in:

    blocks; virtual threads, whose work each thread does in turn; threads
    outer reduction loops; below them the threads of a block fetch, together, what it reads next into shared memory, padding on the way
    inner reduction loops, then the inner loops of a thread; the sums stay in its registers

Axes f, y and x are the dimensions z, y and x of blocks and threads, the batch lies with z. Winograd has this nest for its products (b, y, x) and four more
kernels, of 128 threads, for its transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm

from workbench.kernels.conv import slots
from workbench.kernels.tir.definitions import compute, main_block
from workbench.schema import Workload

__all__ = ["schedule"]

_DIMENSIONS = {"b": "z", "f": "z", "y": "y", "x": "x"}
_TRANSFORM_THREADS = 128


def schedule(workload: Workload, config: Mapping[str, Any], bind: bool) -> tvm.IRModule:
    """See `workbench.kernels.tir.schedule`."""
    sch = tvm.s_tir.Schedule(compute(workload))
    to: Callable[[Any, str], object] = sch.bind if bind else lambda loop, thread: None
    block = main_block(sch, workload)
    if workload.kernel == "conv2d_winograd":
        for name in ("B", "A", "G", "data_pad", "input_tile"):
            sch.compute_inline(sch.get_sblock(name))
        for name in ("data_pack", "kernel_pack", "inverse", "conv2d_winograd"):
            _flat(sch, name, to)
        # The products are one axis of the output, and a batch of one stands where the inputs' batch is in the other kinds.
        sch.add_unit_loop(sch.fuse(*sch.get_loops(block)[:2]))
    outermost = _tile(sch, block, workload, config, to)
    if bind:
        # Only CUDA's compiler takes the hint that stands for loops which are not unrolled explicitly.
        sch.annotate(outermost, "pragma_auto_unroll_max_step", config["auto_unroll_max_step"])
        sch.annotate(outermost, "pragma_unroll_explicit", config["unroll_explicit"])
    return sch.mod


def _tile(sch: tvm.s_tir.Schedule, block: Any, workload: Workload, config: Mapping[str, Any], to: Callable[[Any, str], object]) -> Any:
    axes = slots(workload)
    fetches = [sch.cache_read(block, index, "shared") for index in range(len(sch.get(block).reads))]
    sums = sch.cache_write(block, 0, "local")
    if workload.kernel != "conv2d_winograd":
        # After the fetches are there, so that padding is part of them: a boundary test in each multiplication would cost more than the multiplication.
        for fetch in fetches:
            _inline_producers(sch, fetch)

    loops = sch.get_loops(block)
    tiles = {
        axis: sch.split(loop, factors=list(config[f"tile_{axis}"]), preserve_unit_iters=True)
        for axis, loop in zip((*axes.spatial, *axes.reduction), loops[1:], strict=True)
    }
    blocks, virtual, threads, inner = ([tiles[axis][level] for axis in axes.spatial] for level in range(4))
    steps, within = ([tiles[axis][level] for axis in axes.reduction] for level in range(2))
    sch.reorder(loops[0], *blocks, *virtual, *threads, *steps, *within, *inner)
    blocks[0] = sch.fuse(loops[0], blocks[0])
    dimensions = [_DIMENSIONS[axis] for axis in axes.spatial]
    for kind, level in (("blockIdx", blocks), ("vthread", virtual), ("threadIdx", threads)):
        for loop, dimension in zip(level, dimensions, strict=True):
            to(loop, f"{kind}.{dimension}")
    sch.reverse_compute_at(sums, threads[-1], preserve_unit_loops=True)
    extents = [config[f"tile_{axis}"][2] for axis in axes.spatial]
    for fetch in fetches:
        _fetch(sch, fetch, steps[-1], dimensions, extents, to)
    sch.decompose_reduction(block, steps[0])
    return blocks[0]


def _fetch(sch: tvm.s_tir.Schedule, fetch: Any, at: Any, dimensions: Sequence[str], extents: Sequence[int], to: Callable[[Any, str], object]) -> None:
    # Each thread brings a run of neighbouring elements.
    sch.compute_at(fetch, at, preserve_unit_loops=True)
    elements = sch.fuse(*sch.get_loops(fetch)[-len(sch.get(fetch).iter_vars) :])
    for loop, dimension in zip(sch.split(elements, factors=[*extents, None], preserve_unit_iters=True), dimensions, strict=False):
        to(loop, f"threadIdx.{dimension}")


def _inline_producers(sch: tvm.s_tir.Schedule, block: Any) -> None:
    for producer in sch.get_producers(block):
        _inline_producers(sch, producer)
        sch.compute_inline(producer)


def _flat(sch: tvm.s_tir.Schedule, name: str, to: Callable[[Any, str], object]) -> None:
    block = sch.get_sblock(name)
    spatial = [loop for loop, variable in zip(sch.get_loops(block), sch.get(block).iter_vars, strict=True) if variable.iter_type == variable.DataPar]
    blocks, threads = sch.split(sch.fuse(*spatial), factors=[None, _TRANSFORM_THREADS])
    to(blocks, "blockIdx.x")
    to(threads, "threadIdx.x")
