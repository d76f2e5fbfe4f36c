"""The measurements behind a verdict: what explains the times, how repeats spread, which configurations and speeds cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.audit.limits import exceeded
from workbench.audit.report import TASK_MIN_ROWS, AuditReport, Duplicates, Impossible, Peak, TaskAudit, judge
from workbench.data.datasets import Dataset
from workbench.errors import DataError

__all__ = ["audit"]

TASKS_MIN_COVER = 0.8  # of the timed rows: below it, rows are pooled as one task

# Cost, not judgement: a smaller forest or sample lowers R2 by a few hundredths.
TREES = 32
FOLDS = 3
ROWS_A_TASK = 2000
ROWS_IN_ALL = 40_000

Floats = NDArray[np.float64]


def audit(dataset: Dataset, seed: int = 0) -> AuditReport:
    """Test whether a data set's times are labels: signal, order, repeats, impossible configurations, speed against the peak.

    Args:
        dataset: from the catalogue or built by hand.
        seed: of folds, forests and subsamples (at most 2,000 rows a task and 40,000 in all are fitted; everything else reads all rows).

    Returns:
        The report; a few seconds for 30,000 rows on one core.

    Raises:
        DataError: the frame lacks `status`, `time_s` or an input column, or a row with status ok has no positive, finite time.
    """
    frame = dataset.frame
    missing = [c for c in ("status", "time_s", *dataset.inputs) if c not in frame.columns]
    if missing:
        raise DataError(f"{dataset.name}: the frame has no column {missing[0]!r}; an audit needs status, time_s and every parameter and knob")
    status = frame["status"].astype(str).to_numpy()
    ok = status == "ok"
    time = frame["time_s"].to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = ok & ~(np.isfinite(time) & (time > 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"{dataset.name}: row {row} has status ok and time {time[row]:g} s; a success has a positive, finite time")
    names, counts = np.unique(status, return_counts=True)
    timed = frame[ok].assign(_position=np.flatnonzero(ok))
    tasks, skipped = _tasks(dataset, timed)
    limit = max(TASK_MIN_ROWS, min(ROWS_A_TASK, ROWS_IN_ALL // max(1, len(tasks))))
    audited = [_audit_task(label, rows, inputs, limit, seed) for label, rows, inputs in tasks]
    report = AuditReport(
        name=dataset.name,
        passed=False,
        reasons=[],
        notes=[],
        rows=len(frame),
        timed_rows=len(timed),
        status_share={str(n): float(c) / len(frame) for n, c in zip(names, counts, strict=True)},
        signal_r2=_median([t.signal_r2 for t in audited]),
        order_r2=_median([t.order_r2 for t in audited]),
        order_beyond_r2=_median([t.order_beyond_r2 for t in audited]),
        duplicates=_duplicates(timed, list(dataset.inputs)),
        impossible=_impossible(dataset, frame, ok),
        peak=_peak(dataset, timed),
        tasks=audited,
        skipped_tasks=skipped,
    )
    return judge(report, has_inputs=bool(dataset.inputs))


def _median(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.median(known)) if known else None


def _tasks(dataset: Dataset, timed: pd.DataFrame) -> tuple[list[tuple[str, pd.DataFrame, list[str]]], int]:
    """(label, rows, input columns) of each task, and the number of workloads with too few rows."""
    varying = [p for p in dataset.parameters if len(timed[p].unique()) > 1]
    pooled = [("all", timed, list(dataset.inputs))] if len(timed) >= TASK_MIN_ROWS and dataset.inputs else []
    if not varying or not dataset.knobs:
        return pooled, 0
    groups = [(key, rows) for key, rows in timed.groupby(varying, sort=False, dropna=False)]
    large = [(key, rows) for key, rows in groups if len(rows) >= TASK_MIN_ROWS]
    if sum(len(rows) for _, rows in large) < TASKS_MIN_COVER * len(timed):
        return pooled, 0
    labelled = [(" ".join(f"{p}={v}" for p, v in zip(varying, key, strict=True)), rows, list(dataset.knobs)) for key, rows in large]
    return labelled, len(groups) - len(large)


def _codes(frame: pd.DataFrame, columns: list[str]) -> NDArray[np.float32]:
    """Dense ranks of each column, shape (rows, columns), -1 for missing values: extra-trees draw thresholds uniformly, so powers of two must lie evenly."""
    parts = []
    for column in columns:
        values = frame[column]
        if values.dtype == object:
            values = values.astype(str)
        parts.append(pd.factorize(values, sort=True)[0])
    return np.column_stack(parts).astype(np.float32)


def _out_of_fold(x: NDArray[np.float32], y: Floats, groups: NDArray[np.int64], leaf: int, seed: int) -> Floats:
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.model_selection import GroupKFold

    predicted = np.empty_like(y)
    for train, test in GroupKFold(FOLDS, shuffle=True, random_state=seed).split(x, y, groups):
        forest = ExtraTreesRegressor(TREES, min_samples_leaf=leaf, random_state=seed, n_jobs=1).fit(x[train], y[train])
        predicted[test] = forest.predict(x[test])
    return predicted


def _audit_task(label: str, rows: pd.DataFrame, inputs: list[str], limit: int, seed: int) -> TaskAudit:
    time = rows["time_s"].to_numpy(dtype=np.float64)
    groups = rows.groupby(inputs, dropna=False, sort=False).ngroup().to_numpy()
    configurations = int(groups.max()) + 1
    ratio = float(time.max() / time.min())
    if len(rows) > limit:
        chosen = np.sort(np.random.default_rng(seed).choice(len(rows), limit, replace=False))
        rows, time, groups = rows.iloc[chosen], time[chosen], groups[chosen]
    y = np.log(time)
    y = y - y.mean()
    total = float(y @ y)
    if len(np.unique(groups)) < FOLDS or total <= 1e-12 * len(y):
        return TaskAudit(label, len(rows), configurations, None, None, None, ratio)

    # Repeats of a configuration share a fold: otherwise a forest that memorises them, or their neighbourhood in the file, would score.
    explained = _out_of_fold(_codes(rows, inputs), y, groups, 1, seed)
    position = rows["_position"].to_numpy(dtype=np.float32)[:, np.newaxis]
    by_order = _out_of_fold(position, y, groups, 5, seed)
    # Files are often sorted by their knobs, so order counts only for what the inputs leave over.
    rest = _out_of_fold(position, y - explained, groups, 5, seed)

    def r2(prediction: Floats) -> float:
        return 1 - float(((y - prediction) ** 2).sum()) / total

    return TaskAudit(label, len(rows), configurations, r2(explained), r2(by_order), r2(explained + rest) - r2(explained), ratio)


def _duplicates(timed: pd.DataFrame, inputs: list[str]) -> Duplicates:
    if not inputs or timed.empty:
        return Duplicates(0, 0.0, None, None)
    time = timed.groupby(inputs, dropna=False, sort=False)["time_s"].agg(["size", "min", "max"])
    several = time[time["size"] > 1]
    if several.empty:
        return Duplicates(0, 0.0, None, None)
    repeats = int((several["size"] - 1).sum())
    spread = (several["max"] / several["min"]).to_numpy()
    return Duplicates(repeats, repeats / len(timed), float(np.median(spread)), float(np.quantile(spread, 0.9)))


def _impossible(dataset: Dataset, frame: pd.DataFrame, ok: NDArray[np.bool_]) -> Impossible:
    broken = exceeded(frame, dataset.device)
    if not broken:
        return Impossible((), 0, 0, 0.0)
    any_broken = np.logical_or.reduce(list(broken.values()))
    timed = int((any_broken & ok).sum())
    return Impossible(tuple(broken), int(any_broken.sum()), timed, timed / max(1, int(ok.sum())))


def _peak(dataset: Dataset, timed: pd.DataFrame) -> Peak:
    peak = dataset.device.peak_gflops
    gflop: Any = None
    if "gflop" in timed.columns:
        gflop = timed["gflop"].to_numpy(dtype=np.float64, na_value=np.nan)
    elif dataset.kernel.flop is not None and all(p in timed.columns for p in dataset.kernel.parameters):
        gflop = np.asarray(dataset.kernel.flop({p: timed[p].to_numpy() for p in dataset.kernel.parameters}), dtype=np.float64) / 1e9
    if peak is None or gflop is None or timed.empty or not np.isfinite(gflop).any():
        return Peak(peak, None, None, None)
    share = gflop / timed["time_s"].to_numpy(dtype=np.float64) / peak
    share = share[np.isfinite(share)]
    above = int((share > 1).sum())
    return Peak(peak, float(share.max()), above, above / len(share))
