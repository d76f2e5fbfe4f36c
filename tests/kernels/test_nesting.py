"""Strides and mods in closed form: those of going through the iterations one by one."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.kernels.nesting import Digits, Move, Part, Place, Walk, along, row_major, walked
from workbench.loopnest import pattern

AXES = "abcd"


@st.composite
def walks(draw: st.DrawFn) -> tuple[list[int], list[int], dict[str, Move], int | None, int]:
    """Extents and weights of the digits, moves of some axes, and extent and step of the loop (None: one iteration for each number)."""
    extents = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    weights = [draw(st.integers(1, 4)) for _ in extents]
    moves = {}
    for axis in AXES[: len(extents)]:
        kind = draw(st.sampled_from(["none", "linear", "linear", "quotient", "both"]))
        stride, scale = draw(st.integers(-9, 9)), draw(st.integers(1, 3))
        if kind == "linear":
            moves[axis] = Move(stride, scale)
        elif kind != "none":
            within = draw(st.integers(-3, 3)) if kind == "both" else 0
            moves[axis] = Move(stride, scale, draw(st.integers(2, 4)), draw(st.integers(-5, 5)), within)
    if draw(st.booleans()):
        return extents, weights, moves, None, 1
    return extents, weights, moves, draw(st.integers(1, 40)), draw(st.integers(1, 20))


def one_by_one(extents: list[int], weights: list[int], moves: dict[str, Move], extent: int | None, step: int) -> tuple[int, int]:
    places = []
    for number in product(*map(range, extents)):
        place = 0
        for axis, digit, weight in zip(AXES, number, weights, strict=False):
            if axis in moves:
                move = moves[axis]
                quotient, remainder = divmod(move.scale * digit * weight + move.phase, move.divisor)
                place += move.stride * quotient + (move.within if move.divisor > 1 else 0) * remainder
        places.append(place)
    return pattern(np.array(places[::step][:extent], dtype=np.int64))


@given(st.lists(walks(), min_size=1, max_size=5))
@settings(max_examples=120, deadline=None)
def test_a_loop_through_several_axes(cases: list[tuple[list[int], list[int], dict[str, Move], int | None, int]]) -> None:
    for extents, weights, moves, extent, step in cases:
        parts = tuple(map(Part, AXES, extents, weights))
        found = walked(Walk("loop", Digits(parts), extent=extent, step=step), Place("a", moves))
        assert found == one_by_one(extents, weights, moves, extent, step)
        assert all(type(number) is int for number in found)


@given(walks(), st.lists(st.tuples(*3 * [st.integers(1, 6)], st.integers(-9, 9), st.integers(1, 40), st.integers(1, 20)), min_size=1, max_size=6))
@settings(max_examples=80, deadline=None)
def test_a_batch_has_the_numbers_of_each(case: tuple[list[int], list[int], dict[str, Move], int | None, int], rows: list[tuple[int, ...]]) -> None:
    """Extents, a weight and a stride, and extent and step where the loop has its own, differ from configuration to configuration."""
    extents, weights, moves, extent, _ = case
    table = np.array(rows).T
    varied = [table[i] if i < 2 else given for i, given in enumerate(extents)]
    changed = {axis: move._replace(stride=table[3]) if axis == "a" else move for axis, move in moves.items()}
    parts = tuple(map(Part, AXES, varied, [table[2], *weights[1:]]))
    loop = Walk("loop", Digits(parts)) if extent is None else Walk("loop", Digits(parts), extent=table[4], step=table[5])
    stride, mod = np.broadcast_arrays(*walked(loop, Place("a", changed)), table[0])[:2]
    for row, (first, second, weight, along_a, own, step) in enumerate(rows):
        each = {axis: move._replace(stride=along_a) if axis == "a" else move for axis, move in moves.items()}
        numbers = [(first, second)[i] if i < 2 else given for i, given in enumerate(extents)]
        right = one_by_one(numbers, [weight, *weights[1:]], each, extent and own, 1 if extent is None else step)
        assert (stride[row], mod[row]) == right


def test_jumps_that_cancel_out() -> None:
    """Steps of 3 carry in both places at once, from 011 to 110: 8 on and 8 back, so that the places are 0, 1, 2."""
    loop = Walk("loop", Digits((Part("a", 2), Part("b", 2), Part("c", 2))), extent=3, step=3)
    assert walked(loop, Place("a", {"a": Move(4), "b": Move(-2), "c": Move(3)})) == (1, -1)
    assert walked(loop, Place("a", {"a": Move(5), "b": Move(-2), "c": Move(3)})) == (1, 2)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 30), st.integers(1, 12))
def test_a_row_is_walked_as_its_axes_are(extents: list[int], extent: int, step: int) -> None:
    numbers = Digits(tuple(map(Part, AXES, extents)))
    moves = dict(zip(AXES, map(Move, row_major(extents)), strict=False))
    loop = Walk("loop", numbers, extent=extent, step=step)
    assert walked(loop, Place("a", moves, row=True)) == walked(loop, Place("a", moves)) == pattern(np.arange(math.prod(extents))[::step][:extent])


def test_loops_that_do_nothing() -> None:
    loop = along("outer", "a", 4, 3)
    assert walked(loop, Place("a", {"a": Move(5, 2)})) == (30, -1)
    assert walked(loop, Place("a", {"b": Move(5)})) == (0, -1)
    assert walked(loop, Place("a", {"a": Move(5)}, still=("outer",))) == (0, -1)
    assert walked(along("outer", "a", 1, 3), Place("a", {"a": Move(5)})) == (0, -1)
