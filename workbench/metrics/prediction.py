"""Errors and rank agreement of predictions."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from workbench.errors import DataError, UsageError
from workbench.metrics.checks import Floats, fraction, vectors

__all__ = ["mape", "mse", "mse_top", "spearman", "spearman_paper", "top_k_score"]


def mse(true: ArrayLike, predicted: ArrayLike) -> float:
    """Mean squared error of two arrays of shape (n,), in the square of their unit (MetaTune, Table 4: normalised throughput)."""
    t, p = vectors("true", true, "predicted", predicted)
    return float(np.mean((t - p) ** 2))


def mse_top(true: ArrayLike, predicted: ArrayLike, share: float = 0.25) -> float:
    """MSE(D): the mean squared error over the rows whose measured throughput is in the top `share` (MetaTune, section 4.3).

    Args:
        true: measured throughput, shape (n,), higher is faster.
        predicted: predicted throughput, shape (n,).
        share: rows with at least the ceil(share * n)-th highest measured value count, ties of that value included, so that row order has no effect.
    """
    t, p = vectors("true", true, "predicted", predicted)
    # The small term keeps 0.3 * 10 (3.0000000000000004 in some products) from rounding up to one row too many.
    count = max(1, math.ceil(fraction("share", share, one=True) * len(t) - 1e-9))
    top = t >= np.sort(t)[-count]
    return float(np.mean((t[top] - p[top]) ** 2))


def mape(time: ArrayLike, predicted: ArrayLike, drop_fastest: float = 0.3) -> float:
    """Mean absolute percentage error of times, in percent (NN+C, equation 1), without the fastest rows.

    The published rule, kept to the letter: threshold = sorted(time)[int(drop_fastest * n) - 1], and only rows with time > threshold count. Ties with the
    threshold are dropped too, so more than `drop_fastest` of the rows may go.

    Args:
        time: measured times, shape (n,), positive.
        predicted: predicted times in the same unit, shape (n,); any sign, since a network on raw seconds may predict below zero.
        drop_fastest: share of the rows to leave out; 0 gives the plain MAPE.

    Raises:
        DataError: a time is not positive, or no row is left above the threshold.
        UsageError: too few rows for the rule (the published index would wrap round to the slowest row).
    """
    t, p = vectors("time", time, "predicted", predicted)
    if (t <= 0).any():
        raise DataError(f"time: {t.min():g} is not a positive time; a percentage of it has no meaning")
    if fraction("drop_fastest", drop_fastest, zero=True) > 0:
        dropped = int(drop_fastest * len(t))
        if dropped == 0:
            raise UsageError(f"time: {len(t)} rows are too few to drop the fastest {drop_fastest:.0%}; pass drop_fastest=0 for the plain MAPE")
        keep = t > np.sort(t)[dropped - 1]
        if not keep.any():
            raise DataError(f"time: no row is slower than the threshold of the fastest {drop_fastest:.0%} (times are tied); pass drop_fastest=0")
        t, p = t[keep], p[keep]
    return float(100 * np.mean(np.abs(t - p) / t))


def _ranks(name: str, values: Floats) -> Floats:
    if (values == values[0]).all():
        raise DataError(f"{name}: all {len(values)} values are {values[0]:g}; a rank correlation is not defined")
    return np.asarray(rankdata(values), dtype=np.float64)


def spearman(true: ArrayLike, predicted: ArrayLike) -> float:
    """Spearman's rank correlation of two arrays of shape (n,): Pearson's correlation of the average ranks, correct with ties.

    Raises DataError if either array is constant.
    """
    t, p = vectors("true", true, "predicted", predicted)
    a, b = _ranks("true", t), _ranks("predicted", p)
    a, b = a - a.mean(), b - b.mean()
    # Rounding may leave the quotient at 1 + 2e-16.
    return float(np.clip(a @ b / math.sqrt((a @ a) * (b @ b)), -1, 1))


def spearman_paper(true: ArrayLike, predicted: ArrayLike) -> float:
    """Spearman's coefficient by NN+C's equation 2, 1 - 6 sum(d^2) / (N (N^2 - 1)), on average ranks: `spearman` if no value is tied, approximate otherwise."""
    t, p = vectors("true", true, "predicted", predicted)
    d = _ranks("true", t) - _ranks("predicted", p)
    n = len(d)
    return float(1 - 6 * (d @ d) / (n * (n**2 - 1)))


def top_k_score(true: ArrayLike, predicted: ArrayLike, k: int = 1) -> float:
    """Best measured throughput among the k rows predicted fastest, as a share of the best of all: 1 when the fastest row is among them.

    Args:
        true: measured throughput, shape (n,), not negative, at least one above 0.
        predicted: predicted throughput, shape (n,). Tied predictions are taken slowest row first: a model that cannot tell rows apart
            gets no credit for their order.
        k: number of rows looked at, 1 to n.
    """
    t, p = vectors("true", true, "predicted", predicted)
    if not 1 <= k <= len(t):
        raise UsageError(f"k is {k}; use 1 to {len(t)}, the number of rows")
    if t.min() < 0 or t.max() == 0:
        raise DataError(f"true: throughputs from {t.min():g} to {t.max():g}; they must be 0 or more, and the best above 0")
    chosen = np.lexsort((t, -p))[:k]
    return float(t[chosen].max() / t.max())
