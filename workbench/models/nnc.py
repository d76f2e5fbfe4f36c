"""NN+C, the augmented neural network: under 75 weights, with the kernel's operation count c as an extra input; and NN, the same without c.

Layer sizes are the paper's (section IV-C, Table III, and section V-D, Table V). Two recipes:

- `PaperNetwork`, protocol "paper": Adam on raw seconds, inputs standardised, the learning rates and epochs of the authors' code. Its `published_mape`
  repeats how they scored, flaws included: the test rows are scaled by their own mean and deviation, and the lowest error over checkpoints on the test rows
  is reported.
- `LogNetwork`, protocol "clean": the same layers on base-2 logarithms and log time, Adam with a cosine schedule, restarts chosen on the training loss.

Schedules of our own programs may have more knobs than the paper's. Their networks have the paper's hidden layers as far as fewer than 75 weights allow: units
are taken from the last hidden layer, which costs the fewest weights, one at a time (`cut_to_limit`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch

from workbench.data.datasets import Dataset
from workbench.errors import UsageError
from workbench.features.inputs import Term, evaluate, log_terms, raw_terms, with_complexity
from workbench.metrics import mape
from workbench.models.base import CostModel, Floats, Problem, Recipe, Rows, targets
from workbench.models.compact import LIMIT
from workbench.models.training import Trained, forward, n_weights, train

__all__ = ["LogNetwork", "Network", "PaperNetwork", "cut_to_limit", "layer_sizes"]

# Hidden units by (kernel, kind of device): with c, without c, and of the unconstrained model.
_HIDDEN: dict[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    ("mm", "cpu"): ((7,), (7,), (15,)),
    ("mv", "cpu"): ((7,), (10,), (15, 15)),
    ("mc", "cpu"): ((9,), (10,), (20,)),
    ("mp", "cpu"): ((8,), (9,), (20,)),
    ("mm", "gpu"): ((5,), (9,), (15, 15)),
    ("mv", "gpu"): ((12,), (14,), (10, 10)),
    ("mc", "gpu"): ((7,), (10,), (15,)),
    ("mp", "gpu"): ((9,), (10,), (10, 10)),
    # The paper gives no sizes of NN for schedules: the hidden layers of NN+C, one input less. FFT may also be 8-5-3-1, of 67 weights too.
    ("blur", "cpu"): ((5, 5), (5, 5), ()),
    ("blur_gpu", "gpu"): ((5, 5), (5, 5), ()),
    ("fft", "cpu"): ((4, 5), (4, 5), ()),
    ("fft", "gpu"): ((4, 5), (4, 5), ()),
}
# Inputs without c: sizes and densities, threads on a CPU; schedule parameters and n.
_INPUTS = {"mm": 5, "mv": 3, "mc": 4, "mp": 5, "blur": 5, "blur_gpu": 4, "fft": 7}
# Kernels whose knobs belong to the program, not to the paper.
_SCHEDULES = ("blur", "blur_gpu", "fft")
# Adam's learning rate and epochs in the authors' code.
_SCHEDULE = {("mm", "cpu"): (1e-4, 30_000), ("mv", "cpu"): (1e-3, 30_000), ("mm", "gpu"): (1e-3, 30_000), ("mv", "gpu"): (1e-3, 30_000)}
_OTHERWISE = (1e-2, 10_000)
# Seconds of the unit in which the authors' files, and so their networks, have their times.
_UNIT = {"fft": 1e-6}


def layer_sizes(kernel: str, kind: str, complexity: bool = True, unconstrained: bool = False) -> tuple[int, ...]:
    """Sizes of the paper's network from input to output.

    Args:
        kernel: "mm", "mv", "mc", "mp", "blur", "blur_gpu" or "fft".
        kind: "cpu" or "gpu".
        complexity: with c (NN+C) or without (NN).
        unconstrained: the larger model of section VI-A, with c.

    Raises:
        UsageError: the paper has no such network.
    """
    try:
        with_c, without, larger = _HIDDEN[kernel, kind]
    except KeyError:
        raise UsageError(f"the paper has no network for kernel {kernel!r} on a {kind!r}; it has {', '.join(f'{k} on a {d}' for k, d in _HIDDEN)}") from None
    hidden = larger if unconstrained else with_c if complexity else without
    if not hidden:
        raise UsageError(f"the paper has no unconstrained network for {kernel!r}")
    threads = kind == "cpu" and kernel in ("mm", "mv", "mc", "mp")
    return (_INPUTS[kernel] + threads + (complexity or unconstrained), *hidden, 1)


def cut_to_limit(inputs: int, layers: Sequence[int]) -> tuple[int, ...]:
    """Layers of a network for another number of inputs: units leave the last hidden layer that has more than one until at most LIMIT weights are left.

    Args:
        inputs: how many inputs it has.
        layers: sizes of the paper's network from input to output.

    Raises:
        UsageError: even with a unit a layer it has more weights.
    """
    sizes = [inputs, *layers[1:]]
    while n_weights(sizes) > LIMIT:
        wide = [i for i in range(1, len(sizes) - 1) if sizes[i] > 1]
        if not wide:
            raise UsageError(f"a network of {inputs} inputs has more than {LIMIT} weights even with one unit a layer; leave inputs out")
        sizes[wide[-1]] -= 1
    return tuple(sizes)


@dataclass(frozen=True)
class Network(CostModel):
    """A fitted ReLU network over standardised inputs.

    Attributes:
        name: of the recipe.
        terms: inputs.
        layers: sizes from input to output.
        weights: flat parameters [p], float32.
        centre, scale: mean and deviation of the inputs over the training rows [d].
        out_centre, out_scale: of the target; 0 and the file's unit in seconds for raw times.
        log: whether the target is the natural logarithm of seconds.
        checkpoints: parameters at intermediate epochs [k, p], for `published_mape`.
    """

    name: str
    terms: tuple[Term, ...]
    layers: tuple[int, ...]
    weights: Floats
    centre: Floats
    scale: Floats
    out_centre: float = 0.0
    out_scale: float = 1.0
    log: bool = False
    checkpoints: Floats = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def n_parameters(self) -> int:
        """Weights and biases."""
        return n_weights(self.layers)

    def _run(self, weights: Floats, z: Floats) -> Floats:
        theta = torch.from_numpy(np.ascontiguousarray(np.atleast_2d(weights), dtype=np.float64))
        out = forward(theta, torch.from_numpy(z).expand(len(theta), *z.shape), self.layers).numpy() * self.out_scale + self.out_centre
        return np.exp(out) if self.log else out

    def predict_time_s(self, frame: pd.DataFrame) -> Floats:
        """Seconds [n]."""
        return self._run(self.weights, (evaluate(frame, self.terms) - self.centre) / self.scale)[0]

    def published_mape(self, frame: pd.DataFrame) -> float:
        """MAPE in percent as the authors scored: test inputs scaled by their own mean and deviation, the lowest error over checkpoints (both are flaws)."""
        x = evaluate(frame, self.terms)
        predicted = self._run(self.checkpoints, (x - x.mean(0)) / _deviation(x))
        time = frame["time_s"].to_numpy(dtype=float)
        return min(mape(time, p) for p in predicted)

    def to_json(self) -> dict[str, Any]:
        """Everything but the checkpoints."""
        return {
            "kind": "network",
            "name": self.name,
            "terms": [t.to_json() for t in self.terms],
            "layers": list(self.layers),
            "weights": self.weights.tolist(),
            "centre": self.centre.tolist(),
            "scale": self.scale.tolist(),
            "out_centre": self.out_centre,
            "out_scale": self.out_scale,
            "log": self.log,
        }


def _deviation(x: Floats) -> Floats:
    """Standard deviation of each column, 1 for a constant one (its standardised value is then 0)."""
    deviation: Floats = x.std(0)
    return np.where(deviation > 0, deviation, 1.0)


@dataclass(frozen=True)
class _Prepared:
    terms: tuple[Term, ...]
    layers: tuple[int, ...]
    centre: Floats
    scale: Floats
    z: Floats
    target: Floats
    out_centre: float
    out_scale: float
    options: tuple[float, int]


class _NetworkRecipe(Recipe, ABC):
    log = False
    restarts = 1
    checkpoints = 0
    cosine = False

    def __init__(self, complexity: bool = True, unconstrained: bool = False) -> None:
        self.complexity = complexity or unconstrained
        self.unconstrained = unconstrained

    @abstractmethod
    def terms(self, dataset: Dataset) -> list[Term]:
        """Inputs of the network."""

    @abstractmethod
    def options(self, dataset: Dataset) -> tuple[float, int]:
        """Learning rate and epochs."""

    def _prepare(self, given: Dataset, rows: Rows) -> _Prepared:
        dataset = with_complexity(given) if self.complexity else given
        terms = tuple(self.terms(dataset))
        layers = layer_sizes(dataset.kernel.name, dataset.device.kind, self.complexity, self.unconstrained)
        if len(terms) != layers[0] and dataset.kernel.name in _SCHEDULES:
            layers = cut_to_limit(len(terms), layers)
        if len(terms) != layers[0]:
            raise UsageError(f"data set {dataset.name} has {len(terms)} inputs ({', '.join(t.column for t in terms)}); the paper's network takes {layers[0]}")
        x = evaluate(dataset.frame.iloc[rows], terms)
        time = targets(dataset, rows)
        target = np.log(time) if self.log else time
        out = (float(target.mean()), float(target.std()) or 1.0) if self.log else (0.0, _UNIT.get(dataset.kernel.name, 1.0))
        centre, scale = x.mean(0), _deviation(x)
        return _Prepared(terms, layers, centre, scale, (x - centre) / scale, (target - out[0]) / out[1], *out, self.options(dataset))

    def fit(self, problems: Sequence[Problem], seed: int = 0) -> list[CostModel]:
        """One network a problem; problems of one shape train as one batch. The initial weights depend on `seed` and the problem's place in the list."""
        prepared = [self._prepare(dataset, rows) for dataset, rows in problems]
        groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for i, p in enumerate(prepared):
            groups[p.layers, p.z.shape, p.options].append(i)
        models: dict[int, CostModel] = {}
        for (layers, _, (lr, epochs)), members in groups.items():
            starts = [(i, r) for i in members for r in range(self.restarts)]
            x = torch.from_numpy(np.stack([prepared[i].z for i, _ in starts]))
            y = torch.from_numpy(np.stack([prepared[i].target for i, _ in starts]))
            seeds = [(seed * 1_000_003 + i) * 101 + r for i, r in starts]
            done = train(x, y, layers, seeds, lr=lr, epochs=epochs, cosine=self.cosine, checkpoints=self.checkpoints)
            best = done.loss.view(len(members), self.restarts).argmin(1) + torch.arange(len(members)) * self.restarts
            for i, chosen in zip(members, best.tolist(), strict=True):
                models[i] = self._model(prepared[i], done, chosen)
        return [models[i] for i in range(len(problems))]

    def _model(self, p: _Prepared, done: Trained, chosen: int) -> Network:
        weights = done.theta[chosen].double().numpy()
        kept = done.checkpoints[:, chosen].double().numpy() if self.checkpoints else np.empty((0, 0))
        return Network(self.name, p.terms, p.layers, weights, p.centre, p.scale, p.out_centre, p.out_scale, self.log, kept)


class PaperNetwork(_NetworkRecipe):
    """NN+C or NN as published: raw inputs standardised, raw seconds, Adam at the authors' learning rates and epochs.

    `epochs_scale` shortens the training for a quick run (1 is the paper's).
    """

    checkpoints = 100

    def __init__(self, complexity: bool = True, unconstrained: bool = False, epochs_scale: float = 1.0) -> None:
        super().__init__(complexity, unconstrained)
        self.epochs_scale = epochs_scale
        self.name = "unconstrained NN+C" if unconstrained else "NN+C" if complexity else "NN"

    def terms(self, dataset: Dataset) -> list[Term]:
        """Sizes, densities, threads or schedule, c."""
        return raw_terms(dataset, self.complexity)

    def options(self, dataset: Dataset) -> tuple[float, int]:
        """The authors' learning rate and epochs for this kernel and kind of device."""
        lr, epochs = _SCHEDULE.get((dataset.kernel.name, dataset.device.kind), _OTHERWISE)
        return lr, max(1, round(epochs * self.epochs_scale))


class LogNetwork(_NetworkRecipe):
    """The paper's layers on log inputs and log time: Adam at 0.03 with a cosine schedule over 800 epochs, the best of 5 restarts by training loss."""

    log = True
    restarts = 5
    cosine = True

    def __init__(self, complexity: bool = True, unconstrained: bool = False) -> None:
        super().__init__(complexity, unconstrained)
        self.name = "unconstrained NN+C, log" if unconstrained else "NN+C, log" if complexity else "NN, log"

    def terms(self, dataset: Dataset) -> list[Term]:
        """Base-2 logarithms."""
        return log_terms(dataset, self.complexity)

    def options(self, dataset: Dataset) -> tuple[float, int]:
        """Learning rate and epochs, the same for every kernel."""
        return 0.03, 800
