"""The contract of time models: a recipe fits models, a model predicts seconds and the mean and spread of log throughput."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.data.datasets import Dataset
from workbench.errors import DataError

__all__ = ["CostModel", "Prediction", "Problem", "Recipe", "Rows", "targets"]

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
# A data set and the rows of its frame that a model may learn from.
Problem = tuple[Dataset, Rows]


@dataclass(frozen=True)
class Prediction:
    """Mean and standard deviation of log throughput (natural logarithm of 1/seconds), each [n]; `std` is NaN where a model gives no spread."""

    mean: Floats
    std: Floats


class CostModel(ABC):
    """A fitted model. Higher log throughput is faster."""

    name: str
    noise: float = float("nan")

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Fitted numbers, scalers of inputs and output aside."""

    @abstractmethod
    def predict_time_s(self, frame: pd.DataFrame) -> Floats:
        """Predicted seconds [n]; not clipped, so a model of raw seconds may predict a time at or below zero."""

    def predict(self, frame: pd.DataFrame) -> Prediction:
        """Log throughput of each row. A predicted time at or below zero counts as 1 ns."""
        time = self.predict_time_s(frame)
        return Prediction(-np.log(np.maximum(time, 1e-9)), np.full(len(time), self.noise))


class Recipe(ABC):
    """How a model is made. Fitting takes many problems at once, because splits, seeds and devices then train as one batch."""

    name: str

    @abstractmethod
    def fit(self, problems: Sequence[Problem], seed: int = 0) -> list[CostModel]:
        """One model a problem."""


def targets(dataset: Dataset, rows: Rows) -> Floats:
    """Measured seconds of `rows`.

    Raises DataError for rows without a time: failures are no labels for a time model.
    """
    time = dataset.frame["time_s"].to_numpy(dtype=float)[rows]
    if len(time) == 0:
        raise DataError(f"data set {dataset.name}: no rows to learn from")
    if not (np.isfinite(time).all() and (time > 0).all()):
        bad = int(rows[np.flatnonzero(~(np.isfinite(time) & (time > 0)))[0]])
        raise DataError(
            f"data set {dataset.name}, row {bad}: no time to learn from (status {dataset.frame['status'].iloc[bad]}); use the rows of Dataset.valid"
        )
    return time
