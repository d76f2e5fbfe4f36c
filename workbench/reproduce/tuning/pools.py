"""Pools: measured tasks as the experiments name, group and perturb them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from workbench.data.datasets import Dataset
from workbench.features.tasks import MeasuredTask, tasks_of
from workbench.reproduce.convolutions import name_of

__all__ = ["DEVELOPMENT", "Pool", "layers", "yolo_layers"]

# What choices are made on. Everything else is for reports alone.
DEVELOPMENT = ("yolo1", "yolo2", "yolo3", "yolo4", "RTX 2080 Ti", "A4000")
_DEVELOPMENT_NETWORKS = ("squeezenet",)

# YOLO's layers of one filter size are near twins of each other: some share channels and filter. The first four, on larger images, stand alone.
_FAMILIES: Mapping[str, str] = {
    **{f"yolo{number}": f"yolo{number}" for number in (1, 2, 3, 4)},
    **{f"yolo{number}": "3x3" for number in (6, 8, 10, 12, 13)},
    **{f"yolo{number}": "1x1" for number in (5, 7, 9, 11)},
}


@dataclass(frozen=True, eq=False)
class Pool:
    """A measured task in an experiment.

    Attributes:
        name: in print, unlike any other of its experiment, such as "yolo8".
        family: tasks of one family are near twins.
        measured: the table.
        spread: deviations of log time between repeats of one configuration, to draw from; empty where no repeats were recorded.
        count: how often its network runs it.
        data_set: where it is from.
        sha256: of the data set's files.
        device: where it was measured, in print.
    """

    name: str
    family: str
    measured: MeasuredTask
    spread: NDArray[np.float64]
    data_set: str
    sha256: tuple[str, ...]
    device: str
    count: int = 1

    @property
    def development(self) -> bool:
        """Whether choices may be made on it."""
        return self.name in DEVELOPMENT or self.name.rsplit(" ", 1)[0].startswith(_DEVELOPMENT_NETWORKS)


def yolo_layers(dataset: Dataset) -> list[Pool]:
    """The layers of FlexTensor's set, in the order of the network."""
    spread = _between_rows(dataset.frame[dataset.frame["status"] == "ok"], ["layer", *dataset.knobs])
    pools = [_pool(dataset, measured, measured.task.name, _FAMILIES[measured.task.name], spread) for measured in tasks_of(dataset)]
    return sorted(pools, key=lambda pool: int(pool.name.removeprefix("yolo")))


def layers(dataset: Dataset, counts: Mapping[str, int] | None = None) -> list[Pool]:
    """Convolutions measured with this package, named after network or training set; each is a family of its own.

    Args:
        dataset: the set.
        counts: name -> how often its network runs it; 1 where it does not say.
    """
    spread = _between_passes(dataset.valid["pass_s"].tolist()) if "pass_s" in dataset.frame else np.empty(0)
    named = [(name_of(measured.task.workload), measured) for measured in tasks_of(dataset)]
    return [_pool(dataset, measured, name, name, spread, (counts or {}).get(name, 1)) for name, measured in named]


def one_device(dataset: Dataset, title: str) -> Pool:
    """A table of one workload, named after its device, with the spread of a mean over its repeats."""
    rows = dataset.valid
    error = float((rows["time_s_std"] / rows["time_s"] / np.sqrt(rows["n_rep"])).median())
    (measured,) = tasks_of(dataset)
    normal: NDArray[np.float64] = stats.norm.ppf((np.arange(200) + 0.5) / 200)
    return _pool(dataset, measured, title, title, error * normal)


def _pool(dataset: Dataset, measured: MeasuredTask, name: str, family: str, spread: NDArray[np.float64], count: int = 1) -> Pool:
    return Pool(name, family, measured, spread, dataset.name, tuple(dataset.sha256.values()), dataset.device.model or dataset.device.name, count)


def _between_rows(frame: pd.DataFrame, same: Sequence[str]) -> NDArray[np.float64]:
    logs = np.log(frame["time_s"])
    groups = logs.groupby([frame[column] for column in same], sort=False)
    size = groups.transform("size")
    # A deviation from the mean of n is too small by sqrt((n - 1) / n).
    return ((logs - groups.transform("mean")) * np.sqrt(size / (size - 1)))[size > 1].to_numpy(dtype=np.float64)


def _between_passes(passes: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    found = []
    for times in passes:
        logs = np.log(np.asarray(times, dtype=np.float64))
        logs = logs[np.isfinite(logs)]
        if len(logs) > 1:
            found.append((logs - logs.mean()) * np.sqrt(len(logs) / (len(logs) - 1)))
    return np.concatenate(found) if found else np.empty(0)
