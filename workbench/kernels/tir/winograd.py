"""Winograd's minimal filtering F(4 x 4, 3 x 3) as a batch of matrix products.

The stages are topi's (`topi.nn.conv2d_winograd_nchw`), and so are their names, but for the padding: topi pads what the filter needs, and reads beyond that
where the last tile covers rows or columns that the output does not have. What lies there cancels out unless it is no number; here it is zero.
"""

from __future__ import annotations

import math

from tvm import te, topi
from tvm.topi.nn.winograd_util import winograd_transform_matrices

from workbench.kernels.conv import WINOGRAD_FILTER, WINOGRAD_TILE
from workbench.kernels.conv_shape import Shape

__all__ = ["winograd"]

_ALPHA = WINOGRAD_TILE + WINOGRAD_FILTER - 1


def winograd(data: te.Tensor, weight: te.Tensor, shape: Shape) -> te.Tensor:
    """The output of a convolution with filters of 3 x 3.

    By stages that follow each other: padding, the tiles of the input, their transforms and those of the filters, the products ("bgemm", [6, 6, co, tiles]),
    the transforms back, and the output put together of them.
    """
    tiles = tuple(math.ceil(extent / WINOGRAD_TILE) for extent in shape.output)
    rows, columns = tiles
    needed = [count * WINOGRAD_TILE + WINOGRAD_FILTER - 1 for count in tiles]
    before = [first for first, _ in shape.padding]
    after = [whole - first - size for whole, first, size in zip(needed, before, shape.size, strict=True)]
    padded = topi.nn.pad(data, [0, 0, *before], [0, 0, *after], name="data_pad")
    to_output, to_data, to_filter = winograd_transform_matrices(WINOGRAD_TILE, WINOGRAD_FILTER, str(data.dtype))

    fy, fx = (te.reduce_axis((0, WINOGRAD_FILTER), name) for name in ("r_kh", "r_kw"))
    filters = te.compute(
        (_ALPHA, _ALPHA, shape.ci, shape.co),
        lambda e, u, ci, co: te.sum(weight[co, ci, fy, fx] * to_filter[e, fy] * to_filter[u, fx], axis=[fy, fx]),
        name="kernel_pack",
    )
    tile = te.compute(
        (shape.ci, shape.n * rows * columns, _ALPHA, _ALPHA),
        lambda ci, t, e, u: padded[t // (rows * columns), ci, t // columns % rows * WINOGRAD_TILE + e, t % columns * WINOGRAD_TILE + u],
        name="input_tile",
    )
    ay, ax = (te.reduce_axis((0, _ALPHA), name) for name in ("r_a", "r_b"))
    packed = te.compute(
        (_ALPHA, _ALPHA, shape.ci, shape.n * rows * columns),
        lambda e, u, ci, t: te.sum(tile[ci, t, ay, ax] * to_data[ay, e] * to_data[ax, u], axis=[ay, ax]),
        name="data_pack",
    )
    channel = te.reduce_axis((0, shape.ci), "ci")
    products = te.compute(
        (_ALPHA, _ALPHA, shape.co, shape.n * rows * columns),
        lambda e, u, co, t: te.sum(packed[e, u, channel, t] * filters[e, u, channel, co], axis=[channel]),
        name="bgemm",
    )
    by, bx = (te.reduce_axis((0, _ALPHA), name) for name in ("r_a", "r_b"))
    back = te.compute(
        (shape.co, shape.n * rows * columns, WINOGRAD_TILE, WINOGRAD_TILE),
        lambda co, t, y, x: te.sum(products[by, bx, co, t] * to_output[by, y] * to_output[bx, x], axis=[by, bx]),
        name="inverse",
    )
    return te.compute(
        shape.output_shape,
        lambda n, co, y, x: back[co, n * rows * columns + y // WINOGRAD_TILE * columns + x // WINOGRAD_TILE, y % WINOGRAD_TILE, x % WINOGRAD_TILE],
        name="conv2d_winograd",
    )
