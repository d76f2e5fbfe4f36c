"""Frames for the tables and figures of the MetaTune notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from workbench.metrics import Interval
from workbench.reproduce.claims import paper_table
from workbench.reproduce.tuning import comparisons
from workbench.reproduce.tuning.measures import AREA_TRIALS, CHECKPOINTS, curve, network_curves, round_errors
from workbench.reproduce.tuning.rows import View
from workbench.reproduce.tuning.studies import Study

__all__ = [
    "KERNEL_TUNER",
    "PHASES",
    "accuracy_table",
    "best_curves",
    "best_table",
    "comparison_table",
    "early_errors",
    "error_curves",
    "error_table",
    "final_gains",
    "lost_table",
    "minutes",
    "network_panel",
    "order",
    "phase_table",
    "reached_marks",
    "task_curves",
]

# Best over optimum of the best of Kernel Tuner 1.5's strategies after 50, 100 and 200 trials, replaying the same tables in its simulation mode: targets that
# were measured before this package could (module `kernel_tuner`, where Kernel Tuner is installed).
KERNEL_TUNER: Mapping[str, Mapping[int, float]] = {
    "A100": {50: 0.82, 100: 0.90, 200: 0.97},
    "W6600": {50: 0.85, 100: 0.88, 200: 0.93},
    "RTX 2080 Ti": {50: 0.88, 100: 0.94, 200: 0.97},
}

PHASES = {"fit_s": "learning before", "search_s": "search", "model_s": "model update", "build_s": "build", "run_s": "run"}


def order(studies: Iterable[Study]) -> list[str]:
    """Names in print of all frameworks with sessions."""
    return list(dict.fromkeys(name for study in studies for name in study.frameworks))


def error_table(views: Sequence[View]) -> pd.DataFrame:
    """A table like the paper's 4: MSE and MSE(D) of each cost model while it tunes, a mean over tasks, and the paper's numbers of ResNet-18."""
    rows = []
    printed = paper_table(4, "metatune")
    for name, cells in printed.iterrows():
        network, method = str(name).split(", ")
        if network == "ResNet-18" and cells.notna().all():
            rows.append({"tasks": "paper: ResNet-18", "framework": method, "MSE": cells["MSE"], "MSE(D)": cells["MSE(D)"]})
    for view in views:
        if view.reason:
            continue
        frame = view.frame.dropna(subset=["mse"])
        for name in dict.fromkeys(frame["framework"]):
            found = {column: comparisons.level(frame, name, key).estimate for column, key in {"MSE": "mse", "MSE(D)": "mse_top"}.items()}
            rows.append({"tasks": view.label, "framework": name, **found})
    return pd.DataFrame(rows)


def accuracy_table(views: Sequence[View]) -> pd.DataFrame:
    """Rank correlation, MSE and MSE(D) on held-out rows after random samples, a mean over tasks."""
    rows = []
    for view in views:
        if view.reason:
            continue
        for (name, samples), part in view.accuracies.groupby(["framework", "samples"], sort=False):
            found = {column: comparisons.level(part, name, key).estimate for column, key in {"rank": "spearman", "MSE": "mse", "MSE(D)": "mse_top"}.items()}
            rows.append({"tasks": view.label, "framework": name, "samples": samples, **found})
    return pd.DataFrame(rows, columns=["tasks", "framework", "samples", "rank", "MSE", "MSE(D)"])


def comparison_table(views: Sequence[View], framework: str, column: str, higher: bool = True) -> pd.DataFrame:
    """A framework beside every other: see `comparisons.against`."""
    parts = []
    for view in views:
        if not view.lacks([framework]):
            frame = view.frame
            table = comparisons.against(frame, framework, [name for name in dict.fromkeys(frame["framework"]) if name != framework], column, higher)
            parts.append(table.assign(tasks_of=view.label))
    columns = ["tasks_of", "rival", "tasks", "difference", "low", "high", "wins", "p", "p_holm"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def error_curves(view: View) -> pd.DataFrame:
    """Mean squared error of the trials of each round over the trials, a mean over tasks and seeds, for `plots.tuning_curves`."""
    frame = pd.concat([round_errors(study.cells) for study in view.studies], ignore_index=True)
    # Rounds of a framework that measures fewer trials at a time end at any number: one point for each eight.
    frame["trials"] = (np.ceil(frame["trials"] / 8) * 8).astype(int)
    means = frame.groupby(["framework", "trials"], sort=False)["mse"].mean().reset_index()
    return means.assign(low=np.nan, high=np.nan).rename(columns={"mse": "value"})


def early_errors(view: View, trials: int = 64) -> pd.DataFrame:
    """Mean over the rounds of the first trials of each session of the error of what the cost model had said: experiment, framework, task, seed, mse."""
    parts = []
    for study in view.studies:
        frame = round_errors(study.cells)
        frame = frame[frame["trials"] <= max(trials, frame["trials"].min())]
        parts.append(frame.groupby(["framework", "task", "seed"], sort=False)["mse"].mean().reset_index().assign(experiment=study.experiment.name))
    return pd.concat(parts, ignore_index=True)


def best_curves(view: View) -> pd.DataFrame:
    """Best so far over the best of the table, a mean over tasks, with the least and the largest mean of a seed as band, for `plots.tuning_curves`."""
    by_seed: dict[tuple[str, int], list[np.ndarray]] = {}
    budget = min(cell.budget for study in view.studies for cell in study.cells)
    for study in view.studies:
        for cell in study.cells:
            if not cell.session.failed:
                by_seed.setdefault((cell.framework, cell.seed), []).append(curve(cell.session, budget))
    found: dict[str, list[np.ndarray]] = {}
    for (framework, _), curves in by_seed.items():
        found.setdefault(framework, []).append(np.mean(curves, axis=0))
    return _bands({name: np.array(curves) for name, curves in found.items()})


def lost_table(views: Sequence[View], batch: int = 16) -> pd.DataFrame:
    """Where the area under best so far is lost: a row for tasks and framework, a mean over tasks and seeds.

    Returns:
        Columns tasks, framework, families (independent ones among the tasks), then of 1 - area (`measures`) what is lost in the first batch, before anything
        was measured, in the trials up to 64, and later; the three add up to 1 - area.
    """
    rows = []
    for view in views:
        if view.reason:
            continue
        families = view.frame["family"].nunique()
        lost: dict[str, list[np.ndarray]] = {}
        for study in view.studies:
            for cell in study.cells:
                if not cell.session.failed:
                    counted = min(AREA_TRIALS, cell.budget)
                    parts = np.split((1 - curve(cell.session, counted)) / counted, [min(batch, counted), min(64, counted)])
                    lost.setdefault(cell.framework, []).append(np.array([part.sum() for part in parts]))
        for framework, found in lost.items():
            first, middle, late = np.mean(found, axis=0)
            rows.append({"tasks": view.label, "framework": framework, "families": families, "first batch": first, "to trial 64": middle, "later": late})
    return pd.DataFrame(rows)


def task_curves(study: Study, task: str) -> pd.DataFrame | str:
    """`best_curves` of one task, or why there are none."""
    cells = tuple(cell for cell in study.cells if cell.task == task and not cell.session.failed)
    return best_curves(View(task, (replace(study, cells=cells),))) if cells else "not among the tasks of this run"


def network_panel(study: Study) -> pd.DataFrame:
    """Throughput of a network over the trials of each layer: see `network_curves`."""
    return _bands(network_curves(study.experiment, study.cells))


def reached_marks(panel: pd.DataFrame, rival: str = "xgb") -> dict[str, float]:
    """Framework -> trials after which its line is where the rival's line ends; without those that do not get there."""
    if rival not in set(panel["framework"]):
        return {}
    end = panel.loc[panel["framework"] == rival, "value"].iloc[-1]
    found = {}
    for name, part in panel.groupby("framework", sort=False):
        reached = part.loc[part["value"] >= end, "trials"]
        if name != rival and len(reached):
            found[str(name)] = float(reached.min())
    return found


def final_gains(view: View, rival: str = "xgb", paper: Mapping[str, float] | None = None) -> pd.DataFrame:
    """Throughput found at the end over the rival's, a geometric mean over tasks with its interval, for `plots.framework_bars`.

    Args:
        view: the experiments.
        rival: what all are divided by.
        paper: framework -> the paper's ratio.
    """
    frame, rows = view.frame, []
    for name in dict.fromkeys(frame["framework"]):
        found = Interval(1.0, np.nan, np.nan) if name == rival else comparisons.ratio(frame, name, rival, "final")
        if np.isfinite(found.estimate):
            rows.append({"framework": name, "value": found.estimate, "low": found.low, "high": found.high, "paper": (paper or {}).get(name, np.nan)})
    return pd.DataFrame(rows, columns=["framework", "value", "low", "high", "paper"])


def best_table(view: View, strategies: Mapping[str, Mapping[int, float]] = KERNEL_TUNER) -> pd.DataFrame:
    """Best over optimum after some trials, a row a task and framework, and that of the best of Kernel Tuner's strategies: task -> trials -> share."""
    names = [f"best{count}" for count in CHECKPOINTS]
    found = view.frame.groupby(["task", "framework"], sort=False)[names].mean().reset_index()
    theirs = [
        {"task": gpu, "framework": "Kernel Tuner 1.5, its best strategy", **{f"best{count}": value for count, value in at.items()}}
        for gpu, at in strategies.items()
        if gpu in set(found["task"])
    ]
    table = pd.concat([found, pd.DataFrame(theirs, columns=found.columns)], ignore_index=True) if theirs else found
    table = table.rename(columns={f"best{count}": f"after {count}" for count in CHECKPOINTS})
    tasks = list(dict.fromkeys(table["task"]))
    return table.sort_values("task", key=lambda task: task.map(tasks.index), kind="stable", ignore_index=True).dropna(axis=1, how="all")


def minutes(view: View) -> pd.DataFrame:
    """Minutes of every session by phase and in all; learning before counts for each task, as for one that is tuned alone."""
    frame = view.frame
    columns = list(PHASES)
    found = frame[["experiment", "framework", "task", "seed", *columns]].copy()
    found[columns] = found[columns] / 60
    found["total"] = found[["search_s", "model_s", "build_s", "run_s"]].sum(axis=1, min_count=4)
    return found


def phase_table(view: View) -> pd.DataFrame:
    """Minutes of tuning all tasks by framework and phase, a mean over seeds, for `plots.phase_bars`: framework, phase, value."""
    frame = minutes(view)
    by = frame.groupby(["framework", "seed"], sort=False)[[key for key in PHASES if key != "fit_s"]].sum(min_count=1)
    # What was learnt before is learnt once for all tasks with the same history.
    by["fit_s"] = frame.groupby(["framework", "seed"], sort=False)["fit_s"].agg(lambda values: values.drop_duplicates().sum())
    means = by.groupby(level="framework", sort=False).mean()
    return means[list(PHASES)].rename(columns=PHASES).reset_index().melt("framework", var_name="phase", value_name="value")


def _bands(curves: Mapping[str, np.ndarray]) -> pd.DataFrame:
    parts = []
    for name, values in curves.items():
        several = len(values) > 1
        low, high = (values.min(axis=0), values.max(axis=0)) if several else (np.full(values.shape[1], np.nan),) * 2
        trials = np.arange(1, values.shape[1] + 1)
        parts.append(pd.DataFrame({"framework": name, "trials": trials, "value": values.mean(axis=0), "low": low, "high": high}))
    return pd.concat(parts, ignore_index=True)
