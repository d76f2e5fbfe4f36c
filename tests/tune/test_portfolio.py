"""A search that goes round the sources of a cost model first, on invented opinions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from workbench.models.surrogate import Adapted, Estimate, Opinions, Trials
from workbench.space import Choice, Space
from workbench.tune.portfolio import Portfolio
from workbench.tune.search import Candidates

SPACE = Space("line", (Choice("place", tuple(range(40))),))


class Three(Adapted):
    """Invented: one source likes the middle, one the low end, one the high end."""

    shares: tuple[int, ...] = (2, 1, 1)

    def update(self, trials: Trials) -> None:
        pass

    def predict(self, indices: ArrayLike) -> Estimate:
        return Estimate(-np.abs(np.asarray(indices, dtype=float) - 20.1), np.ones(len(np.asarray(indices))))

    def opinions(self, indices: ArrayLike) -> Opinions:
        places = np.asarray(indices, dtype=float)
        return Opinions(np.array([self.predict(indices).mean, -places, 1e6 + places]), self.shares)


class Equal(Three):
    shares = (1, 1, 1)


class Middle(Three):
    def opinions(self, indices: ArrayLike) -> Opinions:
        return Adapted.opinions(self, indices)


def propose(model: Adapted, count: int, tried: ArrayLike = ()) -> list[int]:
    candidates = Candidates(SPACE)
    candidates.tried(np.asarray(tried, dtype=np.int64))
    return Portfolio().propose(model, candidates, Trials.none(), count, np.random.default_rng(0)).tolist()


def test_sources_name_candidates_by_their_shares() -> None:
    assert propose(Equal(), 6) == [20, 0, 39, 21, 1, 38]
    assert sorted(propose(Three(), 8)) == [0, 1, 19, 20, 21, 22, 38, 39]
    assert propose(Middle(), 3) == [20, 21, 19]


def test_what_was_tried_or_named_is_left_out() -> None:
    assert propose(Equal(), 3, tried=[0, 20, 39]) == [21, 1, 38]
    assert sorted(propose(Equal(), 30, tried=np.arange(35))) == [35, 36, 37, 38, 39]
    assert propose(Equal(), 4, tried=np.arange(40)) == []
