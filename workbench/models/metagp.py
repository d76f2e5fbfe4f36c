"""A Gaussian process whose prior is learnt from other tasks: mean, kernel and noise on top of cross-fitted bases, conditioned on the trials of a task.

Conditioning is exact, so that a few trials move the prediction as far as they should and no further; and it says how sure it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import silu

from workbench.models.bases import Bases

__all__ = ["MetaProcess", "Posterior", "fit_process", "with_bases"]

_Floats = NDArray[np.float32]
_EMBEDDING, _HIDDEN = 16, 64
_TASKS, _ROWS, _STEPS, _RATE = 6, 160, 400, 3e-3
_JITTER = 1e-5
# The best of a task is unknown while it is tuned: so many times the best so far it may be.
_SCALES = np.array([1.0, 1.03, 1.06, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 1.8, 2.2, 2.7, 3.5, 5.0])
_SPREAD = 0.5


class _Encoded(NamedTuple):
    # What the kernel needs of n configurations: embedding [n, 16], scaled inputs [n, columns], mean [n], noise variance [n].
    embedding: Tensor
    scaled: Tensor
    mean: Tensor
    noise: Tensor

    def at(self, rows: Tensor | slice) -> _Encoded:
        return _Encoded(*(part[rows] for part in self))


class MetaProcess(nn.Module):
    """The prior over tasks.

    mean = w . bases + c; kernel = a0 + a1 m m' + a2 exp(-|e - e'|^2 / 2) + a3 exp(-|z - z'|), with e an embedding by a network, z scaled inputs; noise by a
    network of the inputs.

    Args:
        columns: of the inputs, those of the bases included.
        bases: number of bases.
        embedding: whether the kernel has the part of e.
    """

    def __init__(self, columns: int, bases: int, embedding: bool = True) -> None:
        super().__init__()
        layers = (nn.Linear(columns, _HIDDEN), nn.SiLU(), nn.Linear(_HIDDEN, _HIDDEN), nn.SiLU(), nn.Linear(_HIDDEN, _EMBEDDING)) if embedding else ()
        self.embed = nn.Sequential(*layers)
        self.noise_in, self.noise_out = nn.Linear(columns, 16), nn.Linear(16, 1)
        self.length = nn.Parameter(torch.full((columns,), -0.5 * math.log(columns) - 0.7))
        self.amplitude = nn.Parameter(torch.log(torch.tensor([0.02, 0.01, 0.02, 0.02])))
        self.weight = nn.Parameter(torch.full((bases,), 1 / bases))
        self.offset = nn.Parameter(torch.zeros(()))

    def encode(self, inputs: Tensor, bases: Tensor) -> _Encoded:
        """Inputs [..., n, columns] and what the bases say [..., n, bases]."""
        noise = 1e-4 + 0.05 * torch.exp(self.noise_out(silu(self.noise_in(inputs)))[..., 0] - 1.5)
        return _Encoded(self.embed(inputs), inputs * torch.exp(self.length), bases @ self.weight + self.offset, noise)

    def kernel(self, left: _Encoded, right: _Encoded) -> Tensor:
        """Covariance of the function at two sets of configurations, [..., n, m]."""
        constant, linear, deep, near = self._amplitudes()
        distance = _squared(left.scaled, right.scaled)
        found = constant + linear * left.mean[..., :, None] * right.mean[..., None, :]
        if len(self.embed):
            found = found + deep * torch.exp(-0.5 * _squared(left.embedding, right.embedding))
        return found + near * torch.exp(-torch.sqrt(distance + 1e-6))

    def variance(self, at: _Encoded) -> Tensor:
        """Prior variance of the function, [..., n]."""
        constant, linear, deep, near = self._amplitudes()
        return constant + linear * at.mean.square() + deep + near

    def _amplitudes(self) -> tuple[Tensor, ...]:
        constant, linear, deep, near = torch.exp(self.amplitude)
        return constant, linear, deep if len(self.embed) else torch.zeros(()), near

    def loss(self, inputs: Tensor, bases: Tensor, labels: Tensor) -> Tensor:
        """Negative log marginal likelihood a row, the mean over tasks [tasks, rows, ...]."""
        here = self.encode(inputs, bases)
        factor = torch.linalg.cholesky(self.kernel(here, here) + torch.diag_embed(here.noise + _JITTER))
        error = torch.linalg.solve_triangular(factor, (labels - here.mean)[..., None], upper=False)[..., 0]
        return (0.5 * error.square() + factor.diagonal(dim1=-2, dim2=-1).log()).mean()


def _squared(left: Tensor, right: Tensor) -> Tensor:
    norms = left.square().sum(-1)[..., :, None] + right.square().sum(-1)[..., None, :]
    return (norms - 2 * left @ right.transpose(-1, -2)).clamp(min=0)


def fit_process(bases: Bases, seed: int = 0, embedding: bool = True) -> MetaProcess:
    """Fit the prior to all tasks of the bases' history, by exact marginal likelihood of batches of tasks and rows. `embedding`: see `MetaProcess`."""
    history = bases.history
    inputs = [torch.from_numpy(with_bases(columns, crossed)) for columns, crossed in zip(history.inputs, bases.crossed, strict=True)]
    said = [torch.from_numpy(crossed) for crossed in bases.crossed]
    labels = [torch.from_numpy(values) for values in history.labels]
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        process = MetaProcess(inputs[0].shape[1], said[0].shape[1], embedding)
    optimizer = torch.optim.AdamW(process.parameters(), lr=_RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, _STEPS, pct_start=0.1)
    rows = min(_ROWS, *(len(values) for values in labels))
    for _ in range(_STEPS):
        tasks = rng.integers(len(labels), size=_TASKS)
        drawn = [(task, torch.from_numpy(rng.choice(len(labels[task]), rows, replace=False))) for task in tasks]
        loss = process.loss(*(torch.stack([part[task][places] for task, places in drawn]) for part in (inputs, said, labels)))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(process.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return process.eval()


def with_bases(inputs: _Floats, said: _Floats) -> _Floats:
    """Inputs of the process [n, columns + bases]: standardised columns, and what the bases say on a like scale."""
    return np.concatenate([inputs, 3 * (said - 0.4)], axis=1).astype(np.float32)


@dataclass
class Posterior:
    """Processes that differ in their seed, conditioned on the trials of a task; their means are averaged.

    The labels of the prior are over the best of a task, which is not known while it is tuned. How far it lies above the best so far is found by the marginal
    likelihood over a grid.
    """

    processes: Sequence[MetaProcess]

    def __post_init__(self) -> None:
        self._rows: list[_Encoded] = []
        self._factors: list[Tensor] = []
        self._solved: list[Tensor] = []
        self.scale = 1.0

    @torch.no_grad()
    def condition(self, inputs: _Floats, said: _Floats, label: NDArray[np.float64]) -> None:
        """Take all trials so far: inputs [n, columns], what the bases say [n, bases], throughput over the best so far [n]."""
        u, b, y = torch.from_numpy(inputs), torch.from_numpy(said), torch.from_numpy(label.astype(np.float32))
        self._rows, self._factors, self._solved = [], [], []
        likelihood = np.zeros(len(_SCALES))
        scaled = y[:, None] / torch.from_numpy(_SCALES.astype(np.float32))
        for process in self.processes:
            here = process.encode(u, b)
            factor = torch.linalg.cholesky(process.kernel(here, here) + torch.diag(here.noise + _JITTER))
            error = torch.linalg.solve_triangular(factor, scaled - here.mean[:, None], upper=False)
            likelihood += (-0.5 * error.square().sum(0)).numpy()
            self._rows.append(here)
            self._factors.append(factor)
        # Of the density of throughput: labels that are divided by a scale are denser. The more was tried, the nearer to 1 a scale is beforehand.
        ran = int((label > 0).sum())
        likelihood = likelihood / len(self.processes) - ran * np.log(_SCALES) - 0.5 * (np.log(_SCALES) / _SPREAD) ** 2 * (1 + ran / 8)
        self.scale = float(_SCALES[int(likelihood.argmax())]) if ran else 1.0
        for here, factor in zip(self._rows, self._factors, strict=True):
            self._solved.append(torch.cholesky_solve((y / self.scale - here.mean)[:, None], factor)[:, 0])

    @torch.no_grad()
    def predict(self, inputs: _Floats, said: _Floats) -> tuple[_Floats, _Floats]:
        """Mean and standard deviation of throughput over the task's best, each [n]."""
        u, b = torch.from_numpy(inputs), torch.from_numpy(said)
        means, variances = [], []
        for number, process in enumerate(self.processes):
            there = process.encode(u, b)
            mean, variance = there.mean, process.variance(there)
            if self._rows:
                across = process.kernel(there, self._rows[number])
                mean = mean + across @ self._solved[number]
                explained = torch.linalg.solve_triangular(self._factors[number], across.T, upper=False).square().sum(0)
                variance = (variance - explained).clamp(min=1e-8)
            means.append(mean)
            variances.append(variance)
        mean, spread = torch.stack(means), torch.stack(variances)
        between = mean.var(0, correction=0)
        return mean.mean(0).numpy(), torch.sqrt(spread.mean(0) + between).numpy()
