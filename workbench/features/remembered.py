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
    """What a function gives for configurations, kept by configuration; threads may share it.

    Args:
        find: numbers [n, columns] of different configurations [n]; those of one do not depend on the others.
        columns: how many it gives.
        dtype: of the numbers.
        kept: configurations at most. Where there are more, all are forgotten.
    """

    def __init__(self, find: Callable[[NDArray[Any]], NDArray[Any]], columns: int, dtype: DTypeLike = np.float32, kept: int = _KEPT) -> None:
        self._find, self._kept, self._lock = find, kept, threading.Lock()
        self._place: dict[int, int] = {}
        self._rows: NDArray[Any] = np.empty((0, columns), dtype=dtype)

    def of(self, indices: ArrayLike) -> NDArray[Any]:
        """Numbers [n, columns] of configurations `indices` [n], an array of the caller's own. Raises what the function raises."""
        given = np.asarray(indices)
        if given.ndim != 1 or given.dtype.kind not in "iuO" or len(given) > self._kept:
            return self._find(given)
        wanted = given.tolist()
        with self._lock:
            new = [index for index in wanted if index not in self._place]
            if new:
                self._take(given, np.unique(np.array(new, dtype=given.dtype)))
            return self._rows[np.fromiter((self._place[index] for index in wanted), dtype=np.intp, count=len(wanted))]

    def _take(self, given: NDArray[Any], new: NDArray[Any]) -> None:
        if len(self._place) + len(new) > self._kept:
            self._place.clear()
            new = np.unique(given)
        found, first = self._find(new), len(self._place)
        last = first + len(new)
        if last > len(self._rows):
            rows = np.empty((min(max(2 * len(self._rows), last), self._kept), self._rows.shape[1]), dtype=self._rows.dtype)
            rows[:first] = self._rows[:first]
            self._rows = rows
        self._rows[first:last] = found
        self._place.update(zip(new.tolist(), range(first, last), strict=True))
