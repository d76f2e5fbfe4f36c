"""How sure a comparison is: intervals over tasks, corrected intervals over splits, paired tests, and families of tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from workbench.errors import DataError, UsageError
from workbench.metrics.checks import Floats, fraction, vector, vectors

__all__ = ["Interval", "Wilcoxon", "bootstrap_tasks", "corrected_interval", "holm", "wilcoxon"]

# Draws held in memory at once by the bootstrap: 2M doubles are 16 MB.
_CHUNK = 2_000_000
_EXACT_TIED = 13  # 2^13 sign patterns are enumerated in milliseconds
_EXACT_UNTIED = 50  # the largest for which scipy tabulates the distribution


@dataclass(frozen=True)
class Interval:
    """An estimate with its two-sided confidence interval at `level`."""

    estimate: float
    low: float
    high: float
    level: float = 0.95

    def excludes(self, value: float = 0.0) -> bool:
        """Whether `value` lies outside the interval."""
        return not self.low <= value <= self.high


@dataclass(frozen=True)
class Wilcoxon:
    """Result of a Wilcoxon signed-rank test.

    Attributes:
        statistic: scipy's: the smaller of the two rank sums if two-sided, otherwise the sum of the ranks of the positive differences.
        p: p-value.
        median_difference: median of first - second over all pairs, zero differences included.
        pairs: number of pairs.
        zeros: pairs with no difference, left out of the ranks (Wilcoxon's own treatment).
        method: "exact" or "asymptotic".
    """

    statistic: float
    p: float
    median_difference: float
    pairs: int
    zeros: int
    method: str


def _tasks(values: Sequence[ArrayLike] | Floats) -> tuple[Floats, np.ndarray]:
    """Scores padded to shape (tasks, most seeds), and the number of seeds of each task."""
    rows = [vector(f"task {i}", np.atleast_1d(np.asarray(row, dtype=np.float64))) for i, row in enumerate(values)]
    if len(rows) < 2:
        raise DataError(f"bootstrap over tasks: {len(rows)} task(s); at least two are needed to say how results vary between tasks")
    counts = np.array([len(row) for row in rows])
    padded = np.zeros((len(rows), counts.max()))
    for row, target in zip(rows, padded, strict=True):
        target[: len(row)] = row
    return padded, counts


def bootstrap_tasks(
    values: Sequence[ArrayLike] | Floats,
    *,
    across: Literal["mean", "median"] = "mean",
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval over tasks with seeds nested inside.

    Tasks (layers, devices, data sets) are drawn with replacement, then seeds with replacement inside each drawn task; a task drawn twice draws its seeds twice.
    Resampling seeds alone would say how lucky one run was, not how results vary between tasks. For a paired comparison pass differences, for ratios logarithms.

    Args:
        values: one array of scores a task (one score a seed, numbers of seeds may differ), or shape (tasks, seeds), or one score a task.
        across: how the tasks' means over seeds are combined.
        resamples: number of bootstrap replicates.
        level: confidence level.
        seed: of the random draws; equal seeds give equal intervals.

    Returns:
        The estimate is the combination over tasks of the means over seeds, so every task weighs the same.

    Raises:
        DataError: fewer than two tasks, or a task that is empty or not finite.
    """
    if across not in ("mean", "median"):
        raise UsageError(f"across is {across!r}; use 'mean' or 'median'")
    if resamples < 1:
        raise UsageError(f"resamples is {resamples}; use 1 or more")
    fraction("level", level)
    scores, counts = _tasks(values)
    tasks, seeds = scores.shape
    combine = np.mean if across == "mean" else np.median
    generator = np.random.default_rng(seed)
    replicates = np.empty(resamples)
    step = max(1, _CHUNK // (tasks * seeds))
    slot = np.arange(seeds)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        task = generator.integers(tasks, size=(size, tasks))
        count = counts[task][..., np.newaxis]
        drawn = (generator.random((size, tasks, seeds)) * count).astype(np.int64)
        sample = np.where(slot < count, scores[task[..., np.newaxis], drawn], 0.0)
        replicates[start : start + size] = combine(sample.sum(axis=-1) / count[..., 0], axis=-1)
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(combine(scores.sum(axis=1) / counts)), float(low), float(high), level)


def corrected_interval(scores: ArrayLike, n_train: int, n_test: int, level: float = 0.95) -> Interval:
    """Interval for the mean of a score (or a paired difference) over repeated random splits, with the correction of Nadeau and Bengio (2003).

    Splits share rows, so their scores are not independent; for J splits the variance of the mean is taken as (1/J + n_test/n_train) s^2, with J - 1 degrees of
    freedom.

    Args:
        scores: one a split, shape (J,), J >= 2.
        n_train: rows each split trained on.
        n_test: rows each split was scored on.
        level: confidence level.
    """
    s = vector("scores", scores)
    if len(s) < 2:
        raise DataError("scores: one split; at least two are needed for an interval")
    if n_train < 1 or n_test < 1:
        raise UsageError(f"n_train is {n_train} and n_test is {n_test}; both count rows and are 1 or more")
    error = math.sqrt((1 / len(s) + n_test / n_train) * float(s.var(ddof=1)))
    half = float(stats.t.ppf((1 + fraction("level", level)) / 2, len(s) - 1)) * error
    mean = float(s.mean())
    return Interval(mean, mean - half, mean + half, level)


def holm(p: ArrayLike) -> Floats:
    """Holm's step-down adjusted p-values of a family of tests, shape (m,), in the order given.

    Rejecting those at most alpha holds the family-wise error at alpha.
    """
    values = vector("p", p)
    if values.min() < 0 or values.max() > 1:
        raise DataError(f"p: values from {values.min():g} to {values.max():g}; p-values lie in 0 to 1")
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def wilcoxon(first: ArrayLike, second: ArrayLike, alternative: Literal["two-sided", "less", "greater"] = "two-sided") -> Wilcoxon:
    """Wilcoxon's signed-rank test of paired scores, one pair a task.

    Exact for up to 50 pairs without tied differences and up to 13 with them; beyond that the normal approximation. Pairs without a difference are left out and
    counted.

    Args:
        first: scores of one method, shape (n,).
        second: scores of the other on the same tasks, shape (n,).
        alternative: "less" asks whether `first` is lower.

    Raises:
        DataError: no pair differs: the test is not defined.
    """
    if alternative not in ("two-sided", "less", "greater"):
        raise UsageError(f"alternative is {alternative!r}; use 'two-sided', 'less' or 'greater'")
    a, b = vectors("first", first, "second", second)
    difference = a - b
    kept = difference[difference != 0]
    if len(kept) == 0:
        raise DataError(f"Wilcoxon: all {len(a)} pairs are equal; the test is not defined")
    size = np.abs(kept)
    tied = len(np.unique(size)) < len(size)
    exact = len(kept) <= (_EXACT_TIED if tied else _EXACT_UNTIED)
    if exact and tied:
        # scipy's "exact" table assumes distinct ranks; all 2^n sign patterns give the exact p-value with ties.
        result = stats.wilcoxon(kept, alternative=alternative, method=stats.PermutationMethod(n_resamples=2**_EXACT_TIED))
    else:
        result = stats.wilcoxon(kept, alternative=alternative, method="exact" if exact else "asymptotic")
    return Wilcoxon(
        statistic=float(result.statistic),
        p=float(result.pvalue),
        median_difference=float(np.median(difference)),
        pairs=len(a),
        zeros=len(a) - len(kept),
        method="exact" if exact else "asymptotic",
    )
