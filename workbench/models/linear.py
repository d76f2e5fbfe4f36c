"""NN+C's linear baselines: C (the operation count alone) and LR+C (all inputs and the count), by least squares on raw seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from workbench.features.inputs import Term, evaluate, raw_terms, with_complexity
from workbench.models.base import CostModel, Floats, Problem, Recipe, targets

__all__ = ["Constant", "LinearModel", "LinearRegressionC"]


@dataclass(frozen=True)
class LinearModel(CostModel):
    """time = intercept + inputs . weights, in seconds."""

    name: str
    terms: tuple[Term, ...]
    weights: Floats
    intercept: float

    @property
    def n_parameters(self) -> int:
        """A weight an input and the intercept."""
        return len(self.weights) + 1

    def predict_time_s(self, frame: pd.DataFrame) -> Floats:
        """Seconds [n]."""
        return evaluate(frame, self.terms) @ self.weights + self.intercept

    def to_json(self) -> dict[str, Any]:
        """Terms, weights and intercept."""
        return {"kind": "linear", "name": self.name, "terms": [t.to_json() for t in self.terms], "weights": self.weights.tolist(), "intercept": self.intercept}


class LinearRegressionC(Recipe):
    """LR+C (NN+C, section IV-D): linear regression of seconds on all inputs and c."""

    name = "LR+C"

    def _terms(self, problem: Problem) -> list[Term]:
        return raw_terms(problem[0], complexity=True)

    def fit(self, problems: Sequence[Problem], seed: int = 0) -> list[CostModel]:
        """Least squares; `seed` has no effect."""
        from sklearn.linear_model import LinearRegression

        models: list[CostModel] = []
        for problem in problems:
            dataset, rows = with_complexity(problem[0]), problem[1]
            terms, seconds = self._terms(problem), targets(dataset, rows)
            x = evaluate(dataset.frame.iloc[rows], terms)
            # Standardised first: the library drops directions whose singular value is below 1e-6 of the largest, and beside a count of 1e9 that would be
            # every density and thread count.
            centre, scale = x.mean(0), np.where(np.ptp(x, axis=0) > 0, x.std(0), 1.0)
            fit = LinearRegression().fit((x - centre) / scale, seconds)
            weights = np.asarray(fit.coef_) / scale
            models.append(LinearModel(self.name, tuple(terms), weights, float(fit.intercept_ - weights @ centre)))
        return models


class Constant(LinearRegressionC):
    """C (NN+C, section IV-D): linear regression of seconds on the operation count alone."""

    name = "C"

    def _terms(self, problem: Problem) -> list[Term]:
        return [Term("value", "c")]
