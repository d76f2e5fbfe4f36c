"""What holds of every search algorithm, on an invented (synthetic) problem: in a space too large to look at, a full table, a sparse one, and three rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import smooth_space as problem
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.metrics.search import best_so_far
from workbench.models.surrogate import Trials
from workbench.space import Choice, Space
from workbench.tune.annealing import Annealing
from workbench.tune.bayes import BatchBO
from workbench.tune.policy import PolicySearch
from workbench.tune.search import Candidates, Greedy, RandomSearch, Search

SEARCHES: dict[str, Callable[[], Search]] = {
    "random": RandomSearch,
    "greedy": Greedy,
    "annealing": Annealing,
    "policy": lambda: PolicySearch(episodes=16, steps=20),
    "bayes": lambda: BatchBO(samples=128, looked_at=128),
}
KNOWING = {name: make for name, make in SEARCHES.items() if name != "random"} | {"policy": lambda: PolicySearch(episodes=32, steps=40)}
every_search = pytest.mark.parametrize("name", SEARCHES)
every_kind = pytest.mark.parametrize("kind", problem.KINDS)


@every_search
@every_kind
def test_rounds_propose_different_candidates_never_twice(name: str, kind: str) -> None:
    search, candidates, rng = SEARCHES[name](), problem.KINDS[kind](), np.random.default_rng(0)
    oracle, trials, seen = problem.oracle_of(candidates), Trials.none(), set[int]()
    allowed = None if candidates.pool is None else set(candidates.pool.tolist())
    for _ in range(3):
        found = search.propose(oracle, candidates, trials, 16, rng)
        assert found.dtype == candidates.space.dtype
        assert len(found) <= 16
        assert len(found) > 0 or candidates.left == 0
        assert len(set(found.tolist())) == len(found)
        assert not seen & set(found.tolist())
        assert allowed is None or set(found.tolist()) <= allowed
        assert candidates.space.satisfies(found).all()
        seen |= set(found.tolist())
        candidates.tried(found)
        trials = problem.measured(oracle, trials, found)


@every_search
@every_kind
def test_the_same_seed_proposes_the_same(name: str, kind: str) -> None:
    def run(seed: int) -> list[int]:
        search, candidates, rng = SEARCHES[name](), problem.KINDS[kind](), np.random.default_rng(seed)
        oracle, trials, found = problem.oracle_of(candidates), Trials.none(), []
        for _ in range(2):
            asked = search.propose(oracle, candidates, trials, 8, rng)
            candidates.tried(asked)
            trials = problem.measured(oracle, trials, asked)
            found += asked.tolist()
        return found

    assert run(5) == run(5)


@every_search
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3), taken=st.floats(0, 1), count=st.integers(1, 9), value=st.sampled_from([0.0, 0.5, np.nan]))
@settings(max_examples=12, deadline=None)
def test_small_spaces_are_exhausted_and_then_give_nothing(name: str, sizes: list[int], taken: float, count: int, value: float) -> None:
    space = Space("small", tuple(Choice(f"k{i}", tuple(range(size))) for i, size in enumerate(sizes)))
    search, candidates, rng = SEARCHES[name](), Candidates(space), np.random.default_rng(0)
    candidates.tried(space.sample(int(taken * space.size), rng))
    model, trials, found = problem.Ignorant(value), Trials.none(), list[int]()
    want = candidates.left
    for _ in range(want + 1):
        asked = search.propose(model, candidates, trials, count, rng)
        if not len(asked):
            break
        found += asked.tolist()
        candidates.tried(asked)
        trials = trials.and_then(asked, np.zeros(len(asked)), np.zeros(len(asked), dtype=bool))
    assert sorted(found) == sorted(set(found))
    assert len(found) == want
    assert candidates.left == 0


@every_search
@every_kind
@pytest.mark.parametrize("told", ["constant", "failures", "duplicates"])
def test_what_was_told_may_be_of_no_help(name: str, kind: str, told: str) -> None:
    search, candidates, rng = SEARCHES[name](), problem.KINDS[kind](), np.random.default_rng(0)
    before = candidates.sample(2 if kind == "tiny" else 20, rng)
    candidates.tried(before)
    if told == "duplicates":  # the same configurations again and again, each time with another result
        before = np.tile(before, 3)
    throughput = {"constant": np.full(len(before), 7.0), "failures": np.zeros(len(before)), "duplicates": 1 + rng.random(len(before))}[told]
    trials = Trials(before, throughput, throughput > 0)
    found = search.propose(problem.Ignorant(0.5), candidates, trials, 8, rng)
    assert 0 < len(found) <= 8
    assert candidates.allowed(found).all()
    assert len(set(found.tolist())) == len(found)


@pytest.mark.parametrize("name", KNOWING)
@pytest.mark.parametrize("kind", ["live", "dense", "sparse"])
def test_with_a_model_that_knows_it_finds_better_ones_than_chance(name: str, kind: str) -> None:
    """The area under best-so-far over 48 trials in batches of at most 16, and the end, on the mean of 3 hills."""

    def curve(search: Search, seed: int) -> np.ndarray:
        candidates, rng = problem.KINDS[kind](), np.random.default_rng(seed)
        oracle, trials = problem.oracle_of(candidates, seed), Trials.none()
        while len(trials) < 48:
            asked = search.propose(oracle, candidates, trials, min(16, 48 - len(trials)), rng)
            candidates.tried(asked)
            trials = problem.measured(oracle, trials, asked)
        return best_so_far(trials.throughput / 100)

    ours = np.mean([curve(KNOWING[name](), seed) for seed in range(3)], axis=0)
    chance = np.mean([curve(RandomSearch(), seed) for seed in range(3)], axis=0)
    assert ours.mean() > chance.mean() + 0.05
    assert ours[-1] > chance[-1] + 0.02
