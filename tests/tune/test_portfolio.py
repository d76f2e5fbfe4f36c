"""A search that goes round the sources of a cost model first, on invented opinions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from workbench.models.surrogate import Adapted, Estimate, Trials
from workbench.space import Choice, Space
from workbench.tune.portfolio import Portfolio
from workbench.tune.search import Candidates

SPACE = Space("line", (Choice("place", tuple(range(40))),))


class Opinions(Adapted):
    """Invented: one source likes the low end, the other the high end, and both together the middle."""

    def update(self, trials: Trials) -> None:
        pass

    def predict(self, indices: ArrayLike) -> Estimate:
        return Estimate(self.opinions(indices)[0], np.ones(len(np.asarray(indices))))

    def opinions(self, indices: ArrayLike) -> np.ndarray:
        places = np.asarray(indices, dtype=float)
        return np.array([-np.abs(places - 20), -places, places])


class Middle(Opinions):
    def opinions(self, indices: ArrayLike) -> np.ndarray:
        return super().opinions(indices)[:1]


def propose(model: Adapted, count: int, done: int = 0, tried: ArrayLike = ()) -> list[int]:
    candidates = Candidates(SPACE)
    candidates.tried(np.asarray(tried, dtype=np.int64))
    trials = Trials.none().and_then(np.arange(done), np.ones(done), np.ones(done, dtype=bool))
    return Portfolio(start=6).propose(model, candidates, trials, count, np.random.default_rng(0)).tolist()


def test_each_source_gives_its_best_in_turn_and_the_first_fills_up() -> None:
    assert propose(Opinions(), 5)[:3] == [20, 0, 39]
    assert set(propose(Opinions(), 9)) == {20, 0, 39, 1, 38, 19, 21, 18, 22}


def test_what_was_tried_is_left_out_and_later_trials_follow_the_model() -> None:
    assert propose(Opinions(), 3, tried=[0, 20, 39])[1:] == [1, 38]
    assert sorted(propose(Opinions(), 3, done=6)) == [19, 20, 21]


def test_one_source_and_few_candidates() -> None:
    assert sorted(propose(Middle(), 3)) == [19, 20, 21]
    assert sorted(propose(Opinions(), 30, tried=np.arange(35))) == [35, 36, 37, 38, 39]
