"""Simulated annealing on an invented (synthetic) hill: its walks, what they ask the model, and what ends a round."""

from __future__ import annotations

import numpy as np
import pytest
import smooth_space as problem

from workbench.models.surrogate import Trials
from workbench.space import Choice, Space
from workbench.tune.annealing import Annealing, _KnobMoves, _moves_of, _RowMoves
from workbench.tune.search import Candidates


@pytest.mark.parametrize("kind", ["live", "dense"])
def test_a_move_changes_one_knob_and_stays_within(kind: str) -> None:
    candidates, rng = problem.KINDS[kind](), np.random.default_rng(0)
    moves = _moves_of(candidates)
    here = candidates.sample(400, rng)
    there = moves.from_(here, rng)
    changed = (candidates.space.digits(there) != candidates.space.digits(here)).sum(axis=1)
    assert changed.max() == 1
    assert changed.mean() > 0.9  # few find no way within two draws
    assert candidates.allowed(there).all()


def test_moves_reach_every_option_of_every_knob_equally() -> None:
    space = Space("s", (Choice("a", (0, 1, 2)), Choice("fixed", (7,)), Choice("b", (0, 1))))
    moves = _KnobMoves(space, None)
    there = moves.from_(np.full(6000, 4), np.random.default_rng(0))  # a 1, b 1
    index, count = np.unique(there, return_counts=True)
    # Half of the moves turn b, a quarter goes to each other option of a.
    assert index.tolist() == [1, 3, 5]
    np.testing.assert_allclose(count / 6000, [0.5, 0.25, 0.25], atol=0.03)


def test_rows_of_a_sparse_table_lead_to_the_nearest() -> None:
    candidates, rng = problem.sparse(), np.random.default_rng(0)
    moves = _moves_of(candidates)
    assert isinstance(moves, _RowMoves)
    here = np.full(2000, candidates.pool[3])
    reached = set(moves.from_(here, rng).tolist())
    points = candidates.space.coordinates(candidates.pool)
    order = np.argsort(((points - points[3]) ** 2).sum(axis=1))
    assert reached == set(candidates.pool[order[1:17]].tolist())


def test_a_space_beyond_64_bits_is_walked() -> None:
    space = Space("vast", tuple(Choice(f"k{i}", tuple(range(32))) for i in range(14)))
    assert space.dtype == object
    candidates = Candidates(space)
    oracle = problem.oracle_of(candidates)
    found = Annealing(chains=16, steps=60).propose(oracle, candidates, Trials.none(), 8, np.random.default_rng(0))
    assert len(set(found.tolist())) == 8
    assert oracle.truth(found).mean() > 2 * oracle.truth(candidates.sample(200, np.random.default_rng(1))).mean()


def test_a_configuration_is_asked_for_once_a_round() -> None:
    for kind in ("live", "dense", "sparse"):
        candidates = problem.KINDS[kind]()
        oracle, search = problem.oracle_of(candidates), Annealing(steps=80)
        search.propose(oracle, candidates, Trials.none(), 16, np.random.default_rng(0))
        assert len(oracle.asked) == len(set(oracle.asked)) == search.predicted


def test_what_is_proposed_is_the_best_predicted_of_those_that_were_met() -> None:
    candidates = problem.live()
    oracle, search = problem.oracle_of(candidates), Annealing(steps=80)
    tried = candidates.sample(200, np.random.default_rng(3))
    candidates.tried(tried)
    found = search.propose(oracle, candidates, Trials.none(), 16, np.random.default_rng(0))
    met = np.array(sorted(set(oracle.asked) - set(tried.tolist())))
    truth = oracle.truth(found)
    assert (np.diff(truth) <= 0).all()
    np.testing.assert_allclose(truth, np.sort(oracle.truth(met))[::-1][:16])


def test_a_round_ends_when_the_best_stay_the_same() -> None:
    candidates = problem.live()
    search = Annealing(patience=7)
    # Where all are equal the first that are met stay.
    found = search.propose(problem.Ignorant(), candidates, Trials.none(), 16, np.random.default_rng(0))
    assert search.walked == 8
    assert len(found) == 16
    search.propose(problem.oracle_of(candidates), candidates, Trials.none(), 16, np.random.default_rng(0))
    assert search.walked > 8


def test_chains_go_on_from_where_they_were() -> None:
    candidates, rng = problem.live(), np.random.default_rng(0)
    oracle, search = problem.oracle_of(candidates), Annealing(steps=200)
    search.propose(oracle, candidates, Trials.none(), 16, rng)
    ended, asked = set(search._places.tolist()), len(oracle.asked)
    search.propose(oracle, candidates, Trials.none(), 16, rng)
    assert set(oracle.asked[asked : asked + len(ended)]) == ended
    assert oracle.truth(list(ended)).mean() > 2 * oracle.truth(candidates.sample(200, rng)).mean()


def test_a_cold_chain_climbs_and_a_hot_one_wanders() -> None:
    def reached(temperature: tuple[float, float]) -> float:
        candidates = problem.live()
        oracle, search = problem.oracle_of(candidates), Annealing(chains=64, steps=60, patience=60, temperature=temperature)
        search.propose(oracle, candidates, Trials.none(), 16, np.random.default_rng(0))
        return float(oracle.truth(search._places).mean())

    assert reached((0.0, 0.0)) > reached((1.0, 0.0)) > reached((50.0, 50.0))


def test_predictions_that_are_no_numbers_hold_no_chain_and_are_not_proposed_first() -> None:
    class Broken(problem.Oracle):
        def predict(self, indices):
            said = super().predict(indices)
            said.mean[np.asarray(indices) % 2 == 0] = np.nan
            return said

    candidates = problem.live()
    model = Broken(candidates.space, problem.oracle_of(candidates).top)
    found = Annealing(steps=60).propose(model, candidates, Trials.none(), 16, np.random.default_rng(0))
    assert len(found) == 16
    assert np.isfinite(model.predict(found).mean).all()
