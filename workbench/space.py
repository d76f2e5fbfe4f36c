"""Configuration spaces: ordered knobs, numbered as AutoTVM numbers them, without ever being enumerated.

A configuration is a mixed-radix number whose first knob is the least significant digit, so a space of any size is its knobs' option tables and nothing more.
`Space` decodes and encodes whole arrays of indices, samples, finds neighbours, and gives coordinates for surrogate models. Everything here is immutable;
`Space.signature` says in a few letters which numbering an index belongs to.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import SpaceError
from workbench.knobs import Choice, Constraint, Knob, Split, is_integer, product_at_most
from workbench.schema import Value

__all__ = ["Choice", "Constraint", "Knob", "Space", "Split", "is_integer", "product_at_most"]

INT64_MAX = 2**63 - 1
CHUNK = 1 << 16  # configurations handled at once: their digits stay in the cache


@dataclass(frozen=True)
class Space:
    """An ordered set of knobs with conditions on them.

    An index counts every combination of options, whether or not it meets the constraints: constraints say which of them `sample`, `neighbours` and
    `members` give, never how they are numbered. Arrays of indices are int64; beyond 2^63 configurations they hold Python's whole numbers (dtype object),
    exact but slower.

    Attributes:
        name: "autotvm", "workbench", ...; what a record calls its space.
        knobs: the first is the least significant digit of an index.
        constraints: conditions that a configuration must meet.
    """

    name: str
    knobs: tuple[Knob, ...]
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "knobs", tuple(self.knobs))
        object.__setattr__(self, "constraints", tuple(self.constraints))
        if not self.knobs:
            raise SpaceError(f"space {self.name!r} has no knobs")
        names = [knob.name for knob in self.knobs]
        if len(set(names)) < len(names):
            raise SpaceError(f"space {self.name!r} names a knob twice: {', '.join(names)}")
        for constraint in self.constraints:
            self._known(constraint.knobs, f"constraint {constraint.text!r}")

    @cached_property
    def radix(self) -> tuple[int, ...]:
        """Number of options of each knob."""
        return tuple(knob.count for knob in self.knobs)

    @cached_property
    def size(self) -> int:
        """Number of combinations, exact, constraints aside."""
        return math.prod(self.radix)

    @cached_property
    def signature(self) -> str:
        """16 hexadecimal digits that change with the name, a knob, an option, an order or a constraint."""
        text = json.dumps([self.name, [knob.describe() for knob in self.knobs], sorted(c.text for c in self.constraints)], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the knobs."""
        return tuple(knob.name for knob in self.knobs)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an array of indices: int64, or object where the largest index does not fit."""
        return np.dtype(np.int64 if self.size - 1 <= INT64_MAX else object)

    def restrict(self, *constraints: Constraint) -> Space:
        """The same numbering with more constraints."""
        return Space(self.name, self.knobs, self.constraints + constraints)

    # Index <-> digits <-> values

    def digits(self, indices: ArrayLike) -> NDArray[np.int64]:
        """Option number of every knob, [n, knobs], of `indices` [n]. Raises SpaceError naming an index that is not of this space."""
        rest = self._checked(indices)
        out = np.empty((len(rest), len(self.knobs)), dtype=np.int64)
        for column, radix in enumerate(self.radix):
            above = rest // radix
            out[:, column] = rest - above * radix
            rest = above
        return out

    def from_digits(self, digits: ArrayLike) -> NDArray[Any]:
        """Indices [n] of option numbers [n, knobs]; the inverse of `digits`."""
        table = np.asarray(digits)
        if table.ndim != 2 or table.shape[1] != len(self.knobs) or table.dtype.kind not in "iu":
            raise SpaceError(f"space {self.name!r}: digits are whole numbers [n, {len(self.knobs)}], not {table.dtype} of shape {table.shape}")
        bad = np.argwhere((table < 0) | (table >= np.array(self.radix)))
        if bad.size:
            row, column = bad[0]
            raise SpaceError(f"space {self.name!r}: knob {self.names[column]!r} has options 0 to {self.radix[column] - 1}, not {table[row, column]}")
        index: NDArray[Any] = np.zeros(len(table), dtype=self.dtype)
        for column in reversed(range(len(self.knobs))):
            index = index * self.radix[column] + table[:, column].astype(self.dtype)
        return index

    def decode(self, indices: ArrayLike, knobs: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """Values of the knobs (all, or those named) of `indices` [n].

        Returns:
            Knob -> array: [n, parts] whole numbers for a Split, [n] for a Choice ([n, parts] where its values are tuples).

        Raises:
            SpaceError: an index is negative, at or over `size`, or not a whole number; or a knob is not known.
        """
        if knobs is not None:
            self._known(knobs, "decode")
        rest = self._checked(indices)
        wanted = [(k, radix, knob) for k, (radix, knob) in enumerate(zip(self.radix, self.knobs, strict=True)) if knobs is None or knob.name in knobs]
        out = {knob.name: np.empty((len(rest), *knob.options.shape[1:]), dtype=knob.options.dtype) for _, _, knob in wanted}
        stride = [math.prod(self.radix[:k]) for k in range(len(self.knobs))]
        for start in range(0, len(rest), CHUNK):
            part = rest[start : start + CHUNK]
            below, position = part, 0
            for k, radix, knob in wanted:
                if k > position:
                    below, position = below // (stride[k] // stride[position]), k
                above = below // radix
                digit = below - above * radix
                below, position = above, k + 1
                np.take(knob.options, digit.astype(np.intp, copy=False), axis=0, out=out[knob.name][start : start + CHUNK], mode="clip")
        return out

    def encode(self, values: Mapping[str, ArrayLike]) -> NDArray[Any]:
        """Indices [n] of knob values shaped as `decode` gives them; its inverse. Raises SpaceError for a value that is no option, a missing or unknown knob."""
        self._known(values, "encode")
        missing = [name for name in self.names if name not in values]
        if missing:
            raise SpaceError(f"space {self.name!r}: no value for knob {missing[0]!r}; it needs {', '.join(self.names)}")
        columns = [knob.digits(values[knob.name]) for knob in self.knobs]
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            counts = ", ".join(f"{name} {len(column)}" for name, column in zip(self.names, columns, strict=True))
            raise SpaceError(f"space {self.name!r}: knobs have different numbers of values: {counts}")
        return self.from_digits(np.column_stack(columns))

    def config(self, index: int) -> dict[str, Value]:
        """The configuration of one index: knob -> number, text or tuple."""
        return {name: _plain(column[0]) for name, column in self.decode(_one(index)).items()}

    def index(self, config: Mapping[str, Value]) -> int:
        """The index of one configuration; the inverse of `config`."""
        return int(self.encode({name: [value] for name, value in config.items()})[0])

    # Constraints, samples, neighbours

    def satisfies(self, indices: ArrayLike) -> NDArray[np.bool_]:
        """Whether each of `indices` [n] meets every constraint, [n]. Only the knobs that constraints look at are decoded."""
        checked = self._checked(indices)
        keep = np.ones(len(checked), dtype=bool)
        if self.constraints:
            columns = self.decode(checked, sorted({name for constraint in self.constraints for name in constraint.knobs}))
            for constraint in self.constraints:
                keep &= np.asarray(constraint.predicate(*(columns[name] for name in constraint.knobs)), dtype=bool)
        return keep

    def members(self, limit: int = 10_000_000) -> NDArray[Any]:
        """Every index that meets the constraints, ascending. Raises SpaceError if the space has more than `limit` combinations to look at."""
        if self.size > limit:
            raise SpaceError(f"space {self.name!r} has {self.size:,} combinations, more than {limit:,} to enumerate; sample it instead")
        return np.concatenate([part[self.satisfies(part)] for part in _ranges(self.size)])

    def sample(self, count: int, rng: np.random.Generator | int | None = None) -> NDArray[Any]:
        """`count` different indices [count], uniform over those that meet the constraints, in random order. Nothing is enumerated unless the space is small.

        Args:
            count: how many.
            rng: a generator or a seed.

        Raises:
            SpaceError: there are not that many, or the constraints leave so few that they cannot be found by chance.
        """
        if not is_integer(count) or count < 0:
            raise SpaceError(f"space {self.name!r}: cannot sample {count!r} configurations; the count is a whole number, 0 or more")
        if count > self.size:
            raise SpaceError(f"space {self.name!r} has {self.size:,} configurations, fewer than the {count:,} asked for")
        rng = np.random.default_rng(rng)
        if self.size <= max(1 << 20, 4 * count):
            members = self.members(limit=self.size)
            if len(members) < count:
                raise SpaceError(f"space {self.name!r} has {len(members):,} configurations within its constraints, fewer than the {count:,} asked for")
            return rng.choice(members, size=count, replace=False)
        return self._sample_by_chance(int(count), rng)

    def _sample_by_chance(self, count: int, rng: np.random.Generator) -> NDArray[Any]:
        # Draw, drop what breaks a constraint or was drawn before, and go on: every remaining index stays equally likely.
        kept, drawn, budget = np.empty(0, dtype=self.dtype), 0, max(10_000_000, 1_000 * count)
        while len(kept) < count:
            if drawn >= budget:
                raise SpaceError(
                    f"space {self.name!r}: {drawn:,} random draws gave {len(kept):,} of the {count:,} configurations asked for; "
                    f"its constraints ({'; '.join(c.text for c in self.constraints)}) leave too few"
                )
            rate = max(len(kept) / drawn, 0.001) if drawn else 1.0
            draw = self._random(min(max(int((count - len(kept)) / rate * 1.1), 1_024), 1_000_000), rng)
            drawn += len(draw)
            pool = np.concatenate([kept, draw[self.satisfies(draw)]])
            _, first = np.unique(pool, return_index=True)
            kept = pool[np.sort(first)]
        return kept[:count]

    def _random(self, count: int, rng: np.random.Generator) -> NDArray[Any]:
        if self.dtype == np.int64:
            return rng.integers(self.size, size=count, dtype=np.int64)
        return self.from_digits(np.column_stack([rng.integers(radix, size=count) for radix in self.radix]))

    def neighbours(self, index: int) -> NDArray[Any]:
        """Every index that differs from `index` in one knob and meets the constraints."""
        here = self.digits(_one(index))
        rows = np.repeat(here, sum(self.radix) - len(self.radix), axis=0)
        row = 0
        for column, radix in enumerate(self.radix):
            others = np.delete(np.arange(radix), here[0, column])
            rows[row : row + len(others), column] = others
            row += len(others)
        found = self.from_digits(rows)
        return found[self.satisfies(found)]

    def random_neighbours(self, indices: ArrayLike, rng: np.random.Generator | int | None = None, tries: int = 32) -> NDArray[Any]:
        """For each of `indices` [n] one index that differs in one knob (any knob with a choice, any other option of it) and meets the constraints, [n].

        A place that `tries` draws find no way out of stays where it is.
        """
        here = self._checked(indices)
        free = np.flatnonzero(np.array(self.radix) > 1)
        if not free.size:
            return here.copy()
        rng = np.random.default_rng(rng)
        start, out, open_rows = self.digits(here), here.copy(), np.arange(len(here))
        radix = np.array(self.radix)
        for _ in range(tries):
            if not open_rows.size:
                break
            moved = start[open_rows]
            column = rng.choice(free, size=len(open_rows))
            row = np.arange(len(open_rows))
            # One of the other options: a step of 1 to radix - 1, around the end.
            moved[row, column] = (moved[row, column] + rng.integers(1, radix[column])) % radix[column]
            proposal = self.from_digits(moved)
            good = self.satisfies(proposal)
            out[open_rows[good]] = proposal[good]
            open_rows = open_rows[~good]
        return out

    # Coordinates

    @cached_property
    def coordinate_names(self) -> tuple[str, ...]:
        """Names of the columns of `coordinates`."""
        return tuple(itertools.chain.from_iterable(names for names, _ in self._coordinate_tables))

    @cached_property
    def _coordinate_tables(self) -> tuple[tuple[tuple[str, ...], NDArray[np.float64]], ...]:
        return tuple(knob.coordinates() for knob in self.knobs)

    def coordinates(self, indices: ArrayLike) -> NDArray[np.float64]:
        """Configurations as points [n, len(coordinate_names)] of the unit cube, for Gaussian processes.

        A Split gives log2(tile) / log2(extent) for every tile, a Choice its place in the list from 0 to 1; a knob without a choice gives nothing.
        """
        digits = self.digits(indices)
        return np.concatenate([table[digits[:, column]] for column, (_, table) in enumerate(self._coordinate_tables)], axis=1)

    def _checked(self, indices: ArrayLike) -> NDArray[Any]:
        try:
            given = np.asarray(indices)
        except ValueError:
            raise SpaceError(f"space {self.name!r}: indices are one-dimensional, not rows of different lengths") from None
        if given.ndim != 1:
            raise SpaceError(f"space {self.name!r}: indices are one-dimensional, not of shape {given.shape}")
        if given.size == 0:
            return given.astype(self.dtype)
        if given.dtype.kind not in "iu":
            wrong = [value for value in given.tolist() if not is_integer(value)]
            if wrong:
                raise SpaceError(f"space {self.name!r}: an index is a whole number from 0 to {self.size - 1}, not {wrong[0]!r}")
        low, high = given.min(), given.max()
        if low < 0 or high >= self.size:
            raise SpaceError(f"space {self.name!r}: index {low if low < 0 else high} is out of range; it has {self.size} configurations, 0 to {self.size - 1}")
        return given.astype(self.dtype, copy=False)

    def _known(self, names: Sequence[str] | Mapping[str, Any], who: str) -> None:
        unknown = [name for name in names if name not in self.names]
        if unknown:
            raise SpaceError(f"space {self.name!r} has no knob {unknown[0]!r} ({who}); it has {', '.join(self.names)}")


def _plain(value: Any) -> Value:
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return tuple(plain) if isinstance(plain, list) else plain


def _one(index: Any) -> NDArray[Any]:
    # As an object, so that no conversion to a number type hides what was given.
    row = np.empty(1, dtype=object)
    row[0] = index
    return row


def _ranges(size: int) -> Iterator[NDArray[np.int64]]:
    return (np.arange(start, min(start + CHUNK, size), dtype=np.int64) for start in range(0, size, CHUNK))
