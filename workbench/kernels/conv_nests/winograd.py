"""The nest of winograd's five kernels in `kernels.tir.gpu`: transforms of input and filters, products, transforms back, and the output put together.

Knobs tile the products. The others are flat: a thread computes one element, and their loops are the same in every configuration. Their axes are e and u, row
and column of a transformed tile; ra and rb, which a transform sums over; ci, f, n, y and x as elsewhere; ty and tx, row and column of tiles in an image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from workbench.kernels.conv import WINOGRAD_FILTER, WINOGRAD_TILE
from workbench.kernels.conv_nests.gpu import Fetch, Product, covered
from workbench.kernels.conv_nests.places import Tiles, arguments
from workbench.kernels.conv_shape import shape_of
from workbench.kernels.nesting import Builder, Digits, Move, Part, Place, Walk, along, row_major
from workbench.loopnest import Buffer, LoopNest, Number
from workbench.schema import Workload

__all__ = ["nest"]

# Threads of a block in the kernels that have no knobs.
_THREADS = 128
_ALPHA = WINOGRAD_TILE + WINOGRAD_FILTER - 1


def nest(workload: Workload, tiles: Tiles, batch: int) -> LoopNest:
    """The nest of `batch` configurations of a winograd convolution."""
    shape = shape_of(workload)
    rows, columns = (math.ceil(extent / WINOGRAD_TILE) for extent in shape.output)
    count = shape.n * rows * columns
    transformed, image = {"e": _ALPHA, "u": _ALPHA}, {"n": shape.n, "ty": rows, "tx": columns}
    image_step, channel_step, row_step, _ = row_major(shape.data_shape)
    filter_step, slice_step, line_step, _ = row_major(shape.weight_shape)
    made = Builder(batch)

    data: dict[str, Number] = {"n": image_step, "ci": channel_step, "ty": WINOGRAD_TILE * row_step, "tx": WINOGRAD_TILE, "ra": row_step, "rb": 1}
    _flat(made, "pack_data", {**transformed, "ci": shape.ci, **image}, Place("data", _moves(data)), "data.packed", _ALPHA)
    weight: dict[str, Number] = {"f": filter_step, "ci": slice_step, "ra": line_step, "rb": 1}
    _flat(made, "pack_weight", {**transformed, "ci": shape.ci, "f": shape.co}, Place("weight", _moves(weight)), "weight.packed", WINOGRAD_FILTER)

    covers, depth = covered(("b", "y", "x"), tiles), tiles["rc"][1]
    packed, filters = (_ALPHA, _ALPHA, shape.ci, count), (_ALPHA, _ALPHA, shape.ci, shape.co)
    product = Product(
        ("b", "y", "x"),
        ("rc",),
        1,
        (
            Fetch("data", "data.packed", _fetched(packed, "x"), {"pe": 1, "pu": 1, "pc": depth, "px": covers["x"]}, _moves({"rc": covers["x"], "x": 1})),
            Fetch("weight", "weight.packed", _fetched(filters, "y"), {"ke": 1, "ku": 1, "kc": depth, "ky": covers["y"]}, _moves({"rc": covers["y"], "y": 1})),
        ),
        Place("products", _moves({"b": shape.co * count, "y": count, "x": 1})),
        {"e": 1, "u": 1, "y": tiles["y"][3], "x": tiles["x"][3]},
    )
    tiled = product.add(made, tiles)

    products = {"ra": _ALPHA * shape.co * count, "rb": shape.co * count, "f": count, "t": 1}
    back = {"f": shape.co, "t": count, "y": WINOGRAD_TILE, "x": WINOGRAD_TILE}
    _flat(made, "unpack", back, Place("products", _moves(products)), "tiles", _ALPHA)
    area = WINOGRAD_TILE**2
    rows_of_tiles = Move(columns * area, divisor=WINOGRAD_TILE, within=WINOGRAD_TILE)
    found = {**_moves({"n": rows * columns * area, "f": count * area}), "y": rows_of_tiles, "x": Move(area, divisor=WINOGRAD_TILE, within=1)}
    _flat(made, "assemble", {"n": shape.n, "f": shape.co, "y": shape.output[0], "x": shape.output[1]}, Place("tiles", found), "output", 0)
    return made.nest(
        [
            *arguments(shape),
            Buffer("data.packed", "global", packed),
            Buffer("weight.packed", "global", filters),
            *tiled,
            Buffer("products", "global", (_ALPHA, _ALPHA, shape.co, count)),
            Buffer("tiles", "global", tuple(back.values())),
        ]
    )


def _moves(strides: Mapping[str, Number]) -> dict[str, Move]:
    return {axis: Move(stride) for axis, stride in strides.items()}


def _fetched(shape: tuple[int, ...], last: str) -> dict[str, Move]:
    # Moves in a batch of matrices, whose columns are the axis `last`, of the products' axes and of the fetching loops' own.
    matrix, row = shape[2] * shape[3], shape[3]
    own = {f"{letter}{axis}": step for letter in "pk" for axis, step in (("c", row), (last, 1))}
    return _moves({"b": matrix, "rc": row, last: 1, **own})


def _flat(made: Builder, level: str, axes: Mapping[str, int], load: Place, result: str, summed: int) -> None:
    # A kernel that computes an array with these axes, each element from one element of another, or from summed x summed of them.
    numbers = Digits(tuple(Part(axis, extent) for axis, extent in axes.items()))
    blocks = -(-math.prod(axes.values()) // _THREADS)
    inside = made.loops(-1, [Walk(f"{level}.block", numbers, "blockIdx.x", blocks, _THREADS), Walk(f"{level}.thread", numbers, "threadIdx.x", _THREADS)])
    store = Place(result, dict(zip(axes, map(Move, row_major(tuple(axes.values()))), strict=True)), row=True)
    if summed:
        inside = made.loops(inside, [along(level, "ra", summed), along(level, "rb", summed)])
        made.statement(f"{level}_init", inside, [], store)
        made.statement(level, inside, [store, load], store, add=1, mul=2)
    else:
        made.statement(level, inside, [load], store)
