"""The contract of search algorithms: of the candidates of a task, those to measure next, by what a cost model says of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import SpaceError
from workbench.models.surrogate import Adapted, Trials
from workbench.space import Space

__all__ = ["Candidates", "Greedy", "Indices", "RandomSearch", "Search"]

Indices = NDArray[np.int64]
_ENUMERATED = 1 << 16  # configurations: smaller spaces are looked at whole


@dataclass(eq=False)
class Candidates:
    """Configurations that may still be measured: those of a space, or of a table of recorded ones, without those already tried.

    Attributes:
        space: all of them, within its constraints; an infeasible configuration is no candidate where a constraint says so.
        pool: the recorded ones [n]; None where every configuration of the space can be measured.
    """

    space: Space
    pool: Indices | None = None
    _tried: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.pool is None and self.space.size <= _ENUMERATED:
            self.pool = self.space.members()
        if self.pool is not None:
            self.pool = np.unique(np.asarray(self.pool))

    def tried(self, indices: ArrayLike) -> None:
        """Take configurations out."""
        self._tried.update(np.asarray(indices).tolist())

    @property
    def left(self) -> int:
        """Number of candidates; of a space that is too large to be looked at whole, an upper bound."""
        if self.pool is None:
            return self.space.size - len(self._tried)
        return len(self.pool) - int(np.isin(self.pool, self._tried_array()).sum())

    def all(self) -> Indices | None:
        """Every candidate in ascending order, None where the space is too large to be looked at whole."""
        return None if self.pool is None else self.pool[~np.isin(self.pool, self._tried_array())]

    def sample(self, count: int, rng: np.random.Generator) -> Indices:
        """`count` different candidates by chance, or all where there are not so many."""
        remaining = self.all()
        if remaining is not None:
            return rng.permutation(remaining)[:count]
        found: dict[int, None] = {}
        for _ in range(64):
            try:
                drawn = self.space.sample(2 * count, rng)
            except SpaceError:  # the constraints leave fewer: one by one they are still found
                drawn = self.space.sample(1, rng)
            found |= dict.fromkeys(int(index) for index in drawn if int(index) not in self._tried)
            if len(found) >= count:
                break
        return np.array(list(found)[:count], dtype=self.space.dtype)

    def allowed(self, indices: ArrayLike) -> NDArray[np.bool_]:
        """Whether each of `indices` [n] is a candidate."""
        given = np.asarray(indices)
        inside = self.space.satisfies(given) if self.pool is None else np.isin(given, self.pool)
        return inside & ~np.isin(given, self._tried_array())

    def untried(self, index: int) -> bool:
        """Whether an index that the space or the table has is still a candidate: what `allowed` says, quicker for a few."""
        return index not in self._tried

    def filled(self, chosen: Indices, count: int, rng: np.random.Generator) -> Indices:
        """`chosen` candidates, and as many others by chance as there are up to `count`."""
        others = self.sample(count, rng)
        others = others[~np.isin(others, chosen)][: count - len(chosen)]
        return np.concatenate([chosen, others]) if len(chosen) else others

    def _tried_array(self) -> Indices:
        return np.fromiter(self._tried, dtype=self.space.dtype, count=len(self._tried))


class Search(ABC):
    """A search algorithm. One object searches one task: it may keep what it needs between rounds."""

    @abstractmethod
    def propose(self, model: Adapted, candidates: Candidates, trials: Trials, count: int, rng: np.random.Generator) -> Indices:
        """At most `count` different candidates, the most promising first; fewer only where fewer are left, or where the algorithm chooses to measure fewer."""


class RandomSearch(Search):
    """Candidates by chance."""

    def propose(self, model: Adapted, candidates: Candidates, trials: Trials, count: int, rng: np.random.Generator) -> Indices:
        """See `Search`."""
        return candidates.sample(count, rng)


@dataclass
class Greedy(Search):
    """The candidates that the cost model ranks first, of all, or of a sample where the space is too large to be looked at whole.

    Args:
        sampled: configurations that are looked at then.
    """

    sampled: int = 4096

    def propose(self, model: Adapted, candidates: Candidates, trials: Trials, count: int, rng: np.random.Generator) -> Indices:
        """See `Search`."""
        looked_at = candidates.all()
        if looked_at is None:
            looked_at = candidates.sample(self.sampled, rng)
        # Equal estimates, as before anything is learnt, are taken by chance.
        looked_at = rng.permutation(looked_at)
        return looked_at[np.argsort(-model.predict(looked_at).mean, kind="stable")[:count]]
