"""How well a machine's matrix kernels are known once they are measured: models with their errors beside the noise, and what they select."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.data.datasets import Dataset
from workbench.errors import DataError
from workbench.features.inputs import with_complexity
from workbench.metrics import mape
from workbench.models.compact import CompactMatrix
from workbench.models.compiled import compile_model
from workbench.models.evaluate import pass_floor
from workbench.models.interpreter import entry_point
from workbench.tune.selector import Selector

__all__ = ["Learned", "learn", "library_times", "noise", "selected", "selection_us"]


@dataclass(frozen=True)
class Learned:
    """A model of what was measured.

    Attributes:
        train: the data set with the training rows alone.
        test: the other rows, with c and the seconds `predicted` for them.
        training_s: seconds from the training rows to the compiled model.
        mape: on the other rows, in percent, by the papers' rule (without the fastest 30%).
        n_parameters: weights.
    """

    train: Dataset
    test: pd.DataFrame
    training_s: float
    mape: float
    n_parameters: int


def learn(data: Dataset, train: int = 250, seed: int = 0) -> Learned:
    """Fit our model to the first half of the rows, at most `train` of them, and predict the rest. Rows are in the random order in which they were drawn."""
    full = with_complexity(data)
    rows = np.arange(min(train, len(full.frame) // 2))
    entry_point()  # what runs every compiled model is itself compiled once a machine, which is no model's training
    start = time.perf_counter()
    model = CompactMatrix().fit([(full, rows)], seed)[0]
    compiled = compile_model(model)
    training_s = time.perf_counter() - start
    rest = full.frame.iloc[len(rows) :].reset_index(drop=True)
    rest["predicted"] = compiled.predict_time_s(rest)
    error = mape(rest["time_s"], rest["predicted"])
    return Learned(dataclasses.replace(data, frame=data.frame.iloc[rows].reset_index(drop=True)), rest, training_s, error, model.n_parameters)


def noise(data: Dataset) -> float | str:
    """What `pass_floor` says in percent, or in words why there is no telling."""
    try:
        return pass_floor(data)[0]
    except DataError as error:
        return str(error).partition(": ")[2]


def library_times(tests: Mapping[str, pd.DataFrame], parameters: Sequence[str]) -> pd.DataFrame:
    """Inputs that were held out in every library, with their times side by side.

    Args:
        tests: library -> the rows held out, with columns `parameters`, c and time_s.
        parameters: of the kernel.

    Returns:
        Columns: `parameters`, c, and the seconds in each library.
    """
    (first, frame), *others = tests.items()
    found = frame[[*parameters, "c", "time_s"]].rename(columns={"time_s": first})
    for library, other in others:
        found = found.merge(other[[*parameters, "time_s"]].rename(columns={"time_s": library}), on=list(parameters))
    return found


def selected(selector: Selector, times: pd.DataFrame, libraries: Sequence[str]) -> pd.DataFrame:
    """What a selector chooses for inputs that were measured in all libraries.

    Args:
        selector: with a variant for each library.
        times: from `library_times`.
        libraries: names of its columns of seconds.

    Returns:
        `times` with `chosen` (the library), `chosen_s` and `best_s`.
    """
    chosen = [selector.choose(*values).library for values in times[list(selector.parameters)].itertuples(index=False)]
    seconds = times[list(libraries)].to_numpy(dtype=float)
    places = [list(libraries).index(library) for library in chosen]
    return times.assign(chosen=chosen, chosen_s=seconds[np.arange(len(times)), places], best_s=seconds.min(axis=1))


def selection_us(selector: Selector, times: pd.DataFrame, variants: int, rounds: int = 2000) -> float:
    """Microseconds of one warm choice among `variants` variants: the least of many short rounds, of which some meet nothing else on their CPU.

    The selector's own variants are repeated to make that number, as a machine with more libraries or devices would have them.
    """
    own = sum(len(source.configs) for source in selector.sources)
    many = dataclasses.replace(selector, sources=selector.sources * math.ceil(variants / own))
    inputs = [tuple(map(float, values)) for values in times[list(selector.parameters)].head(100).itertuples(index=False)]
    choose = many.choose
    choose(*inputs[0])
    spent = []
    for _ in range(rounds):
        start = time.perf_counter()
        for values in inputs:
            choose(*values)
        spent.append(time.perf_counter() - start)
    return min(spent) / len(inputs) * 1e6
