"""Our own time model under 75 weights: a tanh network, where that helps with a log-sum-exp of linear terms beside it, on physical inputs, fitted by evidence.

Two frozen recipes, chosen on development sets only (MM I5, MM Tesla, MV Xeon, MV Quadro, MC I7, MC Tesla, Blur I5, and of our own the second draw of matrix
instances and the schedules on two threads):

- `CompactMatrix`: 4 tanh units on logarithms, 1/threads or alignment to 16. Two other candidates stand for how a library treats density: one takes a density of
  exactly 1 for the sparsest; one knows from which density on a matrix is stored whole, which is another program, and with it has a logsumexp of 2 linear terms
  and all the weights that are allowed. A candidate takes over when it is at least 20% better in a 3-fold comparison inside the training rows, over all of them:
  how a rare code path behaves may show in fast rows only.
- `CompactSchedule`: logsumexp of 4 linear terms (a time is a sum of products of powers) and as many tanh units as 74 weights allow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from workbench.data.datasets import Dataset
from workbench.features.inputs import Term, aligned_terms, evaluate, log_terms, schedule_terms, stored_terms, with_complexity
from workbench.metrics import mape
from workbench.models.base import CostModel, Floats, Problem, Recipe, Rows, targets
from workbench.models.evidence import SmallNet, fit_evidence

__all__ = ["LIMIT", "CompactMatrix", "CompactModel", "CompactSchedule", "Options"]

# "less than 75 parameters" (NN+C, abstract); every fitted number counts, scalers of inputs and output aside.
LIMIT = 74
_FOLDS = 3
_MARGIN = 1.2


@dataclass(frozen=True)
class Options:
    """One way to fit.

    Attributes:
        hidden: tanh units; 0 is as many as the limit allows.
        terms: log-linear terms beside them.
        nu: degrees of freedom of the Student-t loss, None for a Gaussian one.
        robust_from: step from which residuals are reweighted.
        fast_weight: weight of the fastest 30% of the training rows, which the papers' MAPE does not count.
        restarts, steps: of Levenberg-Marquardt.
        evidence: re-estimate the regularisation.
        inputs: "aligned", "emptied" (aligned, a density of 1 taken for the sparsest), "stored" (on a CPU, densities as what a library makes of them), "log" or
            "schedule".
        complexity: with the operation count c.
        limit: at most so many weights.
    """

    hidden: int = 4
    terms: int = 0
    nu: float | None = 3.0
    robust_from: int = 15
    fast_weight: float = 0.15
    restarts: int = 12
    steps: int = 70
    evidence: bool = True
    inputs: str = "aligned"
    complexity: bool = True
    limit: int = LIMIT


@dataclass(frozen=True)
class CompactModel(CostModel):
    """A fitted small network over standardised terms and standardised log time; `noise` is the deviation of log time that the fit estimates."""

    name: str
    terms: tuple[Term, ...]
    net: SmallNet
    weights: Floats
    centre: Floats
    scale: Floats
    out_centre: float
    out_scale: float
    noise: float

    @property
    def n_parameters(self) -> int:
        """Weights of the network."""
        return self.net.n_parameters

    def predict_time_s(self, frame: pd.DataFrame) -> Floats:
        """Seconds [n]."""
        z = torch.from_numpy((evaluate(frame, self.terms) - self.centre) / self.scale)
        out: Floats = self.net.value(torch.from_numpy(self.weights)[None], z[None])[0].numpy()
        return np.exp(out * self.out_scale + self.out_centre)

    def to_json(self) -> dict[str, Any]:
        """Terms, sizes, weights and scalers."""
        return {
            "kind": "compact",
            "name": self.name,
            "terms": [t.to_json() for t in self.terms],
            "net": [self.net.inputs, self.net.hidden, self.net.terms],
            "weights": self.weights.tolist(),
            "centre": self.centre.tolist(),
            "scale": self.scale.tolist(),
            "out_centre": self.out_centre,
            "out_scale": self.out_scale,
            "noise": self.noise,
        }


def _terms(dataset: Dataset, options: Options) -> list[Term]:
    if options.inputs == "schedule":
        return schedule_terms(dataset)
    if options.inputs == "log":
        return log_terms(dataset, options.complexity)
    if options.inputs == "stored" and dataset.device.kind == "cpu":
        return stored_terms(dataset, options.complexity)
    return aligned_terms(dataset, options.complexity, emptied=options.inputs == "emptied")


def _varying(dataset: Dataset, rows: Rows, terms: Sequence[Term]) -> tuple[Term, ...]:
    """The terms that differ between training rows: of others (the threads of a series on one thread) nothing is learned, and their weights would be lost."""
    varies = np.ptp(evaluate(dataset.frame.iloc[rows], terms), axis=0) > 0
    return tuple(term for term, kept in zip(terms, varies, strict=True) if kept) or tuple(terms[:1])


def _net(inputs: int, options: Options) -> SmallNet:
    """The network of the options, its hidden layer cut to the limit."""
    fixed = options.terms * (inputs + 1) if options.terms else 1
    most = (options.limit - fixed) // (inputs + 2)
    return SmallNet(inputs, min(options.hidden or most, most), options.terms)


def _fit(name: str, problems: Sequence[Problem], options: Options, seed: int) -> list[CompactModel]:
    """Fit all problems; those of one shape are one batch."""
    terms = [_varying(dataset, rows, _terms(dataset, options)) for dataset, rows in problems]
    x = [evaluate(dataset.frame.iloc[rows], t) for (dataset, rows), t in zip(problems, terms, strict=True)]
    y = [np.log(targets(dataset, rows)) for dataset, rows in problems]
    centre = [v.mean(0) for v in x]
    scale = [np.where(v.std(0) > 0, v.std(0), 1.0) for v in x]
    out = [(float(v.mean()), float(v.std()) or 1.0) for v in y]
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, v in enumerate(x):
        groups[v.shape].append(i)
    models: dict[int, CompactModel] = {}
    for shape, members in groups.items():
        net = _net(shape[1], options)
        z = torch.from_numpy(np.stack([(x[i] - centre[i]) / scale[i] for i in members]))
        target = torch.from_numpy(np.stack([(y[i] - out[i][0]) / out[i][1] for i in members]))
        weight = torch.from_numpy(np.stack([np.where(y[i] > np.quantile(y[i], 0.3), 1.0, options.fast_weight) for i in members]))
        done = fit_evidence(
            net,
            z,
            target,
            weight,
            restarts=options.restarts,
            steps=options.steps,
            nu=options.nu,
            robust_from=options.robust_from,
            evidence=options.evidence,
            seed=seed,
        )
        for j, i in enumerate(members):
            noise = float(done.noise[j]) * out[i][1]
            models[i] = CompactModel(name, terms[i], net, done.theta[j].numpy().copy(), centre[i], scale[i], out[i][0], out[i][1], noise)
    return [models[i] for i in range(len(problems))]


def _inner_errors(name: str, problems: Sequence[Problem], options: Options, seed: int) -> Floats:
    """MAPE over all rows of each problem by 3-fold cross-validation inside its training rows [problems]."""
    # Every third row: the rows are already in random order, and equal fold sizes keep the folds of all problems in one batch.
    inner: list[Problem] = []
    held: list[Rows] = []
    for dataset, rows in problems:
        size = len(rows) // _FOLDS
        for fold in range(_FOLDS):
            test = rows[fold::_FOLDS][:size]
            inner.append((dataset, np.setdiff1d(rows, test, assume_unique=True)[: len(rows) - size]))
            held.append(test)
    models = _fit(name, inner, replace(options, restarts=max(1, options.restarts // 2)), seed)
    scores = []
    for model, (dataset, _), test in zip(models, inner, held, strict=True):
        frame = dataset.frame.iloc[test]
        scores.append(mape(frame["time_s"], model.predict_time_s(frame), drop_fastest=0.0))
    return np.reshape(scores, (len(problems), _FOLDS)).mean(1)


def _distinct(dataset: Dataset, rows: Rows, candidates: Sequence[Options]) -> bool:
    """Whether the candidates' inputs differ on any of the rows."""
    frame = dataset.frame.iloc[rows]
    first, *others = (evaluate(frame, _varying(dataset, rows, _terms(dataset, c))) for c in candidates)
    return any(not np.array_equal(first, x) for x in others)


class _CompactRecipe(Recipe):
    candidates: tuple[Options, ...]

    def fit(self, problems: Sequence[Problem], seed: int = 0) -> list[CostModel]:
        """One model a problem. With several candidates, the first unless another's error inside the training rows is smaller by the margin."""
        prepared = [(with_complexity(dataset), rows) for dataset, rows in problems]
        for dataset, rows in prepared:
            targets(dataset, rows)  # what cannot be learned from is named before anything is computed from it
        if len(self.candidates) == 1:
            return list(_fit(self.name, prepared, self.candidates[0], seed))
        # Where no training row tells the candidates apart there is nothing to compare.
        differ = [i for i, (dataset, rows) in enumerate(prepared) if _distinct(dataset, rows, self.candidates)]
        chosen = np.zeros(len(prepared), dtype=int)
        if differ:
            errors = np.stack([_inner_errors(self.name, [prepared[i] for i in differ], c, seed) for c in self.candidates])
            errors[1:] *= _MARGIN
            chosen[differ] = errors.argmin(0)
        models: dict[int, CostModel] = {}
        for c, options in enumerate(self.candidates):
            members = np.flatnonzero(chosen == c)
            if len(members):
                models.update(zip(members.tolist(), _fit(self.name, [prepared[i] for i in members], options, seed), strict=True))
        return [models[i] for i in range(len(problems))]


class CompactMatrix(_CompactRecipe):
    """The recipe for matrix kernels; `options` replaces the candidates by one variation, for ablations."""

    name = "compact"
    candidates: tuple[Options, ...] = (
        Options(),
        Options(inputs="emptied"),
        Options(hidden=0, terms=2, nu=6.0, fast_weight=0.3, restarts=8, inputs="stored"),
    )

    def __init__(self, options: Options | None = None, name: str = "compact") -> None:
        self.name = name
        if options is not None:
            self.candidates = (options,)


class CompactSchedule(_CompactRecipe):
    """The recipe for schedules; `options` replaces it by a variation, for ablations."""

    name = "compact"
    candidates: tuple[Options, ...] = (Options(hidden=0, terms=4, nu=6.0, fast_weight=0.6, restarts=16, steps=80, inputs="schedule"),)

    def __init__(self, options: Options | None = None, name: str = "compact") -> None:
        self.name = name
        if options is not None:
            self.candidates = (options,)
