"""A Gaussian process over schedules and sizes: what a schedule may take on a size that few or none were measured on, and how sure that is.

A network of a few weights says how schedules do on average over sizes; that the very schedules that were fast on one size are fast on the next, unless a cache
overflows between them, it does not know. The process does: log time is a function of the schedule that all sizes share, plus one that near sizes share, plus a
level of each size. Told of a few measurements it learns which of them holds here, so that each next one goes where most is to be expected of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
# The least variance and the shortest length: below it is rounding.
_LEAST, _SHORTEST = 1e-9, 1e-3
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
        law: of the median schedule.
        medians: values of the sizes that were measured -> log of the median's seconds.
    """

    terms: tuple[Term, ...]
    centre: Floats
    scale: Floats
    kernel: Kernel
    noise: float
    inputs: torch.Tensor
    labels: torch.Tensor
    law: MedianLaw
    medians: Mapping[tuple[float, ...], float]

    def ask(self, frame: pd.DataFrame) -> Asked:
        """What the process says of schedules, before it is told of any of them; `frame` [n] has the knobs and sizes as columns, all of one size."""
        return Asked(self, frame)

    def log_median(self, frame: pd.DataFrame) -> Floats:
        """Log of the seconds of the median schedule at each row [n]: as it was measured, else by the law, which only the level of a new size makes up for."""
        sizes = frame[list(self.law.parameters)].itertuples(index=False, name=None)
        return np.array([self.medians.get(size, by_law) for size, by_law in zip(sizes, self.law.log_seconds(frame), strict=True)])

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
        from linear_operator.utils.cholesky import psd_safe_cholesky

        process = self.process
        self._at = process.scaled(self.frame)
        self._level = process.log_median(self.frame)
        with torch.no_grad():
            noisy = process.kernel(process.inputs).to_dense() + process.noise * torch.eye(len(process.labels), dtype=torch.float64)
            factor = psd_safe_cholesky(noisy)  # adds 1e-8 and more where rounding leaves the matrix indefinite
            # What each measured row explains of each schedule [rows, n], and the same of each measurement that is told.
            parts = [torch.linalg.solve_triangular(factor, self._across(process.inputs, part), upper=False) for part in self._at.split(_CHUNK)]
            self._explained = torch.cat(parts, dim=1)
            self._told = self._explained[:0]
            whitened = torch.linalg.solve_triangular(factor, process.labels[:, None], upper=False)[:, 0]
            self._mean = whitened @ self._explained
            self._prior = self._across(self._at[:1], self._at[:1])[0, 0]  # of any schedule: the kernel looks at differences only
            self._variance = self._prior - self._explained.square().sum(dim=0)

    def _across(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.process.kernel(left, right).to_dense()
        return found

    @property
    def mean(self) -> Floats:
        """Log of the seconds of each schedule [n]."""
        found: Floats = self._mean.numpy() + self._level
        return found

    @property
    def std(self) -> Floats:
        """Its standard deviation [n], without noise: of a schedule itself, not of one more measurement."""
        found: Floats = self._variance.clamp_min(_LEAST).sqrt().numpy()
        return found

    def tell(self, place: int, seconds: float) -> None:
        """A schedule was measured. Raises DataError for a time that is none."""
        import torch

        if not (np.isfinite(seconds) and seconds > 0):
            raise DataError(f"schedule {place} took {seconds!r} s, which is no time; a failure is not told")
        label = float(np.log(seconds) - self._level[place])
        with torch.no_grad():
            # The factor of the kernel matrix grows by a row: what this measurement explains of each schedule that those before it did not.
            left = (self._variance[place].clamp_min(_LEAST) + self.process.noise).sqrt()
            at = self._at[place : place + 1]
            shared = torch.cat([self._across(at, part)[0] for part in self._at.split(_CHUNK)])
            added = (shared - self._explained[:, place] @ self._explained - self._told[:, place] @ self._told) / left
            self._mean = self._mean + added * (label - self._mean[place]) / left
            self._variance = self._variance - added.square()
            self._told = torch.cat([self._told, added[None]])

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
    centre, scale = values.mean(axis=0), values.std(axis=0)
    scale[sizes] = 1.0  # a factor of two is one step, whatever sizes were measured
    scale[scale < 1e-9] = 1.0  # a knob that never varies, but for rounding
    inputs = torch.from_numpy((values - centre) / scale)
    typical = medians(dataset, rows)
    labels = torch.from_numpy(np.minimum(np.log(seconds / typical), _SLOWEST))
    kernel, noise = _fitted(inputs, labels, knobs, sizes, seed)
    measured = dict(zip(frame[list(dataset.parameters)].itertuples(index=False, name=None), np.log(typical).tolist(), strict=True))
    return ScheduleProcess(terms, centre, scale, kernel, noise, inputs, labels, MedianLaw.fit(dataset, rows), measured)


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
        except (ModelFittingError, ValueError):  # the latter where a step leaves the support of a prior
            gp.load_state_dict(start)  # where the priors are highest
    gp.requires_grad_(False)
    return gp.covar_module, float(gp.likelihood.noise)


def _kernel(knobs: Sequence[int], sizes: Sequence[int]) -> Kernel:
    """Of a schedule on any size, of a schedule on near sizes, and of a size."""
    from botorch.models.kernels.categorical import CategoricalKernel
    from gpytorch.constraints import GreaterThan
    from gpytorch.kernels import MaternKernel, ScaleKernel
    from gpytorch.priors import LogNormalPrior

    # Rounding would make 0, where the priors have no density, of what goes towards it.
    length, variance = GreaterThan(_SHORTEST), GreaterThan(_LEAST)
    schedule = MaternKernel(
        2.5, ard_num_dims=len(knobs), active_dims=tuple(knobs), lengthscale_prior=LogNormalPrior(math.log(2), 1.0), lengthscale_constraint=length
    )
    near = MaternKernel(0.5, active_dims=tuple(sizes), lengthscale_prior=LogNormalPrior(math.log(2), 0.7), lengthscale_constraint=length)
    # 1 for equal sizes, exp(-1000) for others: they have nothing in common here.
    level = ScaleKernel(CategoricalKernel(active_dims=tuple(sizes)))
    level.outputscale, level.base_kernel.lengthscale = _LEVEL, 1e-3
    level.requires_grad_(False)
    schedule.lengthscale, near.lengthscale = 2.0, 2.0
    shared, apart = (
        ScaleKernel(part, outputscale_prior=LogNormalPrior(math.log(0.05), 2.0), outputscale_constraint=variance) for part in (schedule, schedule * near)
    )
    shared.outputscale, apart.outputscale = 0.05, 0.05
    return (shared + apart + level).double()
