"""Loop nests of kernels, for a whole batch of configurations at once: loops, buffers, and how each access to a buffer moves with each loop around it.

A nest is a tree whose shape does not depend on the configuration: a loop of one iteration stays a loop. Numbers do depend on it, so each is either one for
the whole batch, a Python int, or an array with one for each configuration. Knobs that change which loops there are, or their order, give a batch nests of
several structures (`NestBatch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workbench.errors import UsageError

__all__ = ["ANNOTATIONS", "Access", "Buffer", "Loop", "LoopNest", "NestBatch", "Number", "Statement", "pattern"]

Number = int | NDArray[np.int64]

# What a loop is besides a sequence of iterations, in the order of AutoTVM's one-hot code.
_GRID = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
ANNOTATIONS = (*_GRID, "unroll", "vectorize", "parallel", "none", "vthread")


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop.

    Attributes:
        name: what the loop is for; the same for the loops of all kinds of a kernel that play the same part.
        parent: position of the loop around it in `LoopNest.loops`, -1 where there is none.
        extent: iterations.
        annotation: one of ANNOTATIONS.
    """

    name: str
    parent: int
    extent: Number
    annotation: str = "none"


@dataclass(frozen=True, eq=False)
class Buffer:
    """An array in memory, of float32, row-major. `scope` is where it lies: "global", "constant", "shared" by a GPU's block, or "local" to a thread."""

    name: str
    scope: str
    shape: tuple[Number, ...]


@dataclass(frozen=True, eq=False)
class Access:
    """A load or a store of a statement.

    Attributes:
        buffer: name of the buffer.
        store: whether it writes.
        strides: for each loop around the statement, outermost first, the distance in elements between the places of its first and its second iteration,
            the other loops being at their first; 0 where it has one iteration only.
        mods: for each of them after how many iterations that distance first is another one, -1 where it never is. A fused loop has such a place: one over
            channels and rows goes on by a row until the rows of a channel are through.
    """

    buffer: str
    store: bool
    strides: tuple[Number, ...]
    mods: tuple[Number, ...]


@dataclass(frozen=True, eq=False)
class Statement:
    """An assignment to an element of a buffer.

    Attributes:
        name: what it does; the same for the statements of all kinds of a kernel that do it.
        loop: position in `LoopNest.loops` of the innermost loop around it.
        add, mul, div: floating-point additions and subtractions, multiplications, divisions; computing indices is none.
        accesses: loads in the order in which they are read, then the store.
    """

    name: str
    loop: int
    add: int
    mul: int
    div: int
    accesses: tuple[Access, ...]


@dataclass(frozen=True, eq=False)
class LoopNest:
    """The loops of a batch of configurations that share their structure.

    Attributes:
        batch: configurations; the length of every array.
        loops: every loop before those inside it, in the order of the program.
        buffers: those of the function's arguments, then the others, in the order of first use.
        statements: in the order of the program.

    Raises:
        UsageError: loops out of order, an unknown annotation or buffer, a name given twice, a number for another batch, or an access without a stride for
            every loop around it.
    """

    batch: int
    loops: tuple[Loop, ...]
    buffers: tuple[Buffer, ...]
    statements: tuple[Statement, ...]

    def __post_init__(self) -> None:
        for place, loop in enumerate(self.loops):
            before = self.paths[place - 1] if place else ()
            if loop.parent != -1 and loop.parent not in before:
                raise UsageError(
                    f"loop {loop.name!r} at {place} cannot be inside loop {loop.parent}: it stands neither first in that loop nor after others of it"
                )
            if loop.annotation not in ANNOTATIONS:
                raise UsageError(f"loop {loop.name!r} cannot be {loop.annotation!r}; a loop is one of {', '.join(ANNOTATIONS)}")
            self._check(f"loop {loop.name!r}", loop.extent)
        for buffer in self.buffers:
            self._check(f"buffer {buffer.name!r}", *buffer.shape)
        names = [buffer.name for buffer in self.buffers]
        for what, given in (("loops", self.names), ("statements", [statement.name for statement in self.statements]), ("buffers", names)):
            if len(set(given)) < len(given):
                raise UsageError(f"two {what} have one name: {', '.join(given)}")
        for statement in self.statements:
            for access in statement.accesses:
                if access.buffer not in names:
                    raise UsageError(f"an access is to buffer {access.buffer!r}; there are {', '.join(names)}")
                around = len(self.paths[statement.loop])
                if not len(access.strides) == len(access.mods) == around:
                    numbers = f"{len(access.strides)} strides and {len(access.mods)} mods"
                    raise UsageError(f"an access to {access.buffer!r} has {numbers}; {around} loops are around it")
                self._check(f"an access to {access.buffer!r}", *access.strides, *access.mods)

    def _check(self, what: str, *numbers: Number) -> None:
        for number in numbers:
            if isinstance(number, np.ndarray) and number.shape != (self.batch,):
                raise UsageError(f"{what} has numbers of shape {number.shape}; the batch has {self.batch} configurations")

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """For every loop the positions of the loops around it, outermost first, and its own."""
        found: list[tuple[int, ...]] = []
        for place, loop in enumerate(self.loops):
            found.append((*(found[loop.parent] if loop.parent >= 0 else ()), place))
        return tuple(found)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the loops."""
        return tuple(loop.name for loop in self.loops)


@dataclass(frozen=True, eq=False)
class NestBatch:
    """The loop nests of a batch of configurations.

    Attributes:
        size: configurations.
        parts: for each structure that the space has, the places [n] in the batch of the configurations that have it, ascending, and their nest; n may be 0.
    """

    size: int
    parts: tuple[tuple[NDArray[np.intp], LoopNest], ...]

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Names of the loops of all structures. A loop that several have stands once, where the first of them has it."""
        names: Mapping[str, None] = dict.fromkeys(name for _, nest in self.parts for name in nest.names)
        return tuple(names)


def pattern(places: NDArray[np.int64]) -> tuple[int, int]:
    """Stride and mod, as `Access` has them, of the places [iterations] that an access goes through with one loop."""
    if len(places) < 2:
        return 0, -1
    stride = int(places[1] - places[0])
    other = np.flatnonzero(np.diff(places) != stride)
    return stride, int(other[0]) + 1 if other.size else -1
