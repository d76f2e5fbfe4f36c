"""Tree ensembles: NLR+C (the paper's random forest on raw seconds), and a random forest and boosted trees on log inputs and log time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from workbench.features.inputs import Term, evaluate, log_terms, raw_terms, with_complexity
from workbench.models.base import CostModel, Floats, Problem, Recipe, targets

__all__ = ["BoostedTrees", "NonlinearRegressionC", "RandomForest", "TreeModel"]


@dataclass(frozen=True)
class TreeModel(CostModel):
    """A fitted ensemble of trees; `log` says that it predicts the natural logarithm of seconds."""

    name: str
    terms: tuple[Term, ...]
    estimator: Any
    log: bool
    nodes: int

    @property
    def n_parameters(self) -> int:
        """Nodes of all trees: a threshold or a value each."""
        return self.nodes

    def predict_time_s(self, frame: pd.DataFrame) -> Floats:
        """Seconds [n]."""
        out = np.asarray(self.estimator.predict(evaluate(frame, self.terms)), dtype=float)
        return np.exp(out) if self.log else out

    def to_json(self) -> dict[str, Any]:
        """Terms and size; the trees themselves are kept by their own library's format."""
        return {"kind": "trees", "name": self.name, "terms": [t.to_json() for t in self.terms], "log": self.log, "nodes": self.nodes}


def _forest(inputs: Floats, target: Floats, trees: int, seed: int) -> tuple[Any, int]:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(trees, max_features=1.0, random_state=seed, n_jobs=1).fit(inputs, target)
    return forest, sum(tree.tree_.node_count for tree in forest.estimators_)


class NonlinearRegressionC(Recipe):
    """NLR+C (NN+C, section IV-D): a random forest on the inputs of NN+C and raw seconds; 100 trees, 200 for MM on a CPU, all inputs at each split."""

    name = "NLR+C"

    def fit(self, problems: Sequence[Problem], seed: int = 0) -> list[CostModel]:
        """One forest a problem."""
        models: list[CostModel] = []
        for given, rows in problems:
            dataset = with_complexity(given)
            terms = tuple(raw_terms(dataset, complexity=True))
            trees = 200 if (dataset.kernel.name, dataset.device.kind) == ("mm", "cpu") else 100
            forest, nodes = _forest(evaluate(dataset.frame.iloc[rows], terms), targets(dataset, rows), trees, seed)
            models.append(TreeModel(self.name, terms, forest, False, nodes))
        return models


class RandomForest(Recipe):
    """A random forest of 300 trees on log inputs with c and log time."""

    name = "random forest"

    def fit(self, problems: Sequence[Problem], seed: int = 0) -> list[CostModel]:
        """One forest a problem."""
        models: list[CostModel] = []
        for given, rows in problems:
            dataset = with_complexity(given)
            terms = tuple(log_terms(dataset, complexity=True))
            forest, nodes = _forest(evaluate(dataset.frame.iloc[rows], terms), np.log(targets(dataset, rows)), 300, seed)
            models.append(TreeModel(self.name, terms, forest, True, nodes))
        return models


class BoostedTrees(Recipe):
    """XGBoost on log inputs with c and log time: 400 trees of depth 4, learning rate 0.05, nine tenths of the rows and inputs a tree."""

    name = "XGB"

    def fit(self, problems: Sequence[Problem], seed: int = 0) -> list[CostModel]:
        """One ensemble a problem."""
        from xgboost import XGBRegressor

        models: list[CostModel] = []
        for given, rows in problems:
            dataset = with_complexity(given)
            terms = tuple(log_terms(dataset, complexity=True))
            estimator = XGBRegressor(
                n_estimators=400, max_depth=4, learning_rate=0.05, subsample=0.9, colsample_bytree=0.9, min_child_weight=2, random_state=seed, n_jobs=1
            )
            estimator.fit(evaluate(dataset.frame.iloc[rows], terms), np.log(targets(dataset, rows)))
            nodes = sum(tree.count("\n") for tree in estimator.get_booster().get_dump())
            models.append(TreeModel(self.name, terms, estimator, True, nodes))
        return models
