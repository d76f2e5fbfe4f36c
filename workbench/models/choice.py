"""Choosing a schedule: models of how long a schedule takes relative to others of its input size.

A choice needs the order of the fastest candidates of one size, not seconds over all sizes, and the least of many predictions finds the errors of a single
model. So times are taken relative to the median of their size, and the size is no input (of a size that was never measured, a model with that input knows
nothing). `ScheduleChoice` averages compact models that start from other points, with the fastest rows counting like the others. `MixedChoice` averages
them with a Gaussian process, whose errors are others. `CompactSchedule` is the model for seconds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from workbench.data.datasets import Dataset
from workbench.features.inputs import Term, evaluate, schedule_terms
from workbench.models.base import CostModel, Floats, Problem, Recipe, Rows, targets
from workbench.models.compact import CompactSchedule

__all__ = ["ChoiceModel", "MixedChoice", "ScheduleChoice"]

_MEMBERS = 4
_TUNED_ON = 250  # rows: the likelihood of more takes seconds, and changes lengths little


@dataclass(frozen=True)
class ChoiceModel(CostModel):
    """A power law of the workload's parameters for the median schedule, times the weighted geometric mean of what the members predict relative to it.

    Attributes:
        name: of the recipe.
        members: models of relative time.
        weights: of each member's logarithm.
        parameters: columns of the workload.
        centre: mean logarithm of each.
        law: logarithm of the median at the centre, then the exponent of each parameter.
        noise: deviation of log time that the members estimate, on average.
    """

    name: str
    members: tuple[CostModel, ...]
    weights: tuple[float, ...]
    parameters: tuple[str, ...]
    centre: Floats
    law: Floats
    noise: float

    @property
    def n_parameters(self) -> int:
        """Weights of all members and numbers of the law."""
        return sum(member.n_parameters for member in self.members) + len(self.law)

    def predict_time_s(self, frame: pd.DataFrame) -> Floats:
        """Seconds [n]; for a size that was not measured they follow the power law, and the order of its schedules is what to rely on."""
        relative = np.average([np.log(member.predict_time_s(frame)) for member in self.members], axis=0, weights=self.weights)
        return np.asarray(np.exp(relative + _design(frame, self.parameters, self.centre) @ self.law), dtype=np.float64)


class _Choice(Recipe):
    # Members that learn relative time, and the power law of the sizes' medians.
    _weights: tuple[float, ...]

    def fit(self, problems: Sequence[Problem], seed: int = 0) -> list[CostModel]:
        """One model a problem."""
        members = self._members([_relative(dataset, rows) for dataset, rows in problems], seed)
        return [self._model(dataset, rows, those) for (dataset, rows), those in zip(problems, members, strict=True)]

    @abstractmethod
    def _members(self, problems: Sequence[Problem], seed: int) -> list[tuple[CostModel, ...]]:
        """The members of each problem, whose times are relative."""

    def _model(self, dataset: Dataset, rows: Rows, members: Sequence[CostModel]) -> CostModel:
        frame = dataset.frame.iloc[rows]
        centre: Floats = np.log(frame[list(dataset.parameters)].to_numpy(dtype=float)).mean(axis=0)
        # With one size the centred columns are zero, and the least norm makes their exponents zero too.
        law = np.asarray(np.linalg.lstsq(_design(frame, dataset.parameters, centre), np.log(_medians(dataset, rows)), rcond=None)[0], dtype=np.float64)
        noise = float(np.mean([member.noise for member in members]))
        return ChoiceModel(self.name, tuple(members), self._weights, dataset.parameters, centre, law, noise)


class ScheduleChoice(_Choice):
    """Four compact models."""

    name = "compact choice"
    _weights = (1 / _MEMBERS,) * _MEMBERS

    def _members(self, problems: Sequence[Problem], seed: int) -> list[tuple[CostModel, ...]]:
        recipe = CompactSchedule(replace(CompactSchedule.candidates[0], fast_weight=1.0, restarts=6, steps=70), self.name)
        return list(zip(*(recipe.fit(problems, seed * _MEMBERS + member) for member in range(_MEMBERS)), strict=True))


class MixedChoice(ScheduleChoice):
    """The four compact models, and with the weight of them all a Gaussian process: a Matern kernel (3/2) with a length for each input, and noise.

    Lengths and noise are fitted by the marginal likelihood of 250 rows at most, drawn at random; the process then keeps all rows. On the two-thread series its
    choices took 3% (standard error 1.5%) less time than those of the four alone for FFT within a size, and 0.6% (1.4%) less for Blur.
    """

    name = "mixed choice"
    _weights = (*((1 / (2 * _MEMBERS),) * _MEMBERS), 1 / 2)

    def _members(self, problems: Sequence[Problem], seed: int) -> list[tuple[CostModel, ...]]:
        compact = super()._members(problems, seed)
        return [(*members, _process(dataset, rows, seed)) for members, (dataset, rows) in zip(compact, problems, strict=True)]


@dataclass(frozen=True)
class _Process(CostModel):
    # Relative time by a process over standardised terms.
    name: str
    terms: tuple[Term, ...]
    centre: Floats
    scale: Floats
    process: Any
    noise: float

    @property
    def n_parameters(self) -> int:
        return int(self.process.alpha_.size) + len(self.process.kernel_.theta)

    def predict_time_s(self, frame: pd.DataFrame) -> Floats:
        return np.asarray(np.exp(self.process.predict((evaluate(frame, self.terms) - self.centre) / self.scale)), dtype=np.float64)


def _process(dataset: Dataset, rows: Rows, seed: int) -> CostModel:
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    terms = tuple(schedule_terms(dataset))
    inputs, target = evaluate(dataset.frame.iloc[rows], terms), np.log(targets(dataset, rows))
    centre, scale = inputs.mean(axis=0), np.where(inputs.std(axis=0) > 0, inputs.std(axis=0), 1.0)
    inputs = (inputs - centre) / scale
    drawn = np.random.default_rng(seed).permutation(len(rows))[:_TUNED_ON]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an input that does not matter has a length at its bound, which is meant
        prior = ConstantKernel() * Matern(np.ones(len(terms)), nu=1.5) + WhiteKernel(0.05)
        kernel = GaussianProcessRegressor(prior, normalize_y=True).fit(inputs[drawn], target[drawn]).kernel_
    process = GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True).fit(inputs, target)
    return _Process("process", terms, centre, scale, process, float(target.std() * np.sqrt(kernel.k2.noise_level)))


def _design(frame: pd.DataFrame, parameters: Sequence[str], centre: Floats) -> Floats:
    """Ones and centred logarithms of the parameters [rows, 1 + parameters]."""
    return np.column_stack([np.ones(len(frame)), np.log(frame[list(parameters)].to_numpy(dtype=float)) - centre])


def _medians(dataset: Dataset, rows: Rows) -> Floats:
    """Seconds that the median schedule of each row's workload takes, among `rows`."""
    time = pd.Series(targets(dataset, rows))
    sizes = [dataset.frame[name].to_numpy()[rows] for name in dataset.parameters]
    return time.groupby(sizes).transform("median").to_numpy(dtype=float)


def _relative(dataset: Dataset, rows: Rows) -> Problem:
    """The problem of times relative to the median of their workload, which is then no input."""
    frame = dataset.frame.iloc[rows].reset_index(drop=True)
    return replace(dataset, frame=frame.assign(time_s=targets(dataset, rows) / _medians(dataset, rows)), parameters=()), np.arange(len(rows))
