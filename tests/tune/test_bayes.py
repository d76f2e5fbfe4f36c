"""Batch Bayesian optimisation on invented (synthetic) problems: the batch beside botorch's own, the posterior by hand, and what it corrects in a cost model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import smooth_space as problem
import torch
from botorch.acquisition import qExpectedImprovement, qUpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf_discrete
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.means import ZeroMean

from workbench.errors import UsageError
from workbench.models.surrogate import Estimate, Trials
from workbench.tune.bayes import BatchBO, _fit, choose_batch, error_posterior
from workbench.tune.search import Candidates

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.NumericsWarning", "ignore::botorch.exceptions.warnings.InputDataWarning")


def small_problem(seed: int, rows: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    points = rng.random((rows, 2))
    return points, 0.3 * np.sin(5 * points[:, 0]) * np.cos(3 * points[:, 1]), rng.random((14, 2))


def fitted(points: np.ndarray, standard: np.ndarray) -> SingleTaskGP:
    gp = SingleTaskGP(torch.from_numpy(points), torch.from_numpy(standard)[:, None], outcome_transform=None)
    _fit(gp)
    gp.mean_module = ZeroMean()
    return gp


@pytest.mark.parametrize("acquisition", ["ei", "ucb"])
@pytest.mark.parametrize("seed", range(3))
def test_the_batch_is_botorchs(acquisition: str, seed: int) -> None:
    """By botorch's own acquisition with other samples ours is as good; one by one it is the same while the acquisition tells candidates apart."""
    points, residual, wanted = small_problem(seed)
    spread, standard = float(residual.std()), (residual - residual.mean()) / residual.std()
    posterior = error_posterior(points, residual, standard, wanted)
    gp = fitted(points, standard)
    best = float(residual.max())

    def acquired(seed: int) -> Any:
        sampler = SobolQMCNormalSampler(torch.Size([2048]), seed=seed)
        if acquisition == "ei":
            return qExpectedImprovement(gp, best_f=best / spread, sampler=sampler)
        return qUpperConfidenceBound(gp, beta=0.2, sampler=sampler)

    ours = choose_batch(posterior, spread, np.zeros(len(wanted)), best, 4, acquisition, 0.2, 2048, seed=1)  # type: ignore[arg-type]
    theirs, _ = optimize_acqf_discrete(acquired(2), q=4, choices=torch.from_numpy(wanted))
    places = [int(np.abs(wanted - row).sum(axis=1).argmin()) for row in theirs.numpy()]
    assert ours[:2].tolist() == places[:2]
    with torch.no_grad():
        judged = acquired(3)
        ours_value, theirs_value = (float(judged(torch.from_numpy(wanted[chosen]))) for chosen in (ours, places))
    assert ours_value >= theirs_value - 0.01 * abs(theirs_value)


def test_the_greedy_batch_by_hand() -> None:
    from workbench.tune.bayes import _greedy

    # The second is best on average; then the first adds 4 in one sample, the third 1 in another; the fourth adds nothing.
    values = torch.tensor([[8.0, 0.0, 0.0], [4.0, 4.0, 4.0], [0.0, 5.0, 0.0], [3.0, 3.0, 3.0]])
    assert _greedy(values, torch.full((3,), -torch.inf), 4).tolist() == [1, 0, 2, 3]


def test_the_posterior_is_the_gaussian_process_of_the_errors() -> None:
    """Scales of the labels, values of the errors."""
    points, label, wanted = small_problem(0)
    error = np.random.default_rng(1).standard_normal(len(points))
    posterior = error_posterior(points, label, error, wanted)
    gp = fitted(points, (label - label.mean()) / label.std())
    with torch.no_grad():
        within = gp.covar_module(torch.from_numpy(points)).to_dense().numpy() + float(gp.likelihood.noise) * np.eye(len(points))
        across = gp.covar_module(torch.from_numpy(wanted), torch.from_numpy(points)).to_dense().numpy()
        prior = gp.covar_module(torch.from_numpy(wanted)).to_dense().numpy()
    np.testing.assert_allclose(posterior.mean[:, 0].numpy(), across @ np.linalg.solve(within, error), atol=1e-5)
    covariance = prior - across @ np.linalg.solve(within, across.T)
    np.testing.assert_allclose(posterior.variance[:, 0].numpy(), np.diag(covariance), atol=1e-5)


def test_the_spread_is_the_error_before_the_model_was_told() -> None:
    """A model that repeats what it was told has no errors left, and yet it was wrong."""
    candidates, rng = problem.dense(), np.random.default_rng(0)
    oracle, search = problem.oracle_of(candidates), BatchBO(samples=64)

    class Parrot(problem.Ignorant):
        def __init__(self) -> None:
            self.told: dict[int, float] = {}

        def predict(self, indices):
            mean = np.array([self.told.get(index, 0.3 + index % 7 / 100) for index in np.asarray(indices).tolist()])
            return Estimate(mean, np.full(len(mean), np.nan))

    model = Parrot()
    asked = search.propose(model, candidates, Trials.none(), 16, rng)
    trials = problem.measured(oracle, Trials.none(), asked)
    expected = math.sqrt(np.mean((trials.label - model.predict(asked).mean) ** 2))
    model.told = dict(zip(asked.tolist(), trials.label.tolist(), strict=True))
    residual = trials.label - model.predict(asked).mean
    assert not residual.any()
    assert search._error(asked, trials.label, residual) == pytest.approx(expected)
    # Of trials that it did not propose there are the errors that are left, and before any a share of the best.
    assert BatchBO()._error(asked, trials.label, residual + 0.1) == pytest.approx(0.1)
    assert BatchBO()._error(asked[:0], trials.label[:0], residual[:0]) == 0.2


def test_before_anything_is_known_a_batch_is_drawn_by_chance() -> None:
    candidates = problem.dense()
    found = BatchBO().propose(problem.Ignorant(), candidates, Trials.none(), 64, np.random.default_rng(0))
    assert abs(candidates.space.coordinates(found).mean() - candidates.space.coordinates(candidates.all()).mean()) < 0.05


def test_measurements_correct_the_cost_model_where_they_were_made() -> None:
    """A model that promises too much in the worse half of a space is followed there no more once it was measured."""
    candidates = problem.dense()
    oracle = problem.oracle_of(candidates)
    better = candidates.space.config(oracle.top)["d"]

    class Wrong(problem.Oracle):
        def predict(self, indices):
            given = np.asarray(indices)
            said = super().predict(given).mean
            return Estimate(np.where(candidates.space.decode(given)["d"] != better, said + 1, said), np.full(len(given), np.nan))

    model, rng = Wrong(candidates.space, oracle.top), np.random.default_rng(0)
    first = BatchBO().propose(model, candidates, Trials.none(), 16, rng)
    assert (candidates.space.decode(first)["d"] != better).all()
    candidates.tried(first)
    told = np.concatenate([first, candidates.sample(64, rng)])
    trials = problem.measured(oracle, Trials.none(), told)
    second = BatchBO(by_chance=0.5).propose(model, candidates, trials, 16, rng)
    assert (candidates.space.decode(second)["d"] == better).sum() >= 12
    greedy = np.argsort(-model.predict(candidates.all()).mean)[:16]
    assert (candidates.space.decode(candidates.all()[greedy])["d"] != better).all()


def test_candidates_are_the_best_predicted_and_some_by_chance() -> None:
    candidates = problem.dense()
    oracle, search = problem.oracle_of(candidates), BatchBO(looked_at=100, by_chance=0.2)
    found, mean = search._prefiltered(oracle, candidates, 100, np.random.default_rng(0))
    assert len(set(found.tolist())) == 100
    np.testing.assert_allclose(mean, oracle.truth(found))
    assert (np.diff(mean) <= 0).all()
    everything = np.sort(oracle.truth(candidates.all()))[::-1]
    np.testing.assert_allclose(mean[:80], everything[:80])
    assert everything[80:].mean() - 0.1 < mean[80:].mean() < everything[80:].mean() + 0.1
    assert search.predicted == candidates.left


def test_in_a_large_space_few_queries_find_better_candidates_than_a_sample() -> None:
    candidates = problem.live()
    oracle, search, rng = problem.oracle_of(candidates), BatchBO(), np.random.default_rng(0)
    found, _ = search._prefiltered(oracle, candidates, 512, rng)
    assert search.predicted == len(oracle.asked) == len(set(oracle.asked)) < 2048 + 8 * 512 + 1
    sampled = np.sort(oracle.truth(candidates.sample(search.predicted, rng)))[::-1]
    assert oracle.truth(found)[:64].mean() > sampled[:64].mean() + 0.1


def test_nothing_but_the_search_is_seeded() -> None:
    before = torch.random.get_rng_state()
    candidates = problem.dense()
    oracle = problem.oracle_of(candidates)
    trials = problem.measured(oracle, Trials.none(), candidates.sample(20, np.random.default_rng(0)))
    BatchBO().propose(oracle, candidates, trials, 8, np.random.default_rng(0))
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_fit_that_fails_leaves_the_priors(monkeypatch: pytest.MonkeyPatch) -> None:
    import botorch.fit
    from botorch.exceptions import ModelFittingError

    def fails(*args: Any, **kwargs: Any) -> None:
        raise ModelFittingError("no attempt succeeded")

    monkeypatch.setattr(botorch.fit, "fit_gpytorch_mll", fails)
    points, residual, wanted = small_problem(0)
    posterior = error_posterior(points, residual, residual, wanted)
    assert torch.isfinite(posterior.mean).all()
    assert (posterior.variance > 0).all()


def test_an_unknown_acquisition_is_refused() -> None:
    with pytest.raises(UsageError, match="'kg'; there are 'ei' and 'ucb'"):
        BatchBO(acquisition="kg")  # type: ignore[arg-type]


def test_more_than_the_candidates_that_are_left() -> None:
    candidates = Candidates(problem.DENSE, problem.DENSE.sample(5, 0))
    found = BatchBO().propose(problem.Ignorant(), candidates, Trials.none(), 8, np.random.default_rng(0))
    assert sorted(found.tolist()) == candidates.pool.tolist()
