"""Knob vectors: the values of a configuration's knobs as numbers that mean the same in every workload of a kernel.

`Space.coordinates` scales each knob to its own range, for Gaussian processes over one space. Here a tile of 8 is 3 whatever the extent of its axis, and a knob
without a choice has its columns all the same, so that a model may learn from several workloads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UsageError
from workbench.space import Choice, Knob, Space

__all__ = ["KnobVectors"]

_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class KnobVectors:
    """Knob vectors of the configurations of a space.

    A tile is log2 of its length: a column for each part, "tile_f.0" the outermost. A choice of numbers is one column, sign(v) log2(1 + |v|): it keeps their
    order, leaves 0 and 1 as they are, and brings an unroll limit of 1,500 near the tiles. A choice of texts has no order: a column for each value,
    "layout=NCHW", 1 for the one chosen. With `one_hot` so have choices of numbers.

    Args:
        space: whose configurations.
        one_hot: whether a choice of numbers, too, is a column for each value.

    Raises:
        UsageError: a choice of tuples with a part below 1, which is no tile.
    """

    space: Space
    one_hot: bool = False

    def __post_init__(self) -> None:
        self._tables  # noqa: B018 what cannot be is said now

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return tuple(name for names, _ in self._tables for name in names)

    @cached_property
    def _tables(self) -> tuple[tuple[tuple[str, ...], _Floats], ...]:
        # For each knob the names of its columns, and their values for each of its options.
        return tuple(_table(knob, self.one_hot) for knob in self.space.knobs)

    def of(self, indices: ArrayLike) -> _Floats:
        """Vectors of configurations `indices` [n]: [n, columns], float32. Raises SpaceError for an index that is not in the space."""
        digits = self.space.digits(indices)
        found = np.empty((len(digits), len(self.columns)), dtype=np.float32)
        start = 0
        for place, (names, values) in enumerate(self._tables):
            found[:, start : start + len(names)] = values[digits[:, place]]
            start += len(names)
        return found


def _table(knob: Knob, one_hot: bool) -> tuple[tuple[str, ...], _Floats]:
    options = knob.options
    if options.ndim == 2:
        if options.min() < 1:
            raise UsageError(f"knob {knob.name!r} has a tile of {options.min()}, which has no logarithm; a tile is at least 1")
        return tuple(f"{knob.name}.{part}" for part in range(options.shape[1])), np.log2(options).astype(np.float32)
    if isinstance(knob, Choice) and (one_hot or options.dtype.kind == "U"):
        return tuple(f"{knob.name}={value}" for value in knob.values), np.eye(knob.count, dtype=np.float32)
    numbers = options.astype(np.float64)
    return (knob.name,), (np.sign(numbers) * np.log2(1 + np.abs(numbers)))[:, None].astype(np.float32)
