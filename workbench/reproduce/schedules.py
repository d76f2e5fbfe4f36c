"""Choosing Halide schedules by predicted time (NN+C, section VI-B): chosen, best and average candidate by input size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from workbench.data.datasets import Dataset
from workbench.features.inputs import with_complexity
from workbench.metrics import Interval, bootstrap_tasks, corrected_interval
from workbench.models.base import CostModel
from workbench.models.evaluate import Split
from workbench.reproduce import own
from workbench.reproduce.claims import paper_table

__all__ = ["COLUMNS", "TITLES", "choices", "extreme_gain", "gain", "mape_and_rank_table", "summary", "title", "with_autoschedulers"]

# The paper's columns of Table XII and the file that stands for each; it names neither the CPU of FFT's file nor any FFT on a GPU.
COLUMNS: Mapping[str, str | None] = {
    "Blur Xeon": "halide-blur-xeon",
    "Blur I7": None,
    "Blur I5": "halide-blur-i5",
    "Blur Tesla": None,
    "Blur Quadro": "halide-blur-quadro",
    "FFT Xeon": None,
    "FFT I7": None,
    "FFT I5": None,
    "FFT, unnamed CPU": "halide-fft-cpu",
    "FFT, unnamed GPU": "halide-fft-gpu",
}
TITLES = {name: title for title, name in COLUMNS.items() if name}


def title(data_set: str) -> str:
    """Column of a Halide set in Table XII: the paper's, or kernel and machine of one of our own ("halide-cpu-emr-blur" is "Blur Emerald Rapids")."""
    if data_set in TITLES:
        return TITLES[data_set]
    series, kernel = data_set.rsplit("-", 1)
    return f"{own.SCHEDULES[kernel]} {own.machine(series)}"


def mape_and_rank_table(scores: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """A table like the paper's XII: MAPE and Spearman's coefficients; a row a model and source, a column a kernel and device.

    Args:
        scores: as `fit_and_score` gives them with ranks, of protocols "paper" and "clean".
        models: names in the order of the rows.

    Returns:
        Text cells: means over repeats, the paper's numbers, or why a cell is empty. Spearman's coefficient within one input size stands under "clean" only.
    """
    means = scores.groupby(["protocol", "model", "data_set"])[["mape", "spearman", "spearman_within"]].mean()
    columns = dict(COLUMNS) | {title(name): name for name in dict.fromkeys(scores["data_set"]) if name not in TITLES}
    printed, ranks = paper_table("XII"), paper_table("table12_spearman")

    def papers(model: str, column: str) -> str:
        if column not in printed.columns:
            return "not in the paper"
        error, rank = printed.loc[model, column], ranks.loc[model, column]
        return "not legible" if np.isnan([error, rank]).any() else f"{error:g}, {rank:.2f}"

    def measured(protocol: str, model: str, name: str | None) -> str:
        if name is None:
            return "never published"
        if (protocol, model, name) not in means.index:
            return "did not run"
        value = means.loc[(protocol, model, name)]
        return f"{value['mape']:.1f}, {value['spearman']:.2f}" + (f", {value['spearman_within']:.2f} within n" if protocol == "clean" else "")

    lines = []
    for model in models:
        if model in printed.index:
            lines.append({"model": model, "source": "paper: MAPE [%], Spearman", **{column: papers(model, column) for column in columns}})
        for protocol in ("paper", "clean"):
            if (protocol, model) in means.index.droplevel("data_set"):
                cells = {column: measured(protocol, model, name) for column, name in columns.items()}
                lines.append({"model": model, "source": f"ours, {protocol} protocol", **cells})
    return pd.DataFrame(lines).set_index(["model", "source"])


def choices(dataset: Dataset, models: Sequence[CostModel], splits: Sequence[Split]) -> pd.DataFrame:
    """What each model would run, for each input size, among the candidates it was not trained on.

    Args:
        dataset: schedules as rows, the input size in column n.
        models: one a split.
        splits: the test rows are the candidates.

    Returns:
        A row a split and size: data_set, repeat, size, candidates, and seconds: chosen, best, average.
    """
    full = with_complexity(dataset).frame
    records = []
    for repeat, (model, split) in enumerate(zip(models, splits, strict=True)):
        frame = full.iloc[split.test]
        predicted, time, size = model.predict_time_s(frame), frame["time_s"].to_numpy(dtype=float), frame["n"].to_numpy()
        for n in np.unique(size):
            rows = np.flatnonzero(size == n)
            if len(rows) >= 5:
                measured = time[rows]
                chosen = measured[predicted[rows].argmin()]
                records.append((dataset.name, repeat, int(n), len(rows), chosen, measured.min(), measured.mean()))
    return pd.DataFrame(records, columns=["data_set", "repeat", "size", "candidates", "chosen", "best", "average"])


def with_autoschedulers(chosen: pd.DataFrame, times: pd.DataFrame | None) -> pd.DataFrame:
    """`chosen` with a column an autoscheduler: the seconds that its schedule took at that size, NaN where it found none.

    Args:
        chosen: as `choices` gives it.
        times: a row a size, a column an autoscheduler (`own.autoschedulers`); None adds nothing.
    """
    return chosen if times is None else chosen.join(times, on="size")


def summary(chosen: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Ratios to the best candidate by size, for `plots.schedule_bars`: median over the splits, quartiles as spread.

    Args:
        chosen: as `choices` or `with_autoschedulers` gives it.
        columns: name of the choice in print -> column of `chosen`. One without a time at any size is left out.
    """
    frames = []
    for label, column in columns.items():
        ratio = (chosen[column] / chosen["best"]).dropna().groupby(chosen["size"])
        frames.append(pd.DataFrame({"choice": label, "ratio": ratio.median(), "low": ratio.quantile(0.25), "high": ratio.quantile(0.75)}).reset_index())
    return pd.concat(frames, ignore_index=True)


def gain(chosen: pd.DataFrame, above: str, below: str) -> Interval:
    """Geometric mean over data sets (sizes and splits nested) of one time over another, with its 95% interval."""
    logs = np.log(chosen[above] / chosen[below])
    found = bootstrap_tasks([group.to_numpy() for _, group in logs.groupby(chosen["data_set"])])
    return Interval(float(np.exp(found.estimate)), float(np.exp(found.low)), float(np.exp(found.high)))


def extreme_gain(chosen: pd.DataFrame, largest: bool, n_train: int, n_test: int, above: str = "average") -> Interval:
    """Largest or least ratio over sizes of the average candidate's time (or that of column `above`) to the chosen one's, on one data set, averaged over splits.

    The interval is over splits, corrected for their common rows: one device says nothing of how results vary between devices.
    """
    logs = np.log(chosen[above] / chosen["chosen"]).groupby(chosen["repeat"])
    found = corrected_interval((logs.max() if largest else logs.min()).to_numpy(), n_train, n_test)
    return Interval(float(np.exp(found.estimate)), float(np.exp(found.low)), float(np.exp(found.high)))
