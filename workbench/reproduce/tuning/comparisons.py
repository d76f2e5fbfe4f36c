"""How sure it is that one framework is ahead of another: paired by task and seed, tasks resampled with seeds nested in them, Holm over the rivals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from workbench.errors import DataError
from workbench.metrics import Interval, bootstrap_tasks, holm, wilcoxon

__all__ = ["against", "difference", "gain", "level", "ratio"]


def level(frame: pd.DataFrame, framework: str, column: str) -> Interval:
    """Mean over tasks of a framework's measure with its 95% interval (NaN ends for a single task, NaN for none)."""
    part = frame[frame["framework"] == framework].dropna(subset=[column])
    return _interval([group[column].to_numpy(dtype=np.float64) for _, group in part.groupby("task", sort=False)])


def difference(frame: pd.DataFrame, first: str, second: str, column: str) -> Interval:
    """Mean over tasks of measure(first) - measure(second)."""
    return _interval(_paired(frame, first, second, column, logarithms=False))


def ratio(frame: pd.DataFrame, first: str, second: str, column: str) -> Interval:
    """Geometric mean over tasks of measure(first) / measure(second); a pair with a zero, such as a search that found nothing that runs, has no ratio."""
    found = _interval(_paired(frame, first, second, column, logarithms=True))
    return Interval(float(np.exp(found.estimate)), float(np.exp(found.low)), float(np.exp(found.high)))


def gain(frame: pd.DataFrame, first: str, second: str, column: str = "final") -> Interval:
    """`ratio` as percent above one."""
    found = ratio(frame, first, second, column)
    return Interval(*(100 * (value - 1) for value in (found.estimate, found.low, found.high)))


def against(frame: pd.DataFrame, framework: str, rivals: Sequence[str], column: str, higher: bool = True) -> pd.DataFrame:
    """A framework beside each rival.

    Args:
        frame: of `measures` or a part of it.
        framework: which is ahead or not.
        rivals: those compared with; one without measures is left out.
        column: the measure.
        higher: whether more of it is better.

    Returns:
        A row a rival: rival, tasks, difference (framework - rival), low, high, wins (tasks on which it is better by the mean over seeds), p (Wilcoxon's
        one-sided, over tasks) and p_holm, adjusted over the rivals; NaN where there are fewer than two tasks.
    """
    rows = []
    for rival in rivals:
        pairs = _paired(frame, framework, rival, column, logarithms=False)
        if not pairs:
            continue
        found = _interval(pairs)
        means = np.array([values.mean() for values in pairs])
        try:
            p = wilcoxon(means, np.zeros(len(means)), "greater" if higher else "less").p if len(means) > 1 else np.nan
        except DataError:  # no task differs
            p = 1.0
        wins = int(((means > 0) if higher else (means < 0)).sum())
        row = {"rival": rival, "tasks": len(means), "difference": found.estimate, "low": found.low, "high": found.high, "wins": wins, "p": p}
        rows.append(row)
    table = pd.DataFrame(rows, columns=["rival", "tasks", "difference", "low", "high", "wins", "p"])
    known = table["p"].notna()
    table["p_holm"] = np.nan
    if known.any():
        table.loc[known, "p_holm"] = holm(table.loc[known, "p"])
    return table


def _paired(frame: pd.DataFrame, first: str, second: str, column: str, logarithms: bool) -> list[np.ndarray]:
    part = frame[frame["framework"].isin([first, second])]
    wide = part.pivot(index=["experiment", "task", "seed"], columns="framework", values=column)
    if not {first, second} <= set(wide.columns):
        return []
    wide = wide[[first, second]].dropna()
    if logarithms:
        wide = wide[(wide > 0).all(axis=1)]
    values = np.log(wide[first] / wide[second]) if logarithms else wide[first] - wide[second]
    return [group.to_numpy(dtype=np.float64) for _, group in values.groupby(level=["experiment", "task"], sort=False)]


def _interval(values: Sequence[np.ndarray]) -> Interval:
    if len(values) >= 2:
        return bootstrap_tasks(list(values))
    estimate = float(np.mean(values[0])) if values else float("nan")
    return Interval(estimate, float("nan"), float("nan"))
