"""How well a recipe predicts: the two protocols, splits of the rows, and a tidy table of scores.

- "paper": the first `train` rows train and the rest test, repeats differ by the initial weights; the paper's networks are scored as their authors scored
  (`Network.published_mape`, whose flaws it names).
- "clean": repeats are random splits, scalers come from the training rows, and the model of the last epoch is scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from workbench.data.datasets import Dataset
from workbench.errors import DataError, UsageError
from workbench.metrics import mape, spearman
from workbench.models.base import CostModel, Problem, Recipe, Rows
from workbench.models.nnc import Network, PaperNetwork

__all__ = ["PROTOCOLS", "Split", "fit_and_score", "pass_floor", "repeat_floor", "spearman_within", "splits"]

PROTOCOLS = ("paper", "clean")


@dataclass(frozen=True)
class Split:
    """Rows to learn from and rows to be judged on."""

    train: Rows
    test: Rows


def splits(n: int, train: int, repeats: int, protocol: str, seed: int = 0, test_from: int | None = None) -> list[Split]:
    """`repeats` splits of n rows: always the first `train` rows under "paper", random ones under "clean".

    `test_from` leaves rows between the training rows and that place unused, so that models of different training sizes are judged on the same rows.

    Raises:
        UsageError: an unknown protocol, or too few rows to test on.
    """
    if protocol not in PROTOCOLS:
        raise UsageError(f"no protocol {protocol!r}; use one of {', '.join(PROTOCOLS)}")
    start = train if test_from is None else test_from
    if not 0 < train <= start < n:
        raise UsageError(f"{train} training rows and a test from row {start} of {n}: at least one row must train and one be left to test")
    if protocol == "paper":
        rows = np.arange(n)
        return [Split(rows[:train], rows[start:])] * repeats
    orders = [np.random.default_rng([seed, repeat]).permutation(n) for repeat in range(repeats)]
    return [Split(order[:train], order[start:]) for order in orders]


def spearman_within(frame: pd.DataFrame, predicted: np.ndarray, size: str = "n") -> float:
    """Mean rank correlation among rows of one size: overall it is mostly the size that is ranked, and a schedule is chosen for a given one."""
    values = [
        _rank_correlation(frame["time_s"][rows], predicted[rows]) for rows in (frame[size].to_numpy() == v for v in np.unique(frame[size])) if rows.sum() >= 5
    ]
    if not values:
        raise DataError(f"no {size} has five rows to rank")
    return float(np.mean(values))


def _rank_correlation(time: pd.Series, predicted: np.ndarray) -> float:
    """Spearman's coefficient; 0 for a model that predicts one value (a ReLU network can die), which ranks nothing."""
    return 0.0 if np.ptp(predicted) == 0 else spearman(time, predicted)


def fit_and_score(
    datasets: Sequence[Dataset],
    recipe: Recipe,
    *,
    protocol: str = "clean",
    train: int = 250,
    repeats: int = 5,
    seed: int = 0,
    test_from: int | None = None,
    ranks: bool = False,
) -> tuple[pd.DataFrame, list[CostModel]]:
    """Fit a recipe on every data set and repeat, and score it on the rows left out.

    Args:
        datasets: with times; rows that failed are left out.
        recipe: fitted on all of them as one batch.
        protocol, train, repeats, seed, test_from: see `splits`.
        ranks: add rank correlations over all test rows and within one size.

    Returns:
        A row a data set and repeat: data_set, kernel, device, kind, model, protocol, repeat, mape (30% rule, percent), mape_all, mape_last (the last epoch
        under clean scaling, equal to mape under "clean"), n_parameters, spearman and spearman_within where asked for. And the models in the same order.
    """
    cleaned = [replace(d, frame=d.valid) for d in datasets]
    problems: list[Problem] = []
    held: list[Rows] = []
    for dataset in cleaned:
        for split in splits(len(dataset.frame), train, repeats, protocol, seed, test_from):
            problems.append((dataset, split.train))
            held.append(split.test)
    models = recipe.fit(problems, seed)
    records = []
    for i, (model, (dataset, _), test) in enumerate(zip(models, problems, held, strict=True)):
        frame = dataset.frame.iloc[test].reset_index(drop=True)
        if "c" not in frame.columns:
            frame = _with_c(dataset, frame)
        predicted = model.predict_time_s(frame)
        last = mape(frame["time_s"], predicted)
        published = protocol == "paper" and isinstance(model, Network) and isinstance(recipe, PaperNetwork)
        record = {
            "data_set": dataset.name,
            "kernel": dataset.kernel.name,
            "device": dataset.device.name,
            "kind": dataset.device.kind,
            "model": recipe.name,
            "protocol": protocol,
            "repeat": i % repeats,
            "mape": model.published_mape(frame) if published else last,  # type: ignore[attr-defined]
            "mape_all": mape(frame["time_s"], predicted, drop_fastest=0.0),
            "mape_last": last,
            "n_parameters": model.n_parameters,
        }
        if ranks:
            record["spearman"] = _rank_correlation(frame["time_s"], predicted)
            record["spearman_within"] = spearman_within(frame, predicted)
        records.append(record)
    return pd.DataFrame(records), models


def _with_c(dataset: Dataset, frame: pd.DataFrame) -> pd.DataFrame:
    if dataset.kernel.complexity is None:
        return frame
    return frame.assign(c=dataset.kernel.complexity({p: frame[p].to_numpy(dtype=float) for p in dataset.kernel.parameters}))


def repeat_floor(first: Dataset, second: Dataset) -> tuple[float, int]:
    """What noise alone costs: the MAPE (30% rule) of one measurement as the prediction of another of the same inputs, and the number of such pairs.

    Args:
        first: the measurements that are predicted.
        second: the repeats; inputs that `first` does not have are left out.

    Raises:
        DataError: fewer than 30 inputs stand in both.
    """
    inputs = list(first.inputs)
    pairs = first.valid.merge(second.valid[[*inputs, "time_s"]].drop_duplicates(inputs), on=inputs, suffixes=("", "_again"))
    if len(pairs) < 30:
        raise DataError(f"{first.name} and {second.name} share {len(pairs)} inputs: too few repeats to tell the noise")
    return mape(pairs["time_s"], pairs["time_s_again"]), len(pairs)


def pass_floor(dataset: Dataset) -> tuple[float, int]:
    """What noise costs in a series measured in several passes: the MAPE (30% rule) between two labels made alike, and the number of inputs.

    The attempts of an input (column `pass_s`, in order) go to two halves in turn, so that both meet the machine's slow and fast times alike; a half's label is
    its least time. The error of either as the prediction of the other, on average, carries the noise of two labels of half the passes each. A model's
    error carries that of one label, which is the least of all passes: it may come out lower, so this is a scale to compare with, not a bound.

    Raises:
        DataError: no column `pass_s`, or fewer than 30 inputs with two attempts that succeeded in different halves.
    """
    if "pass_s" not in dataset.frame.columns:
        raise DataError(f"{dataset.name}: no column 'pass_s' with the time of each attempt; measure in several passes to tell the noise")
    halves = [(values[::2], values[1::2]) for values in (np.asarray(attempts, dtype=float) for attempts in dataset.valid["pass_s"])]
    pairs = [(np.nanmin(one), np.nanmin(other)) for one, other in halves if np.isfinite(one).any() and np.isfinite(other).any()]
    if len(pairs) < 30:
        raise DataError(f"{dataset.name}: {len(pairs)} inputs were measured in two passes or more; at least 30 are needed to tell the noise")
    one, other = np.transpose(pairs)
    return (mape(one, other) + mape(other, one)) / 2, len(pairs)
