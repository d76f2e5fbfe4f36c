"""From axes to loop nests: loops go through parts of axes, axes say where in a buffer an access is, and strides follow.

A loop goes through a part of one axis or, where several loops were fused, of several: its iteration is then a mixed-radix number with one digit a part. A
loop may also take such numbers in steps, as those do that share out fused axes among threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.loopnest import Access, Buffer, Loop, LoopNest, Number, Statement

__all__ = ["Builder", "Digits", "Move", "Part", "Place", "Walk", "along", "row_major", "walked"]

_Array = NDArray[np.int64]
_Rows = slice | NDArray[np.intp]
_NEVER = np.iinfo(np.int64).max


class Part(NamedTuple):
    """A digit of a loop: `extent` values, each of which moves `axis` on by `weight`."""

    axis: str
    extent: Number
    weight: Number = 1


class Move(NamedTuple):
    """What an axis does to a place in a buffer: at coordinate c it adds stride x quotient + within x remainder of (scale x c + phase) / divisor, less the same
    at 0."""

    stride: Number
    scale: int = 1
    divisor: int = 1
    phase: int = 0
    within: int = 0

    def at(self, coordinate: Any) -> Any:
        """What the axis adds at a coordinate."""
        here = self.scale * coordinate if self.scale != 1 else coordinate
        if self.divisor == 1:
            return self.stride * here
        quotients = (here + self.phase) // self.divisor - self.phase // self.divisor
        return self.stride * quotients + self.within * (here - self.divisor * quotients)


_STILL = Move(0)


@dataclass(frozen=True, eq=False)
class Digits:
    """Numbers with a digit for each of some parts, the slowest first."""

    parts: tuple[Part, ...]

    @cached_property
    def count(self) -> Number:
        """How many there are."""
        return math.prod(part.extent for part in self.parts)

    @cached_property
    def orders(self) -> tuple[_Array, ...]:
        """How many numbers the digits from each one on form, and those after the last: 1. Arrays of one stand for numbers that a batch shares."""
        return tuple(np.atleast_1d(order) for order in row_major((1, *(part.extent for part in self.parts))))

    def digit(self, position: int, number: _Array, rows: _Rows = slice(None)) -> _Array:
        """Coordinate that a digit of numbers, which belong to `rows` of the batch, has moved its axis to."""
        part = self.parts[position]
        digit: _Array = number // _of(self.orders[position + 1], rows)
        # The first digit of a number that is one of these needs no remainder.
        digit = digit % _of(part.extent, rows) if position else digit
        return digit * _of(part.weight, rows)


@dataclass(frozen=True, eq=False)
class Walk:
    """A loop, and what it goes through.

    Attributes:
        name: "level.axis".
        numbers: iterations as numbers; of several walks that share out the same numbers, the same.
        annotation: one of `workbench.loopnest.ANNOTATIONS`.
        extent: iterations where they are not one for each number.
        step: what an iteration adds to the number. Those at which it has passed the last number do not run.
    """

    name: str
    numbers: Digits
    annotation: str = "none"
    extent: Number | None = None
    step: Number = 1

    @property
    def level(self) -> str:
        """The part of the name before the dot."""
        return self.name.partition(".")[0]

    @property
    def iterations(self) -> Number:
        """How many there are, run or not."""
        return self.numbers.count if self.extent is None else self.extent

    @cached_property
    def runs(self) -> Number:
        """How many run while the other loops are at their first."""
        return _number(np.minimum(self.iterations, -(-self.numbers.count // self.step)))


def along(level: str, axis: str, extent: Number, weight: Number = 1, annotation: str = "none") -> Walk:
    """A loop through a part of one axis."""
    return Walk(f"{level}.{axis}", Digits((Part(axis, extent, weight),)), annotation)


@dataclass(frozen=True, eq=False)
class Place:
    """Where an access is.

    Attributes:
        buffer: name of the buffer.
        moves: what each axis does to the place; an axis that is not here does nothing.
        still: levels of loops that do nothing either: the buffer begins anew with each of their iterations.
        row: whether the place is the number itself of the loops that have an extent of their own: they go through the buffer's axes, in order.
    """

    buffer: str
    moves: Mapping[str, Move]
    still: tuple[str, ...] = ()
    row: bool = False


def row_major(shape: Sequence[Number]) -> tuple[Number, ...]:
    """Distance in elements of neighbours along each axis of an array."""
    strides: list[Number] = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides))


class Builder:
    """A loop nest in the making: loops and statements in the order of the program.

    Args:
        batch: configurations.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._walks: list[Walk] = []
        self._parents: list[int] = []
        self._statements: list[Statement] = []

    def loops(self, inside: int, walks: Iterable[Walk]) -> int:
        """Put loops one inside the other into the loop at position `inside` (-1: into none). Returns the position of the innermost."""
        for walk in walks:
            self._walks.append(walk)
            self._parents.append(inside)
            inside = len(self._walks) - 1
        return inside

    def statement(self, name: str, inside: int, loads: Sequence[Place], store: Place, add: int = 0, mul: int = 0) -> None:
        """Put an assignment into a loop."""
        path: list[Walk] = []
        around = inside
        while around >= 0:
            path.insert(0, self._walks[around])
            around = self._parents[around]
        done: dict[int, Access] = {}
        for place in (*loads, store):
            if id(place) not in done:
                strides, mods = zip(*(walked(walk, place) for walk in path), strict=True)
                done[id(place)] = Access(place.buffer, False, strides, mods)
        stored = replace(done[id(store)], store=True)
        self._statements.append(Statement(name, inside, add, mul, 0, (*(done[id(load)] for load in loads), stored)))

    def nest(self, buffers: Iterable[Buffer]) -> LoopNest:
        """The nest."""
        loops = (Loop(walk.name, parent, walk.iterations, walk.annotation) for walk, parent in zip(self._walks, self._parents, strict=True))
        return LoopNest(self._batch, tuple(loops), tuple(buffers), tuple(self._statements))


def walked(loop: Walk, place: Place) -> tuple[Number, Number]:
    """Stride and mod of a loop for an access, as `workbench.loopnest.Access` has them."""
    moves = [place.moves.get(part.axis, _STILL) for part in loop.numbers.parts]
    if loop.level in place.still or all(move is _STILL for move in moves):
        return 0, -1
    if place.row and loop.extent is not None:
        return loop.step * (loop.runs > 1), -1
    if len(moves) == 1 and loop.extent is None and moves[0].divisor == 1:
        (part,) = loop.numbers.parts
        return moves[0].at(part.weight) * (part.extent > 1), -1
    numbers = [loop.iterations, loop.step, *(number for part, move in zip(loop.numbers.parts, moves, strict=True) for number in (*part[1:], move.stride))]
    stride, mod = _pattern(loop, moves)
    return (stride, mod) if any(isinstance(number, np.ndarray) for number in numbers) else (int(stride[0]), int(mod[0]))


def _pattern(loop: Walk, moves: Sequence[Move]) -> tuple[_Array, _Array]:
    digits = loop.numbers

    def place(number: _Array, rows: _Rows = slice(None)) -> _Array:
        # From where the access is at 0.
        return sum(
            (move._replace(stride=_of(move.stride, rows)).at(digits.digit(i, number, rows)) for i, move in enumerate(moves) if move is not _STILL),
            start=np.zeros(1, dtype=np.int64),
        )

    step = np.atleast_1d(loop.step)
    stride, first = place(step) * (loop.runs > 1), np.full(1, _NEVER)
    for suspect in _suspects(digits, moves, step):
        first = np.minimum(first, suspect)
    first, stride, step, runs = (array.copy() for array in np.broadcast_arrays(first, stride, step, loop.runs))
    # Two jumps at once may cancel out: then look at one iteration after the other.
    rows = np.flatnonzero(first < runs)
    while len(rows):
        rows = rows[place(first[rows] * step[rows], rows) == first[rows] * stride[rows]]
        first[rows] += 1
        rows = rows[first[rows] < runs[rows]]
    return stride, np.where(first < runs, first, -1)


def _suspects(digits: Digits, moves: Sequence[Move], step: _Array) -> Iterator[_Array]:
    # Iterations before the first of which the access goes on by its stride: where a digit carries into the next, or what a step leaves over of a divisor makes
    # a quotient more or less. A carry that is no jump, from the end of a row to the next row in memory, is none.
    for position in range(1, len(moves)):
        (slow, fast), (left, right) = moves[position - 1 : position + 1], digits.parts[position - 1 : position + 1]
        jumps = slow.divisor > 1 or fast.divisor > 1 or slow.at(left.weight) != fast.at(right.weight * right.extent)
        rest = step % digits.orders[position]
        yield np.where(jumps & (rest > 0), -(-digits.orders[position] // np.maximum(rest, 1)), _NEVER)
    for position, move in enumerate(moves):
        if move.divisor > 1:
            over, phase = move.scale * digits.digit(position, step) % move.divisor, move.phase % move.divisor
            later = -(-(move.divisor - phase) // np.maximum(over, 1))  # the first step makes no quotient more
            sooner = phase // (move.divisor - over) + 1  # the first step makes one more
            yield np.where(over == 0, _NEVER, np.where(over + phase < move.divisor, later, sooner))


def _number(number: Any) -> Number:
    return number if np.ndim(number) else int(number)


def _of(numbers: Number, rows: _Rows) -> Number:
    return numbers if np.size(numbers) == 1 else np.asarray(numbers)[rows]
