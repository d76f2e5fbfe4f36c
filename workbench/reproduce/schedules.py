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

__all__ = ["COLUMNS", "TITLES", "choices", "extreme_gain", "gain", "summary"]

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


def summary(chosen: pd.DataFrame) -> pd.DataFrame:
    """Ratios to the best candidate by size, for `plots.schedule_bars`: median over the splits, quartiles as spread."""
    frames = []
    for label, column in (("chosen", "chosen"), ("average candidate", "average")):
        ratio = (chosen[column] / chosen["best"]).groupby(chosen["size"])
        frames.append(pd.DataFrame({"choice": label, "ratio": ratio.median(), "low": ratio.quantile(0.25), "high": ratio.quantile(0.75)}).reset_index())
    return pd.concat(frames, ignore_index=True)


def gain(chosen: pd.DataFrame, above: str, below: str) -> Interval:
    """Geometric mean over data sets (sizes and splits nested) of one time over another, with its 95% interval."""
    logs = np.log(chosen[above] / chosen[below])
    found = bootstrap_tasks([group.to_numpy() for _, group in logs.groupby(chosen["data_set"])])
    return Interval(float(np.exp(found.estimate)), float(np.exp(found.low)), float(np.exp(found.high)))


def extreme_gain(chosen: pd.DataFrame, largest: bool, n_train: int, n_test: int) -> Interval:
    """Largest or least ratio over sizes of the average candidate's time to the chosen one's, on one data set, averaged over splits.

    The interval is over splits, corrected for their common rows: one device says nothing of how results vary between devices.
    """
    logs = np.log(chosen["average"] / chosen["chosen"]).groupby(chosen["repeat"])
    found = corrected_interval((logs.max() if largest else logs.min()).to_numpy(), n_train, n_test)
    return Interval(float(np.exp(found.estimate)), float(np.exp(found.low)), float(np.exp(found.high)))
