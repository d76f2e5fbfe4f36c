"""Boosted trees as cost models of a tuner: AutoTVM's xgb, its xgb-Xfer, and trees whose correction to what was learnt from other tasks is shrunk.

AutoTVM's figures are those of TVM 0.8 (apache/tvm, python/tvm/autotvm/tuner/xgboost_cost_model.py): trees of depth 3, eta 0.3, lambda 1, gamma 1e-4,
grown until for 20 rounds the training rows were not ranked better (recall of the first 64, on average over the first 1, 2, ..., 64). It keeps all of them, and
starts anew with each batch. Of the base model's margin it takes 1 / 2^(trials / 64), and nothing once that is below 0.05.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import DataError, UsageError
from workbench.features.remembered import Remembered
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.features.views import VIEWS, View
from workbench.models.surrogate import Adapted, Estimate, Surrogate, Trials

if TYPE_CHECKING:
    from xgboost import Booster

__all__ = ["Trees", "Xgb", "XgbXfer", "XgbXferShrunk"]

Floats = NDArray[np.float64]
# Of pairs one a row is drawn at each round, as XGBoost had it before its release 2.
_OBJECTIVES: Mapping[str, Mapping[str, Any]] = {
    "regression": {"objective": "reg:squarederror"},
    "rank": {"objective": "rank:pairwise", "lambdarank_pair_method": "mean", "lambdarank_num_pair_per_sample": 1},
}
_AUTOTVM = {"max_depth": 3, "eta": 0.3, "lambda": 1.0, "gamma": 1e-4, "min_child_weight": 1}
_TOP = 64  # trials of a batch
_MOST = 8000  # rounds
_WAIT, _BASE_WAIT, _BASE_MOST = 20, 100, 400  # rounds without a better ranking, and at most, of a base model
_LEAST_SHARE = 0.05  # of a base model's margin, and of the best of a table that the best so far is


@dataclass(frozen=True, eq=False)
class Trees:
    """Boosted trees over named columns.

    Attributes:
        booster: XGBoost's.
        columns: those that the trees were grown on: of several that were the same in all rows the first, and none that was one number.
    """

    booster: Booster
    columns: tuple[str, ...]

    def margin(self, rows: NDArray[np.float32], columns: Mapping[str, int], onto: Floats | None = None) -> Floats:
        """What the trees say of rows [n, columns], given the place of each name; on top of `onto` [n], which trees that were grown on a margin need."""
        mine = rows[:, [columns[name] for name in self.columns]] if tuple(columns) != self.columns else rows
        if not len(mine):
            return np.zeros(0)
        return np.asarray(self.booster.inplace_predict(mine, base_margin=onto, predict_type="margin"), dtype=np.float64)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"columns": list(self.columns), "booster": json.loads(self.booster.save_raw("json"))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trees:
        """What `to_json` gave."""
        import xgboost

        booster = xgboost.Booster({"nthread": 1})
        booster.load_model(bytearray(json.dumps(data["booster"]), "utf-8"))
        return cls(booster, tuple(data["columns"]))


@dataclass(frozen=True)
class Xgb(Surrogate):
    """AutoTVM's xgb. It starts anew with each task: fitting gives itself.

    Args:
        objective: "regression", or "rank" for the pairwise order. The scores of the latter are brought to the scale of throughput by a line that is fitted to
            the trials, which changes no order.
        features: one of `features.views.VIEWS`; AutoTVM's own choice is "itervar", for which 10,000 configurations take about 0.1 s, of "vectors" a third.
            A task without loop nests is seen by its knobs instead.
    """

    objective: str = "regression"
    features: str = "itervar"
    name = "xgb"

    def __post_init__(self) -> None:
        if self.objective not in _OBJECTIVES:
            raise UsageError(f"no objective {self.objective!r}; choose one of {', '.join(_OBJECTIVES)}")
        if self.features not in VIEWS:
            raise UsageError(f"no features {self.features!r}; choose one of {', '.join(VIEWS)}")

    def fit(self, tasks: Sequence[MeasuredTask], seed: int = 0) -> Surrogate:
        """Itself."""
        return self

    def adapt(self, task: TuningTask, seed: int = 0) -> Adapted:
        """See `Surrogate`."""
        return _Xgb(_view(task, self.features), None, self.objective, seed)


@dataclass(frozen=True)
class _Transfer(Surrogate):
    # Trees on a base that was grown on other tasks.
    features: str = "itervar"
    base: Trees | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.features not in VIEWS:
            raise UsageError(f"no features {self.features!r}; choose one of {', '.join(VIEWS)}")

    def fit(self, tasks: Sequence[MeasuredTask], seed: int = 0) -> Self:
        """See `Surrogate`. Labels are throughput over the best of each task's table."""
        rows, columns, labels = _history(tasks, self.features)
        return replace(self, base=self._grow(rows, columns, labels, seed))

    @abstractmethod
    def _grow(self, rows: NDArray[np.float32], columns: Sequence[str], labels: Floats, seed: int) -> Trees:
        """The base."""

    def fitted(self) -> Trees:
        """The base. Raises UsageError before `fit`."""
        if self.base is None:
            raise UsageError(f"{self.name} learns from other tasks first; give them to fit, and use what it returns")
        return self.base

    def save(self, path: Path | str) -> None:
        """Write the base as JSON. Raises UsageError before `fit`."""
        Path(path).write_text(json.dumps({"model": self.name, "features": self.features, "trees": self.fitted().to_json()}), encoding="utf-8")

    def load(self, path: Path | str) -> Self:
        """One like this with a base that was saved.

        Raises:
            DataError: no file of such a model, or one that looked at other features.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            found = data["model"], data["features"]
            trees = Trees.from_json(data["trees"]) if found == (self.name, self.features) else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: no saved {self.name}: {error}") from error
        if trees is None:
            raise DataError(f"{path}: {found[0]} on the features {found[1]!r}, not {self.name} on {self.features!r}")
        return replace(self, base=trees)


@dataclass(frozen=True)
class XgbXfer(_Transfer):
    """AutoTVM's xgb with transfer: a base model of up to 400 rounds, stopped where for 100 its rows were not ranked better, supplies the margin of new trees.

    AutoTVM divides the throughputs of all its history by the largest of them; here each task has its own best, so that a slow layer is worth as much as a fast
    one. Nor does it ask for 500 rows at least.

    Args:
        objective, features: see `Xgb`.
    """

    objective: str = "regression"
    name = "xgb-xfer"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective not in _OBJECTIVES:
            raise UsageError(f"no objective {self.objective!r}; choose one of {', '.join(_OBJECTIVES)}")

    def adapt(self, task: TuningTask, seed: int = 0) -> Adapted:
        """See `Surrogate`."""
        return _Xgb(_view(task, self.features), self.fitted(), self.objective, seed)

    def _grow(self, rows: NDArray[np.float32], columns: Sequence[str], labels: Floats, seed: int) -> Trees:
        return _grown(rows, columns, labels, {**_AUTOTVM, **_OBJECTIVES[self.objective], "seed": seed}, _BASE_MOST, _BASE_WAIT, 2 * _TOP)


@dataclass(frozen=True)
class XgbXferShrunk(_Transfer):
    """Transferred trees whose correction is kept small, refitted with each batch: few, shallow, of many rows a leaf, and drawn towards 0.

    The base says throughput over the best of a whole table, trials are over the best so far. So each update first finds the share c of the former that the
    best so far is: base / c is brought nearest to the labels of all trials, by least squares, with `prior` rows where both are 1. Trees are grown on
    c x label - base, and a prediction is (base + trees) / c. (Least squares of c x label to the base is no way to find it: what a model says varies less than
    what is measured, so c would come out too small.)

    Args:
        base_params, base_rounds: of the base's trees, in XGBoost's names.
        params, rounds: of the correction.
        prior: rows that say c = 1, for want of trials.
    """

    features: str = "vectors"
    base_params: Mapping[str, float] = field(
        default_factory=lambda: {"max_depth": 6, "eta": 0.06, "subsample": 0.7, "colsample_bytree": 0.5, "min_child_weight": 5}, repr=False
    )
    base_rounds: int = 300
    params: Mapping[str, float] = field(
        default_factory=lambda: {"max_depth": 2, "eta": 0.1, "min_child_weight": 8, "lambda": 20, "subsample": 0.7, "colsample_bytree": 0.5}, repr=False
    )
    rounds: int = 60
    prior: float = 1.0
    name = "xgb-xfer-shrunk"

    def adapt(self, task: TuningTask, seed: int = 0) -> Adapted:
        """See `Surrogate`."""
        return _Shrunk(_view(task, self.features), self.fitted(), self, seed)

    def _grow(self, rows: NDArray[np.float32], columns: Sequence[str], labels: Floats, seed: int) -> Trees:
        return _grown(rows, columns, labels, {**self.base_params, "seed": seed}, self.base_rounds)


class _Looking(Adapted):
    # Trees on a view, and a base's on the same. Features of trials are found once.

    def __init__(self, view: View, base: Trees | None, seed: int) -> None:
        self._view, self._base, self._seed = view, base, seed
        self._trees: Trees | None = None
        self._seen: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._rows = np.empty((0, len(view.columns)), dtype=np.float32)
        self._all = {name: i for i, name in enumerate(view.columns)}
        missing = [] if base is None else [name for name in base.columns if name not in self._all]
        self._others = tuple(missing)  # columns that the base knows from other tasks, zeros here
        self._all |= {name: len(view.columns) + i for i, name in enumerate(missing)}
        self._margins = Remembered(1, np.float64)

    def _look(self, trials: Trials) -> NDArray[np.float32]:
        # Rows of all trials, [trials, columns of the view and `_others`].
        known = len(self._seen)
        if known > len(trials) or not np.array_equal(self._seen, trials.indices[:known]):
            known = 0
        fresh = self._view.of(trials.indices[known:])
        self._rows = np.concatenate([self._rows[:known], fresh])
        self._seen = trials.indices.copy()
        return np.concatenate([self._rows, np.zeros((len(trials), len(self._others)), dtype=np.float32)], axis=1)

    def _base_margin(self, indices: NDArray[Any], rows: NDArray[np.float32], columns: Mapping[str, int]) -> Floats:
        # What the base says of configurations [n], whose rows are given: it does not change with the trials.
        base = self._base
        if base is None:
            return np.zeros(len(rows))
        found: Floats = self._margins.of(indices, lambda places: base.margin(rows[places], columns)[:, None])[:, 0]
        return found

    def predict(self, indices: ArrayLike) -> Estimate:
        """See `Adapted`; no spread."""
        given = np.asarray(indices)
        grown = [trees for trees in (self._base, self._trees) if trees is not None]
        wanted = tuple(dict.fromkeys(name for trees in grown for name in trees.columns))
        rows, columns = self._view.of(given, wanted), {name: i for i, name in enumerate(wanted)}
        return Estimate(self._mean(given, rows, columns), np.full(len(given), np.nan))

    @abstractmethod
    def _mean(self, indices: NDArray[Any], rows: NDArray[np.float32], columns: Mapping[str, int]) -> Floats: ...


class _Xgb(_Looking):
    def __init__(self, view: View, base: Trees | None, objective: str, seed: int) -> None:
        super().__init__(view, base, seed)
        self._objective = objective
        self._share = 1.0
        self._line = 1.0, 0.0

    def update(self, trials: Trials) -> None:
        """See `Adapted`."""
        self._trees, self._line = None, (1.0, 0.0)
        if not len(trials):
            self._share = 1.0
            return
        share = 0.5 ** (len(trials) / _TOP)
        self._share = share if share >= _LEAST_SHARE else 0.0
        rows = self._look(trials)
        onto = self._share * self._base_margin(trials.indices, rows, self._all) if self._base and self._share else None
        params = {**_AUTOTVM, **_OBJECTIVES[self._objective], "seed": self._seed}
        self._trees = _grown(rows, tuple(self._all), trials.label, params, _MOST, _WAIT, _TOP, onto)
        if self._objective == "rank":
            self._line = _line(self._trees.margin(rows, self._all, onto), trials.label)

    def _mean(self, indices: NDArray[Any], rows: NDArray[np.float32], columns: Mapping[str, int]) -> Floats:
        onto = self._share * self._base_margin(indices, rows, columns) if self._base and self._share else None
        if self._trees is None:
            return np.zeros(len(rows)) if onto is None else onto
        slope, start = self._line
        return slope * self._trees.margin(rows, columns, onto) + start


class _Shrunk(_Looking):
    def __init__(self, view: View, base: Trees, recipe: XgbXferShrunk, seed: int) -> None:
        super().__init__(view, base, seed)
        self._recipe = recipe
        self._scale = 1.0

    def update(self, trials: Trials) -> None:
        """See `Adapted`."""
        self._trees, self._scale = None, 1.0
        if not len(trials):
            return
        rows = self._look(trials)
        base, label = self._base_margin(trials.indices, rows, self._all), trials.label
        prior = self._recipe.prior
        self._scale = float(np.clip((base @ base + prior) / (base @ label + prior), _LEAST_SHARE, 1.0))
        params = {**self._recipe.params, "seed": self._seed, "base_score": 0.0}
        self._trees = _grown(rows, tuple(self._all), self._scale * label - base, params, self._recipe.rounds)

    def _mean(self, indices: NDArray[Any], rows: NDArray[np.float32], columns: Mapping[str, int]) -> Floats:
        found = self._base_margin(indices, rows, columns)
        return (found if self._trees is None else found + self._trees.margin(rows, columns)) / self._scale


def _view(task: TuningTask, kind: str) -> View:
    try:
        return View(task, kind)
    except UsageError:
        return View(task, "knobs")


def _history(tasks: Sequence[MeasuredTask], kind: str) -> tuple[NDArray[np.float32], tuple[str, ...], Floats]:
    # Rows of all tasks, the columns that any of them has, and labels.
    if not tasks or not sum(map(len, tasks)):
        raise DataError("no measured tasks to learn from; give one at least")
    for measured in tasks:
        if not np.isfinite(measured.label).all():
            raise DataError(f"task {measured.task.name}: a throughput over its best of {measured.best} is no finite number; leave the task out")
    views = [_view(measured.task, kind) for measured in tasks]
    columns = tuple(dict.fromkeys(name for view in views for name in view.columns))
    rows = np.concatenate([view.of(measured.indices, columns) for view, measured in zip(views, tasks, strict=True)])
    return rows, columns, np.concatenate([measured.label for measured in tasks])


def _grown(
    rows: NDArray[np.float32],
    columns: Sequence[str],
    labels: Floats,
    params: Mapping[str, Any],
    rounds: int,
    wait: int | None = None,
    top: int = _TOP,
    onto: Floats | None = None,
) -> Trees:
    # Trees for rows [n, columns] and labels [n], on top of a margin [n]. With `wait` they end where recall has not grown for so many rounds.
    import xgboost

    kept = _distinct(rows)
    data = xgboost.DMatrix(rows[:, kept], label=labels, base_margin=onto, nthread=1)
    given = {"objective": "reg:squarederror", "tree_method": "hist", "nthread": 1, "verbosity": 0, **params}
    if wait is None:
        return Trees(xgboost.train(given, data, rounds), tuple(columns[i] for i in kept))
    order = np.argsort(-labels, kind="stable")
    stop = xgboost.callback.EarlyStopping(rounds=wait, metric_name="recall", data_name="rows", maximize=True)
    booster = xgboost.train(
        {**given, "disable_default_eval_metric": True},
        data,
        rounds,
        evals=[(data, "rows")],
        custom_metric=lambda scores, _: ("recall", _recall(scores, order, top)),
        callbacks=[stop],
        verbose_eval=False,
    )
    return Trees(booster, tuple(columns[i] for i in kept))


def _distinct(rows: NDArray[np.float32]) -> NDArray[np.intp]:
    # Columns that are not one number, and of those that are the same in all rows the first; a loop context vector has three times as many as that. A tree
    # that tries every column never splits by any of the others. One column is kept at least.
    found: dict[bytes, int] = {}
    varying = np.flatnonzero((rows != rows[:1]).any(axis=0))
    for place, column in zip(varying.tolist(), np.ascontiguousarray(rows[:, varying].T), strict=True):
        found.setdefault(column.tobytes(), place)
    return np.array(list(found.values()) or [0], dtype=np.intp)


def _recall(scores: ArrayLike, order: NDArray[np.intp], top: int) -> float:
    # Share of the best i rows, `order` being all of them from the best on, among the i of the highest scores; the mean over i = 1, ..., top.
    count = len(order)
    rank = np.empty(count, dtype=np.intp)
    rank[order] = np.arange(count)
    both = np.maximum(np.arange(count), rank[np.argsort(-np.asarray(scores), kind="stable")])  # from which i on a row is in both
    return float((np.bincount(both, minlength=count).cumsum() / np.arange(1, count + 1))[:top].mean())


def _line(scores: Floats, labels: Floats) -> tuple[float, float]:
    # Slope, above 0, and intercept of labels over scores.
    spread = scores - scores.mean()
    slope = float(spread @ labels / (spread @ spread)) if spread.any() else 0.0
    slope = slope if slope > 0 else 1.0
    return slope, float(labels.mean() - slope * scores.mean())
