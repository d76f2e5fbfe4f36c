"""Batch Bayesian optimisation: a Gaussian process over the knobs corrects the cost model, and a batch is chosen by Monte-Carlo acquisition.

The acquisitions are qEI and qUCB of Wilson et al. (2017), on samples of the joint posterior of all candidates that are looked at.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.errors import UsageError
from workbench.models.surrogate import Adapted, Trials
from workbench.tune.search import Candidates, Indices, Search

if TYPE_CHECKING:
    import torch
    from botorch.models import SingleTaskGP
    from botorch.posteriors.gpytorch import GPyTorchPosterior

__all__ = ["BatchBO", "choose_batch", "error_posterior"]

Floats = NDArray[np.float64]

_FIRST = 2048  # configurations of a space too large to be looked at whole that are drawn before neighbours are looked at
_CLIMBS = 8  # rounds of neighbours of the best predicted
_PARENTS = 64  # of a round, each with
_CHILDREN = 8
_SPREAD = 0.2  # standard deviation of a cost model's error before anything is measured, as a share of the best
_LEAST_SPREAD = 0.02  # and the least that is believed: a cost model may know by heart what it was told
_OBSERVED = 256  # trials that the Gaussian process is conditioned on, the latest
_FIT_STEPS = 40


@dataclass(eq=False)
class BatchBO(Search):
    """A batch by Bayesian optimisation over discrete candidates.

    The cost model's estimate is the mean of a Gaussian process over the space's coordinates; what was measured, less that estimate, is what the process is
    conditioned on. So each query of the cost model counts everywhere, and a measurement near where it was made. How fast throughput varies with each knob is
    fitted to the measurements; how wrong the cost model is, is what it was about the trials when it proposed them, before it learnt from them. The candidates
    are those that the cost model ranks first and some by chance, of a table or, in a space too large to be looked at whole, of a sample and neighbours of its
    best. The batch is chosen one by one, each the one that adds most to the acquisition of those before it. Before anything is known it is drawn by chance.

    Args:
        acquisition: "ei", expected improvement over the best so far, or "ucb", upper confidence bound, of the batch's best.
        beta: weight of the variance in "ucb".
        looked_at: candidates of which the batch is chosen.
        by_chance: share of them that is drawn by chance. With xgb on Kernel Tuner's RTX 2080 Ti and A4000 half did better than an eighth on both, and than
            four fifths on one of them.
        samples: of the posterior.

    Attributes:
        predicted: configurations that the last round asked the cost model about.
    """

    acquisition: Literal["ei", "ucb"] = "ucb"
    beta: float = 0.2
    looked_at: int = 512
    by_chance: float = 0.5
    samples: int = 512
    predicted: int = field(default=0, init=False)
    _said: dict[int, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.acquisition not in ("ei", "ucb"):
            raise UsageError(f"no acquisition {self.acquisition!r}; there are 'ei' and 'ucb'")

    def propose(self, model: Adapted, candidates: Candidates, trials: Trials, count: int, rng: np.random.Generator) -> Indices:
        """See `Search`."""
        found, mean = self._prefiltered(model, candidates, max(self.looked_at, count), rng)
        if len(found) <= count:
            return found
        if not len(trials) and np.ptp(mean) == 0:
            return candidates.sample(count, rng)
        space, seed = candidates.space, int(rng.integers(2**31))
        told, label = trials.indices[-_OBSERVED:], trials.label[-_OBSERVED:]
        residual = label - np.nan_to_num(model.predict(told).mean) if len(told) else np.empty(0)
        spread = self._error(told, label, residual)
        posterior = error_posterior(space.coordinates(told), label, residual / spread, space.coordinates(found), seed)
        best = float(trials.best > 0)  # relative throughput is over it
        chosen = choose_batch(posterior, spread, mean, best, count, self.acquisition, self.beta, self.samples, seed)
        self._said |= zip(found[chosen].tolist(), mean[chosen].tolist(), strict=True)
        return found[chosen]

    def _error(self, told: Indices, label: Floats, residual: Floats) -> float:
        # Root mean square of the cost model's errors, of those that it made before it was told where there are any.
        before = np.array([self._said.get(index, np.nan) for index in told.tolist()])
        known = np.isfinite(before)
        errors = label[known] - before[known] if known.any() else residual
        return max(float(np.sqrt((errors**2).mean())), _LEAST_SPREAD) if len(errors) else _SPREAD

    def _prefiltered(self, model: Adapted, candidates: Candidates, wanted: int, rng: np.random.Generator) -> tuple[Indices, Floats]:
        # Candidates and what the model says of them, the best predicted first.
        looked_at = candidates.all()
        climbs = 0
        if looked_at is None:
            looked_at, climbs = candidates.sample(_FIRST, rng), _CLIMBS
        looked_at = rng.permutation(looked_at)  # equal ones by chance
        mean = _means(model, looked_at)
        for _ in range(climbs):
            best = looked_at[np.argsort(-mean, kind="stable")[:_PARENTS]]
            near = np.unique(candidates.space.random_neighbours(np.repeat(best, _CHILDREN), rng))
            near = near[candidates.allowed(near) & ~np.isin(near, looked_at)]
            looked_at, mean = np.concatenate([looked_at, near]), np.concatenate([mean, _means(model, near)])
        self.predicted = len(looked_at)
        order = np.argsort(-mean, kind="stable")
        if len(order) > wanted:
            ranked = wanted - int(self.by_chance * wanted)
            drawn = rng.choice(np.arange(ranked, len(order)), wanted - ranked, replace=False)
            order = np.concatenate([order[:ranked], order[np.sort(drawn)]])
        return looked_at[order], mean[order]


def _means(model: Adapted, indices: Indices) -> Floats:
    # A prediction that is no number ranks last.
    return np.nan_to_num(model.predict(indices).mean, nan=-1.0) if len(indices) else np.empty(0)


def error_posterior(points: Floats, label: Floats, error: Floats, wanted: Floats, seed: int = 0) -> GPyTorchPosterior:
    """The posterior of a cost model's error at points, given its errors at others.

    The process is one of mean 0 and variance 1 with botorch's default kernel, a squared exponential with a length scale a column; scales and noise are those
    that botorch fits to the labels, with its priors.

    Args:
        points: coordinates [n, columns] of what was measured; n may be 0.
        label: relative throughput of each [n].
        error: of the cost model at each, over its spread [n].
        wanted: coordinates [m, columns].
        seed: of restarts, where a fit fails.

    Returns:
        The joint posterior at the m points.
    """
    import torch
    from botorch import settings
    from botorch.models import SingleTaskGP
    from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
    from botorch.posteriors.gpytorch import GPyTorchPosterior
    from gpytorch.distributions import MultivariateNormal
    from gpytorch.means import ZeroMean

    at = torch.from_numpy(wanted)
    if not len(label):
        kernel = get_covar_module_with_dim_scaled_prior(ard_num_dims=wanted.shape[1]).double()
        with torch.no_grad():
            return GPyTorchPosterior(MultivariateNormal(torch.zeros(len(at), dtype=torch.float64), kernel(at)))
    standard = (label - label.mean()) / (label.std() or 1.0)
    with settings.validate_input_scaling(False), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        gp = SingleTaskGP(torch.from_numpy(points), torch.from_numpy(standard)[:, None], outcome_transform=None)
        _fit(gp)
        gp.mean_module = ZeroMean()
        SingleTaskGP.set_train_data(gp, targets=torch.from_numpy(error), strict=False)
        with torch.no_grad():
            posterior = gp.posterior(at)
        assert isinstance(posterior, GPyTorchPosterior)  # of another kind where outcomes are transformed
        return posterior


def _fit(gp: SingleTaskGP) -> None:
    from botorch.exceptions.errors import ModelFittingError
    from botorch.fit import fit_gpytorch_mll
    from botorch.optim.fit import fit_gpytorch_mll_scipy
    from gpytorch.mlls import ExactMarginalLogLikelihood

    likelihood = ExactMarginalLogLikelihood(gp.likelihood, gp)
    start = {name: value.clone() for name, value in gp.state_dict().items()}
    try:
        fit_gpytorch_mll(likelihood, optimizer=fit_gpytorch_mll_scipy, optimizer_kwargs={"options": {"maxiter": _FIT_STEPS}})
    except ModelFittingError:
        gp.load_state_dict(start)  # the priors' modes
        gp.eval()


def choose_batch(
    posterior: GPyTorchPosterior,
    spread: float,
    mean: Floats,
    best: float,
    count: int,
    acquisition: Literal["ei", "ucb"],
    beta: float,
    samples: int,
    seed: int,
) -> Indices:
    """Places of `count` of the m candidates, chosen one by one; equal ones by their mean.

    All share samples of the joint posterior, so that adding one to the batch is a maximum a sample: nothing is conditioned or factored again. Botorch's
    `optimize_acqf_discrete` draws anew for each size of the batch and chooses the same, but for the error of the samples.

    Args:
        posterior, spread: of the cost model's error, over the spread.
        mean: the cost model's estimates [m].
        best: relative throughput of the best so far.
    """
    import torch
    from botorch.sampling.normal import SobolQMCNormalSampler
    from linear_operator.utils.warnings import NumericalWarning

    with torch.no_grad(), warnings.catch_warnings():
        # Candidates close to each other: what is added to the diagonal is far below the spread.
        warnings.simplefilter("ignore", NumericalWarning)
        drawn = SobolQMCNormalSampler(torch.Size([samples]), seed=seed)(posterior)[..., 0] * spread
        centre = torch.from_numpy(mean)
        if acquisition == "ei":
            values = drawn + centre
            reached = torch.full((samples, 1), best, dtype=torch.float64)
        else:
            error = drawn.mean(dim=0)
            values = centre + error + (beta * torch.pi / 2) ** 0.5 * (drawn - error).abs()
            reached = torch.full((samples, 1), -torch.inf, dtype=torch.float64)
        # Where no candidate adds anything, as after many of a certain posterior, those of the highest mean go first.
        order = (centre + posterior.mean[:, 0] * spread).argsort(descending=True, stable=True)
        chosen = _greedy(values.T[order].contiguous(), reached[:, 0], count)
        return order.numpy()[chosen]


def _greedy(values: torch.Tensor, reached: torch.Tensor, count: int) -> Indices:
    # `values` [candidates, samples]: those that raise the mean over samples of the batch's maximum most.
    chosen = np.empty(count, dtype=np.int64)
    free = values.new_zeros(len(values))
    for place in range(count):
        gain = values.clamp_min(reached).mean(dim=1) + free
        chosen[place] = best = int(gain.argmax())
        reached = values[best].maximum(reached)
        free[best] = -float("inf")
    return chosen
