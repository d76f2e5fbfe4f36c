"""Winograd's minimal filtering F(4 x 4, 3 x 3) as a batch of matrix products.

The stages are topi's (`topi.nn.conv2d_winograd_nchw`), and so are their names, but for the padding: topi pads what the filter needs, and reads beyond that
where the last tile covers rows or columns that the output does not have. What lies there cancels out unless it is no number; here it is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import te, topi
from tvm.topi.nn.winograd_util import winograd_transform_matrices

from workbench.kernels.conv import WINOGRAD_FILTER, WINOGRAD_TILE
from workbench.kernels.conv_shape import Shape

__all__ = ["winograd"]

_ALPHA = WINOGRAD_TILE + WINOGRAD_FILTER - 1
_Element = Callable[..., Any]


def winograd(data: te.Tensor, weight: te.Tensor, shape: Shape, halves: bool) -> te.Tensor:
    """The output of a convolution with filters of 3 x 3.

    By stages that follow each other: padding, the tiles of the input, their transforms and those of the filters, the products ("bgemm", [6, 6, co, tiles]),
    the transforms back, and the output put together of them. With `halves` a transform, a product of three matrices, is two products one after the other: of
    the columns (a stage whose name ends in "_half"), then of the rows; else it is one sum over both.
    """
    tiles = tuple(math.ceil(extent / WINOGRAD_TILE) for extent in shape.output)
    rows, columns = tiles
    count = shape.n * rows * columns
    needed = [number * WINOGRAD_TILE + WINOGRAD_FILTER - 1 for number in tiles]
    before = [first for first, _ in shape.padding]
    after = [whole - first - size for whole, first, size in zip(needed, before, shape.size, strict=True)]
    padded = topi.nn.pad(data, [0, 0, *before], [0, 0, *after], name="data_pad")
    to_output, to_data, to_filter = winograd_transform_matrices(WINOGRAD_TILE, WINOGRAD_FILTER, str(data.dtype))

    packing = _transform(
        "kernel_pack", (_ALPHA, WINOGRAD_FILTER, shape.ci, shape.co), lambda y, x, ci, co: weight[co, ci, y, x], lambda of, to: to_filter[to, of], halves
    )
    filters = te.compute((_ALPHA, _ALPHA, shape.ci, shape.co), packing, name="kernel_pack")
    tile = te.compute(
        (shape.ci, count, _ALPHA, _ALPHA),
        lambda ci, t, e, u: padded[t // (rows * columns), ci, t // columns % rows * WINOGRAD_TILE + e, t % columns * WINOGRAD_TILE + u],
        name="input_tile",
    )
    packing = _transform("data_pack", (_ALPHA, _ALPHA, shape.ci, count), lambda y, x, ci, t: tile[ci, t, y, x], lambda of, to: to_data[of, to], halves)
    packed = te.compute((_ALPHA, _ALPHA, shape.ci, count), packing, name="data_pack")
    channel = te.reduce_axis((0, shape.ci), "ci")
    products = te.compute(
        (_ALPHA, _ALPHA, shape.co, count),
        lambda e, u, co, t: te.sum(packed[e, u, channel, t] * filters[e, u, channel, co], axis=[channel]),
        name="bgemm",
    )
    unpacking = _transform(
        "inverse", (WINOGRAD_TILE, _ALPHA, shape.co, count), lambda y, x, co, t: products[y, x, co, t], lambda of, to: to_output[of, to], halves
    )
    back = te.compute((shape.co, count, WINOGRAD_TILE, WINOGRAD_TILE), lambda co, t, y, x: unpacking(y, x, co, t), name="inverse")
    return te.compute(
        shape.output_shape,
        lambda n, co, y, x: back[co, n * rows * columns + y // WINOGRAD_TILE * columns + x // WINOGRAD_TILE, y % WINOGRAD_TILE, x % WINOGRAD_TILE],
        name="conv2d_winograd",
    )


def _transform(name: str, half_shape: tuple[int, ...], element: _Element, matrix: _Element, halves: bool) -> _Element:
    # What the stage `name` is at row e and column u of a tile: of elements (row, column, ...) of other tiles, and a matrix (of which row or column, to which).
    by, bx = (te.reduce_axis((0, half_shape[1]), axis) for axis in ("r_a", "r_b"))
    if not halves:
        return lambda e, u, *at: te.sum(element(by, bx, *at) * matrix(by, e) * matrix(bx, u), axis=[by, bx])
    half = te.compute(half_shape, lambda e, x, *at: te.sum(element(by, x, *at) * matrix(by, e), axis=[by]), name=f"{name}_half")
    return lambda e, u, *at: te.sum(half[(e, bx, *at)] * matrix(bx, u), axis=[bx])
