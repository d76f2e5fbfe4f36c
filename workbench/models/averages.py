"""A surrogate that a learned one has to beat: the plain average of what other tasks of the same space have shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import DataError, UsageError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.models.surrogate import Adapted, Estimate, Surrogate, Trials

__all__ = ["Averages"]


@dataclass(frozen=True, eq=False)
class _Fixed(Adapted):
    # Says the same before and after any trial. `indices` ascend.
    indices: NDArray[np.int64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]

    def update(self, trials: Trials) -> None:
        pass

    def predict(self, indices: ArrayLike) -> Estimate:
        asked = np.asarray(indices)
        place = np.searchsorted(self.indices, asked).clip(max=len(self.indices) - 1)
        known = self.indices[place] == asked
        return Estimate(np.where(known, self.mean[place], 0.0), np.where(known, self.std[place], np.nan))


@dataclass(frozen=True)
class Averages(Surrogate):
    """Relative throughput of a configuration averaged over other tasks of the same space, such as one kernel on other devices.

    A configuration that some of them have not measured counts as a failure there, since tables of one space list the same configurations; one that none of them
    has counts as 0. Trials change nothing.
    """

    name = "averages"
    _space: str = field(default="", repr=False)
    _known: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]] | None = field(default=None, repr=False, compare=False)

    def fit(self, tasks: Sequence[MeasuredTask], seed: int = 0) -> Averages:
        """See `Surrogate`. Raises DataError also for tasks of different spaces."""
        if not tasks:
            raise DataError("averages: no tasks to average; give at least one that was measured")
        spaces = {(measured.task.kernel.name, measured.task.space.name, measured.task.space.size) for measured in tasks}
        if len(spaces) > 1:
            raise DataError(f"averages: tasks of {len(spaces)} spaces; an index means the same configuration in one space only")
        indices = np.unique(np.concatenate([measured.indices for measured in tasks]))
        table = np.zeros((len(tasks), len(indices)))
        for row, measured in zip(table, tasks, strict=True):
            row[np.searchsorted(indices, measured.indices)] = measured.label
        return Averages(_key(tasks[0].task), (indices, table.mean(axis=0), table.std(axis=0)))

    def adapt(self, task: TuningTask, seed: int = 0) -> Adapted:
        """See `Surrogate`."""
        if self._known is None:
            raise UsageError("averages: not fitted; call fit with tasks that were measured")
        if _key(task) != self._space:
            raise UsageError(f"averages of the space {self._space} say nothing about {task.name} in the space {_key(task)}")
        return _Fixed(*self._known)


def _key(task: TuningTask) -> str:
    return f"{task.kernel.name}/{task.space.name}/{task.space.size}"
