"""The nest of the template in `kernels.tir.cpu`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from workbench.kernels.conv_nests.places import Places, Tiles, arguments
from workbench.kernels.nesting import Builder, Digits, Part, Place, Walk, along, row_major
from workbench.loopnest import Buffer, LoopNest

__all__ = ["nest"]


def nest(at: Places, tiles: Tiles, batch: int, order: int, pad_at: int) -> LoopNest:
    """The nest of `batch` configurations that have these values of `order` and `pad_at`."""
    covers = {axis: tiles[axis][1] * tiles[axis][2] for axis in at.spatial}
    region = at.region(covers, {axis: math.prod(tiles[axis]) for axis in at.reduction}) if pad_at else at.padded
    tile = (1, *(tiles[axis][2] for axis in at.spatial))
    padded = Place("padded", {**at.input(row_major(region)), **at.input_axes(row_major(region))}, ("outer",) if pad_at else ())
    sums = Place("sums", at.output(row_major(tile)), ("outer", "middle"))
    outer = Walk("outer", Digits((Part("n", at.shape.n), *(Part(axis, tiles[axis][0], covers[axis]) for axis in at.spatial))), "parallel")
    parts = [Part(axis, extent) for axis, extent in zip(at.input_axes(region), region, strict=True)]
    pads = [Walk(f"pad.{part.axis[1:]}", Digits((part,))) for part in parts]

    made = Builder(batch)
    if pad_at:
        parallel = made.loops(-1, [outer])
        made.statement("pad", made.loops(parallel, pads), [Place("data", at.data)], padded)
    else:
        fused = Walk("pad.nc", Digits(tuple(parts[:2])), "parallel")
        made.statement("pad", made.loops(-1, [fused, *pads[2:]]), [Place("data", at.data)], padded)
        parallel = made.loops(-1, [outer])
    middle = made.loops(parallel, [along("middle", axis, tiles[axis][1], tiles[axis][2]) for axis in at.spatial])
    made.statement("init", made.loops(middle, _vector([along("init", axis, tiles[axis][2]) for axis in at.spatial])), [], sums)
    steps = [along("step", axis, tiles[axis][0], tiles[axis][1]) for axis in at.reduction]
    within, inner = [along("inner", axis, tiles[axis][1]) for axis in at.reduction], [along("inner", axis, tiles[axis][2]) for axis in at.spatial]
    body = [*within, *inner] if order else [*inner[:-1], *within, inner[-1]]
    made.statement("update", made.loops(middle, [*steps, *_vector(body)]), [sums, padded, Place("weight", at.weight)], sums, add=1, mul=1)
    write = [along("write", axis, extent) for axis, extent in zip(("n", *at.spatial), tile, strict=True)]
    made.statement("write", made.loops(middle, _vector(write)), [sums], Place("output", at.output(row_major(at.shape.output_shape))))
    return made.nest([*arguments(at.shape), Buffer("padded", "global", region), Buffer("sums", "global", tile)])


def _vector(walks: Sequence[Walk]) -> list[Walk]:
    # The innermost loop is one vector.
    return [*walks[:-1], replace(walks[-1], annotation="vectorize")]
