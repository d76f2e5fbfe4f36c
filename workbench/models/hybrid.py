"""The workbench's own cost model: what other tasks teach as cross-fitted bases, a Gaussian process with a learnt prior on top, and trees for what is left.

A task whose workload and space were measured on other devices is handled by its twins (`models.twins`) instead: there each configuration itself was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost as xgb
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UsageError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.models.bases import Bases, fit_bases, history_of
from workbench.models.boosting import XgbXfer
from workbench.models.metagp import MetaProcess, Posterior, fit_process, with_bases
from workbench.models.surrogate import Adapted, Estimate, Opinions, Surrogate, Trials
from workbench.models.twins import TwinProcess, twins_of

__all__ = ["Hybrid"]

_Floats = NDArray[np.float32]

_PROCESSES = 2
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
    """See the module. Fitted by `fit`."""

    name = "workbench"
    history: tuple[MeasuredTask, ...] = ()
    bases: Bases | None = None
    processes: tuple[MetaProcess, ...] = ()
    transfer: XgbXfer | None = None

    def fit(self, tasks: Sequence[MeasuredTask], seed: int = 0) -> Hybrid:
        """See `Surrogate`. Bases and processes are fitted where there are several workloads to learn from."""
        if len({task.task.workload for task in tasks}) < 2:
            return Hybrid(tuple(tasks))
        bases = fit_bases(history_of(tasks), seed)
        processes = tuple(fit_process(bases, seed + number) for number in range(_PROCESSES))
        return Hybrid(tuple(tasks), bases, processes, XgbXfer(features="vectors").fit(tasks, seed))

    def adapt(self, task: TuningTask, seed: int = 0) -> Adapted:
        """See `Surrogate`."""
        if twins := twins_of(task, self.history):
            return TwinProcess(task, twins)
        if self.bases is None or self.transfer is None:
            raise UsageError(f"{task.name}: the cost model has learnt from {len(self.history)} tasks, none of its workload; fit it to several workloads")
        return _OnTask(task, self.bases, self.processes, self.transfer.adapt(task, seed), seed)


class _OnTask(Adapted):
    def __init__(self, task: TuningTask, bases: Bases, processes: Sequence[MetaProcess], other: Adapted, seed: int) -> None:
        self._task, self._bases, self._other, self._seed = task, bases, other, seed
        self._posterior = Posterior(processes)
        self._trees: xgb.Booster | None = None
        self._trials = 0
        self._known: NDArray[Any] = np.empty(0, dtype=task.space.dtype)
        self._inputs: _Floats = np.empty((0, len(bases.history.columns)), dtype=np.float32)
        self._said: _Floats = np.empty((0, 2), dtype=np.float32)

    def update(self, trials: Trials) -> None:
        self._other.update(trials)
        self._trials = len(trials)
        if not len(trials):
            return
        inputs, said = self._at(trials.indices)
        self._posterior.condition(with_bases(inputs, said), said, trials.label)
        left = trials.label / self._posterior.scale - said.mean(axis=1)
        self._trees = xgb.XGBRegressor(**_RESIDUAL, random_state=self._seed).fit(inputs, left).get_booster()

    def predict(self, indices: ArrayLike) -> Estimate:
        inputs, said = self._at(indices)
        mean, std = self._posterior.predict(with_bases(inputs, said), said)
        if self._trees is not None:
            share = _SHARE * self._trials / (self._trials + _HALFWAY)
            mean = (1 - share) * mean + share * (said.mean(axis=1) + self._trees.inplace_predict(inputs))
        scale = self._posterior.scale
        return Estimate(scale * mean.astype(np.float64), scale * std.astype(np.float64))

    def opinions(self, indices: ArrayLike) -> Opinions:
        own = self.predict(indices)
        return Opinions(np.stack([own.mean + _OPTIMISM * own.std, self._other.predict(indices).mean]), _SHARES)

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
