"""What searches that walk over a cost model's predictions have in common: where walks begin, what the model says on the way, and the best that were met."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.models.surrogate import Adapted
from workbench.tune.search import Candidates, Indices

__all__ = ["Scores", "Top", "near_rows", "starts"]

Floats = NDArray[np.float64]

_NEIGHBOURS = 16


def starts(candidates: Candidates, count: int, rng: np.random.Generator) -> Indices:
    """Places [count] where walks begin: candidates by chance, over and over where there are not so many."""
    places = candidates.sample(count, rng)
    if not len(places):  # all were tried: a walk may stand on what was
        places = candidates.space.sample(1, rng) if candidates.pool is None else candidates.pool[:1]
    return np.resize(places, count)


def near_rows(candidates: Candidates) -> NDArray[np.intp]:
    """For each row of a recorded table the places [rows, 16 or fewer] of the others nearest in the space's coordinates; of a table of one row its own."""
    from scipy.spatial import cKDTree

    assert candidates.pool is not None
    points = candidates.space.coordinates(candidates.pool)
    if len(points) == 1:
        return np.zeros((1, 1), dtype=np.intp)
    # Each row is its own nearest, the first.
    found: NDArray[np.intp] = cKDTree(points).query(points, k=[*range(2, min(_NEIGHBOURS + 1, len(points)) + 1)])[1]
    return found


class Scores:
    """What a model predicts; each configuration is asked for once. A table is asked for whole, at once.

    Attributes:
        asked: configurations the model was asked about.
    """

    def __init__(self, model: Adapted, candidates: Candidates) -> None:
        self._model, self._pool = model, candidates.pool
        self._table = np.empty(0) if self._pool is None else model.predict(self._pool).mean
        self._known: dict[int, float] = {}

    @property
    def asked(self) -> int:
        """See above."""
        return len(self._known) if self._pool is None else len(self._pool)

    def of(self, indices: Indices) -> Floats:
        """Predictions of `indices` [n], which the table or the space has."""
        if self._pool is not None:
            return self._table[np.searchsorted(self._pool, indices)]
        wanted = indices.tolist()
        new = list(dict.fromkeys(index for index in wanted if index not in self._known))
        if new:
            self._known |= zip(new, self._model.predict(np.array(new, dtype=indices.dtype)).mean.tolist(), strict=True)
        return np.array([self._known[index] for index in wanted])


class Top:
    """The best predicted candidates so far, highest first; of equal ones the first that was met.

    Attributes:
        indices: at most `count`.
    """

    def __init__(self, count: int, candidates: Candidates) -> None:
        self._count, self._candidates = count, candidates
        self.indices: Indices = np.empty(0, dtype=candidates.space.dtype)
        self._values: Floats = np.empty(0)
        self._met: set[int] = set()  # those that got in, or were tried before
        self._worst = -np.inf

    def add(self, indices: Indices, values: Floats) -> bool:
        """Take configurations [n] with their predictions; whether any of them got in."""
        better = np.flatnonzero(values > self._worst)
        new = [place for place, index in zip(better.tolist(), indices[better].tolist(), strict=True) if self._is_new(index)]
        if not new:
            return False
        all_values = np.concatenate([self._values, values[new]])
        kept = np.argsort(-all_values, kind="stable")[: self._count]
        self.indices, self._values = np.concatenate([self.indices, indices[new]])[kept], all_values[kept]
        if len(kept) == self._count:
            self._worst = float(self._values[-1])
        return True

    def _is_new(self, index: int) -> bool:
        if index in self._met:
            return False
        self._met.add(index)
        return self._candidates.untried(index)
