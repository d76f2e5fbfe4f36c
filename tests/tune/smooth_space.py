"""An invented (synthetic) tuning problem: a smooth hill over the coordinates of a space, and cost models that know it, or nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from workbench.kernels import kernel
from workbench.models.surrogate import Adapted, Estimate, Trials
from workbench.space import Choice, Space, Split
from workbench.tune.search import Candidates

CONV = kernel("conv2d")
LAYER = CONV.workload({"n": 1, "ci": 64, "h": 56, "w": 56, "co": 128, "kh": 3, "kw": 3, "stride": (1, 1), "padding": (1, 1)})
LIVE = CONV.space(LAYER).restrict(CONV.at_most_threads(1024))
DENSE = Space("dense", (Split("a", 64, 3), Split("b", 48, 2), Choice("c", (0, 1, 2, 3)), Choice("d", (0, 1))))
TINY = Space("tiny", (Choice("only", (1, 2, 3)),))


def live() -> Candidates:
    """A space of billions."""
    return Candidates(LIVE)


def dense() -> Candidates:
    """A recorded table of nine tenths of a space."""
    return Candidates(DENSE, DENSE.sample(DENSE.size * 9 // 10, 1))


def sparse() -> Candidates:
    """A recorded table of 600 of billions."""
    return Candidates(LIVE, LIVE.sample(600, 1))


def tiny() -> Candidates:
    """Three configurations."""
    return Candidates(TINY)


KINDS: dict[str, Callable[[], Candidates]] = {"live": live, "dense": dense, "sparse": sparse, "tiny": tiny}


class Oracle(Adapted):
    """Predicts the truth: a hill whose top is one configuration, 1 there and falling with the distance."""

    def __init__(self, space: Space, top: int) -> None:
        self.space, self.top = space, top
        self.asked: list[int] = []

    def truth(self, indices: ArrayLike) -> np.ndarray:
        away = self.space.coordinates(indices) - self.space.coordinates([self.top])
        return np.exp(-(away**2).sum(axis=1))

    def update(self, trials: Trials) -> None:
        pass

    def predict(self, indices: ArrayLike) -> Estimate:
        given = np.asarray(indices)
        self.asked += given.tolist()
        mean = self.truth(given)
        return Estimate(mean, np.full(len(mean), np.nan))


class Ignorant(Adapted):
    """The same number for every configuration."""

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def update(self, trials: Trials) -> None:
        pass

    def predict(self, indices: ArrayLike) -> Estimate:
        return Estimate(np.full(len(np.asarray(indices)), self.value), np.full(len(np.asarray(indices)), np.nan))


def oracle_of(candidates: Candidates, seed: int = 0) -> Oracle:
    """A hill whose top is a candidate."""
    return Oracle(candidates.space, int(candidates.sample(1, np.random.default_rng(1000 + seed))[0]))


def measured(oracle: Oracle, trials: Trials, indices: ArrayLike) -> Trials:
    """The trials and those of `indices`, as measured without noise."""
    throughput = 100 * oracle.truth(indices)
    return trials.and_then(indices, throughput, throughput > 0)
