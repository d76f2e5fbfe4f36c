"""How long the median schedule of a size takes: a power law of the size, to which schedules are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.data.datasets import Dataset
from workbench.models.base import Floats, Rows, targets

__all__ = ["MedianLaw", "medians"]


@dataclass(frozen=True)
class MedianLaw:
    """Seconds of the median schedule by the workload's parameters.

    Attributes:
        parameters: columns of the workload.
        centre: mean logarithm of each.
        law: logarithm of the median at the centre, then the exponent of each parameter.
    """

    parameters: tuple[str, ...]
    centre: Floats
    law: Floats

    @classmethod
    def fit(cls, dataset: Dataset, rows: Rows) -> MedianLaw:
        """By least squares. With one size the exponents are zero: the centred columns are, and the norm is the least."""
        frame = dataset.frame.iloc[rows]
        centre: Floats = np.log(frame[list(dataset.parameters)].to_numpy(dtype=float)).mean(axis=0)
        design = _design(frame, dataset.parameters, centre)
        law = np.asarray(np.linalg.lstsq(design, np.log(medians(dataset, rows)), rcond=None)[0], dtype=np.float64)
        return cls(dataset.parameters, centre, law)

    def log_seconds(self, frame: pd.DataFrame) -> Floats:
        """Logarithm of the median's seconds at each row [n]; of a size that was not measured by the power law."""
        found: Floats = _design(frame, self.parameters, self.centre) @ self.law
        return found


def medians(dataset: Dataset, rows: Rows) -> Floats:
    """Seconds that the median schedule of each row's workload takes, among `rows`."""
    time = pd.Series(targets(dataset, rows))
    sizes = [dataset.frame[name].to_numpy()[rows] for name in dataset.parameters]
    return time.groupby(sizes).transform("median").to_numpy(dtype=float)


def _design(frame: pd.DataFrame, parameters: Sequence[str], centre: Floats) -> Floats:
    """Ones and centred logarithms of the parameters [rows, 1 + parameters]."""
    return np.column_stack([np.ones(len(frame)), np.log(frame[list(parameters)].to_numpy(dtype=float)) - centre])
