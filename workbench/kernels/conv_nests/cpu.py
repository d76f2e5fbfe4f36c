"""The nest of the template in `kernels.tir.cpu`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from workbench.kernels.conv_nests.places import Places, Tiles, arguments
from workbench.kernels.nesting import Builder, Digits, Move, Part, Place, Walk, along, row_major
from workbench.loopnest import Buffer, LoopNest, Number

__all__ = ["Product", "nest", "pad_first"]


@dataclass(frozen=True)
class Product:
    """What is tiled: sums of products. Spatial axes are in three tiles, reduction axes in two.

    Attributes:
        spatial, reduction: axes.
        batch: iterations that are fused with the outer loops: axis n.
        tiles: of the axes.
        order: the knob.
        write: extents of the loops that write a tile of sums, by axis, which is the shape of the sums.
    """

    spatial: Sequence[str]
    reduction: Sequence[str]
    batch: int
    tiles: Tiles
    order: int
    write: Mapping[str, Number]

    @cached_property
    def covers(self) -> dict[str, Number]:
        """Outputs of a task along each axis."""
        return {axis: self.tiles[axis][1] * self.tiles[axis][2] for axis in self.spatial}

    @property
    def outer(self) -> Walk:
        """The parallel loop."""
        parts = (Part(axis, self.tiles[axis][0], self.covers[axis]) for axis in self.spatial)
        return Walk("outer", Digits((Part("n", self.batch), *parts)), "parallel")

    def add(self, made: Builder, parallel: int, factors: Sequence[Place], output: Place) -> Buffer:
        """Put what is in the parallel loop, at that position of a nest, into it; sums are of two factors and go to `output`. Returns the sums' buffer."""
        shape, tiles = tuple(self.write.values()), self.tiles
        sums = Place("sums", dict(zip(self.write, map(Move, row_major(shape)), strict=True)), ("outer", "middle"))
        middle = made.loops(parallel, [along("middle", axis, tiles[axis][1], tiles[axis][2]) for axis in self.spatial])
        made.statement("init", made.loops(middle, _vector([along("init", axis, tiles[axis][2]) for axis in self.spatial])), [], sums)
        steps = [along("step", axis, tiles[axis][0], tiles[axis][1]) for axis in self.reduction]
        within, inner = [along("inner", axis, tiles[axis][1]) for axis in self.reduction], [along("inner", axis, tiles[axis][2]) for axis in self.spatial]
        body = [*within, *inner] if self.order else [*inner[:-1], *within, inner[-1]]
        made.statement("update", made.loops(middle, [*steps, *_vector(body)]), [sums, *factors], sums, add=1, mul=1)
        write = [along("write", axis, extent) for axis, extent in self.write.items()]
        made.statement("write", made.loops(middle, _vector(write)), [sums], output)
        return Buffer("sums", "global", shape)


def pad_first(made: Builder, region: Mapping[str, Number], data: Place, padded: Place) -> None:
    """Put loops that pad the whole input, with these axes and extents, into a nest: one parallel loop over inputs and channels."""
    parts = [Part(axis, extent) for axis, extent in region.items()]
    fused = Walk("pad.nc", Digits(tuple(parts[:2])), "parallel")
    made.statement("pad", made.loops(-1, [fused, *_pads(parts[2:])]), [data], padded)


def nest(at: Places, tiles: Tiles, batch: int, order: int, pad_at: int) -> LoopNest:
    """The nest of `batch` configurations of a direct convolution that have these values of `order` and `pad_at`."""
    product = Product(at.spatial, at.reduction, at.shape.n, tiles, order, {"n": 1, **{axis: tiles[axis][2] for axis in at.spatial}})
    shape = at.region(product.covers, {axis: math.prod(tiles[axis]) for axis in at.reduction}) if pad_at else at.padded
    strides = row_major(shape)
    data, padded = Place("data", at.data), Place("padded", {**at.input(strides), **at.input_axes(strides)}, ("outer",) if pad_at else ())
    region = dict(zip(at.input_axes(shape), shape, strict=True))

    made = Builder(batch)
    if not pad_at:
        pad_first(made, region, data, padded)
    parallel = made.loops(-1, [product.outer])
    if pad_at:
        made.statement("pad", made.loops(parallel, _pads([Part(axis, extent) for axis, extent in region.items()])), [data], padded)
    sums = product.add(made, parallel, [padded, Place("weight", at.weight)], Place("output", at.output(row_major(at.shape.output_shape))))
    return made.nest([*arguments(at.shape), Buffer("padded", "global", shape), sums])


def _pads(parts: Sequence[Part]) -> list[Walk]:
    return [Walk(f"pad.{part.axis[1:]}", Digits((part,))) for part in parts]


def _vector(walks: Sequence[Walk]) -> list[Walk]:
    # The innermost loop is one vector.
    return [*walks[:-1], replace(walks[-1], annotation="vectorize")]
