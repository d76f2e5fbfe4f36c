"""Nests of the recorded convolutions, by what is published of their programs; nothing here has those programs to be held against.

FlexTensor's schedule for CUDA (pku-liang/FlexTensor, scheduler.py) is that of `kernels.tir.gpu` but for three tiles of each reduction axis, the innermost of
which is fetched at once, and for threads that fetch neighbouring elements.

Kernel Tuner's convolution (KernelTuner/kernel_tuner, examples/cuda/convolution.cu): a thread computes tile_size_y x tile_size_x outputs, block_size_y and
block_size_x apart, from what its block has fetched, with the filter in constant memory. All loops of a thread are unrolled. `use_padding` adds columns to the
shared array where rows of threads would meet in one of its 32 banks; `read_only` changes no loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from workbench.kernels.base import whole
from workbench.kernels.conv_nests import gpu
from workbench.kernels.conv_nests.places import direct, tiles_of
from workbench.kernels.nesting import Builder, Digits, Move, Part, Place, Walk, along, row_major
from workbench.loopnest import Buffer, LoopNest, NestBatch, Number
from workbench.schema import Workload
from workbench.space import Space

__all__ = ["flextensor", "kernel_tuner"]

_BANKS = 32
_REDUCTION = {"c": "rc", "r": "ry", "s": "rx"}


def flextensor(workload: Workload, space: Space, indices: ArrayLike) -> NestBatch:
    """Nests of FlexTensor's conv2d, of one structure. Raises UsageError for groups, SpaceError for an index that is not in the space."""
    knobs = space.decode(indices)
    batch = len(knobs["unroll_explicit"])
    tiles = {_REDUCTION.get(axis, axis): lengths for axis, lengths in tiles_of(space, knobs).items()}
    return NestBatch(batch, ((np.arange(batch), gpu.nest(direct(workload), tiles, batch, neighbours=True)),))


def kernel_tuner(workload: Workload, space: Space, indices: ArrayLike) -> NestBatch:
    """Nests of Kernel Tuner's convolution of an image; where `use_shmem` is a knob, of two structures: without it, then with it.

    Raises:
        UsageError: a size that is not a positive whole number.
        SpaceError: an index that is not in the space.
    """
    knobs = space.decode(indices)
    batch = len(knobs["block_size_x"])
    shared = knobs.get("use_shmem", np.ones(batch, dtype=np.int64))
    parts = []
    for kind in (0, 1) if "use_shmem" in space.names else (1,):
        rows = np.flatnonzero(shared == kind)
        parts.append((rows, _image(workload, {name: values[rows] for name, values in knobs.items()}, len(rows), bool(kind))))
    return NestBatch(batch, tuple(parts))


def _image(workload: Workload, knobs: Mapping[str, Any], batch: int, shared: bool) -> LoopNest:
    # Axes y and x are those of the outputs, ry and rx those of the filter, oy and ox number the outputs of a thread.
    size = {"y": whole(workload, "h"), "x": whole(workload, "w")}
    taps = {"ry": whole(workload, "kh"), "rx": whole(workload, "kw")}
    image = (size["y"] + taps["ry"] - 1, size["x"] + taps["rx"] - 1)
    threads: dict[str, Number] = {axis: knobs[f"block_size_{axis}"] for axis in size}
    tile: dict[str, Number] = {axis: knobs[f"tile_size_{axis}"] for axis in size}
    needed = {axis: threads[axis] * tile[axis] + taps[f"r{axis}"] - 1 for axis in size}
    fetched = (needed["y"], needed["x"] + _padding(knobs, needed["x"]))

    def moves(shape: tuple[Number, ...]) -> dict[str, Move]:
        return {name: move for axis, stride in zip(size, row_major(shape), strict=True) for name, move in _moves(axis, stride, threads[axis]).items()}

    def outputs(level: str) -> list[Walk]:
        return [Walk(f"{level}.{axis}", Digits((Part(f"o{axis}", tile[axis]),)), "unroll") for axis in size]

    sums = Place("sums", {"oy": Move(tile["x"]), "ox": Move(1)})
    data, weight = Place("data", moves(image)), Place("weight", {"ry": Move(taps["rx"]), "rx": Move(1)})
    made = Builder(batch)
    blocks = [along("block", axis, -(-size[axis] // (threads[axis] * tile[axis])), threads[axis] * tile[axis], f"blockIdx.{axis}") for axis in size]
    thread = made.loops(-1, [*blocks, *(along("thread", axis, threads[axis], 1, f"threadIdx.{axis}") for axis in size)])
    if shared:
        brought = Place("data.shared", moves(fetched), ("block",))
        passes = [along("fetch_data", axis, -(-needed[axis] // threads[axis]), threads[axis], "unroll") for axis in size]
        made.statement("fetch_data", made.loops(thread, passes), [data], brought)
        data = brought
    made.statement("init", made.loops(thread, outputs("init")), [], sums)
    elements = [along("inner", axis, extent, 1, "unroll") for axis, extent in taps.items()]
    made.statement("update", made.loops(thread, [*elements, *outputs("inner")]), [sums, data, weight], sums, add=1, mul=1)
    made.statement("write", made.loops(thread, outputs("write")), [sums], Place("output", moves(tuple(size.values()))))
    return made.nest(
        [
            Buffer("data", "global", image),
            Buffer("weight", "constant", tuple(taps.values())),
            Buffer("output", "global", tuple(size.values())),
            *([Buffer("data.shared", "shared", fetched)] if shared else []),
            Buffer("sums", "local", tuple(tile.values())),
        ]
    )


def _moves(axis: str, stride: Number, threads: Number) -> dict[str, Move]:
    return {axis: Move(stride), f"r{axis}": Move(stride), f"o{axis}": Move(stride * threads)}


def _padding(knobs: Mapping[str, Any], width: Any) -> Any:
    # Columns that make a row of the shared array, less one row of threads, a multiple of the banks.
    beyond = width - knobs["block_size_x"]
    return np.where((knobs["use_padding"] == 1) & (knobs["block_size_x"] % _BANKS != 0), -beyond % _BANKS, 0)
