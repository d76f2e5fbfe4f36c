"""The nest of winograd in `kernels.tir.cpu`: padding and transforms, products, transforms back, and the output put together."""

from __future__ import annotations

from workbench.kernels.conv import WINOGRAD_FILTER, WINOGRAD_TILE
from workbench.kernels.conv_nests.cpu import Product, pad_first
from workbench.kernels.conv_nests.places import Tiles, arguments
from workbench.kernels.conv_nests.winograd import ALPHA, Winograd, moves
from workbench.kernels.conv_shape import shape_of
from workbench.kernels.nesting import Builder, Digits, Part, Place, Walk, along, row_major
from workbench.loopnest import Buffer, LoopNest
from workbench.schema import Workload

__all__ = ["nest"]


def nest(workload: Workload, tiles: Tiles, batch: int, order: int) -> LoopNest:
    """The nest of `batch` configurations of a winograd convolution that have this value of `order`."""
    at = Winograd(shape_of(workload))
    shape, (rows, columns) = at.shape, at.image
    # The axes of the padded input are those of loops that pad.
    region = {"pn": shape.n, "pc": shape.ci, "py": rows * WINOGRAD_TILE + WINOGRAD_FILTER - 1, "px": columns * WINOGRAD_TILE + WINOGRAD_FILTER - 1}
    whole = tuple(region.values())
    padded = Place("padded", {**at.windows(whole), **moves(dict(zip(region, row_major(whole), strict=True)))})
    line, matrix, row, _ = row_major(at.packed)
    packed = Place("data.packed", moves({"e": line, "u": matrix, "b": matrix, "rc": row, "x": 1, "ci": row, "n": rows * columns, "ty": columns, "tx": 1}))
    line, matrix, row, _ = row_major(at.filters)
    filters = Place("weight.packed", moves({"e": line, "u": matrix, "b": matrix, "rc": row, "y": 1, "ci": row, "f": 1}))
    channel, tile, line, _ = row_major(at.tiles)
    back = Place("tiles", moves({"f": channel, "t": tile, "e": line, "u": 1}))
    product = Product(("b", "y", "x"), ("rc",), 1, tiles, order, {"e": 1, "u": 1, "y": tiles["y"][2], "x": tiles["x"][2]})

    made = Builder(batch)
    pad_first(made, region, Place("data", moves(dict(zip(region, row_major(shape.data_shape), strict=True)))), padded)
    of_input = (Part("ci", shape.ci), Part("n", shape.n), Part("ty", rows))
    data_half = _transform(made, "pack_data", of_input, Part("tx", columns), ALPHA, ALPHA, padded, packed)
    weight_half = _transform(made, "pack_weight", (Part("ci", shape.ci),), Part("f", shape.co), ALPHA, WINOGRAD_FILTER, at.weight, filters)
    sums = product.add(made, made.loops(-1, [product.outer]), [packed, filters], at.written)
    tiles_half = _transform(made, "unpack", (Part("f", shape.co),), Part("t", at.count), WINOGRAD_TILE, ALPHA, at.transformed, back)
    output = Place("output", moves(dict(zip(("n", "f", "y", "x"), row_major(shape.output_shape), strict=True))))
    together = Walk("assemble.outer", Digits((Part("n", shape.n), Part("f", shape.co))), "parallel")
    inside = made.loops(-1, [together, *(along("assemble", axis, extent) for axis, extent in zip("yx", shape.output, strict=True))])
    made.statement("assemble", inside, [at.assembled], output)
    return made.nest(
        [
            *arguments(shape),
            Buffer("padded", "global", whole),
            data_half,
            Buffer("data.packed", "global", at.packed),
            weight_half,
            Buffer("weight.packed", "global", at.filters),
            sums,
            Buffer("products", "global", at.products),
            tiles_half,
            Buffer("tiles", "global", at.tiles),
        ]
    )


def _transform(made: Builder, what: str, outer: tuple[Part, ...], inner: Part, size: int, summed: int, load: Place, store: Place) -> Buffer:
    # Each of the size x size elements of a tile is made of summed x summed elements of another, first of their columns, then of what that gives. Returns the
    # buffer between the two.
    within = made.loops(-1, [Walk(f"{what}.outer", Digits(outer), "parallel"), along(what, inner.axis, inner.extent)])
    half = Place(f"{what}_half", moves({"e": summed, "rb": 1}))
    for level, column, loads, result, axis in ((f"{what}_half", Part("rb", summed), load, half, "ra"), (what, Part("u", size), half, store, "rb")):
        elements = Walk(f"{level}.b", Digits((Part("e", size), column)), "unroll")
        inside = made.loops(within, [elements, along(level, axis, summed, annotation="unroll")])
        made.statement(f"{level}_init", inside, [], result)
        made.statement(level, inside, [result, loads], result, add=1, mul=1)
    return Buffer(half.buffer, "global", (size, summed, 1, 1))
