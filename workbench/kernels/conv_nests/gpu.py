"""The nest of the template in `kernels.tir.gpu`, and of others that tile sums of products for a GPU in this way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.kernels.conv_nests.places import Places, Tiles, arguments
from workbench.kernels.nesting import Builder, Digits, Move, Part, Place, Walk, along, row_major
from workbench.loopnest import Buffer, LoopNest, Number

__all__ = ["Fetch", "Product", "nest"]

# Dimensions of the grid, by how many axes there are.
_DIMENSIONS = {2: ("z", "x"), 3: ("z", "y", "x")}
# Levels of the loops around a thread's work, and those that have a shared buffer within them.
_AROUND = ("block", "vthread", "thread", "step", "middle")
_AROUND_SHARED = ("block", "step", "middle")


@dataclass(frozen=True)
class Fetch:
    """What a block brings into shared memory for each step.

    Attributes:
        name: of what is fetched: loops and statement have the level "fetch_name", the shared buffer is "name.shared".
        source: buffer that it comes from.
        moves: of the loops around it and of its own axes, in that buffer.
        region: extent of each of its own axes: what is fetched, and the shared buffer's shape.
        inside: moves of the multiplication's axes in the shared buffer, of distances between neighbours.
    """

    name: str
    source: str
    moves: Mapping[str, Move]
    region: Mapping[str, Number]
    inside: Mapping[str, Move]

    @property
    def buffer(self) -> Buffer:
        """The shared buffer."""
        return Buffer(f"{self.name}.shared", "shared", tuple(self.region.values()))

    @property
    def own(self) -> dict[str, Move]:
        """Moves of its own axes in the shared buffer."""
        return dict(zip(self.region, map(Move, row_major(tuple(self.region.values()))), strict=True))


@dataclass(frozen=True)
class Product:
    """What is tiled: sums of products. Spatial axes are in four tiles; reduction axes in two, or in three with a level "middle" inside the steps.

    Attributes:
        spatial, reduction: axes.
        batch: iterations that are fused with the first axis' blocks: axis n.
        fetches: its two factors.
        output: where the sums go.
        write: extents of the loops that write a thread's sums, by axis, which is the shape of the sums.
        neighbours: whether neighbouring threads fetch neighbouring elements; else each brings a run of them.
    """

    spatial: Sequence[str]
    reduction: Sequence[str]
    batch: int
    fetches: Sequence[Fetch]
    output: Place
    write: Mapping[str, Number]
    neighbours: bool = False

    def add(self, made: Builder, tiles: Tiles) -> list[Buffer]:
        """Put its loops and statements into a nest. Returns the buffers that only it has, in the order of their first use."""
        covers, dimensions = covered(self.spatial, tiles), _DIMENSIONS[len(self.spatial)]
        first, *others = self.spatial
        blocks = [
            Walk(f"block.{first}", Digits((Part("n", self.batch), Part(first, tiles[first][0], covers[first]))), f"blockIdx.{dimensions[0]}"),
            *(along("block", axis, tiles[axis][0], covers[axis], f"blockIdx.{at}") for axis, at in zip(others, dimensions[1:], strict=True)),
        ]
        virtual = [along("vthread", axis, tiles[axis][1], tiles[axis][2] * tiles[axis][3], "vthread") for axis in self.spatial]
        threads = [along("thread", axis, tiles[axis][2], tiles[axis][3], f"threadIdx.{at}") for axis, at in zip(self.spatial, dimensions, strict=True)]
        sums = Place("sums", dict(zip(self.write, map(Move, row_major(tuple(self.write.values()))), strict=True)), _AROUND)
        thread = made.loops(-1, [*blocks, *virtual, *threads])
        made.statement("init", made.loops(thread, [along("init", axis, tiles[axis][3]) for axis in self.spatial]), [], sums)
        levels = ("step", "middle")[: len(tiles[self.reduction[0]]) - 1]
        outer = [along(level, axis, tiles[axis][i], math.prod(tiles[axis][i + 1 :])) for i, level in enumerate(levels) for axis in self.reduction]
        step = made.loops(thread, outer)
        for fetch in self.fetches:
            self._fetch(made, step, fetch, [tiles[axis][2] for axis in self.spatial])
        inner = [along("inner", axis, tiles[axis][-1]) for axis in self.reduction] + [along("inner", axis, tiles[axis][3]) for axis in self.spatial]
        factors = [Place(fetch.buffer.name, fetch.inside, _AROUND_SHARED) for fetch in self.fetches]
        made.statement("update", made.loops(step, inner), [sums, *factors], sums, add=1, mul=1)
        made.statement("write", made.loops(thread, [along("write", axis, extent) for axis, extent in self.write.items()]), [sums], self.output)
        return [Buffer("sums", "local", tuple(self.write.values())), *(fetch.buffer for fetch in self.fetches)]

    def _fetch(self, made: Builder, step: int, fetch: Fetch, threads: Sequence[Number]) -> None:
        # The elements stand in one row. Its runs are as many as there are threads, or as long.
        numbers = Digits(tuple(Part(axis, extent) for axis, extent in fetch.region.items()))
        count, level = math.prod(threads), f"fetch_{fetch.name}"
        length = -(-numbers.count // count)
        walks = [
            Walk(f"{level}.{axis}", numbers, f"threadIdx.{at}", threads[i], math.prod(threads[i + 1 :]) * (1 if self.neighbours else length))
            for i, (axis, at) in enumerate(zip(self.spatial, _DIMENSIONS[len(self.spatial)], strict=True))
        ]
        run = Walk(f"{level}.run", numbers, "none", length, count if self.neighbours else 1)
        load, store = Place(fetch.source, fetch.moves, ("vthread", "thread")), Place(fetch.buffer.name, fetch.own, row=True)
        made.statement(level, made.loops(step, [run, *walks] if self.neighbours else [*walks, run]), [load], store)


def covered(spatial: Sequence[str], tiles: Tiles) -> dict[str, Number]:
    """Outputs of a block along each axis."""
    return {axis: math.prod(tiles[axis][1:]) for axis in spatial}


def nest(at: Places, tiles: Tiles, batch: int, neighbours: bool = False) -> LoopNest:
    """The nest of `batch` configurations of a direct convolution; see `Product`."""
    covers, within = covered(at.spatial, tiles), {axis: tiles[axis][-1] for axis in at.reduction}
    region = at.region(covers, within)
    filters = {own: covers["f"] if axis == "f" else within.get(axis, 1) for own, axis in at.filter_axes.items()}
    product = Product(
        at.spatial,
        at.reduction,
        at.shape.n,
        (
            Fetch("data", "data", at.data, dict(zip(at.input_axes(region), region, strict=True)), at.input(row_major(region))),
            Fetch("weight", "weight", at.weight, filters, at.filters(row_major(tuple(filters.values())))),
        ),
        Place("output", at.output(row_major(at.shape.output_shape))),
        {"n": 1, **{axis: tiles[axis][3] for axis in at.spatial}},
        neighbours,
    )
    made = Builder(batch)
    buffers = product.add(made, tiles)
    return made.nest([*arguments(at.shape), *buffers])
