"""Where the axes of winograd lead in its arrays: what the nests of both templates share.

Stages are transforms of input and filters, products, transforms back, and the output put together; a CPU pads the input before, and transforms in two halves,
of columns and of rows. Knobs tile the products. The others' loops are the same in every configuration.

Axes are e and u, row and column of a transformed tile, and b, both in one; ra and rb, which a transform sums over; ci, f, n, y and x as elsewhere; ty and tx,
row and column of tiles in an image; t, tiles of all images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.kernels.conv import WINOGRAD_FILTER, WINOGRAD_TILE
from workbench.kernels.conv_shape import Shape
from workbench.kernels.nesting import Move, Place, row_major
from workbench.loopnest import Number

__all__ = ["ALPHA", "Winograd", "moves"]

ALPHA = WINOGRAD_TILE + WINOGRAD_FILTER - 1


@dataclass(frozen=True)
class Winograd:
    """Extents and places of a winograd convolution."""

    shape: Shape

    @property
    def image(self) -> tuple[int, int]:
        """Rows and columns of tiles in an image."""
        rows, columns = (math.ceil(extent / WINOGRAD_TILE) for extent in self.shape.output)
        return rows, columns

    @property
    def count(self) -> int:
        """Tiles of all images."""
        return self.shape.n * math.prod(self.image)

    @property
    def packed(self) -> tuple[int, ...]:
        """Shape of "data.packed", the transformed input."""
        return (ALPHA, ALPHA, self.shape.ci, self.count)

    @property
    def filters(self) -> tuple[int, ...]:
        """Shape of "weight.packed", the transformed filters."""
        return (ALPHA, ALPHA, self.shape.ci, self.shape.co)

    @property
    def products(self) -> tuple[int, ...]:
        """Shape of "products"."""
        return (ALPHA, ALPHA, self.shape.co, self.count)

    @property
    def tiles(self) -> tuple[int, ...]:
        """Shape of "tiles", of outputs."""
        return (self.shape.co, self.count, WINOGRAD_TILE, WINOGRAD_TILE)

    def windows(self, extents: Sequence[int]) -> dict[str, Move]:
        """Moves of the tiles' axes, and of those in a tile, in the input or in a padded input of these extents."""
        image, channel, row, _ = row_major(extents)
        return moves({"n": image, "ci": channel, "ty": WINOGRAD_TILE * row, "tx": WINOGRAD_TILE, "ra": row, "rb": 1})

    @property
    def weight(self) -> Place:
        """Elements of the filters that a transform reads."""
        filters, channel, row, _ = row_major(self.shape.weight_shape)
        return Place("weight", moves({"f": filters, "ci": channel, "ra": row, "rb": 1}))

    @property
    def transformed(self) -> Place:
        """Products that a transform back reads."""
        row, column, channel, _ = row_major(self.products)
        return Place("products", moves({"ra": row, "rb": column, "f": channel, "t": 1}))

    @property
    def written(self) -> Place:
        """Where a product goes."""
        _, batch, channel, _ = row_major(self.products)
        return Place("products", moves({"b": batch, "y": channel, "x": 1}))

    @property
    def assembled(self) -> Place:
        """The element of a tile that an output is."""
        (rows, columns), (channel, tile, *_) = self.image, row_major(self.tiles)
        by_row = Move(columns * tile, divisor=WINOGRAD_TILE, within=WINOGRAD_TILE)
        by_column = Move(tile, divisor=WINOGRAD_TILE, within=1)
        return Place("tiles", {**moves({"n": rows * columns * tile, "f": channel}), "y": by_row, "x": by_column})


def moves(strides: Mapping[str, Number]) -> dict[str, Move]:
    """Moves of axes by strides alone."""
    return {axis: Move(stride) for axis, stride in strides.items()}
