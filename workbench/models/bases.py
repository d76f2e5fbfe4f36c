"""Base predictors learnt from other tasks, on knob and hardware columns: relative throughput by boosted trees and by small networks, and whether a
configuration runs at all by trees.

The sizes of a workload are no inputs: from a dozen layers a model learns them by heart, and ranks a layer that it has not seen worse than without them.

What they say of the tasks that they learnt from is too good to learn from again. So each training task also has predictions of bases that have not seen it
(cross-fitting over tasks), and a model on top learns from those how far a base can be trusted on a task that is new.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import xgboost as xgb
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor
from torch.nn.functional import silu

from workbench.errors import DataError
from workbench.features.tasks import MeasuredTask, TuningTask, aligned
from workbench.models.forest import Forest

__all__ = ["Bases", "History", "Objective", "fit_bases", "history_of"]

_Floats = NDArray[np.float32]
Objective = Literal["regression", "rank"]

_TREES: dict[str, Any] = {"n_estimators": 300, "max_depth": 6, "learning_rate": 0.06, "subsample": 0.7, "colsample_bytree": 0.5, "min_child_weight": 5}
# A few pairs a row at each round.
_PAIRS: dict[str, Any] = {"objective": "rank:pairwise", "lambdarank_pair_method": "mean", "lambdarank_num_pair_per_sample": 4}
_OF_THROUGHPUT = 2  # the bases that say it: trees and networks
_HIDDEN = (96, 64)
# That are averaged. Of the trees one ensemble is as good: on yolo1 to yolo3 three ranked no better after 16 to 256 samples, and took twice the time.
_NETWORKS = 2
_STEPS = 600
_BATCH = 256
_PIECE = 512  # rows
_FOLDS = 4
_CONSTANT = 1e-4  # standard deviation of a column that says nothing
_CLIP = 4.0  # standard deviations beyond which a column says no more


@dataclass(frozen=True, eq=False)
class History:
    """Tasks that were measured, as standardised columns.

    Attributes:
        columns: names of the columns, of all tasks.
        mean, scale: of each column [columns].
        inputs: standardised columns of each task [rows, columns].
        labels: relative throughput of each task [rows].
    """

    columns: tuple[str, ...]
    mean: _Floats
    scale: _Floats
    inputs: tuple[_Floats, ...]
    labels: tuple[_Floats, ...]

    def standardised(self, task: TuningTask, vectors: _Floats) -> _Floats:
        """Columns of a task's vectors [n, columns], standardised as those of the history."""
        return np.clip((aligned(vectors, task.columns, self.columns) - self.mean) / self.scale, -_CLIP, _CLIP)


def history_of(tasks: Sequence[MeasuredTask]) -> History:
    """The history of at least two tasks. Columns that never change are left out. Raises DataError for fewer tasks."""
    if len(tasks) < 2:
        raise DataError(f"{len(tasks)} tasks to learn from; what differs between tasks is learnt from two or more")
    columns = tuple(dict.fromkeys(name for task in tasks for name in task.task.columns if not name.startswith("workload ")))
    raw = [aligned(task.vectors, task.task.columns, columns) for task in tasks]
    everything = np.concatenate(raw, dtype=np.float64)
    mean, scale = everything.mean(axis=0), everything.std(axis=0)
    changes = scale > _CONSTANT
    columns = tuple(name for name, kept in zip(columns, changes, strict=True) if kept)
    mean, scale = mean[changes].astype(np.float32), scale[changes].astype(np.float32)
    inputs = tuple(np.clip((values[:, changes] - mean) / scale, -_CLIP, _CLIP) for values in raw)
    return History(columns, mean, scale, inputs, tuple(task.label.astype(np.float32) for task in tasks))


@dataclass(frozen=True, eq=False)
class Bases:
    """Fitted bases.

    Attributes:
        history: what they learnt from.
        crossed: what bases that have not seen a task say of it, for each task of the history [rows, bases].
    """

    history: History
    crossed: tuple[_Floats, ...]
    _trees: _Trees
    _networks: _Networks
    _feasible: _Trees | None = None

    def predict(self, inputs: _Floats) -> _Floats:
        """What each base says of standardised columns [n, columns]: relative throughput, twice, and the probability that they run, if asked for [n, bases]."""
        said = [self._trees.predict(inputs), self._networks.predict(inputs).mean(axis=0)]
        if self._feasible is not None:
            said.append(self._feasible.predict(inputs))
        return np.stack(said, axis=1).astype(np.float32)

    @staticmethod
    def throughput(said: _Floats) -> _Floats:
        """Relative throughput by all bases of it together [n], of what each of all bases says [n, bases]."""
        mean: _Floats = said[:, :_OF_THROUGHPUT].mean(axis=1)
        return mean


def fit_bases(history: History, seed: int = 0, objective: Objective = "regression", feasibility: bool = False) -> Bases:
    """Bases of all tasks, and of all but each of some folds of tasks for the cross-fitted predictions.

    Args:
        history: of the tasks.
        seed: of all that is drawn.
        objective: of the trees: "regression" of relative throughput, or "rank", the pairwise order within each task, brought to the scale of throughput by one
            line for all tasks.
        feasibility: whether trees for the probability that a configuration runs are a third base.
    """
    tasks = len(history.inputs)
    folds = [fold for fold in np.array_split(np.random.default_rng(seed).permutation(tasks), min(_FOLDS, tasks)) if len(fold)]
    kept = [np.setdiff1d(np.arange(tasks), fold) for fold in folds] + [np.arange(tasks)]
    trees = [_fit_trees(history, chosen, seed, objective) for chosen in kept]
    feasible = [_fit_trees(history, chosen, seed, "feasibility") if feasibility else None for chosen in kept]
    members = [chosen for chosen in kept for _ in range(_NETWORKS)]
    networks = _fit_networks(history, members, seed)
    crossed: list[_Floats] = [np.empty((0, _OF_THROUGHPUT), dtype=np.float32)] * tasks
    for number, fold in enumerate(folds):
        those = networks.members(range(number * _NETWORKS, (number + 1) * _NETWORKS))
        for task in fold:
            crossed[task] = Bases(history, (), trees[number], those, feasible[number]).predict(history.inputs[task])
    last = networks.members(range(len(folds) * _NETWORKS, len(members)))
    return Bases(history, tuple(crossed), trees[-1], last, feasible[-1])


@dataclass(frozen=True, eq=False)
class _Trees:
    # Boosted trees, a line that their margin is brought to the scale of the labels by, and whether that is the logarithm of the odds.
    forest: Forest
    slope: float = 1.0
    start: float = 0.0
    odds: bool = False

    def predict(self, inputs: _Floats) -> _Floats:
        # [n]
        margin = self.forest.margin(inputs)
        return np.asarray(self.slope * (expit(margin) if self.odds else margin) + self.start, dtype=np.float32)


def _fit_trees(history: History, chosen: NDArray[np.int64], seed: int, objective: Objective | Literal["feasibility"]) -> _Trees:
    inputs = np.concatenate([history.inputs[task] for task in chosen])
    labels = np.concatenate([history.labels[task] for task in chosen])
    settings = {**_TREES, "random_state": seed, "n_jobs": 1}
    if objective == "rank":
        # Pairs are drawn within a task, since only there do labels compare.
        tasks = np.repeat(np.arange(len(chosen)), [len(history.labels[task]) for task in chosen])
        forest = Forest.of(xgb.XGBRanker(**settings, **_PAIRS).fit(inputs, labels, qid=tasks).get_booster())
        slope, start = np.polyfit(forest.margin(inputs), labels, 1)
        return _Trees(forest, float(slope), float(start))
    if objective == "feasibility":
        # A failure is 0, and nothing else is.
        ran = xgb.XGBRegressor(**settings, objective="reg:logistic").fit(inputs, (labels > 0).astype(np.float32))
        return _Trees(Forest.of(ran.get_booster()), odds=True)
    return _Trees(Forest.of(xgb.XGBRegressor(**settings).fit(inputs, labels).get_booster()))


@dataclass(frozen=True, eq=False)
class _Networks:
    # Several networks of one shape, as batches of matrices.
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    def members(self, chosen: range) -> _Networks:
        places = list(chosen)
        return _Networks(tuple(weight[places] for weight in self.weights), tuple(bias[places] for bias in self.biases))

    def forward(self, inputs: Tensor) -> Tensor:
        # [members, n, columns] -> [members, n]
        hidden = inputs
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = silu(torch.baddbmm(bias, hidden, weight))
        return torch.baddbmm(self.biases[-1], hidden, self.weights[-1])[..., 0]

    def predict(self, inputs: _Floats) -> _Floats:
        # [members, n]; in pieces whose hidden layers fit into the cache
        with torch.no_grad():
            pieces = [self.forward(part.expand(len(self.weights[0]), -1, -1)) for part in torch.from_numpy(inputs).split(_PIECE)]
            found: _Floats = torch.cat(pieces, dim=1).numpy()
        return found


def _fit_networks(history: History, members: Sequence[NDArray[np.int64]], seed: int) -> _Networks:
    # All members at once.
    generator = torch.Generator().manual_seed(seed)
    sizes = (len(history.columns), *_HIDDEN, 1)
    weights = tuple(
        torch.randn(len(members), a, b, generator=generator).mul_((2 / a) ** 0.5 * (0.3 if b == 1 else 1.0)).requires_grad_()
        for a, b in itertools.pairwise(sizes)
    )
    biases = tuple(torch.zeros(len(members), 1, size).requires_grad_() for size in sizes[1:])
    networks = _Networks(weights, biases)
    inputs, labels = torch.from_numpy(np.concatenate(history.inputs)), torch.from_numpy(np.concatenate(history.labels))
    starts = np.cumsum([0, *(len(rows) for rows in history.labels)])
    pools = [np.concatenate([np.arange(starts[task], starts[task + 1]) for task in chosen]) for chosen in members]
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW([*weights, *biases], lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, _STEPS, pct_start=0.1)
    for _ in range(_STEPS):
        rows = torch.from_numpy(np.stack([pool[rng.integers(len(pool), size=_BATCH)] for pool in pools]))
        seen = inputs[rows]
        seen = seen + 0.05 * torch.randn(seen.shape, generator=generator)
        loss = (networks.forward(seen) - labels[rows]).square().mean(dim=1).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return _Networks(tuple(weight.detach() for weight in weights), tuple(bias.detach() for bias in biases))
