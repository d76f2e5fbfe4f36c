"""The contract of a tuner's cost models: a recipe learns from tasks that were measured, adapts to one that is being tuned, and ranks its configurations.

Throughput is relative: of a task in history over the best of its table, of the one being tuned over the best so far. A failure is 0, never a huge time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import DataError
from workbench.features.tasks import MeasuredTask, TuningTask

__all__ = ["Adapted", "Estimate", "Opinions", "Surrogate", "Trials"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trials:
    """What was measured of a task so far, in the order of the trials.

    Attributes:
        indices: configurations [n].
        throughput: GFLOP/s of each [n], 0 for a failure.
        valid: whether each ran and was right [n].

    Raises:
        DataError: arrays of different lengths, or a throughput that is no finite number, is negative, or is not above 0 where the trial is valid.
    """

    indices: NDArray[np.int64]
    throughput: Floats
    valid: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if not len(self.indices) == len(self.throughput) == len(self.valid):
            raise DataError(f"{len(self.indices)} trials with {len(self.throughput)} throughputs and {len(self.valid)} outcomes; each trial has one of both")
        wrong = ~np.isfinite(self.throughput) | np.where(self.valid, self.throughput <= 0, self.throughput != 0)
        if wrong.any():
            place = int(wrong.argmax())
            said = "valid" if self.valid[place] else "a failure"
            raise DataError(
                f"trial {place}, configuration {self.indices[place]}: {said} with a throughput of {self.throughput[place]}; "
                "one that ran has a positive one, a failure 0"
            )

    def __len__(self) -> int:
        return len(self.indices)

    @classmethod
    def none(cls) -> Trials:
        """Nothing measured."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0, dtype=bool))

    def and_then(self, indices: ArrayLike, throughput: ArrayLike, valid: ArrayLike) -> Trials:
        """These trials and later ones."""
        return Trials(
            np.concatenate([self.indices, np.asarray(indices)]),
            np.concatenate([self.throughput, np.asarray(throughput, dtype=np.float64)]),
            np.concatenate([self.valid, np.asarray(valid, dtype=bool)]),
        )

    @property
    def best(self) -> float:
        """Throughput of the fastest so far, 0 where none has run."""
        return float(self.throughput.max(initial=0.0))

    @property
    def label(self) -> Floats:
        """Throughput over the best so far [n]; zeros where none has run."""
        return self.throughput / (self.best or 1.0)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Mean and standard deviation of relative throughput, each [n]; `std` is NaN where a model gives no spread."""

    mean: Floats
    std: Floats


@dataclass(frozen=True, eq=False)
class Opinions:
    """Rankings of configurations by several sources.

    Attributes:
        rankings: higher is better [sources, n]; numbers of different sources need not compare.
        shares: of the candidates to try, how many each source names for one that another with share 1 does [sources].
    """

    rankings: Floats
    shares: tuple[int, ...]


class Adapted(ABC):
    """A cost model on the task that is being tuned."""

    @abstractmethod
    def update(self, trials: Trials) -> None:
        """Learn from all trials so far (each call has all of them, the earlier ones first). None, or failures alone, are trials too."""

    @abstractmethod
    def predict(self, indices: ArrayLike) -> Estimate:
        """Relative throughput of configurations `indices` [n]; before the first update what was learnt from other tasks says, else zeros."""

    def opinions(self, indices: ArrayLike) -> Opinions:
        """What a search may go by that tries for more than one reason; by default the mean of `predict` alone."""
        return Opinions(self.predict(indices).mean[None], (1,))


class Surrogate(ABC):
    """A cost model before it has seen the task to tune. Fitting gives a new one, so that one that was fitted can serve many tasks."""

    name: str

    @abstractmethod
    def fit(self, tasks: Sequence[MeasuredTask], seed: int = 0) -> Surrogate:
        """Learn from tasks that were measured before. One that starts anew with every task gives itself back.

        Raises:
            DataError: no tasks, or tasks that have not what the model looks at.
        """

    @abstractmethod
    def adapt(self, task: TuningTask, seed: int = 0) -> Adapted:
        """The model on a task.

        Raises:
            UsageError: the model was not fitted, or cannot look at this task.
        """
