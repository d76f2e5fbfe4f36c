"""A task whose workload and space were measured before, on other devices: what each of them said of a configuration, weighed anew for this one.

The prior is a Gaussian process. Its mean is the average of the twins' relative throughputs; a linear kernel over them lets a few trials turn towards the twins
that are like this device; a Matern kernel (5/2) over the knobs takes what no twin knows. How far a device may be from the average of others, and along which
knobs, is learnt from the twins themselves: each in turn is the device that the others speak of. So twins that disagree make a prior that a few trials move far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from workbench.errors import DataError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.models.surrogate import Adapted, Estimate, Opinions, Trials
from workbench.space import Space

__all__ = ["Prior", "TwinProcess", "learn_prior", "twins_of"]

Floats = NDArray[np.float64]
# What twins said of configurations: their average [n], each of them [twins, n], and the configurations' coordinates [n, columns].
Said = tuple[Floats, Floats, Floats]

# Variances of the weight of a twin, of a constant, of the knobs' part and of the noise before anything is learnt, how far (as a factor's logarithm) they may be
# from that, the least noise, and the length in coordinates of the unit cube, with the same.
_BEFORE, _WIDTH, _LEAST_NOISE = (0.1, 0.05, 0.03, 0.002), 1.5, 1e-3
_LENGTH, _LENGTH_WIDTH = 1.0, 1.0
# Rows of each twin that the prior is learnt from, a third of them from its fastest tenth: there a search goes.
_ROWS, _STEPS = 300, 40
# The best of a task is unknown while it is tuned: so many times the best so far it may be. So many times the prior's variance it may differ.
_SCALES = np.array([1.0, 1.03, 1.06, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 1.8, 2.2])
_FACTORS = (0.3, 1.0, 3.0, 10.0)
_SCALE_SPREAD, _FACTOR_SPREAD = 0.5, 1.5
# Standard deviations above the mean by which the opinions rank in turn, and how many opinions there are: as many as a batch has.
_OPTIMISM, _OPINIONS = (0.0, 1.0, 2.0), 16
# One opinion in so many is of a process without twins, with its optimism, the least variance that it takes for granted, and its noise.
_ALONE, _OPTIMISM_ALONE, _LEAST_SPREAD, _NOISE_ALONE = 4, 2.0, 0.02, 0.002


def twins_of(task: TuningTask, history: Sequence[MeasuredTask]) -> list[MeasuredTask]:
    """Those of the history that measured the task's workload in the task's space."""
    return [other for other in history if other.task.workload == task.workload and other.task.space.signature == task.space.signature]


@dataclass(frozen=True, eq=False)
class Prior:
    """Of the difference of a device from the average of its twins.

    Attributes:
        weight, constant, knobs, noise: variances, in squares of relative throughput.
        lengths: of the Matern kernel [columns of the coordinates].
    """

    weight: float
    constant: float
    knobs: float
    noise: float
    lengths: Floats

    def kernel(self, at: Said, other: Said) -> Floats:
        """Covariance [n, m]."""
        found: Floats = self.weight * (at[1].T @ other[1]) + self.constant + self.knobs * self.near(at, other)
        return found

    def near(self, at: Said, other: Said) -> Floats:
        """Correlation by the knobs alone [n, m]."""
        distance = np.sqrt(5) * cdist(at[2] / self.lengths, other[2] / self.lengths)
        found: Floats = (1 + distance + distance**2 / 3) * np.exp(-distance)
        return found

    def variance(self, at: Said) -> Floats:
        """The diagonal of `kernel(at, at)` [n]."""
        found: Floats = self.weight * np.square(at[1]).sum(axis=0) + self.constant + self.knobs
        return found


def learn_prior(space: Space, twins: Sequence[MeasuredTask], seed: int = 0) -> Prior:
    """The prior under which each twin is likeliest beside the others, by marginal likelihood.

    Of a single twin nothing is known of how devices differ; the lengths are then those along which the twin itself varies.

    Args:
        space: of the task.
        twins: at least one.
        seed: of the rows that are looked at.
    """
    tables = _tables(twins)
    rng = np.random.default_rng(seed)
    parts = []
    for place, (indices, label) in enumerate(tables):
        rows = _rows(label, rng)
        others = [table for other, table in enumerate(tables) if other != place]
        average, each = _said(others, indices[rows]) if others else (np.full(len(rows), label[rows].mean()), np.zeros((1, len(rows))))
        coordinates = space.coordinates(indices[rows])
        parts.append(tuple(torch.from_numpy(part) for part in (coordinates, label[rows] - average, each)))
    columns = parts[0][0].shape[1]
    centre = torch.log(torch.tensor([*_BEFORE, *[_LENGTH] * columns], dtype=torch.float64))
    width = torch.tensor([_WIDTH] * 4 + [_LENGTH_WIDTH] * columns, dtype=torch.float64)
    found = centre.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([found], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        total = 0.5 * ((found - centre) / width).square().sum() + sum(_surprise(found, *part) for part in parts)
        total.backward()
        return total

    optimizer.step(loss)
    values = found.detach().exp().numpy()
    if not np.isfinite(values).all():
        values = centre.exp().numpy()
    weight, constant, knobs, noise = values[:4].tolist() if len(tables) > 1 else _BEFORE
    return Prior(weight, constant, knobs, max(noise, _LEAST_NOISE), values[4:])


def _surprise(logarithms: torch.Tensor, coordinates: torch.Tensor, difference: torch.Tensor, each: torch.Tensor) -> torch.Tensor:
    # Negative log marginal likelihood of the differences of one twin from the average of the others.
    weight, constant, knobs, noise = torch.exp(logarithms[:4])
    scaled = coordinates * torch.exp(-logarithms[4:])
    distance = torch.sqrt(5 * (scaled[:, None] - scaled[None]).square().sum(-1) + 1e-10)
    near = (1 + distance + distance**2 / 3) * torch.exp(-distance)
    covariance = weight * (each.T @ each) + constant + knobs * near + (noise + 1e-6) * torch.eye(len(difference), dtype=torch.float64)
    factor = torch.linalg.cholesky(covariance)
    error = torch.linalg.solve_triangular(factor, difference[:, None], upper=False)
    found: torch.Tensor = 0.5 * error.square().sum() + factor.diagonal().log().sum()
    return found


def _rows(label: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    fastest = np.argsort(-label, kind="stable")[: max(1, len(label) // 10)]
    fast = rng.choice(fastest, min(_ROWS // 3, len(fastest)), replace=False)
    return np.union1d(fast, rng.choice(len(label), min(_ROWS - _ROWS // 3, len(label)), replace=False))


def _tables(twins: Sequence[MeasuredTask]) -> list[tuple[NDArray[np.int64], Floats]]:
    return [(np.sort(twin.indices), twin.label[np.argsort(twin.indices)]) for twin in twins]


def _said(tables: Sequence[tuple[NDArray[np.int64], Floats]], indices: ArrayLike) -> tuple[Floats, Floats]:
    # Relative throughput by the average of the twins [n], and by each [twins, n]. Of a configuration that a twin has not measured the others speak.
    given = np.asarray(indices)
    said = np.full((len(tables), len(given)), np.nan)
    for twin, (known, label) in enumerate(tables):
        places = np.minimum(np.searchsorted(known, given), len(known) - 1)
        said[twin] = np.where(known[places] == given, label[places], np.nan)
    count = np.isfinite(said).sum(axis=0)
    average = np.nansum(said, axis=0) / np.maximum(count, 1)
    return average, np.where(np.isfinite(said), said, average)


@dataclass(eq=False)
class _Belief:
    # What a process says of configurations `at`: mean and variance [n], and what each trial explains of them [trials, n].
    at: Said
    kernel: Callable[[Said, Said], Floats]
    noise: float
    mean: Floats
    variance: Floats
    explained: Floats

    @classmethod
    def of(
        cls, at: Said, kernel: Callable[[Said, Said], Floats], noise: float, mean: Floats, variance: Floats, seen: Said, lower: Floats, error: Floats
    ) -> _Belief:
        # After trials `seen`, whose covariance has the factor `lower`, and which lay `error` off the mean, solved by it.
        explained = scipy.linalg.solve_triangular(lower, kernel(seen, at), lower=True)
        return cls(at, kernel, noise, mean + error @ explained, np.maximum(variance - np.square(explained).sum(axis=0), 0.0), explained)

    def ranking(self, optimism: float) -> Floats:
        found: Floats = self.mean + optimism * np.sqrt(self.variance)
        return found

    def assume(self, place: int) -> None:
        # That configuration is tried: the mean stays, since nobody knows what will come of it, and the variance falls.
        one = self.at[0][place : place + 1], self.at[1][:, place : place + 1], self.at[2][place : place + 1]
        row = (self.kernel(one, self.at)[0] - self.explained[:, place] @ self.explained) / np.sqrt(self.variance[place] + self.noise)
        self.explained = np.vstack([self.explained, row])
        self.variance = np.maximum(self.variance - np.square(row), 0.0)


class TwinProcess(Adapted):
    """See the module.

    Args:
        task: to tune.
        twins: of it, at least one.
        prior: of the differences between devices; None learns it from the twins.

    Raises:
        DataError: no twins.
    """

    def __init__(self, task: TuningTask, twins: Sequence[MeasuredTask], prior: Prior | None = None) -> None:
        if not twins:
            raise DataError(f"{task.name}: no measured task has its workload and space, so there is nothing to weigh")
        self._space = task.space
        self._tables = _tables(twins)
        self._prior = prior or learn_prior(task.space, twins)
        self._seen: tuple[Said, Floats, Floats] | None = None
        self._scale, self._factor = 1.0, 1.0
        self._label: Floats = np.empty(0)

    def update(self, trials: Trials) -> None:
        """See `Adapted`. How far the task's best lies above the best so far, and how far this device is from its twins, are the likeliest of a grid."""
        self._seen, self._scale, self._factor = None, 1.0, 1.0
        if not len(trials):
            return
        at, label = self._at(trials.indices), trials.label
        self._label = label
        covariance, noise = self._prior.kernel(at, at), self._prior.noise * np.eye(len(trials))
        ran, likeliest = int((label > 0).sum()), -np.inf
        for factor in _FACTORS:
            lower = scipy.linalg.cholesky(factor * covariance + noise, lower=True)
            error = scipy.linalg.solve_triangular(lower, label[:, None] / _SCALES - at[0][:, None], lower=True)
            # Of the density of throughput: labels that are divided by a scale are denser. The more was tried, the nearer to 1 a scale is beforehand.
            likelihood = -0.5 * np.square(error).sum(axis=0) - np.log(np.diag(lower)).sum() - ran * np.log(_SCALES)
            likelihood -= 0.5 * np.square(np.log(_SCALES) / _SCALE_SPREAD) * (1 + ran / 8) + 0.5 * (np.log(factor) / _FACTOR_SPREAD) ** 2
            best = int(likelihood.argmax())
            if likelihood[best] > likeliest:
                likeliest, self._scale, self._factor = float(likelihood[best]), float(_SCALES[best]), factor
                self._seen = at, lower, error[:, best]

    def predict(self, indices: ArrayLike) -> Estimate:
        """See `Adapted`; before the first trial the average of the twins."""
        belief = self._belief(self._at(indices))
        return Estimate(self._scale * belief.mean, self._scale * np.sqrt(belief.variance))

    def opinions(self, indices: ArrayLike) -> Opinions:
        """See `Adapted`. Each opinion takes for granted that what those before it rank first is tried already, so that a batch tries one guess only once.

        Once there are trials, one opinion in four is that of a process which knows nothing of the twins: all of them may be wrong of this device.
        """
        at = self._at(indices)
        beliefs = [self._belief(at), *([] if self._seen is None else [self._alone(at)])]
        rankings: list[Floats] = []
        taken = np.zeros(len(at[0]), dtype=bool)
        for number in range(min(_OPINIONS, len(at[0]))):
            turn, place = divmod(number, _ALONE)
            alone = len(beliefs) > 1 and place == _ALONE - 1
            optimism = _OPTIMISM[(number - turn if len(beliefs) > 1 else number) % len(_OPTIMISM)]
            rankings.append(beliefs[1].ranking(_OPTIMISM_ALONE) if alone else beliefs[0].ranking(optimism))
            first = int(np.where(taken, -np.inf, rankings[-1]).argmax())
            taken[first] = True
            for belief in beliefs:
                belief.assume(first)
        return Opinions(np.array(rankings).reshape(-1, len(at[0])), (1,) * max(1, len(rankings)))

    def _belief(self, at: Said) -> _Belief:
        def kernel(left: Said, right: Said) -> Floats:
            return self._factor * self._prior.kernel(left, right)

        variance = self._factor * self._prior.variance(at)
        if self._seen is None:
            return _Belief(at, kernel, self._prior.noise, at[0], variance, np.empty((0, len(at[0]))))
        seen, lower, error = self._seen
        return _Belief.of(at, kernel, self._prior.noise, at[0], variance, seen, lower, error)

    def _alone(self, at: Said) -> _Belief:
        # Around the mean of the trials, by the knobs alone; how far they vary is what they show.
        assert self._seen is not None
        seen, spread = self._seen[0], max(float(self._label.var()), _LEAST_SPREAD)

        def kernel(left: Said, right: Said) -> Floats:
            return spread * self._prior.near(left, right)

        lower = scipy.linalg.cholesky(kernel(seen, seen) + _NOISE_ALONE * np.eye(len(self._label)), lower=True)
        error = scipy.linalg.solve_triangular(lower, self._label - self._label.mean(), lower=True)
        mean, variance = np.full(len(at[0]), self._label.mean()), np.full(len(at[0]), spread)
        return _Belief.of(at, kernel, _NOISE_ALONE, mean, variance, seen, lower, error)

    def _at(self, indices: ArrayLike) -> Said:
        return *_said(self._tables, indices), self._space.coordinates(indices)
