"""A batch of 64 by each search with a cheap cost model (synthetic), so that the search's own time shows; Bayesian optimisation beside botorch's own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tune"))
import smooth_space as problem

from workbench.models.surrogate import Estimate, Trials
from workbench.tune.annealing import Annealing
from workbench.tune.bayes import BatchBO, _fit, choose_batch, error_posterior
from workbench.tune.policy import PolicySearch
from workbench.tune.search import Candidates, Greedy, Search

BATCH, TRIALS = 64, 128


class Clocked(problem.Oracle):
    """The seconds in the model are told from those of the search."""

    seconds = 0.0

    def predict(self, indices: Any) -> Estimate:
        began = time.process_time()
        said = super().predict(indices)
        self.seconds += time.process_time() - began
        return said


def table() -> Candidates:
    """6,768 rows of a space of 16,896, as many as Kernel Tuner's convolution has."""
    space = problem.Space("table", (problem.Split("a", 64, 3), problem.Split("b", 64, 2), *(problem.Choice(f"c{i}", (0, 1)) for i in range(6))))
    return Candidates(space, space.sample(6768, 0))


def rounds(search: Search, candidates: Candidates, seed: int = 0) -> tuple[float, float]:
    """CPU seconds of one more batch after 128 trials, of search and of model."""
    rng = np.random.default_rng(seed)
    hill = problem.oracle_of(candidates, seed)
    model, trials = Clocked(candidates.space, hill.top), Trials.none()
    for _ in range(TRIALS // BATCH):
        asked = search.propose(model, candidates, trials, BATCH, rng)
        candidates.tried(asked)
        trials = problem.measured(hill, trials, asked)
    model.seconds, began = 0.0, time.process_time()
    found = search.propose(model, candidates, trials, BATCH, rng)
    assert len(found) == BATCH
    return time.process_time() - began - model.seconds, model.seconds


@pytest.mark.parametrize("kind", ["live", "table", "sparse"])
@pytest.mark.parametrize(("name", "limit_s"), [("greedy", 0.1), ("annealing", 0.1), ("bayes", 5.0), ("policy", 5.0)])
def test_a_batch(name: str, limit_s: float, kind: str) -> None:
    torch.set_num_threads(1)
    searches: dict[str, Callable[[], Search]] = {"greedy": Greedy, "annealing": Annealing, "bayes": BatchBO, "policy": partial(PolicySearch, adaptive=False)}
    candidates = {"live": problem.live, "table": table, "sparse": problem.sparse}[kind]
    searched, modelled = zip(*(rounds(searches[name](), candidates(), seed) for seed in range(3)), strict=True)
    ours, model = float(np.median(searched)), float(np.median(modelled))
    print(f"\n{name}, {kind}: {ours * 1e3:.0f} ms of CPU time in the search, {model * 1e3:.1f} ms in the model")
    assert ours < limit_s


@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")
def test_a_batch_beside_botorch() -> None:
    """The same posterior, candidates and number of samples: 16 of 512 by qUCB."""
    from botorch.acquisition import qUpperConfidenceBound
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf_discrete
    from botorch.sampling import SobolQMCNormalSampler
    from gpytorch.means import ZeroMean

    torch.set_num_threads(1)
    count, samples = 16, 256
    rng = np.random.default_rng(0)
    points, wanted = rng.random((64, 8)), rng.random((512, 8))
    residual = 0.3 * np.sin(5 * points[:, 0]) * np.cos(3 * points[:, 1])
    spread, standard = float(residual.std()), (residual - residual.mean()) / residual.std()
    posterior = error_posterior(points, residual, standard, wanted)
    began = time.process_time()
    ours = choose_batch(posterior, spread, np.zeros(512), 1.0, count, "ucb", 0.2, samples, 0)
    ours_s = time.process_time() - began
    gp = SingleTaskGP(torch.from_numpy(points), torch.from_numpy(standard)[:, None], outcome_transform=None)
    _fit(gp)
    gp.mean_module = ZeroMean()

    def acquired(seed: int, samples: int) -> Any:
        return qUpperConfidenceBound(gp, beta=0.2, sampler=SobolQMCNormalSampler(torch.Size([samples]), seed=seed))

    began = time.process_time()
    theirs, _ = optimize_acqf_discrete(acquired(0, samples), q=count, choices=torch.from_numpy(wanted))
    theirs_s = time.process_time() - began
    judged = acquired(1, 4096)
    with torch.no_grad():
        values = [float(judged(batch)) for batch in (torch.from_numpy(wanted[ours]), theirs)]
    print(f"\n{count} of 512: {ours_s * 1e3:.0f} ms, optimize_acqf_discrete {theirs_s * 1e3:.0f} ms: {theirs_s / ours_s:.0f} times faster")
    print(f"by botorch's qUCB with 4,096 other samples {values[0]:.4f} and {values[1]:.4f}")
    assert values[0] >= values[1] - 0.01 * abs(values[1])
    assert theirs_s > 5 * ours_s
