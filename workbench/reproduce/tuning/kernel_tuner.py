"""Kernel Tuner's own search strategies on the same exhaustive tables, in its simulation mode: an optional extra, pip install 'workbench[kernel-tuner]'.

A failure is a trial here as it is for every framework of ours. A configuration that a strategy asks for again is none, nor is one outside of the space, which
Kernel Tuner knows without running it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import random
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.errors import MissingPackage
from workbench.metrics import best_so_far
from workbench.reproduce.tuning.pools import Pool

__all__ = ["STRATEGIES", "best", "installed", "simulate", "table"]

# Those of Kernel Tuner 1.5 that go through a part of a space, have one objective and need no other package. "minimize", a single local descent, is left out:
# "basinhopping" begins it again and again.
STRATEGIES = (
    "random_sample",
    "simulated_annealing",
    "genetic_algorithm",
    "diff_evo",
    "pso",
    "firefly_algorithm",
    "mls",
    "greedy_mls",
    "ordered_greedy_mls",
    "greedy_ils",
    "dual_annealing",
    "basinhopping",
    "hybrid_vndx",
    "adaptive_tabu_greywolf",
    "bayes_opt",
)
_FAILED = "RuntimeFailedConfig"  # of Kernel Tuner


def installed() -> bool:
    """Whether Kernel Tuner is there."""
    return importlib.util.find_spec("kernel_tuner") is not None


def simulate(pool: Pool, strategies: Sequence[str], seeds: Sequence[int], trials: int) -> pd.DataFrame:
    """Sessions of strategies on a table.

    Args:
        pool: exhaustive.
        strategies: names.
        seeds: of Python's and NumPy's generators, from which the strategies draw.
        trials: of each session; a strategy that ends before keeps what it had.

    Returns:
        A row a session: strategy, seed, and curve, best so far over the optimum after each trial [trials].

    Raises:
        MissingPackage: Kernel Tuner is not installed.
    """
    if not installed():
        raise MissingPackage("the strategies of Kernel Tuner need the package 'kernel-tuner', which is not installed; run: pip install kernel-tuner")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        answers = _Answers(pool, Path(folder) / "cache.json")
        for strategy in strategies:
            for seed in seeds:
                label = answers.tuned(strategy, seed, trials)
                reached = best_so_far(np.array(label)) if label else np.zeros(1)
                rows.append({"strategy": strategy, "seed": seed, "curve": np.concatenate([reached, np.full(trials, reached[-1])])[:trials]})
    return pd.DataFrame(rows)


def table(sessions: Mapping[str, pd.DataFrame], checkpoints: Sequence[int]) -> pd.DataFrame:
    """Best so far over the optimum, a mean over seeds: a row a task and strategy, and columns task, strategy and "after ..." trials. `sessions`: by task."""
    rows = []
    for task, of in sessions.items():
        for strategy, part in of.groupby("strategy", sort=False):
            mean = np.mean(np.stack(list(part["curve"])), axis=0)
            rows.append({"task": task, "strategy": strategy, **{f"after {count}": float(mean[count - 1]) for count in checkpoints}})
    return pd.DataFrame(rows)


def best(strategies: pd.DataFrame) -> dict[str, dict[int, float]]:
    """Task -> trials -> what the strategy that is then the best has reached; of what `table` gave."""
    reached = strategies.drop(columns="strategy").groupby("task", sort=False).max()
    return {str(task): {int(name.removeprefix("after ")): float(value) for name, value in row.items()} for task, row in reached.to_dict("index").items()}


class _Answers:
    # A table as Kernel Tuner's cache file, and labels by what it calls a configuration.

    def __init__(self, pool: Pool, path: Path) -> None:
        measured = pool.measured
        knobs: dict[str, NDArray[Any]] = measured.task.space.decode(measured.indices)
        self._path, self._values = path, {name: np.unique(values).tolist() for name, values in knobs.items()}
        self._labels: dict[tuple[Any, ...], float] = {}
        cache = {}
        for row, configuration in enumerate(zip(*(values.tolist() for values in knobs.values()), strict=True)):
            self._labels[configuration] = float(measured.label[row])
            time: float | str = 1 / float(measured.throughput[row]) if measured.throughput[row] > 0 else _FAILED
            cache[",".join(map(str, configuration))] = {**dict(zip(knobs, configuration, strict=True)), "time": time}
        header = {"device_name": pool.device, "kernel_name": "table", "problem_size": [1], "tune_params_keys": list(knobs), "tune_params": self._values}
        path.write_text(json.dumps({**header, "objective": "time", "cache": cache}), encoding="utf-8")

    def tuned(self, strategy: str, seed: int, trials: int) -> list[float]:
        # Labels of the configurations in the order in which the strategy first asked for them.
        import kernel_tuner
        from constraint import FunctionConstraint

        # Its strategies draw from the generators that all share: they are put back as they were.
        states = random.getstate(), np.random.get_state()  # noqa: NPY002
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results, _ = kernel_tuner.tune_kernel(
                    "table",
                    "",
                    (1,),
                    [],
                    self._values,
                    restrictions=[FunctionConstraint(lambda *values: values in self._labels)],
                    cache=str(self._path),
                    simulation_mode=True,
                    strategy=strategy,
                    strategy_options={"max_fevals": trials},
                    quiet=True,
                )
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
        asked = dict.fromkeys(tuple(result[name] for name in self._values) for result in results if result is not None)
        return [self._labels[configuration] for configuration in asked if configuration in self._labels][:trials]
