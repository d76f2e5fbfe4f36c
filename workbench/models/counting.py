"""A kernel's operation count f(K, H) as a short program for compiled code, noted down by running it once on numbers that remember what is done with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.errors import UsageError

__all__ = ["STACK", "STEPS", "count_program"]

# Codes of the steps, in reverse Polish order; `models.interpreter` runs them. The first two push a number, log2 changes the last, the others join the last two.
STEPS = ("given", "whole", "+", "-", "*", "**", "//", "log2")
_PUSH = 2
# Numbers that a count may hold at once.
STACK = 8

Program = tuple[tuple[int, int], ...]


class _Traced:
    """A number that notes down how it came about."""

    def __init__(self, *steps: tuple[int, int]) -> None:
        self.steps = steps

    def _join(self, step: str, other: Any, *, swapped: bool = False) -> _Traced:
        if not isinstance(other, _Traced):
            if other != int(other):
                raise TypeError(f"{other!r} is no whole number")
            other = _Traced((STEPS.index("whole"), int(other)))
        first, second = (other, self) if swapped else (self, other)
        return _Traced(*first.steps, *second.steps, (STEPS.index(step), 0))

    def __add__(self, other: Any) -> _Traced:
        return self._join("+", other)

    def __radd__(self, other: Any) -> _Traced:
        return self._join("+", other, swapped=True)

    def __sub__(self, other: Any) -> _Traced:
        return self._join("-", other)

    def __rsub__(self, other: Any) -> _Traced:
        return self._join("-", other, swapped=True)

    def __mul__(self, other: Any) -> _Traced:
        return self._join("*", other)

    def __rmul__(self, other: Any) -> _Traced:
        return self._join("*", other, swapped=True)

    def __pow__(self, other: Any) -> _Traced:
        return self._join("**", other)

    def __floordiv__(self, other: Any) -> _Traced:
        return self._join("//", other)

    def __neg__(self) -> _Traced:
        return self._join("*", -1)

    def log2(self) -> _Traced:
        # What numpy.log2 calls of an object that is no number of its own.
        return _Traced(*self.steps, (STEPS.index("log2"), 0))


def count_program(complexity: Callable[[Mapping[str, Any]], Any], parameters: Sequence[str]) -> Program:
    """(code, operand) of each step: the operand is the place in `parameters` of a given value, or a whole number, or 0.

    Raises UsageError for a count that is made of other steps than STEPS.
    """
    try:
        steps = complexity({name: _Traced((0, i)) for i, name in enumerate(parameters)}).steps
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"the operation count of {', '.join(parameters)} cannot be compiled: {error}") from error
    depth = deepest = 0
    for code, _ in steps:
        depth += 1 if code < _PUSH else -1 if code < len(STEPS) - 1 else 0
        deepest = max(deepest, depth)
    if deepest > STACK:
        raise UsageError(f"the operation count of {', '.join(parameters)} cannot be compiled: it holds {deepest} numbers at once, more than {STACK}")
    return tuple(steps)
