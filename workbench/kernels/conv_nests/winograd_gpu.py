"""The nest of winograd's five kernels in `kernels.tir.gpu`. Those that have no knobs are flat: a thread computes one element."""

from __future__ import annotations

import math
from collections.abc import Mapping

from workbench.kernels.conv import WINOGRAD_FILTER, WINOGRAD_TILE
from workbench.kernels.conv_nests.gpu import Fetch, Product, covered
from workbench.kernels.conv_nests.places import Tiles, arguments
from workbench.kernels.conv_nests.winograd import ALPHA, Winograd, moves
from workbench.kernels.conv_shape import shape_of
from workbench.kernels.nesting import Builder, Digits, Move, Part, Place, Walk, along, row_major
from workbench.loopnest import Buffer, LoopNest
from workbench.schema import Workload

__all__ = ["nest"]

# Threads of a block in the kernels that have no knobs.
_THREADS = 128


def nest(workload: Workload, tiles: Tiles, batch: int) -> LoopNest:
    """The nest of `batch` configurations of a winograd convolution."""
    at = Winograd(shape_of(workload))
    shape, (rows, columns) = at.shape, at.image
    transformed, image = {"e": ALPHA, "u": ALPHA}, {"n": shape.n, "ty": rows, "tx": columns}
    made = Builder(batch)

    _flat(made, "pack_data", {**transformed, "ci": shape.ci, **image}, Place("data", at.windows(shape.data_shape)), "data.packed", ALPHA)
    _flat(made, "pack_weight", {**transformed, "ci": shape.ci, "f": shape.co}, at.weight, "weight.packed", WINOGRAD_FILTER)

    covers, depth = covered(("b", "y", "x"), tiles), tiles["rc"][1]
    product = Product(
        ("b", "y", "x"),
        ("rc",),
        1,
        (
            Fetch("data", "data.packed", _fetched(at.packed, "x"), {"pe": 1, "pu": 1, "pc": depth, "px": covers["x"]}, moves({"rc": covers["x"], "x": 1})),
            Fetch("weight", "weight.packed", _fetched(at.filters, "y"), {"ke": 1, "ku": 1, "kc": depth, "ky": covers["y"]}, moves({"rc": covers["y"], "y": 1})),
        ),
        at.written,
        {"e": 1, "u": 1, "y": tiles["y"][3], "x": tiles["x"][3]},
    )
    tiled = product.add(made, tiles)

    _flat(made, "unpack", {"f": shape.co, "t": at.count, "y": WINOGRAD_TILE, "x": WINOGRAD_TILE}, at.transformed, "tiles", ALPHA)
    _flat(made, "assemble", {"n": shape.n, "f": shape.co, "y": shape.output[0], "x": shape.output[1]}, at.assembled, "output", 0)
    return made.nest(
        [
            *arguments(shape),
            Buffer("data.packed", "global", at.packed),
            Buffer("weight.packed", "global", at.filters),
            *tiled,
            Buffer("products", "global", at.products),
            Buffer("tiles", "global", at.tiles),
        ]
    )


def _fetched(shape: tuple[int, ...], last: str) -> dict[str, Move]:
    # Moves in a batch of matrices, whose columns are the axis `last`, of the products' axes and of the fetching loops' own.
    _, matrix, row, _ = row_major(shape)
    own = {f"{letter}{axis}": step for letter in "pk" for axis, step in (("c", row), (last, 1))}
    return moves({"b": matrix, "rc": row, last: 1, **own})


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
