"""Tuning frameworks: each a line that composes a cost model and a search algorithm, those of the paper (Section 6), baselines, and our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from workbench.errors import UsageError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.models.boosting import Xgb, XgbXfer, XgbXferShrunk
from workbench.models.surrogate import Adapted, Estimate, Surrogate, Trials
from workbench.tune.annealing import Annealing
from workbench.tune.bayes import BatchBO
from workbench.tune.loop import Tuner
from workbench.tune.policy import PolicySearch
from workbench.tune.portfolio import Portfolio
from workbench.tune.search import Candidates, Greedy, RandomSearch, Search

__all__ = ["FRAMEWORKS", "Framework", "NoModel", "framework"]


@dataclass(frozen=True)
class Framework:
    """A way to tune.

    Attributes:
        name: the paper's, where it has one.
        title: what it is.
        surrogate: makes the cost model before it has learnt anything.
        search: makes the search algorithm, one for each task.
        transfers: whether it learns from tasks that were measured before; where not, `fit` needs none.
        epsilon: share of each batch that is drawn by chance.
    """

    name: str
    title: str
    surrogate: Callable[[], Surrogate]
    search: Callable[[], Search]
    transfers: bool
    epsilon: float = 0.05

    def fit(self, history: Sequence[MeasuredTask], seed: int = 0) -> Surrogate:
        """The cost model, learnt from tasks that were measured before. Raises UsageError where there are none and it needs them."""
        if self.transfers and not history:
            raise UsageError(f"framework {self.name!r} learns from tasks that were measured before, and there is none; name data sets of them")
        return self.surrogate().fit(history, seed) if self.transfers else self.surrogate()

    def tuner(self, task: TuningTask, fitted: Surrogate, candidates: Candidates | None = None, *, seed: int = 0, ranking_only: bool = False) -> Tuner:
        """A tuner of a task.

        Args:
            task: what is tuned.
            fitted: of `fit`.
            candidates: see `Tuner`.
            seed: of the model's adaptation and of everything that is drawn.
            ranking_only: the cost model ranks all candidates instead of the search: where only a part of a space was measured, no search can go its way.
                A model with several opinions ranks by each of them.
        """
        search = Portfolio() if ranking_only and self.surrogate is not NoModel else self.search()
        return Tuner(task, fitted.adapt(task, seed), search, candidates, epsilon=self.epsilon, seed=seed)


class NoModel(Surrogate, Adapted):
    """No cost model: what it says of a configuration is no number."""

    name = "none"

    def fit(self, tasks: Sequence[MeasuredTask], seed: int = 0) -> NoModel:
        """See `Surrogate`."""
        return self

    def adapt(self, task: TuningTask, seed: int = 0) -> NoModel:
        """See `Surrogate`."""
        return self

    def update(self, trials: Trials) -> None:
        """See `Adapted`."""

    def predict(self, indices: ArrayLike) -> Estimate:
        """NaN for each configuration."""
        unknown = np.full(len(np.asarray(indices)), np.nan)
        return Estimate(unknown, unknown)


def _metatune(template: bool) -> Surrogate:
    from workbench.models.metatune import MetaTune  # and torch with it

    return MetaTune(template=template)


def _hybrid() -> Surrogate:
    from workbench.models.hybrid import Hybrid  # and torch with it

    return Hybrid()


FRAMEWORKS: Mapping[str, Framework] = {
    found.name: found
    for found in (
        Framework("xgb", "AutoTVM's boosted trees, annealing", Xgb, Annealing, transfers=False),
        Framework("xgb-Xfer", "AutoTVM's boosted trees on those of other tasks, annealing", XgbXfer, Annealing, transfers=True),
        Framework("RL", "AutoTVM's boosted trees, Chameleon's search", Xgb, PolicySearch, transfers=False),
        Framework("meta-RL", "MetaTune's model without super-graph, Chameleon's search", partial(_metatune, template=False), PolicySearch, transfers=True),
        Framework("meta-RL-T", "MetaTune's model with super-graph, Chameleon's search", partial(_metatune, template=True), PolicySearch, transfers=True),
        Framework("meta-BO", "MetaTune's model without super-graph, batch Bayesian optimisation", partial(_metatune, template=False), BatchBO, transfers=True),
        Framework("meta-BO-T", "MetaTune's model with super-graph, batch Bayesian optimisation", partial(_metatune, template=True), BatchBO, transfers=True),
        Framework("xgb-Xfer-shrunk", "trees of other tasks with a correction kept small, greedy", XgbXferShrunk, Greedy, transfers=True, epsilon=1 / 16),
        Framework("workbench", "bases and a Gaussian process learnt from other tasks, or twins weighed; several opinions", _hybrid, Portfolio, transfers=True),
        Framework("random", "configurations by chance", NoModel, RandomSearch, transfers=False, epsilon=0.0),
    )
}


def framework(name: str) -> Framework:
    """The framework of that name, in capitals or not. Raises UsageError, with the names there are."""
    for known, found in FRAMEWORKS.items():
        if known.lower() == name.lower():
            return found
    raise UsageError(f"no framework {name!r}; there are {', '.join(FRAMEWORKS)}")
