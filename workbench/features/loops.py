"""Loop context vectors: what a model sees of each loop of a kernel, in numbers (AutoTVM's features of iteration variables, which MetaTune learns from).

For each loop its length, its nest level, the product of the lengths from the outside down to it and from the inside up to it; what it is besides a sequence;
the floating-point operations directly inside it; and for each buffer that a statement inside it touches

    stride, mod                 how the place moves with the loop (see `workbench.loopnest.Access`)
    count, reuse                how many places the loop and those inside it go through, and how often they are at each
    thread_count, thread_reuse  the same of loops of its own kind alone (blocks, threads, parallel ones); 0 for other loops

Where a place stands still for the first `mod` iterations, `mod` of the loop's iterations are reuse. Loops that are bound to a dimension of threads inside a
loop that is bound to it already, as those that fetch together are, are the same threads once more: a product has each dimension once. A statement that loads
and stores one buffer touches it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UsageError
from workbench.kernels.base import Kernel
from workbench.loopnest import ANNOTATIONS, Access, LoopNest, NestBatch, Number
from workbench.schema import Workload

__all__ = ["HEAD", "TOUCH", "Layout", "LoopVectors", "Table", "context_vectors", "stream", "tables", "touched"]

_Floats = NDArray[np.float32]
_PRODUCTS = ("length", "nest_level", "topdown", "bottomup")
_LENGTH, _LEVEL, _TOPDOWN, _BOTTOMUP = range(4)
_ARITHMETIC = ("add", "mul", "div")
# Columns of a loop, and after them those of each buffer that is touched inside it.
HEAD = (*_PRODUCTS, *ANNOTATIONS, *_ARITHMETIC)
TOUCH = ("stride", "mod", "count", "reuse", "thread_count", "thread_reuse")
# Configurations whose nests are made at once, and whose vectors are given out at once: numbers of the one and vectors of the other fit into a cache.
_CHUNK, _ROWS = 4096, 512
_BLOCK = 16  # rows of numbers whose logarithms are taken at once


def context_vectors(nests: NestBatch) -> _Floats:
    """Vectors of a whole batch, [configurations, nodes, columns], with nodes and columns as `LoopVectors` has them. A loop that is not there has zeros."""
    layout = _by_name(nests)
    found = np.zeros((nests.size, *layout.shape), dtype=np.float32)
    for places, nest in nests.parts:
        table = Table(nest, layout, max(nest.batch, 1))
        table.fill(nest)
        for start in range(0, nest.batch, _ROWS):
            rows = places[start : start + _ROWS]
            found[rows] = table.rows(start, len(rows))
    return found


def touched(nests: NestBatch) -> tuple[str, ...]:
    """The buffers that statements touch, "statement.buffer", of all structures; each stands for the columns TOUCH."""
    found = dict.fromkeys(f"{statement.name}.{access.buffer}" for _, nest in nests.parts for statement in nest.statements for access in statement.accesses)
    return tuple(found)


@dataclass(frozen=True)
class Layout:
    """Where the numbers of a structure stand in an array [configurations, nodes, columns].

    Attributes:
        nodes: name of a loop -> its place among the nodes.
        touches: buffer that a statement touches, "statement.buffer" -> the place of its columns, counted in buffers. Two that no loop has both inside it may
            have one place.
        size: how many nodes, and how many places for buffers, there are.
    """

    nodes: Mapping[str, int]
    touches: Mapping[str, int]
    size: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes and columns."""
        return self.size[0], len(HEAD) + len(TOUCH) * self.size[1]


def _by_name(nests: NestBatch) -> Layout:
    nodes, touches = nests.nodes, touched(nests)
    return Layout({name: i for i, name in enumerate(nodes)}, {name: i for i, name in enumerate(touches)}, (len(nodes), len(touches)))


def stream(
    kernel: Kernel,
    workload: Workload,
    space: str | None,
    indices: ArrayLike,
    layout: Callable[[LoopNest], Layout],
    rows: int = _ROWS,
    logarithms: bool = False,
) -> Iterator[tuple[NDArray[np.intp], int, _Floats]]:
    """Vectors in pieces that fit into the cache, as `LoopVectors.stream` gives them, in a layout of one's own, which may differ with the structure."""
    if rows < 1:
        raise UsageError(f"a piece has at least one row, not {rows}")
    for places, structure, table in tables(kernel, workload, space, indices, layout, rows, logarithms):
        for first in range(0, len(places), rows):
            piece = places[first : first + rows]
            yield piece, structure, table.rows(first, len(piece))


def tables(
    kernel: Kernel,
    workload: Workload,
    space: str | None,
    indices: ArrayLike,
    layout: Callable[[LoopNest], Layout],
    rows: int = _ROWS,
    logarithms: bool = False,
) -> Iterator[tuple[NDArray[np.intp], int, Table]]:
    """The numbers of vectors before they are put together, for thousands of configurations at once, with places and structure as `stream` has them.

    A structure's table is the same object each time, filled anew: copy what shall stay.
    """
    given = np.asarray(indices)
    found: dict[int, Table] = {}
    for start in range(0, len(given), _CHUNK):
        nests = kernel.loop_nest(workload, given[start : start + _CHUNK], space)
        for structure, (places, nest) in enumerate(nests.parts):
            if structure not in found:
                found[structure] = Table(nest, layout(nest), min(len(given), _CHUNK), rows, logarithms)
            found[structure].fill(nest)
            yield start + places, structure, found[structure]


@dataclass(frozen=True)
class LoopVectors:
    """Loop context vectors of the configurations of a workload in one space.

    Args:
        kernel, workload, space: whose; the name of the space may be None for the kernel's first.
        logarithms: whether each number x is sign(x) log2(1 + |x|), which is what AutoTVM's models see; 0 and 1 stay.

    Raises:
        UsageError: the space is not there, or has no loop nests.
    """

    kernel: Kernel
    workload: Workload
    space: str | None = None
    logarithms: bool = False

    def __post_init__(self) -> None:
        self._empty  # noqa: B018 what cannot be is said now

    @cached_property
    def _empty(self) -> NestBatch:
        return self.kernel.loop_nest(self.workload, np.arange(0), self.space)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the loops, for the second axis: those of all structures that the space has."""
        return self._empty.nodes

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers, for the third axis."""
        return (*HEAD, *(f"{buffer}.{number}" for buffer in touched(self._empty) for number in TOUCH))

    def of(self, indices: ArrayLike) -> _Floats:
        """Vectors of configurations `indices` [n]: [n, nodes, columns]. Raises SpaceError for an index that is not in the space."""
        given = np.asarray(indices)
        found = np.empty((len(given), len(self.nodes), len(self.columns)), dtype=np.float32)
        for places, _, vectors in self.stream(given):
            found[places] = vectors
        return found

    def stream(self, indices: ArrayLike, rows: int = _ROWS) -> Iterator[tuple[NDArray[np.intp], int, _Floats]]:
        """The same in pieces that fit into the cache, without ever holding them all.

        Args:
            indices: configurations [n].
            rows: at most so many in a piece.

        Yields:
            Places in `indices` [m] of configurations that have one structure, the number of the structure (the part of `NestBatch`), and their vectors
            [m, nodes, columns]. The array is written anew for the next piece: copy what shall stay.

        Raises:
            UsageError: `rows` is not positive.
            SpaceError: an index that is not in the space.
        """
        layout = _by_name(self._empty)
        return stream(self.kernel, self.workload, self.space, indices, lambda _: layout, rows, self.logarithms)


class Table:
    """The numbers of a structure that are not the same zero for all, each a row over the configurations; what no knob changes is a constant, whose
    row is filled when it is first copied from.

    Vectors are copied from it in pieces: going through a table this way round is many times faster than writing one number of each vector after the other.

    Attributes:
        places: node and column of each row [rows, 2].
        varies: whether a knob changes it [rows]; known once the table has been filled. `numbers` has others' rows only after a call of `rows`.
    """

    def __init__(self, nest: LoopNest, layout: Layout, size: int, rows: int = _ROWS, logarithms: bool = False) -> None:
        self._written, self._copied, self._logarithms = False, False, logarithms
        self._size = 0
        self._runs: list[tuple[int, int, int, int]] = []  # node, first and last column, first row
        self._row: dict[tuple[int, int], int] = {}  # of a loop and a column
        self._out = np.zeros((min(rows, size), *layout.shape), dtype=np.float32)
        self._place = {name: len(HEAD) + len(TOUCH) * place for name, place in layout.touches.items()}
        for loop, name in enumerate(nest.names):
            node = layout.nodes[name]
            self._out[:, node, HEAD.index(nest.loops[loop].annotation)] = 1
            inside = [statement for statement in nest.statements if loop in nest.paths[statement.loop]]
            for i, count in enumerate(_ARITHMETIC):
                self._out[:, node, HEAD.index(_ARITHMETIC[0]) + i] = sum(getattr(statement, count) for statement in inside if statement.loop == loop)
            firsts = sorted({self._place[f"{statement.name}.{access.buffer}"] for statement in inside for access in statement.accesses})
            wanted = [*range(len(_PRODUCTS)), *(first + i for first in firsts for i in range(len(TOUCH)))]
            for column in wanted:
                if not self._runs or self._runs[-1][0] != node or self._runs[-1][2] != column:
                    self._runs.append((node, column, column, len(self._row)))
                self._runs[-1] = (*self._runs[-1][:2], column + 1, self._runs[-1][3])
                self._row[loop, column] = len(self._row)
        self.places = np.array([(layout.nodes[nest.names[loop]], column) for loop, column in self._row], dtype=np.intp).reshape(-1, 2)
        self.varies = np.zeros(len(self._row), dtype=bool)
        self._constant = np.zeros(len(self._row), dtype=np.float32)
        # A row more than a power of two apart, so that the same configurations of all rows do not fall into one set of the cache.
        self._numbers = np.zeros((len(self._row), size + 16), dtype=np.float32)
        # What is given out: the numbers themselves, which products are made of, or others.
        self._given = np.empty(self._numbers.shape, dtype=np.float32) if logarithms else self._numbers
        if logarithms:
            self._out = _logarithms(self._out)

    @property
    def numbers(self) -> _Floats:
        """What vectors are made of [rows, configurations], a view."""
        return self._given[:, : self._size]

    def rows(self, first: int, count: int) -> _Floats:
        """Vectors of `count` of the configurations that the table was filled with [count, nodes, columns], written anew by the next call."""
        if not self._copied:
            self._given[~self.varies] = (_logarithms(self._constant) if self._logarithms else self._constant)[~self.varies, None]
            self._copied = True
        out = self._out[:count]
        for node, start, end, row in self._runs:
            out[:, node, start:end] = self._given[row : row + end - start, first : first + count].T
        return out

    def fill(self, nest: LoopNest) -> None:
        """Take the numbers of a nest of the structure, of at most as many configurations as there is room for."""
        self._size = nest.batch
        extents = [_floats(loop.extent) for loop in nest.loops]
        outer: list[Any] = []  # products from the outside
        for loop, path in enumerate(nest.paths):
            tag = nest.loops[loop].annotation
            same = tag.startswith("threadIdx") and tag in (nest.loops[around].annotation for around in path[:-1])
            before = outer[path[-2]] if len(path) > 1 else 1.0
            outer.append(self._product(loop, _TOPDOWN, before, 1.0 if same else extents[loop]))
            self._write(loop, _LENGTH, extents[loop])
            self._write(loop, _LEVEL, float(len(path)))
        inner: list[Any] = [None for _ in nest.loops]  # products from the inside, the largest of those of all statements
        for statement in nest.statements:
            path = nest.paths[statement.loop]
            again = _again([nest.loops[loop].annotation for loop in path])
            below: Any = 1.0
            for loop, skip in zip(reversed(path), reversed(again), strict=True):
                below = below if skip else below * extents[loop]
                inner[loop] = below if inner[loop] is None else np.maximum(inner[loop], below)
            seen = set()
            for access in statement.accesses:
                if access.buffer not in seen:
                    seen.add(access.buffer)
                    self._touch(nest, path, again, extents, access, self._place[f"{statement.name}.{access.buffer}"])
        for loop, product in enumerate(inner):
            self._write(loop, _BOTTOMUP, -1.0 if product is None else product)
        if self._logarithms:
            changed = np.flatnonzero(self.varies)
            for start in range(0, len(changed), _BLOCK):
                block = changed[start : start + _BLOCK]
                self._given[block, : self._size] = _logarithms(self._numbers[block, : self._size])
        self._written = True

    def _touch(self, nest: LoopNest, path: tuple[int, ...], again: list[bool], extents: list[Any], access: Access, column: int) -> None:
        count: Any = 1.0
        reuse: Any = 1.0
        alone: dict[str, tuple[Any, Any]] = {}
        for loop, stride, mod, skip in reversed(list(zip(path, access.strides, access.mods, again, strict=True))):
            self._write(loop, column, _floats(stride))
            self._write(loop, column + 1, _floats(mod))
            moves, stays = (1.0, 1.0) if skip else _shares(extents[loop], stride, mod)
            count, reuse = self._product(loop, column + 2, count, moves), self._product(loop, column + 3, reuse, stays)
            kind = nest.loops[loop].annotation.partition(".")[0]
            if kind in ("blockIdx", "threadIdx", "parallel"):
                before = alone.get(kind, (1.0, 1.0))
                alone[kind] = self._product(loop, column + 4, before[0], moves), self._product(loop, column + 5, before[1], stays)

    def _write(self, loop: int, column: int, value: Any) -> Any:
        # Returns what has been written, for products to come.
        place = self._row[loop, column]
        if isinstance(value, np.ndarray):
            row: _Floats = self._numbers[place, : self._size]
            row[:] = value
            self.varies[place] = True
            return row
        if not self._written:
            self._constant[place] = value
        return value

    def _product(self, loop: int, column: int, left: Any, right: Any) -> Any:
        if not isinstance(left, np.ndarray) and not isinstance(right, np.ndarray):
            return self._write(loop, column, left * right)
        place = self._row[loop, column]
        row: _Floats = self._numbers[place, : self._size]
        self.varies[place] = True
        return np.multiply(left, right, out=row)


def _logarithms(numbers: _Floats) -> _Floats:
    found = np.abs(numbers)
    found += 1
    return np.copysign(np.log2(found, out=found), numbers, out=found)


def _floats(number: Number) -> Any:
    return number.astype(np.float32) if isinstance(number, np.ndarray) else float(number)


def _again(annotations: list[str]) -> list[bool]:
    # Of the loops around a statement, those over threads whose dimension has another loop further inside.
    return [tag.startswith("threadIdx") and tag in annotations[i + 1 :] for i, tag in enumerate(annotations)]


def _shares(extent: Any, stride: Number, mod: Number) -> tuple[Any, Any]:
    # Of a loop's iterations, by how many the places are more and by how many they are revisited; one times the other is the extent.
    if not isinstance(stride, np.ndarray) and not isinstance(mod, np.ndarray):
        stays = 1.0 if stride else float(mod) if mod > 0 else extent
    else:
        still = extent if not isinstance(mod, np.ndarray) and mod < 0 else np.where(np.asarray(mod) > 0, mod, extent)
        stays = np.where(np.asarray(stride) != 0, np.float32(1), np.float32(1) * still).astype(np.float32, copy=False)
    return extent / stays, stays
