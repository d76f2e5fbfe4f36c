"""The super-graph: one graph that holds the loop nests of every convolution there is a nest of, after MetaTune (section 3, "super-graph augmentation").

Its loops are slots. A table says which slot a loop of a nest takes, so that loops that play the same part, and the buffers that they touch, have the same place
for all kinds and on both targets; what a nest does not have is null: zeros, and False in a mask. There is one adjacency for all: the slots form a tree, and a
nest's own graph is what is left of it when null slots are taken out, each loop then being inside the nearest one around it (`Graph.restricted`). Where two
structures have the same loops in another order, one of them has slots of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UsageError
from workbench.features.graph import Graph
from workbench.features.loops import HEAD, TOUCH, Layout, Table, stream, tables, touched
from workbench.kernels.base import Kernel
from workbench.loopnest import LoopNest, NestBatch
from workbench.schema import Workload

__all__ = ["COLUMNS", "SUPERGRAPH", "SuperGraphs", "slots", "touches"]

_Floats = NDArray[np.float32]
_Bools = NDArray[np.bool_]

# Chains of slots, each with the slot that it is in. On a GPU blocks, virtual threads and threads go through what on a CPU one parallel loop and those in the
# middle of it do. Winograd's transforms, and padding before the parallel loop, stand beside it.
_CHAINS = (
    ("", "pack_data.block pack_data.thread"),
    ("pack_data.thread", "pack_data_half.b pack_data_half.ra"),
    ("pack_data.thread", "pack_data.b pack_data.ra pack_data.rb"),
    ("", "pack_weight.block pack_weight.thread"),
    ("pack_weight.thread", "pack_weight_half.b pack_weight_half.ra"),
    ("pack_weight.thread", "pack_weight.b pack_weight.ra pack_weight.rb"),
    ("", "pad_first.nc pad_first.y pad_first.x"),
    ("", "outer block.f block.y block.x vthread.f vthread.y vthread.x thread.f thread.y thread.x"),
    ("outer", "pad.n pad.c pad.y pad.x"),
    ("thread.x", "middle.f middle.y middle.x"),
    ("middle.x", "init.f init.y init.x"),
    ("middle.x", "step.rc step.ry step.rx middle.rc middle.ry middle.rx"),
    ("middle.rx", "fetch_data.pass fetch_data.f fetch_data.y fetch_data.x fetch_data.run"),
    ("middle.rx", "fetch_weight.pass fetch_weight.f fetch_weight.y fetch_weight.x fetch_weight.run"),
    ("middle.rx", "around.f around.y inner.rc inner.ry inner.rx inner.f inner.y inner.x"),
    ("middle.x", "write.n write.f write.y write.x"),
    ("", "unpack.block unpack.thread"),
    ("unpack.thread", "unpack_half.b unpack_half.ra"),
    ("unpack.thread", "unpack.b unpack.ra unpack.rb"),
    ("", "assemble.block assemble.thread assemble.x"),
)


def _tree() -> Graph:
    names: list[str] = []
    parents: list[int] = []
    for around, chain in _CHAINS:
        for name in chain.split():
            parents.append(names.index(around) if around else -1)
            names.append(name)
            around = name
    return Graph(tuple(names), tuple(parents))


SUPERGRAPH = _tree()
_SLOT = {name: i for i, name in enumerate(SUPERGRAPH.loops)}

# Winograd's products are a batch of matrices: b, y and x take the three dimensions of the grid as f, y and x do elsewhere. Its sums are written e, u, y, x. A
# CPU transforms, in two halves, in a parallel loop and one inside it what on a GPU blocks and threads go through.
_WINOGRAD = {
    **{f"{level}.b": f"{level}.f" for level in ("block", "vthread", "thread", "middle", "init", "fetch_data", "fetch_weight", "inner")},
    "write.e": "write.n",
    "write.u": "write.f",
    **{f"{level}.outer": f"{level}.block" for level in ("pack_data", "pack_weight", "unpack", "assemble")},
    **{f"{level}.{axis}": f"{level}.thread" for level, axis in (("pack_data", "tx"), ("pack_weight", "f"), ("unpack", "t"), ("assemble", "y"))},
}
# Slots of levels whose loops stand in another order in some structures, by the loop that is then their first. A CPU pads before the parallel loop, with two
# axes in one loop; or sums up an inner tile, all but its vector, around the loops that go through the filter. FlexTensor's threads fetch side by side, in
# passes that are around them, where elsewhere each has a run of its own.
_REORDERED = {
    "pad.nc": {f"pad.{axis}": f"pad_first.{axis}" for axis in ("nc", "y", "x")},
    "inner.f": {f"inner.{axis}": f"around.{axis}" for axis in ("f", "y")},
    "inner.b": {"inner.b": "around.f", "inner.y": "around.y"},
    "fetch_data.run": {"fetch_data.run": "fetch_data.pass"},
    "fetch_weight.run": {"fetch_weight.run": "fetch_weight.pass"},
}

# Halves of transforms, which have a buffer of that name between them, and what they are of.
_HALVES = {"pack_data_half": "padded", "pack_weight_half": "weight", "unpack_half": "products"}
# What statements touch: places for columns, and who has them. A transform is a kernel of its own: no loop of it has any of the product's statements in it.
_TOUCHES: Mapping[str, tuple[str, ...]] = {
    "init.sums": ("init.sums", "pack_data_init.data.packed", "pack_weight_init.weight.packed", "unpack_init.tiles"),
    "fetch_data.source": ("fetch_data.data", "fetch_data.data.packed", "pad.data", *(f"{half}.{of}" for half, of in _HALVES.items())),
    "fetch_data.target": ("fetch_data.data.shared", "pad.padded", *(f"{half}.{half}" for half in _HALVES)),
    "fetch_weight.source": ("fetch_weight.weight", "fetch_weight.weight.packed"),
    "fetch_weight.target": ("fetch_weight.weight.shared",),
    "update.sums": ("update.sums", *(f"{half}_init.{half}" for half in _HALVES)),
    "update.data": ("update.data.shared", "update.padded", "update.data", "update.data.packed"),
    "update.weight": ("update.weight.shared", "update.weight", "update.weight.packed"),
    "write.source": (
        *("write.sums", "pack_data.data", "pack_weight.weight", "unpack.products", "assemble.tiles"),
        *(f"{half.removesuffix('_half')}.{half}" for half in _HALVES),
    ),
    "write.target": ("write.output", "write.products", "pack_data.data.packed", "pack_weight.weight.packed", "unpack.tiles", "assemble.output"),
}
_PLACE = {name: place for place, names in enumerate(_TOUCHES.values()) for name in names}

COLUMNS: tuple[str, ...] = (*HEAD, *(f"{touch}.{number}" for touch in _TOUCHES for number in TOUCH))
"""Names of the numbers of a slot: those of `LoopVectors`, with the buffers by what they are for."""


def slots(nest: LoopNest) -> dict[str, int]:
    """Each loop of a nest, and the position of its slot in SUPERGRAPH.loops. Raises UsageError for a loop that has none."""
    names = dict(_WINOGRAD)
    firsts = {name.partition(".")[0]: name for name in reversed(nest.names)}
    for first in firsts.values():
        names |= _REORDERED.get(first, {})
    found = {}
    for name in nest.names:
        slot = names.get(name, name)
        if slot not in _SLOT:
            raise UsageError(f"loop {name!r} has no slot in the super-graph, which holds convolutions")
        found[name] = _SLOT[slot]
    return found


def touches(nests: NestBatch) -> dict[str, int]:
    """Each buffer that a statement touches, and its place among the touched buffers of COLUMNS. Raises UsageError for one that has none."""
    for name in touched(nests):
        if name not in _PLACE:
            raise UsageError(f"{name!r} has no columns in the super-graph, which holds convolutions")
    return {name: _PLACE[name] for name in touched(nests)}


@dataclass(frozen=True)
class SuperGraphs:
    """Super-graphs of the configurations of a workload in one space.

    Only `iterval` nodes carry features, so arrays [configurations, slots, columns] have them alone: slots in the order of `SUPERGRAPH.loops`, which are the
    super-graph's nodes `SUPERGRAPH.itervals`, and columns as COLUMNS names them.

    Args:
        kernel, workload, space: whose; the name of the space may be None for the kernel's first.
        logarithms: whether each number x is sign(x) log2(1 + |x|), which is what AutoTVM's models see; 0 and 1 stay.

    Raises:
        UsageError: the space is not there, has no loop nests, or has some that do not fit into the super-graph.
    """

    kernel: Kernel
    workload: Workload
    space: str | None = None
    logarithms: bool = False

    def __post_init__(self) -> None:
        self.present  # noqa: B018 what cannot be is said now

    @cached_property
    def _empty(self) -> NestBatch:
        return self.kernel.loop_nest(self.workload, np.arange(0), self.space)

    @cached_property
    def _places(self) -> dict[str, int]:
        return touches(self._empty)

    @cached_property
    def present(self) -> _Bools:
        """Which slots each structure has [structures, slots]."""
        found = np.zeros((len(self._empty.parts), len(SUPERGRAPH.loops)), dtype=bool)
        for structure, (_, nest) in enumerate(self._empty.parts):
            found[structure, list(slots(nest).values())] = True
        return found

    def ast(self, structure: int) -> Graph:
        """The graph of a structure alone: what is left of the super-graph without null slots."""
        return SUPERGRAPH.restricted(self.present[structure])

    def of(self, indices: ArrayLike) -> tuple[_Floats, _Bools]:
        """Super-graphs of configurations `indices` [n]: features [n, slots, columns], zeros where null, and which slots are there [n, slots].

        Raises:
            SpaceError: an index that is not in the space.
        """
        given = np.asarray(indices)
        found = np.empty((len(given), len(SUPERGRAPH.loops), len(COLUMNS)), dtype=np.float32)
        there = np.empty(found.shape[:2], dtype=bool)
        for places, structure, features in self.stream(given):
            found[places], there[places] = features, self.present[structure]
        return found, there

    def stream(self, indices: ArrayLike, rows: int = 128) -> Iterator[tuple[NDArray[np.intp], int, _Floats]]:
        """The same in pieces that fit into the cache, without ever holding them all.

        Args:
            indices: configurations [n].
            rows: at most so many in a piece.

        Yields:
            Places in `indices` [m] of configurations that have one structure, the number of the structure (a row of `present`), and their features
            [m, slots, columns]. The array is written anew for the next piece: copy what shall stay.

        Raises:
            UsageError: `rows` is not positive.
            SpaceError: an index that is not in the space.
        """
        return stream(self.kernel, self.workload, self.space, indices, self._layout, rows, self.logarithms)

    def tables(self, indices: ArrayLike) -> Iterator[tuple[NDArray[np.intp], int, Table]]:
        """The numbers of features before they are put together, with places and structure as in `stream`: for who multiplies what varies alone.

        Raises:
            SpaceError: an index that is not in the space.
        """
        return tables(self.kernel, self.workload, self.space, indices, self._layout, 1, self.logarithms)

    def _layout(self, nest: LoopNest) -> Layout:
        return Layout(slots(nest), self._places, (len(SUPERGRAPH.loops), len(_TOUCHES)))
