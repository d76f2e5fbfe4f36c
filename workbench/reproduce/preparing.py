"""Lightweight and unconstrained models (NN+C, section VI-A): their errors on the same rows, and what preparing each takes."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

from workbench.data.datasets import Dataset
from workbench.models.base import Recipe
from workbench.models.compact import CompactMatrix
from workbench.models.nnc import LogNetwork, PaperNetwork, layer_sizes
from workbench.models.training import n_weights
from workbench.reproduce import nnc, own

__all__ = ["LIGHT", "UNCONSTRAINED", "compare", "fitting_s", "preparing_table", "training_s"]

# Training rows of the two kinds of models; both are tested on the rows behind the first UNCONSTRAINED.
LIGHT, UNCONSTRAINED = 250, 2500
# Instances that the paper generated for each: half of them train.
_GENERATED = (2 * LIGHT, 2 * UNCONSTRAINED)


def compare(datasets: Sequence[Dataset], repeats: int, clean_repeats: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores of lightweight and unconstrained NN+C: by the paper's recipe and protocol (empty for no repeats), and on logarithms under the clean one.

    Args:
        datasets: of more than UNCONSTRAINED rows.
        repeats, clean_repeats: of each protocol.
        seed: of splits and weights.
    """

    def scores(recipes: list[Recipe], protocol: str, train: int, count: int) -> pd.DataFrame:
        return nnc.run(datasets, recipes, protocol=protocol, train=train, repeats=count, test_from=UNCONSTRAINED, seed=seed)[0]

    paper = pd.DataFrame()
    if repeats:
        paper = pd.concat([scores([PaperNetwork()], "paper", LIGHT, repeats), scores([PaperNetwork(unconstrained=True)], "paper", UNCONSTRAINED, repeats)])
    light = scores([LogNetwork(), CompactMatrix()], "clean", LIGHT, clean_repeats)
    return paper, pd.concat([light, scores([LogNetwork(unconstrained=True)], "clean", UNCONSTRAINED, clean_repeats)])


def training_s(dataset: Dataset, unconstrained: bool, seed: int) -> float:
    """Seconds to train one network by the paper's recipe on this machine: a hundredth of its epochs is timed, and each takes the same time."""
    recipe = PaperNetwork(unconstrained=unconstrained, epochs_scale=0.01)
    return 100 * fitting_s(recipe, dataset, UNCONSTRAINED if unconstrained else LIGHT, seed)


def fitting_s(recipe: Recipe, dataset: Dataset, rows: int, seed: int) -> float:
    """Seconds to fit one model to the first rows of a data set on this machine, from the rows to the ready model."""
    start = time.perf_counter()
    recipe.fit([(dataset, np.arange(rows))], seed)
    return time.perf_counter() - start


def preparing_table(datasets: Sequence[Dataset], seed: int) -> pd.DataFrame:
    """What preparing a model takes: measuring 500 or 5,000 instances, and training.

    Of the authors' files only the kernels' own seconds are known, a lower bound of measuring. Our own say when each measurement began, so making inputs and
    checking results is in theirs; building the program (once) is in neither.

    Returns:
        A row a data set: data_set, kernel, device, kernel_s_500, kernel_s_5000 (sums of recorded times), wall_s_500, wall_s_5000 (NaN where not recorded),
        training_light_s, training_full_s, training_compact_s, light_s, full_s (preparing: measuring and training), time_ratio, weights_light, weights_full and
        size_ratio.
    """
    records = []
    for dataset in datasets:
        kernel, kind = dataset.kernel.name, dataset.device.kind
        seconds = dataset.frame["time_s"].to_numpy(dtype=float)
        few, many = (min(count, len(seconds)) for count in _GENERATED)
        recorded = float(seconds[:few].sum()), float(seconds[:many].sum())
        published = nnc.published(dataset.name)
        wall = (float("nan"),) * 2 if published else (own.measuring_s(dataset, few), own.measuring_s(dataset, many))
        training = training_s(dataset, False, seed), training_s(dataset, True, seed)
        light, full = (m + t for m, t in zip(recorded if published else wall, training, strict=True))
        weights = n_weights(layer_sizes(kernel, kind)), n_weights(layer_sizes(kernel, kind, unconstrained=True))
        short = nnc.short(dataset.name)
        records.append(
            {
                "data_set": dataset.name,
                "kernel": own.TITLES[kernel],
                "device": nnc.DEVICES.get(short, short),
                "kernel_s_500": recorded[0],
                "kernel_s_5000": recorded[1],
                "wall_s_500": wall[0],
                "wall_s_5000": wall[1],
                "training_light_s": training[0],
                "training_full_s": training[1],
                "training_compact_s": fitting_s(CompactMatrix(), dataset, LIGHT, seed),
                "light_s": light,
                "full_s": full,
                "time_ratio": full / light,
                "weights_light": weights[0],
                "weights_full": weights[1],
                "size_ratio": weights[1] / weights[0],
            }
        )
    return pd.DataFrame(records)
