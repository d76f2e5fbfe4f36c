"""Choosing a schedule: several compact models of how long a schedule takes relative to others of its input size, averaged.

A choice needs the order of the fastest candidates of one size, not seconds over all sizes, and the least of many predictions finds the errors of a single
model. So times are taken relative to the median of their size, the size is no input (of a size that was never measured, a model with that input knows nothing),
the fastest rows count like the others, and members that start from other points are averaged. `CompactSchedule` is the model for seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from workbench.data.datasets import Dataset
from workbench.models.base import CostModel, Floats, Problem, Recipe, Rows, targets
from workbench.models.compact import CompactSchedule
from workbench.models.medians import MedianLaw, medians

__all__ = ["ChoiceModel", "ScheduleChoice"]

_MEMBERS = 4


@dataclass(frozen=True)
class ChoiceModel(CostModel):
    """A power law of the workload's parameters for the median schedule, times the geometric mean of what the members predict relative to it.

    Attributes:
        name: of the recipe.
        members: models of relative time.
        law: of the median schedule.
        noise: deviation of log time that the members estimate, on average.
    """

    name: str
    members: tuple[CostModel, ...]
    law: MedianLaw
    noise: float

    @property
    def n_parameters(self) -> int:
        """Weights of all members and numbers of the law."""
        return sum(member.n_parameters for member in self.members) + len(self.law.law)

    def predict_time_s(self, frame: pd.DataFrame) -> Floats:
        """Seconds [n]; for a size that was not measured they follow the power law, and the order of its schedules is what to rely on."""
        relative = np.mean([np.log(member.predict_time_s(frame)) for member in self.members], axis=0)
        return np.asarray(np.exp(relative + self.law.log_seconds(frame)), dtype=np.float64)


class ScheduleChoice(Recipe):
    """The recipe for choosing among schedules."""

    name = "compact choice"

    def fit(self, problems: Sequence[Problem], seed: int = 0) -> list[CostModel]:
        """One model a problem."""
        recipe = CompactSchedule(replace(CompactSchedule.candidates[0], fast_weight=1.0, restarts=6, steps=70), self.name)
        relative = [_relative(dataset, rows) for dataset, rows in problems]
        fits = [recipe.fit(relative, seed * _MEMBERS + member) for member in range(_MEMBERS)]
        return [self._model(dataset, rows, members) for (dataset, rows), *members in zip(problems, *fits, strict=True)]

    def _model(self, dataset: Dataset, rows: Rows, members: Sequence[CostModel]) -> CostModel:
        return ChoiceModel(self.name, tuple(members), MedianLaw.fit(dataset, rows), float(np.mean([member.noise for member in members])))


def _relative(dataset: Dataset, rows: Rows) -> Problem:
    """The problem of times relative to the median of their workload, which is then no input."""
    frame = dataset.frame.iloc[rows].reset_index(drop=True)
    return replace(dataset, frame=frame.assign(time_s=targets(dataset, rows) / medians(dataset, rows)), parameters=()), np.arange(len(rows))
