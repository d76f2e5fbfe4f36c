"""Numbers of configurations that are found once: a search asks a cost model about the same ones round after round, and several models look at the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
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
        self._place: dict[int, int] = {}
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
        wanted = given.tolist()
        with self._lock:
            new = {index: place for place, index in enumerate(wanted) if index not in self._place}
            if len(self._place) + len(new) > self._kept:
                self._place.clear()
                new = {index: place for place, index in enumerate(wanted)}
            if new:
                self._take(new, find(np.fromiter(new.values(), dtype=np.intp, count=len(new))))
            return self._rows[np.fromiter((self._place[index] for index in wanted), dtype=np.intp, count=len(wanted))]

    def _take(self, new: Iterable[int], found: NDArray[Any]) -> None:
        first, last = len(self._place), len(self._place) + len(found)
        if last > len(self._rows):
            rows = np.empty((min(max(2 * len(self._rows), last), self._kept), self._rows.shape[1]), dtype=self._rows.dtype)
            rows[:first] = self._rows[:first]
            self._rows = rows
        self._rows[first:last] = found
        self._place.update(zip(new, range(first, last), strict=True))
