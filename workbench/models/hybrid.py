"""The workbench's own cost model: what other tasks teach as cross-fitted bases, a Gaussian process with a learnt prior on top, and trees for what is left.

A task whose workload and space were measured on other devices is handled by its twins (`models.twins`) instead: there each configuration itself was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xgboost as xgb
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UsageError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.models.bases import Bases, Objective, fit_bases, history_of
from workbench.models.boosting import XgbXfer
from workbench.models.metagp import MetaProcess, Posterior, fit_process, with_bases
from workbench.models.surrogate import Adapted, Estimate, Opinions, Surrogate, Trials
from workbench.models.twins import TwinProcess, twins_of

__all__ = ["Hybrid"]

_Floats = NDArray[np.float32]

_MOST_TIMES = 20.0  # the best so far, that the best of a task may be
# Trees for what the bases leave, small so that few trials cannot mislead them, and how their share grows with the trials: 0.6 n / (n + 64).
_RESIDUAL: dict[str, Any] = {
    "n_estimators": 60,
    "max_depth": 2,
    "learning_rate": 0.1,
    "min_child_weight": 8,
    "reg_lambda": 20,
    "subsample": 0.7,
    "colsample_bytree": 0.5,
    "n_jobs": 1,
}
_SHARE, _HALFWAY = 0.6, 64
# What a search tries: three times what may be fast by the process (so many standard deviations above its mean), then once what AutoTVM's transfer ranks first,
# which follows the trials faster. On the development layers yolo1 to yolo4 each of both found fast configurations earlier than the mean alone did.
_OPTIMISM, _SHARES = 1.5, (3, 1)


@dataclass(frozen=True, eq=False)
class Hybrid(Surrogate):
    """See the module. Fitted by `fit`.

    Args:
        ensemble: Gaussian processes that are averaged; 0 leaves the mean of the bases, scaled to the trials, in their place.
        residual: whether trees learn from the trials what the bases leave.
        objective, feasibility: see `fit_bases`.
        history, bases, processes, transfer: what was learnt, once fitted.
    """

    name = "workbench"
    ensemble: int = 2
    residual: bool = True
    objective: Objective = "regression"
    feasibility: bool = False
    history: tuple[MeasuredTask, ...] = ()
    bases: Bases | None = None
    processes: tuple[MetaProcess, ...] = ()
    transfer: XgbXfer | None = None

    def __post_init__(self) -> None:
        if self.ensemble < 0:
            raise UsageError(f"{self.ensemble} Gaussian processes; at least 0")

    def fit(self, tasks: Sequence[MeasuredTask], seed: int = 0) -> Hybrid:
        """See `Surrogate`. Bases and processes are fitted where there are several workloads to learn from."""
        if len({task.task.workload for task in tasks}) < 2:
            return replace(self, history=tuple(tasks), bases=None, processes=(), transfer=None)
        bases = fit_bases(history_of(tasks), seed, self.objective, self.feasibility)
        processes = tuple(fit_process(bases, seed + number) for number in range(self.ensemble))
        return replace(self, history=tuple(tasks), bases=bases, processes=processes, transfer=XgbXfer(features="vectors").fit(tasks, seed))

    def adapt(self, task: TuningTask, seed: int = 0) -> Adapted:
        """See `Surrogate`."""
        if twins := twins_of(task, self.history):
            return TwinProcess(task, twins)
        if self.bases is None or self.transfer is None:
            raise UsageError(f"{task.name}: the cost model has learnt from {len(self.history)} tasks, none of its workload; fit it to several workloads")
        posterior = Posterior(self.processes) if self.processes else _Scaled()
        return _OnTask(task, self.bases, posterior, self.residual, self.transfer.adapt(task, seed), seed)


class _Scaled:
    # The mean of the bases in place of a posterior. Of the trials it takes how far the best of the task lies above the best so far.

    def __init__(self) -> None:
        self.scale = 1.0

    def condition(self, inputs: _Floats, said: _Floats, label: NDArray[np.float64]) -> None:
        # `scale` times what the bases say is nearest to the labels, by least squares, with one row more where both are 1.
        base = Bases.throughput(said).astype(np.float64)
        self.scale = float(np.clip((base @ label + 1) / (base @ base + 1), 1.0, _MOST_TIMES))

    def predict(self, inputs: _Floats, said: _Floats) -> tuple[_Floats, _Floats]:
        return Bases.throughput(said), np.full(len(said), np.nan, dtype=np.float32)  # no spread


class _OnTask(Adapted):
    def __init__(self, task: TuningTask, bases: Bases, posterior: Posterior | _Scaled, residual: bool, other: Adapted, seed: int) -> None:
        self._task, self._bases, self._posterior, self._residual, self._other, self._seed = task, bases, posterior, residual, other, seed
        self._trees: xgb.Booster | None = None
        self._trials = 0
        self._known: NDArray[Any] = np.empty(0, dtype=task.space.dtype)
        self._inputs: _Floats = np.empty((0, len(bases.history.columns)), dtype=np.float32)
        self._said: _Floats = np.empty((0, bases.crossed[0].shape[1]), dtype=np.float32)

    def update(self, trials: Trials) -> None:
        self._other.update(trials)
        self._trials = len(trials)
        if not len(trials):
            return
        inputs, said = self._at(trials.indices)
        self._posterior.condition(with_bases(inputs, said), said, trials.label)
        if self._residual:
            left = trials.label / self._posterior.scale - self._bases.throughput(said)
            self._trees = xgb.XGBRegressor(**_RESIDUAL, random_state=self._seed).fit(inputs, left).get_booster()

    def predict(self, indices: ArrayLike) -> Estimate:
        inputs, said = self._at(indices)
        mean, std = self._posterior.predict(with_bases(inputs, said), said)
        if self._trees is not None:
            share = _SHARE * self._trials / (self._trials + _HALFWAY)
            mean = (1 - share) * mean + share * (self._bases.throughput(said) + self._trees.inplace_predict(inputs))
        scale = self._posterior.scale
        return Estimate(scale * mean.astype(np.float64), scale * std.astype(np.float64))

    def opinions(self, indices: ArrayLike) -> Opinions:
        own = self.predict(indices)
        return Opinions(np.stack([own.mean + _OPTIMISM * np.nan_to_num(own.std), self._other.predict(indices).mean]), _SHARES)

    def _at(self, indices: ArrayLike) -> tuple[_Floats, _Floats]:
        # Columns and bases of each configuration are found once.
        given = np.asarray(indices)
        new = np.setdiff1d(given, self._known)
        if len(new):
            inputs = self._bases.history.standardised(self._task, self._task.vectors(new))
            known = np.concatenate([self._known, new])
            order = np.argsort(known)
            self._known = known[order]
            self._inputs = np.concatenate([self._inputs, inputs])[order]
            self._said = np.concatenate([self._said, self._bases.predict(inputs)])[order]
        places = np.searchsorted(self._known, given)
        return self._inputs[places], self._said[places]
