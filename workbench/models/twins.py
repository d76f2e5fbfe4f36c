"""A task whose workload and space were measured before, on other devices: what each of them said of a configuration, weighed anew for this one.

The prior is a Gaussian process. Its mean is the average of the twins' relative throughputs; a linear kernel over them lets a few trials turn towards the twins
that are like this device; a Matern kernel (1/2) over the knobs takes what no twin knows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from workbench.errors import DataError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.models.surrogate import Adapted, Estimate, Opinions, Trials

__all__ = ["TwinProcess", "twins_of"]

Floats = NDArray[np.float64]

# Variances of the weight of a twin, of a constant, of the knobs' part and of the noise, and its length in coordinates of the unit cube. Chosen on the
# development devices RTX 2080 Ti and A4000.
_WEIGHT, _CONSTANT, _KNOBS, _NOISE, _LENGTH = 0.1, 0.05, 0.03, 0.002, 0.5
_APART = 10  # trials before the twins speak with one voice


def twins_of(task: TuningTask, history: Sequence[MeasuredTask]) -> list[MeasuredTask]:
    """Those of the history that measured the task's workload in the task's space."""
    return [other for other in history if other.task.workload == task.workload and other.task.space.signature == task.space.signature]


class TwinProcess(Adapted):
    """See the module.

    Args:
        task: to tune.
        twins: of it, at least one.

    Raises:
        DataError: no twins.
    """

    def __init__(self, task: TuningTask, twins: Sequence[MeasuredTask]) -> None:
        if not twins:
            raise DataError(f"{task.name}: no measured task has its workload and space, so there is nothing to weigh")
        self._space = task.space
        self._tables = [(np.sort(twin.indices), twin.label[np.argsort(twin.indices)]) for twin in twins]
        self._seen: tuple[Floats, Floats, Floats] | None = None
        self._trials = 0

    def opinions(self, indices: ArrayLike) -> Opinions:
        """See `Adapted`. At first the average of the twins and each of them have equal shares: so the first trials tell which of them this device is like."""
        if self._trials < _APART:
            said = self._said(indices)
            return Opinions(said, (1,) * len(said))
        return super().opinions(indices)

    def update(self, trials: Trials) -> None:
        """See `Adapted`."""
        self._trials = len(trials)
        if not len(trials):
            self._seen = None
            return
        said, places = self._at(trials.indices)
        factor = scipy.linalg.cho_factor(_kernel(said, places, said, places) + _NOISE * np.eye(len(trials)), lower=True)
        self._seen = said, places, scipy.linalg.cho_solve(factor, trials.label - said[0])
        self._factor = factor[0]

    def predict(self, indices: ArrayLike) -> Estimate:
        """See `Adapted`; before the first trial the average of the twins."""
        said, places = self._at(indices)
        mean, variance = said[0].copy(), _CONSTANT + _KNOBS + _WEIGHT * np.square(said[1:]).sum(axis=0)
        if self._seen is not None:
            seen_said, seen_places, solved = self._seen
            across = _kernel(said, places, seen_said, seen_places)
            mean += across @ solved
            variance -= np.square(scipy.linalg.solve_triangular(self._factor, across.T, lower=True)).sum(axis=0)
        return Estimate(mean, np.sqrt(np.maximum(variance, 0.0)))

    def _at(self, indices: ArrayLike) -> tuple[Floats, Floats]:
        return self._said(indices), self._space.coordinates(indices)

    def _said(self, indices: ArrayLike) -> Floats:
        # Relative throughput by the average of the twins, then by each, [1 + twins, n]. Of a configuration that a twin has not measured the others speak.
        given = np.asarray(indices)
        said = np.full((len(self._tables), len(given)), np.nan)
        for twin, (known, label) in enumerate(self._tables):
            places = np.minimum(np.searchsorted(known, given), len(known) - 1)
            said[twin] = np.where(known[places] == given, label[places], np.nan)
        count = np.isfinite(said).sum(axis=0)
        average = np.nansum(said, axis=0) / np.maximum(count, 1)
        return np.vstack([average, np.where(np.isfinite(said), said, average)])


def _kernel(said: Floats, places: Floats, other_said: Floats, other_places: Floats) -> Floats:
    near = np.exp(-cdist(places, other_places) / _LENGTH)
    found: Floats = _WEIGHT * (said[1:].T @ other_said[1:]) + _CONSTANT + _KNOBS * near
    return found
