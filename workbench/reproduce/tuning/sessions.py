"""One session: a framework tunes one task of an experiment on recorded measurements, and its cost model is judged on rows that no framework proposes."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.features.tasks import MeasuredTask
from workbench.measure.replay import Replay
from workbench.metrics import mse, mse_top, spearman
from workbench.models.surrogate import Surrogate, Trials
from workbench.tune.frameworks import Framework
from workbench.tune.loop import Budget, tune
from workbench.tune.search import Candidates

__all__ = ["SAMPLES", "Accuracy", "Session", "Settings", "held_out", "run_session"]

SAMPLES = (0, 16, 64, 256)
_HELD_OUT = 512


@dataclass(frozen=True)
class Settings:
    """How a session goes.

    Attributes:
        trials, batch: measurements in all, and of a round.
        samples: numbers of random measurements after which the model is judged; more than a table has beside the held-out rows are left out.
    """

    trials: int
    batch: int
    samples: tuple[int, ...] = SAMPLES


@dataclass(frozen=True)
class Accuracy:
    """What a cost model knows after `samples` random measurements, judged on the held-out rows of the task.

    Attributes:
        samples: measurements that it has seen.
        spearman: rank correlation, None where it predicts one value or there is nothing to rank.
        mse, mse_top: mean squared error of throughput over the best of the table, and that of the fastest quarter.
        update_s: seconds that learning the samples took.
    """

    samples: int
    spearman: float | None
    mse: float
    mse_top: float
    update_s: float


@dataclass(frozen=True)
class Session:
    """What a framework made of one task.

    Attributes:
        rows: places in the table that were tried, in order [trials].
        label: throughput of each over the best of the table [trials], 0 for a failure.
        predicted: what the cost model had said of each, relative to its best so far [trials]; None where there was no model.
        round: in which round each was tried [trials].
        seconds: of searching, updating the model, building and running, each round [rounds][4]; None where not recorded.
        why: what ended it.
        fit_s: seconds that learning from the history took, shared by all tasks with the same history; None where there was nothing to learn.
        accuracy: of the model after random samples; empty where there was no model.
        failed: why the framework could not tune this task, "" where it could.
    """

    rows: list[int]
    label: list[float]
    predicted: list[float | None]
    round: list[int]
    seconds: list[list[float | None]]
    why: str
    fit_s: float | None
    accuracy: list[Accuracy]
    failed: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Session:
        """From what `to_json` gave."""
        return cls(**{**record, "accuracy": [Accuracy(**entry) for entry in record["accuracy"]]})

    @classmethod
    def none(cls, why: str) -> Session:
        """A framework that cannot tune the task."""
        return cls([], [], [], [], [], "", None, [], why)


def held_out(measured: MeasuredTask, name: str) -> NDArray[np.int64]:
    """The rows [h] on which every model of a task is judged: always the same, at most 512 and at most half of the table."""
    order = np.random.default_rng(zlib.crc32(name.encode())).permutation(len(measured))
    return order[: min(_HELD_OUT, len(measured) // 2)]


def run_session(
    framework: Framework, fitted: Surrogate, fit_s: float | None, measured: MeasuredTask, name: str, seed: int, settings: Settings, ranking_only: bool
) -> Session:
    """Tune a task and judge the model.

    Args:
        framework: what tunes.
        fitted: its cost model, fitted to the history, which took `fit_s` seconds.
        measured, name: the task.
        seed: of everything that is drawn.
        settings: of the session.
        ranking_only: see `Framework.tuner`.

    Raises:
        UsageError: the cost model cannot look at this task.
        KeyboardInterrupt: Ctrl-C.
    """
    tuner = framework.tuner(measured.task, fitted, Candidates(measured.task.space, measured.indices), seed=seed, ranking_only=ranking_only)
    outcome = tune(tuner, Replay(measured), Budget(trials=settings.trials), settings.batch)
    if outcome.why == "interrupted":  # half a session is none
        raise KeyboardInterrupt
    place = {index: row for row, index in enumerate(measured.indices.tolist())}
    return Session(
        rows=[place[index] for index in outcome.trials.indices.tolist()],
        label=[round(float(value), 6) for value in outcome.trials.throughput / measured.best],
        predicted=[_plain(value) for value in outcome.predicted],
        round=outcome.round.tolist(),
        seconds=[[_plain(value) for value in row] for row in outcome.seconds],
        why=outcome.why,
        fit_s=fit_s,
        accuracy=_accuracies(fitted, measured, name, seed, settings.samples),
    )


def _accuracies(fitted: Surrogate, measured: MeasuredTask, name: str, seed: int, samples: Sequence[int]) -> list[Accuracy]:
    judged = held_out(measured, name)
    order = np.random.default_rng([seed, zlib.crc32(name.encode())]).permutation(np.setdiff1d(np.arange(len(measured)), judged))
    true, found = measured.label[judged], []
    for count in samples:
        if count > len(order):
            continue
        rows = order[:count]
        trials = Trials(measured.indices[rows], measured.throughput[rows], measured.valid[rows])
        model = fitted.adapt(measured.task, seed)
        began = time.perf_counter()
        if count:
            model.update(trials)
        took = time.perf_counter() - began
        # The model speaks of the best so far, which the first samples set; the error counts in units of the best of the table, the same for every model.
        unit = trials.best / measured.best if trials.best else 1.0
        predicted = unit * model.predict(measured.indices[judged]).mean
        if not np.isfinite(predicted).all():  # no cost model
            return []
        ranks = None if np.ptp(predicted) == 0 or np.ptp(true) == 0 else spearman(true, predicted)
        found.append(Accuracy(count, ranks, mse(true, predicted), mse_top(true, predicted), took))
    return found


def _plain(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None
