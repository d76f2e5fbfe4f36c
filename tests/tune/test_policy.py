"""Chameleon's search on invented (synthetic) problems: steps, advantages and representatives by hand, and a policy that learns where the reward is."""

from __future__ import annotations

import numpy as np
import pytest
import smooth_space as problem
import torch

from workbench.models.surrogate import Trials
from workbench.space import Choice, Space
from workbench.tune.policy import PolicySearch, _Agent, _walk, _Walks, _World, advantages, representatives
from workbench.tune.search import Candidates


def test_steps_by_hand() -> None:
    space = Space("s", tuple(Choice(f"k{i}", tuple(range(1 << 9))) for i in range(4)))
    world = _World(Candidates(space))
    digits = np.array([[0, 5, 511, 7]] * 4)
    turn = np.array([[1, -1, 0, 0], [-1, 0, 1, 1], [-1, 0, 0, 1], [0, 0, -1, 1]])
    there, moved, idle = world.step(space.from_digits(digits), digits, turn)
    assert moved.tolist() == [[1, 4, 511, 7], [0, 5, 511, 8], [0, 5, 511, 8], [0, 5, 510, 8]]
    assert space.digits(there).tolist() == moved.tolist()
    # Three of four knobs stay, by choice or at an end.
    assert idle.tolist() == [False, True, True, False]


def test_a_step_out_of_the_constraints_is_not_made() -> None:
    candidates, rng = problem.live(), np.random.default_rng(0)
    world, here = _World(candidates), candidates.sample(500, rng)
    digits = candidates.space.digits(here)
    turn = rng.integers(-1, 2, size=digits.shape)
    there, moved, _ = world.step(here, digits, turn)
    assert candidates.space.satisfies(there).all()
    aimed = candidates.space.from_digits(np.clip(digits + turn, 0, np.array(candidates.space.radix) - 1))
    good = candidates.space.satisfies(aimed)
    assert 0 < good.sum() < len(good)
    np.testing.assert_array_equal(there, np.where(good, aimed, here))
    np.testing.assert_array_equal(candidates.space.digits(there), moved)


def test_a_step_out_of_a_table_leads_to_the_near_row_in_its_direction() -> None:
    # A cross: the middle has a row on each side, two options away.
    space = Space("cross", (Choice("x", tuple(range(5))), Choice("y", tuple(range(5)))))
    pool = space.from_digits(np.array([[2, 2], [0, 2], [4, 2], [2, 0], [2, 4]]))
    world = _World(Candidates(space, pool))
    digits = np.array([[2, 2]] * 4)
    there, moved, _ = world.step(space.from_digits(digits), digits, np.array([[-1, 0], [1, 0], [0, -1], [0, 1]]))
    assert moved.tolist() == [[0, 2], [4, 2], [2, 0], [2, 4]]
    assert space.digits(there).tolist() == moved.tolist()


@pytest.mark.parametrize("kind", problem.KINDS)
def test_walks_stay_within_and_end_where_they_idle(kind: str) -> None:
    candidates, rng = problem.KINDS[kind](), np.random.default_rng(0)
    agent = _Agent(len(candidates.space.knobs), 0)
    walks = _walk(agent, _World(candidates), candidates.sample(3 if kind == "tiny" else 16, rng), 40, rng)
    assert candidates.allowed(walks.reached).all()
    assert (np.diff(walks.episode) >= 0).all()
    assert np.bincount(walks.episode).max() <= 40
    assert set(np.unique(walks.chosen)) <= {0, 1, 2}
    # What is seen is where the step before led, in the same episode.
    same = walks.episode[1:] == walks.episode[:-1]
    led = candidates.space.digits(walks.reached) / np.array(candidates.space.radix)
    np.testing.assert_allclose(walks.seen[1:][same], led[:-1][same], rtol=1e-6)


def test_choices_are_as_likely_as_the_policy_says() -> None:
    agent, rng = _Agent(1, 3), np.random.default_rng(0)
    seen = np.full((30_000, 1), 0.5, dtype=np.float32)
    chosen, likely = agent.act(seen, rng)
    share = np.bincount(chosen[:, 0], minlength=3) / len(chosen)
    said = [float(np.exp(likely[chosen[:, 0] == choice][0])) for choice in range(3)]
    assert sum(said) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(share, said, atol=0.01)


def test_advantages_by_hand() -> None:
    # Two episodes, of two steps and of one.
    gained, target = advantages(np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 4.0]), np.array([0, 0, 1]))
    np.testing.assert_allclose(target, [1 + 0.9 * 1.0, 2.0, 3.0])
    np.testing.assert_allclose(gained, [1.9 - 0.5 + 0.9 * 0.99 * 1.0, 1.0, -1.0])


def test_a_policy_learns_which_turn_is_rewarded() -> None:
    """One step an episode: the first knob up gives 1, the second knob down a half, the third does not matter."""
    agent, rng = _Agent(3, 0), np.random.default_rng(0)
    seen = np.full((32, 3), 0.5, dtype=np.float32)
    for _ in range(8):
        chosen, likely = agent.act(seen, rng)
        reward = (chosen[:, 0] == 2) + 0.5 * (chosen[:, 1] == 0)
        agent.learn(_Walks(seen, chosen, likely, np.arange(32), np.arange(32)), reward, rng)
    chosen, _ = agent.act(np.full((4000, 3), 0.5, dtype=np.float32), rng)
    share = np.array([(chosen == choice).mean(axis=0) for choice in range(3)])
    assert share[2, 0] > 0.8
    assert share[0, 1] > 0.6
    assert share[:, 2].max() < 0.6


def test_representatives_by_hand() -> None:
    # Ten knots of 40 in the two wide knobs; the narrow knob is not looked at.
    rng = np.random.default_rng(0)
    knots = np.array([[20 * (i % 5), 60 * (i // 5)] for i in range(10)])
    points = (np.tile(knots, (40, 1)) + rng.integers(-3, 4, (400, 2))).clip(0)
    digits = np.column_stack([np.arange(400) % 2, points])
    chosen = representatives(digits, (2, 100, 90), 0)
    # 16 clusters are worth it, as 8 leave knots together; 24 split knots only, where it ends.
    assert len(chosen) == 24
    assert {((x + 10) // 20, (y + 30) // 60) for x, y in points[chosen].tolist()} == {(i % 5, i // 5) for i in range(10)}
    assert (np.diff(chosen) > 0).all()


def test_representatives_of_few_and_of_equal_ones() -> None:
    radix = (50, 40, 2)
    assert representatives(np.zeros((0, 3), dtype=np.int64), radix, 0).tolist() == []
    few = np.array([[5, 1, 0], [9, 2, 0], [9, 2, 1]])
    assert representatives(few, radix, 0).tolist() == [0, 1, 2]
    # Twelve rows on nine places: the best of each place.
    places = np.column_stack([np.arange(12) % 9, np.arange(12) % 9, np.zeros(12, dtype=np.int64)])
    assert representatives(places, radix, 0).tolist() == list(range(9))


def test_fewer_than_asked_for_are_measured_and_the_best_predicted_where_not_adaptive() -> None:
    candidates = problem.dense()
    oracle = problem.oracle_of(candidates)
    few = PolicySearch(episodes=32, steps=60).propose(oracle, candidates, Trials.none(), 64, np.random.default_rng(0))
    every = PolicySearch(episodes=32, steps=60, adaptive=False).propose(oracle, candidates, Trials.none(), 64, np.random.default_rng(0))
    assert 8 <= len(few) < len(every) == 64
    assert set(few.tolist()) <= set(every.tolist())
    assert (np.diff(oracle.truth(every)) <= 0).all()


def test_nothing_but_the_search_is_seeded() -> None:
    before = torch.random.get_rng_state()
    candidates = problem.dense()
    PolicySearch(episodes=16, steps=20).propose(problem.oracle_of(candidates), candidates, Trials.none(), 8, np.random.default_rng(0))
    assert torch.equal(before, torch.random.get_rng_state())
