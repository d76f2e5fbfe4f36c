"""Measures of prediction, of search and of evidence. Pure functions of numbers: this package knows neither data sets nor models.

`prediction` compares measured and predicted values, `search` summarises the trials of a tuner, `statistics` says how sure a comparison is. Throughput is
higher-is-faster (GFLOP/s, or normalised); time is lower-is-faster (seconds). Values that are NaN, infinite, missing or of the wrong length raise DataError or
UsageError, both ValueErrors: a measure never turns them into a number.
"""

from __future__ import annotations

from workbench.metrics.prediction import mape, mse, mse_top, spearman, spearman_paper, top_k_score
from workbench.metrics.search import area_under_curve, best_so_far, restricted_mean_trials, simple_regret, trials_to_target
from workbench.metrics.statistics import Interval, Wilcoxon, bootstrap_tasks, corrected_interval, holm, wilcoxon

__all__ = [
    "Interval",
    "Wilcoxon",
    "area_under_curve",
    "best_so_far",
    "bootstrap_tasks",
    "corrected_interval",
    "holm",
    "mape",
    "mse",
    "mse_top",
    "restricted_mean_trials",
    "simple_regret",
    "spearman",
    "spearman_paper",
    "top_k_score",
    "trials_to_target",
    "wilcoxon",
]
