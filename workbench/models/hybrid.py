"""The workbench's own cost model, the average of two: a Gaussian process with a learnt prior on cross-fitted bases, and transferred trees, slightly corrected.

A task whose workload and space were measured on other devices is handled by its twins (`models.twins`) instead: there each configuration itself was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UsageError
from workbench.features.remembered import Remembered
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.models.bases import Bases, Objective, fit_bases, history_of
from workbench.models.boosting import XgbXfer, XgbXferShrunk
from workbench.models.forest import QuickTrees
from workbench.models.metagp import MetaProcess, Posterior, fit_process, with_bases
from workbench.models.surrogate import Adapted, Estimate, Opinions, Surrogate, Trials
from workbench.models.twins import TwinProcess, twins_of

__all__ = ["Hybrid"]

_Floats = NDArray[np.float32]

_MOST_TIMES = 20.0  # the best so far, that the best of a task may be
# What a search tries by turns: what may be fast (so many standard deviations of the process above the mean), and what AutoTVM's transfer ranks first, which
# follows the trials faster. On the development layers yolo1 and yolo2 equal turns found fast configurations earlier than three to one did.
_OPTIMISM, _SHARES = 1.5, (1, 1)


@dataclass(frozen=True, eq=False)
class Hybrid(Surrogate):
    """See the module. Fitted by `fit`.

    Args:
        ensemble: Gaussian processes that are averaged; 0 leaves the mean of the bases, scaled to the trials, in their place.
        embedding: see `MetaProcess`.
        corrected: views (of `features.views.VIEWS`) in each of which transferred trees are corrected (`XgbXferShrunk`); their average is averaged with the mean
            of the process. None leaves that alone.
        objective, feasibility: see `fit_bases`.
        history, bases, processes, shrunk, transfer: what was learnt, once fitted.
    """

    name = "workbench"
    ensemble: int = 1
    embedding: bool = True
    corrected: tuple[str, ...] = ("vectors",)
    objective: Objective = "regression"
    feasibility: bool = True
    history: tuple[MeasuredTask, ...] = ()
    bases: Bases | None = None
    processes: tuple[MetaProcess, ...] = ()
    shrunk: tuple[XgbXferShrunk, ...] = ()
    transfer: XgbXfer | None = None

    def __post_init__(self) -> None:
        if self.ensemble < 0:
            raise UsageError(f"{self.ensemble} Gaussian processes; at least 0")

    def fit(self, tasks: Sequence[MeasuredTask], seed: int = 0) -> Hybrid:
        """See `Surrogate`. Bases and processes are fitted where there are several workloads to learn from."""
        if len({task.task.workload for task in tasks}) < 2:
            return replace(self, history=tuple(tasks), bases=None, processes=(), shrunk=(), transfer=None)
        bases = fit_bases(history_of(tasks), seed, self.objective, self.feasibility)
        processes = tuple(fit_process(bases, seed + number, self.embedding) for number in range(self.ensemble))
        shrunk = tuple(_quick(XgbXferShrunk(view).fit(tasks, seed)) for view in self.corrected)
        transfer = _quick(XgbXfer(features="vectors").fit(tasks, seed))
        return replace(self, history=tuple(tasks), bases=bases, processes=processes, shrunk=shrunk, transfer=transfer)

    def adapt(self, task: TuningTask, seed: int = 0) -> Adapted:
        """See `Surrogate`."""
        if twins := twins_of(task, self.history):
            return TwinProcess(task, twins)
        if self.bases is None or self.transfer is None:
            raise UsageError(f"{task.name}: the cost model has learnt from {len(self.history)} tasks, none of its workload; fit it to several workloads")
        posterior = Posterior(self.processes) if self.processes else _Scaled()
        shrunk = tuple(trees.adapt(task, seed) for trees in self.shrunk)
        return _OnTask(task, self.bases, posterior, shrunk, self.transfer.adapt(task, seed))


_Fitted = TypeVar("_Fitted", XgbXfer, XgbXferShrunk)


def _quick(model: _Fitted) -> _Fitted:
    # What was grown on other tasks is asked about every configuration.
    return replace(model, base=QuickTrees.of(model.fitted()))


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
    def __init__(self, task: TuningTask, bases: Bases, posterior: Posterior | _Scaled, shrunk: Sequence[Adapted], transfer: Adapted) -> None:
        self._task, self._bases, self._posterior, self._shrunk, self._transfer = task, bases, posterior, shrunk, transfer
        self._remembered = Remembered(len(bases.history.columns) + bases.crossed[0].shape[1])

    def update(self, trials: Trials) -> None:
        for trees in (self._transfer, *self._shrunk):
            trees.update(trials)
        if len(trials):
            inputs, said = self._at(trials.indices)
            self._posterior.condition(with_bases(inputs, said), said, trials.label)

    def predict(self, indices: ArrayLike) -> Estimate:
        inputs, said = self._at(indices)
        mean, std = (self._posterior.scale * part.astype(np.float64) for part in self._posterior.predict(with_bases(inputs, said), said))
        trees = [one.predict(indices).mean for one in self._shrunk]
        return Estimate((mean + sum(trees) / len(trees)) / 2 if trees else mean, std)

    def opinions(self, indices: ArrayLike) -> Opinions:
        own = self.predict(indices)
        return Opinions(np.stack([own.mean + _OPTIMISM * np.nan_to_num(own.std), self._transfer.predict(indices).mean]), _SHARES)

    def _at(self, indices: ArrayLike) -> tuple[_Floats, _Floats]:
        # Columns and bases of each configuration are found once.
        given = np.asarray(indices)
        found = self._remembered.of(given, lambda places: self._find(given[places]))
        columns = len(self._bases.history.columns)
        return found[:, :columns], found[:, columns:]

    def _find(self, indices: NDArray[Any]) -> _Floats:
        inputs = self._bases.history.standardised(self._task, self._task.vectors(indices))
        return np.concatenate([inputs, self._bases.predict(inputs)], axis=1)
