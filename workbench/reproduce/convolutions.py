"""Measured convolutions layer by layer: how attempts ended, how fast configurations are, whether repeats agree, and whether there is signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.audit import audit
from workbench.data.columns import config_of, workload_columns, workload_of
from workbench.data.datasets import Dataset
from workbench.kernels import kernel
from workbench.kernels.networks import network, networks, training_kernels
from workbench.measure.drift import drift_of_times
from workbench.reproduce.own import measuring_s
from workbench.schema import Workload

__all__ = ["first_layers", "layer_table", "layers", "name_of", "recorded", "speeds"]


def name_of(workload: Workload) -> str:
    """A convolution in print: "resnet-18 2" is the second distinct convolution of the first network that has it, "training conv1d 3" a training kernel."""
    return _names().get(workload, workload.key)


def layers(dataset: Dataset) -> Iterator[tuple[Workload, pd.DataFrame]]:
    """Every convolution of a data set with its rows, in the order of the set."""
    for _, rows in dataset.frame.groupby(list(dataset.parameters), sort=False):
        yield workload_of(dataset.kernel.name, rows.iloc[0]), rows.reset_index(drop=True)


def first_layers(dataset: Dataset, count: int | None) -> Dataset:
    """The data set with its first `count` convolutions only; None is all of them."""
    return dataset if count is None else replace(dataset, frame=pd.concat([rows for _, rows in islice(layers(dataset), count)], ignore_index=True))


def speeds(rows: pd.DataFrame) -> NDArray[np.float64]:
    """GFLOP/s of every row [rows], NaN where there is no time."""
    found: NDArray[np.float64] = (rows["gflop"] / rows["time_s"]).to_numpy(dtype=np.float64, na_value=np.nan)
    return found


def layer_table(dataset: Dataset, seed: int = 0) -> pd.DataFrame:
    """What was found of each convolution.

    Args:
        dataset: with failed rows, as `workbench measure export` makes it of convolutions.
        seed: of the audit.

    Returns:
        A row a convolution: layer; gflop; tried, ok, and failed as text; best, median and worst (GFLOP/s, NaN where nothing ran), best_config as text;
        median_repeat and slowest_repeat (how much longer than the fastest repeat they took, the median over configurations, in percent); again, drift and
        apart (how many configurations were measured again, the median of last over first and of the distance between them, in percent); signal_r2 (of log
        time from the knobs, as the audit has it; NaN for fewer than 60 timed rows); build_s and timed_s (seconds that building took, NaN where that is not
        recorded, and the repeats), wall_s (seconds from the first to the end of the last).
    """
    table = []
    for workload, rows in layers(dataset):
        speed, status = speeds(rows), rows["status"].astype(str)
        failed = ", ".join(f"{count} {name}" for name, count in status[status != "ok"].value_counts().items())
        timed = [times for times in rows["times_s"] if times is not None and len(times)]
        change = drift_of_times(rows["pass_s"])
        signal = audit(replace(dataset, frame=rows), seed).signal_r2
        table.append(
            {
                "layer": name_of(workload),
                "gflop": rows["gflop"].iloc[0],
                "tried": len(rows),
                "ok": int((status == "ok").sum()),
                "failed": failed,
                **_levels(speed),
                "best_config": _best(dataset, workload, rows, speed),
                "median_repeat": _longer(timed, np.median),
                "slowest_repeat": _longer(timed, np.max),
                "again": change.pairs,
                "drift": 100 * (change.ratio - 1),
                "apart": 100 * change.spread,
                "signal_r2": np.nan if signal is None else signal,
                "build_s": rows["compile_s"].sum() if "compile_s" in rows else np.nan,
                "timed_s": float(sum(np.sum(times) for times in timed)),
                "wall_s": measuring_s(replace(dataset, frame=rows), len(rows)) if len(rows) > 1 else np.nan,
            }
        )
    return pd.DataFrame(table)


def recorded(sets: Sequence[Dataset], workload: Workload, space: str) -> pd.DataFrame:
    """What data sets have of one convolution in one space, the fastest first.

    Returns:
        A row a configuration with a time: data_set, index, time_s, speed (GFLOP/s).
    """
    parts = []
    for dataset in sets:
        if dataset.kernel.name != workload.kernel:
            continue
        columns = workload_columns(workload)
        rows = dataset.valid
        rows = rows[(rows[list(columns)] == pd.Series(columns)).all(axis=1) & (rows["space"] == space)]
        parts.append(pd.DataFrame({"data_set": dataset.name, "index": rows["index"].astype("Int64"), "time_s": rows["time_s"], "speed": speeds(rows)}))
    found = pd.concat(parts) if parts else pd.DataFrame(columns=["data_set", "index", "time_s", "speed"])
    return found.sort_values("time_s", ignore_index=True)


def _levels(speed: NDArray[np.float64]) -> Mapping[str, float]:
    known = speed[np.isfinite(speed)]
    if not len(known):
        return {"best": np.nan, "median": np.nan, "worst": np.nan}
    return {"best": float(known.max()), "median": float(np.median(known)), "worst": float(known.min())}


def _longer(timed: Sequence[Sequence[float]], of: Callable[[Sequence[float]], float]) -> float:
    return 100 * float(np.median([of(times) / min(times) - 1 for times in timed])) if timed else np.nan


def _best(dataset: Dataset, workload: Workload, rows: pd.DataFrame, speed: NDArray[np.float64]) -> str:
    if not np.isfinite(speed).any():
        return ""
    row = rows.iloc[int(np.nanargmax(speed))]
    config = config_of(kernel(dataset.kernel.name).space(workload, str(row["space"])), row)
    return ", ".join(f"{knob} {_text(value)}" for knob, value in config.items())


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


@cache
def _names() -> Mapping[Workload, str]:
    names: dict[Workload, str] = {}
    for name in networks():
        for number, layer in enumerate(network(name), 1):
            names.setdefault(layer.workload, f"{name} {number}")
    counted: dict[str, int] = {}
    for workload in training_kernels():
        counted[workload.kernel] = counted.get(workload.kernel, 0) + 1
        names.setdefault(workload, f"training {workload.kernel} {counted[workload.kernel]}")
    return names
