"""What configuration spaces are made of: knobs (Split, Choice), each a table of options in a fixed order, and constraints on their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import SpaceError
from workbench.schema import Value

__all__ = ["Choice", "Constraint", "Knob", "Split", "is_integer", "product_at_most"]

MAX_EXTENT = 2**31 - 1
MAX_OPTIONS = 1_000_000


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number by type (Python's or numpy's; neither a bool nor a float such as 3.0)."""
    return isinstance(value, Integral) and not isinstance(value, bool | np.bool_)


@dataclass(frozen=True)
class Split:
    """An axis of `extent` iterations split into `parts` nested loops, outermost first, whose lengths multiply to the extent.

    Options stand in AutoTVM's order (policy "factors"): the inner tiles run over the ascending divisors, the innermost slowest; the leading tile is what
    remains. An extent of 4 in 2 parts gives (4, 1), (2, 2), (1, 4).
    """

    name: str
    extent: int
    parts: int

    def __post_init__(self) -> None:
        if not is_integer(self.extent) or not 1 <= self.extent <= MAX_EXTENT:
            raise SpaceError(f"knob {self.name!r}: an axis has a whole extent from 1 to {MAX_EXTENT}, not {self.extent!r}")
        if not is_integer(self.parts) or self.parts < 1:
            raise SpaceError(f"knob {self.name!r}: an axis is split into one part or more, not {self.parts!r}")
        object.__setattr__(self, "extent", int(self.extent))
        object.__setattr__(self, "parts", int(self.parts))
        if self.count > MAX_OPTIONS:
            raise SpaceError(
                f"knob {self.name!r}: {self.extent} splits into {self.parts} parts in {self.count:,} ways, more than {MAX_OPTIONS:,}; use fewer parts"
            )

    @cached_property
    def count(self) -> int:
        """Number of options: for every prime factor, the ways to deal its powers to the parts."""
        rest, ways = self.extent, 1
        prime = 2
        while rest > 1:
            power = 0
            while rest % prime == 0:
                rest, power = rest // prime, power + 1
            ways *= math.comb(power + self.parts - 1, power)
            prime = prime + 1 if prime * prime <= rest else rest
        return ways

    @cached_property
    def divisors(self) -> NDArray[np.int64]:
        """Ascending divisors of the extent."""
        small = [d for d in range(1, math.isqrt(self.extent) + 1) if self.extent % d == 0]
        return _fixed(np.array(sorted({*small, *(self.extent // d for d in small)}), dtype=np.int64))

    @cached_property
    def options(self) -> NDArray[np.int64]:
        """Every option, [options, parts]."""
        rest = np.array([self.extent], dtype=np.int64)  # what the tiles chosen so far leave over
        chosen = np.empty((1, 0), dtype=np.int64)  # outermost first
        for _ in range(self.parts - 1):
            row, column = np.nonzero(rest[:, None] % self.divisors[None, :] == 0)
            tile = self.divisors[column]
            chosen = np.column_stack([tile, chosen[row]])
            rest = rest[row] // tile
        return _fixed(np.column_stack([rest, chosen]))

    @cached_property
    def _keys(self) -> NDArray[np.int64]:
        return self._key(self.options)

    def _key(self, tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        # Ranks of the inner tiles among the divisors as one number. Options ascend in it, which makes their position a binary search.
        ranks = np.minimum(np.searchsorted(self.divisors, tiles[:, 1:]), len(self.divisors) - 1)
        return ranks @ (len(self.divisors) ** np.arange(self.parts - 1, dtype=np.int64))

    def digits(self, values: ArrayLike) -> NDArray[np.int64]:
        """Position of each row of `values` [n, parts] among the options. Raises SpaceError naming the first row that is none of them."""
        rows = _whole_rows(self.name, values, self.parts)
        found = np.minimum(np.searchsorted(self._keys, self._key(rows)), len(self.options) - 1)
        bad = np.flatnonzero((self.options[found] != rows).any(axis=1))
        if bad.size:
            tiles = tuple(rows[bad[0]].tolist())
            rule = f"{self.parts} positive whole numbers whose product is {self.extent}"
            raise SpaceError(f"knob {self.name!r} cannot be {tiles}{_place(bad[0], len(rows))}: its tiles are {rule}")
        return found.astype(np.int64)

    def describe(self) -> list[Any]:
        """What the numbering depends on, as JSON types."""
        return ["split", self.name, int(self.extent), int(self.parts)]

    def coordinates(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """Names and values [options, parts] of log2(tile) / log2(extent), within [0, 1]; no columns where there is nothing to choose."""
        if self.count == 1:
            return (), np.empty((1, 0))
        return tuple(f"{self.name}_{part}" for part in range(self.parts)), np.log2(self.options) / math.log2(self.extent)


@dataclass(frozen=True)
class Choice:
    """One of some listed values, all numbers, all texts, or all tuples of whole numbers of one length."""

    name: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(tuple(v) if isinstance(v, list) else v for v in self.values))
        if not self.values:
            raise SpaceError(f"knob {self.name!r} has no values to choose from")
        if len(set(self.values)) < len(self.values):
            raise SpaceError(f"knob {self.name!r} lists a value twice: {self.values}")
        kinds = {len(v) if isinstance(v, tuple) else "text" if isinstance(v, str) else "number" for v in self.values}
        if len(kinds) > 1 or any(isinstance(v, float) and not math.isfinite(v) for v in self.values):
            raise SpaceError(f"knob {self.name!r} needs values of one kind (finite numbers, texts, or tuples of one length), not {self.values}")

    @property
    def count(self) -> int:
        """Number of options."""
        return len(self.values)

    @cached_property
    def options(self) -> NDArray[Any]:
        """Every option: [options], or [options, parts] where they are tuples."""
        return _fixed(np.array(self.values))

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(self.options, kind="stable")

    def digits(self, values: ArrayLike) -> NDArray[np.int64]:
        """Position of each of `values` [n] or [n, parts] among the options. Raises SpaceError naming the first that is none of them."""
        if self.options.ndim == 2:
            rows = _whole_rows(self.name, values, self.options.shape[1])
            equal = (rows[:, None, :] == self.options[None]).all(axis=2)
            found, wrong = equal.argmax(axis=1), ~equal.any(axis=1)
        else:
            rows = np.atleast_1d(np.asarray(values))
            if rows.ndim != 1 or (rows.dtype.kind in "USO") != (self.options.dtype.kind in "USO"):
                raise SpaceError(f"knob {self.name!r} cannot be {_first(rows)!r}: it is one of {_listed(self.values)}")
            place = np.minimum(np.searchsorted(self.options, rows, sorter=self._order), len(self.options) - 1)
            found = self._order[place]
            wrong = self.options[found] != rows
        bad = np.flatnonzero(wrong)
        if bad.size:
            raise SpaceError(f"knob {self.name!r} cannot be {rows[bad[0]].tolist()!r}{_place(bad[0], len(rows))}: it is one of {_listed(self.values)}")
        return found.astype(np.int64)

    def describe(self) -> list[Any]:
        """What the numbering depends on, as JSON types."""
        return ["choice", self.name, [list(v) if isinstance(v, tuple) else v for v in self.values]]

    def coordinates(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """Name and values [options, 1] of the position in the list, scaled to [0, 1]; no columns where there is nothing to choose."""
        return ((self.name,), np.arange(self.count)[:, None] / (self.count - 1)) if self.count > 1 else ((), np.empty((1, 0)))


Knob = Split | Choice


@dataclass(frozen=True)
class Constraint:
    """A condition on a configuration, such as "at most 1,024 threads".

    Attributes:
        text: the condition in words; it stands for the predicate in comparisons and signatures, so it must say everything.
        knobs: names of the knobs it looks at.
        predicate: their decoded arrays, in the order of `knobs`, to booleans [n].
    """

    text: str
    knobs: tuple[str, ...]
    predicate: Callable[..., NDArray[np.bool_]] = field(compare=False)


def product_at_most(limit: int, what: str, knobs: Mapping[str, int | None]) -> Constraint:
    """The constraint that a product of knob values is at most `limit`: `knobs` names for each knob the tile that counts, None where the value itself does.

    `product_at_most(1024, "threads", {"tile_f": 2, "tile_y": 2, "tile_x": 2})` reads "at most 1,024 threads (tile_f[2] x tile_y[2] x tile_x[2])".
    """
    if not is_integer(limit) or limit < 1:
        raise SpaceError(f"at most {limit!r} {what}: the limit is a positive whole number")
    parts = tuple(knobs.values())

    def within(*columns: NDArray[np.int64]) -> NDArray[np.bool_]:
        # In floating point: nothing overflows, and products up to 2^53 are exact.
        product: NDArray[np.float64] = np.ones(len(columns[0]))
        for column, part in zip(columns, parts, strict=True):
            product = product * (column if part is None else column[:, part])
        return product <= limit

    terms = " x ".join(name if part is None else f"{name}[{part}]" for name, part in knobs.items())
    return Constraint(f"at most {limit:,} {what} ({terms})", tuple(knobs), within)


def _fixed(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def _first(rows: NDArray[Any]) -> Any:
    return rows.tolist()[0] if rows.size and rows.ndim else rows.tolist()


def _listed(values: tuple[Value, ...]) -> str:
    shown = ", ".join(repr(v) for v in values[:12])
    return shown if len(values) <= 12 else f"{shown}, ... ({len(values)} in all)"


def _place(row: int, rows: int) -> str:
    return f" (row {row})" if rows > 1 else ""


def _whole_rows(name: str, values: ArrayLike, parts: int) -> NDArray[np.int64]:
    try:
        rows = np.asarray(values)
    except ValueError:
        raise SpaceError(f"knob {name!r} takes {parts} tiles a configuration, not rows of different lengths") from None
    if rows.dtype.kind not in "iu":
        exact = rows.dtype.kind == "f" and bool(np.isfinite(rows).all() and (rows == np.floor(rows)).all())
        if rows.size and not exact:
            raise SpaceError(f"knob {name!r} takes whole numbers, not {_first(rows)!r}")
    if rows.ndim != 2 or rows.shape[1] != parts:
        raise SpaceError(f"knob {name!r} takes {parts} tiles a configuration, [n, {parts}], not shape {rows.shape}")
    return rows.astype(np.int64)
