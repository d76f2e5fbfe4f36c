"""Numbers of configurations that are found once: a search asks a cost model about the same ones round after round, and several models look at the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = ["Remembered"]

_KEPT = 1 << 16


class Remembered:
    """Numbers that do not depend on who else is asked about, kept by configuration; threads may share them.

    Args:
        columns: how many numbers a configuration has.
        dtype: of the numbers.
        kept: configurations at most. Where there are more, all are forgotten.
    """

    def __init__(self, columns: int, dtype: DTypeLike = np.float32, kept: int = _KEPT) -> None:
        self._kept, self._lock = kept, threading.Lock()
        # Configurations in ascending order, the row of each, and the rows in the order in which they were found.
        self._known: NDArray[Any] = np.empty(0, dtype=np.int64)
        self._row: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self._rows: NDArray[Any] = np.empty((0, columns), dtype=dtype)

    def of(self, indices: ArrayLike, find: Callable[[NDArray[np.intp]], NDArray[Any]]) -> NDArray[Any]:
        """Numbers [n, columns] of configurations `indices` [n], an array of the caller's own.

        Args:
            indices: configurations [n].
            find: numbers [k, columns] of those at places [k] of `indices`, which are not known yet. What it raises is raised.
        """
        given = np.asarray(indices)
        if given.ndim != 1 or given.dtype.kind not in "iuO" or len(given) > self._kept:
            return find(np.arange(len(given)))
        if given.dtype.kind == "u":  # which has no type in common with signed numbers
            given = given.astype(object)
        wanted, first, places = np.unique(given, return_index=True, return_inverse=True)
        with self._lock:
            new = np.sort(first[~self._knows(wanted)])
            if len(self._known) + len(new) > self._kept:
                self._known, self._row, new = self._known[:0], self._row[:0], np.sort(first)
            if len(new):
                self._take(given[new], find(new))
            return self._rows[self._row[np.searchsorted(self._known, wanted)][places]]

    def _knows(self, wanted: NDArray[Any]) -> NDArray[np.bool_]:
        if not len(self._known):
            return np.zeros(len(wanted), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self._known, wanted), len(self._known) - 1)
        return np.asarray(self._known[at] == wanted, dtype=np.bool_)

    def _take(self, new: NDArray[Any], found: NDArray[Any]) -> None:
        first, last = len(self._known), len(self._known) + len(found)
        if last > len(self._rows):
            rows = np.empty((min(max(2 * len(self._rows), last), self._kept), self._rows.shape[1]), dtype=self._rows.dtype)
            rows[:first] = self._rows[:first]
            self._rows = rows
        self._rows[first:last] = found
        order = np.argsort(new, kind="stable")
        known = self._known if self._known.dtype == new.dtype else self._known.astype(object)
        at = np.searchsorted(known, new[order])
        self._known, self._row = np.insert(known, at, new[order]), np.insert(self._row, at, first + order)
