"""Invented tasks (synthetic throughputs) for the engine of the experiments: a hill over two knobs, a size a task, a corner that fails."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from workbench.errors import DataError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.kernels.base import Kernel
from workbench.models.averages import Averages
from workbench.models.surrogate import Adapted, Estimate, Surrogate, Trials
from workbench.reproduce.tuning.experiments import Experiment, Split
from workbench.reproduce.tuning.pools import Pool
from workbench.schema import Device, Workload
from workbench.space import Choice, Space
from workbench.tune.frameworks import Framework, NoModel
from workbench.tune.search import Greedy, RandomSearch

SIDE = 24
HILL = Kernel(
    "hill",
    "An invented hill",
    ("n",),
    flop=lambda p: 1e9 * p["n"],
    spaces={"only": lambda workload: Space("only", (Choice("a", tuple(range(SIDE))), Choice("b", tuple(range(SIDE)))))},
)


def measured(n: int, rows: int = SIDE * SIDE) -> MeasuredTask:
    """`rows` configurations of the hill with its top at (n, n) and failures where a is least."""
    task = TuningTask(f"hill{n}", HILL, Workload("hill", {"n": n}), Device("invented", "cpu"))
    indices = np.sort(np.random.default_rng(n).permutation(task.space.size)[:rows])
    knobs = task.space.decode(indices)
    height = 100.0 * np.exp(-((knobs["a"] - n) ** 2 + (knobs["b"] - n) ** 2) / 60)
    valid = knobs["a"] > 1
    throughput = np.where(valid, height, 0.0)
    time_s = np.where(valid, n / np.where(valid, height, 1.0), np.nan)
    return MeasuredTask(task, indices, throughput, valid, time_s, np.full(rows, 0.5), np.full(rows, 0.25))


def pool(n: int, rows: int = SIDE * SIDE) -> Pool:
    """The hill as a pool; a pair of them is a family."""
    return Pool(f"hill{n}", f"family{n // 2}", measured(n, rows), np.linspace(-0.1, 0.1, 11), "invented", ("0" * 64,), "invented device", n)


def hills() -> Experiment:
    """Four hills, each after the three others."""
    pools = [pool(n) for n in (6, 7, 8, 9)]
    splits = tuple(Split(target, tuple(other for other in pools if other is not target)) for target in pools)
    return Experiment("hills", "Invented hills", hills, splits, batch=8, trials=40, exhaustive=True)


class Counted(Averages):
    """Averages that leave a line in the file $FITS at each fit, and end their process at fit number $KILL_AT."""

    def fit(self, tasks: Sequence[MeasuredTask], seed: int = 0) -> Averages:
        path = Path(os.environ["FITS"])
        with path.open("a") as file:
            file.write(",".join(table.task.name for table in tasks) + f" {seed}\n")
        if len(path.read_text().splitlines()) == int(os.environ.get("KILL_AT", "0")):
            os.kill(os.getpid(), 9)
        return super().fit(tasks, seed)


class Wrong(Surrogate):
    """Cannot learn from anything."""

    name = "wrong"

    def fit(self, tasks: Sequence[MeasuredTask], seed: int = 0) -> Surrogate:
        raise DataError("there is nothing to see here")

    def adapt(self, task: TuningTask, seed: int = 0) -> Adapted:
        raise AssertionError


class Climber(Surrogate, Adapted):
    """Without transfer: says how near a configuration is to the best one so far."""

    name = "climber"

    def __init__(self) -> None:
        self.best: int | None = None

    def __repr__(self) -> str:
        return "Climber()"

    def fit(self, tasks: Sequence[MeasuredTask], seed: int = 0) -> Surrogate:
        return self

    def adapt(self, task: TuningTask, seed: int = 0) -> Climber:
        found = Climber()
        found.space = task.space  # type: ignore[attr-defined]
        return found

    def update(self, trials: Trials) -> None:
        self.best = int(trials.indices[trials.throughput.argmax()])

    def predict(self, indices: ArrayLike) -> Estimate:
        given = np.asarray(indices)
        if self.best is None:
            return Estimate(np.zeros(len(given)), np.full(len(given), np.nan))
        knobs, top = self.space.decode(given), self.space.decode(np.array([self.best]))  # type: ignore[attr-defined]
        far = (knobs["a"] - top["a"]) ** 2 + (knobs["b"] - top["b"]) ** 2
        return Estimate(np.exp(-far / 60.0), np.full(len(given), np.nan))


SMALL = {
    "random": Framework("random", "by chance", NoModel, RandomSearch, transfers=False, epsilon=0.0),
    "climber": Framework("climber", "near the best", Climber, Greedy, transfers=False),
    "averages": Framework("averages", "averages", Counted, Greedy, transfers=True, epsilon=0.0),
    "averages again": Framework("averages again", "averages, and chance", Counted, Greedy, transfers=True, epsilon=0.5),
    "wrong": Framework("wrong", "fails", Wrong, Greedy, transfers=True),
}


def small(name: str) -> Framework:
    """The framework of that name."""
    return SMALL[name]
