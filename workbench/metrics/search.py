"""What a tuner's trials achieved: best-so-far curves, the area under them, regret and trials to a target."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import DataError, UsageError
from workbench.metrics.checks import Floats, finite

__all__ = ["area_under_curve", "best_so_far", "restricted_mean_trials", "simple_regret", "trials_to_target"]


def best_so_far(throughput: ArrayLike, valid: ArrayLike | None = None) -> Floats:
    """Highest throughput found up to each trial.

    Args:
        throughput: shape (..., trials), in the order of the trials, not negative.
        valid: same shape, False for a trial that failed; its throughput is not read and may be NaN. None: all succeeded.

    Returns:
        Shape (..., trials), not decreasing. 0 before the first success: a search that has found nothing runs nothing.
    """
    values = np.asarray(throughput, dtype=np.float64)
    if valid is not None:
        mask = np.asarray(valid)
        if mask.dtype != np.bool_ or mask.shape != values.shape:
            raise UsageError(f"valid: {mask.dtype} of shape {mask.shape}; a boolean for each of the {values.shape} trials is needed")
        values = np.where(mask, values, 0.0)
    values = finite("throughput", values)
    if values.ndim == 0:
        raise UsageError("throughput: a single number; the last axis must be the trials")
    if values.min() < 0:
        raise DataError(f"throughput: {values.min():g} is negative; higher must be faster")
    return np.maximum.accumulate(values, axis=-1)


def _curve(curve: ArrayLike) -> Floats:
    values = finite("curve", curve)
    if values.ndim == 0 or (np.diff(values, axis=-1) < 0).any():
        raise UsageError("curve: not a best-so-far curve (it falls); make it with best_so_far")
    return values


def _budget(budget: int | None, trials: int) -> int:
    if budget is None:
        return trials
    if not 1 <= budget <= trials:
        raise UsageError(f"budget is {budget}; the curve has {trials} trials, and what was not run is not known")
    return budget


def _per_search(name: str, values: ArrayLike, searches: tuple[int, ...]) -> Floats:
    array = finite(name, values)
    if array.ndim and array.shape != searches:
        raise UsageError(f"{name}: shape {array.shape}; the curves need a single number or shape {searches}")
    return array


def _best(best: ArrayLike, reached: Floats) -> Floats:
    values = _per_search("best", best, reached.shape)
    if values.min() <= 0:
        raise DataError(f"best: {values.min():g} is not above 0")
    if (reached > values * (1 + 1e-9)).any():
        raise DataError(f"best: a search found {reached.max():g}, above the best given ({values.min():g}); the best must cover every search compared")
    return values


def area_under_curve(curve: ArrayLike, best: ArrayLike, budget: int | None = None) -> Floats:
    """Normalised area under best-so-far curves: the mean over the first `budget` trials of curve / best, from 0 to 1.

    Args:
        curve: shape (..., trials), from `best_so_far`.
        best: best throughput known for the task, over all searches compared; a scalar or shape (...).
        budget: number of trials that count; None: all.

    Returns:
        Shape (...): a scalar array for one curve.
    """
    values = _curve(curve)
    values = values[..., : _budget(budget, values.shape[-1])]
    return np.asarray(values.mean(axis=-1) / _best(best, values[..., -1]))


def simple_regret(curve: ArrayLike, best: ArrayLike, budget: int | None = None) -> Floats:
    """Shortfall of what was found within the budget, relative to the best: (best - curve[budget - 1]) / best, 0 when the best was found.

    Shapes and arguments as in `area_under_curve`.
    """
    values = _curve(curve)
    found = values[..., _budget(budget, values.shape[-1]) - 1]
    return np.asarray(1 - found / _best(best, found))


def trials_to_target(curve: ArrayLike, target: ArrayLike) -> Floats:
    """Number of trials (from 1) until a best-so-far curve reaches `target`, inf where it never does.

    Args:
        curve: shape (..., trials), from `best_so_far`.
        target: throughput, a scalar or shape (...).
    """
    values = _curve(curve)
    reached: NDArray[np.bool_] = values >= _per_search("target", target, values.shape[:-1])[..., np.newaxis]
    return np.where(reached.any(axis=-1), reached.argmax(axis=-1) + 1.0, np.inf)


def restricted_mean_trials(curve: ArrayLike, target: ArrayLike, budget: int | None = None) -> float:
    """Restricted mean of the trials to a target: the mean over searches of min(trials to the target, budget).

    A search that has not reached the target within the budget is censored there and counts as `budget`; the plain mean over those that did would reward a tuner
    for giving up on the hard ones. Every search must have run for the whole budget, so this equals the area under the Kaplan-Meier curve up to it.

    Args:
        curve: shape (searches, trials) or (trials,), from `best_so_far`.
        target: throughput to reach, a scalar or shape (searches,).
        budget: number of trials that count; None: all.
    """
    values = _curve(curve)
    limit = _budget(budget, values.shape[-1])
    return float(np.minimum(trials_to_target(values, target), limit).mean())
