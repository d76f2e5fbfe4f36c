"""A Gaussian process over schedules and sizes: what a schedule may take on a size that few or none were measured on, and how sure that is.

A network of a few weights says how schedules do on average over sizes; that the very schedules that were fast on one size are fast on the next, unless a cache
overflows between them, it does not know. The process does: log time is a function of the schedule that all sizes share, plus one that near sizes share, plus a
level of each size. Told of a few measurements it learns which of them holds here, so that each next one goes where most is to be expected of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from workbench.errors import DataError
from workbench.features.inputs import Term, evaluate, log_terms
from workbench.models.base import Floats, Problem, targets
from workbench.models.medians import MedianLaw, medians

if TYPE_CHECKING:
    import torch
    from gpytorch.kernels import Kernel

__all__ = ["Asked", "ScheduleProcess", "fit_process"]

# Rows that the hyperparameters are fitted to, at most, and steps of the fit: the marginal likelihood takes time with the cube of the rows.
_FITTED, _STEPS = 300, 60
# A schedule so many times (as a logarithm) slower than the median of its size tells nothing more of the fast ones; its time is cut there.
_SLOWEST = 2.0
# Variance of the level of a size: as good as unknown, a factor of e^2 either way.
_LEVEL = 4.0
# Most rows of a kernel matrix that are made at once.
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class ScheduleProcess:
    """The process, fitted to measured schedules.

    Attributes:
        terms: its inputs: the knobs', then the sizes'.
        centre, scale: of the inputs.
        kernel: covariance of log time.
        noise: variance of log time from one measurement to the next.
        inputs: of what was measured [rows, terms].
        labels: log of seconds over the median of the size [rows], cut above.
        law: the medians.
    """

    terms: tuple[Term, ...]
    centre: Floats
    scale: Floats
    kernel: Kernel
    noise: float
    inputs: torch.Tensor
    labels: torch.Tensor
    law: MedianLaw

    def ask(self, frame: pd.DataFrame) -> Asked:
        """What the process says of schedules, before it is told of any of them; `frame` [n] has the knobs and sizes as columns, all of one size."""
        return Asked(self, frame)

    def scaled(self, frame: pd.DataFrame) -> torch.Tensor:
        """Inputs [n, terms] of rows."""
        import torch

        return torch.from_numpy((evaluate(frame, self.terms) - self.centre) / self.scale)


@dataclass(eq=False)
class Asked:
    """What the process says of some schedules of one size, and learns from those that are measured.

    Args:
        process: fitted.
        frame: the schedules [n].
    """

    process: ScheduleProcess
    frame: pd.DataFrame

    def __post_init__(self) -> None:
        import torch

        process = self.process
        self._at = process.scaled(self.frame)
        self._level = process.law.log_seconds(self.frame)
        with torch.no_grad():
            self._factor = torch.linalg.cholesky(process.kernel(process.inputs).to_dense() + process.noise * torch.eye(len(process.labels)))
            # What each measured row explains of each schedule [rows, n]; a row is added for each measurement that is told.
            parts = [torch.linalg.solve_triangular(self._factor, self._across(process.inputs, part), upper=False) for part in self._at.split(_CHUNK)]
            self._explained = torch.cat(parts, dim=1)
            self._whitened = torch.linalg.solve_triangular(self._factor, process.labels[:, None], upper=False)[:, 0]
            self._prior = process.kernel(self._at, diag=True)

    def _across(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.process.kernel(left, right).to_dense()
        return found

    @property
    def mean(self) -> Floats:
        """Log of the seconds of each schedule [n]."""
        found: Floats = (self._whitened @ self._explained).numpy() + self._level
        return found

    @property
    def std(self) -> Floats:
        """Its standard deviation [n], without noise: of a schedule itself, not of one more measurement."""
        found: Floats = (self._prior - self._explained.square().sum(dim=0)).clamp_min(1e-9).sqrt().numpy()
        return found

    def tell(self, place: int, seconds: float) -> None:
        """A schedule was measured. Raises DataError for a time that is none."""
        import torch

        if not (np.isfinite(seconds) and seconds > 0):
            raise DataError(f"schedule {place} took {seconds!r} s, which is no time; a failure is not told")
        label = float(np.log(seconds) - self._level[place])
        with torch.no_grad():
            # The factor of the kernel matrix grows by a row, and with it what is kept of it.
            row = self._explained[:, place]
            left = (self._prior[place] + self.process.noise - row @ row).clamp_min(1e-9).sqrt()
            at = self._at[place : place + 1]
            added = torch.cat([self._across(at, part)[0] for part in self._at.split(_CHUNK)])
            added = (added - row @ self._explained) / left
            value = (label - row @ self._whitened) / left
            self._explained = torch.cat([self._explained, added[None]])
            self._whitened = torch.cat([self._whitened, value[None]])

    def improvement(self, best_s: float) -> Floats:
        """Expected fall of log time below that of the best so far [n]."""
        from scipy.stats import norm

        mean, std = self.mean, self.std
        by = (np.log(best_s) - mean) / std
        found: Floats = std * (by * norm.cdf(by) + norm.pdf(by))
        return found


def fit_process(problem: Problem, seed: int = 0) -> ScheduleProcess:
    """Fit the hyperparameters by marginal likelihood, with priors, and condition on all rows.

    Args:
        problem: a data set of schedules, and the rows to learn from.
        seed: of the rows that the hyperparameters are fitted to, where there are many.

    Raises:
        DataError: a row without a time, or an input that is no number.
    """
    import torch

    dataset, rows = problem
    seconds, frame = targets(dataset, rows), dataset.frame.iloc[rows]
    terms = tuple(log_terms(dataset, complexity=False))
    knobs = [place for place, term in enumerate(terms) if term.column in dataset.knobs]
    sizes = [place for place, term in enumerate(terms) if term.column not in dataset.knobs]
    values = evaluate(frame, terms)
    spread = values.std(axis=0)
    spread[sizes] = 1.0  # a factor of two is one step, whatever sizes were measured
    inputs = torch.from_numpy((values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
    labels = torch.from_numpy(np.minimum(np.log(seconds / medians(dataset, rows)), _SLOWEST))
    kernel, noise = _fitted(inputs, labels, knobs, sizes, seed)
    law = MedianLaw.fit(dataset, rows)
    return ScheduleProcess(terms, values.mean(axis=0), np.where(spread > 0, spread, 1.0), kernel, noise, inputs, labels, law)


def _fitted(inputs: torch.Tensor, labels: torch.Tensor, knobs: Sequence[int], sizes: Sequence[int], seed: int) -> tuple[Kernel, float]:
    import torch
    from botorch import settings
    from botorch.exceptions.errors import ModelFittingError
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim.fit import fit_gpytorch_mll_scipy
    from gpytorch.means import ZeroMean
    from gpytorch.mlls import ExactMarginalLogLikelihood

    some = torch.from_numpy(np.random.default_rng(seed).permutation(len(labels))[:_FITTED])
    with settings.validate_input_scaling(False), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        gp = SingleTaskGP(inputs[some], labels[some, None], covar_module=_kernel(knobs, sizes), mean_module=ZeroMean(), outcome_transform=None)
        start = {name: value.clone() for name, value in gp.state_dict().items()}
        try:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp), optimizer=fit_gpytorch_mll_scipy, optimizer_kwargs={"options": {"maxiter": _STEPS}})
        except ModelFittingError:
            gp.load_state_dict(start)  # where the priors are highest
        gp.eval()
    return gp.covar_module, float(gp.likelihood.noise)


def _kernel(knobs: Sequence[int], sizes: Sequence[int]) -> Kernel:
    """Of a schedule on any size, of a schedule on near sizes, and of a size."""
    from gpytorch.kernels import MaternKernel, ScaleKernel
    from gpytorch.priors import LogNormalPrior

    schedule = MaternKernel(2.5, ard_num_dims=len(knobs), active_dims=tuple(knobs), lengthscale_prior=LogNormalPrior(math.log(2), 1.0))
    near = MaternKernel(0.5, active_dims=tuple(sizes), lengthscale_prior=LogNormalPrior(math.log(2), 0.7))
    # A length far below the distance of any two sizes: sizes have nothing in common here.
    level = ScaleKernel(MaternKernel(0.5, active_dims=tuple(sizes)))
    level.outputscale, level.base_kernel.lengthscale = _LEVEL, 1e-4
    level.requires_grad_(False)
    schedule.lengthscale, near.lengthscale = 2.0, 2.0
    shared, apart = (ScaleKernel(part, outputscale_prior=LogNormalPrior(math.log(0.05), 2.0)) for part in (schedule, schedule * near))
    shared.outputscale, apart.outputscale = 0.05, 0.05
    return (shared + apart + level).double()
