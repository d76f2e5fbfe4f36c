"""Which schedule is tried next, on invented processes: whose turn it is, and what was tried or failed never comes again."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from workbench.tune.tries import Group, Pick, Tries, finalists


class Said:
    """A process that says what it is told to, and notes what it learns."""

    def __init__(self, *seconds: float) -> None:
        self.mean = np.log(np.array(seconds))
        self.told: list[tuple[int, float]] = []

    def tell(self, place: int, seconds: float) -> None:
        self.told.append((place, seconds))

    def improvement(self, best_s: float) -> Any:
        return np.maximum(np.log(best_s) - self.mean, 0.0)


def group(keys: str, *seconds: float) -> Group[str]:
    return Group(list(keys), cast(Any, Said(*seconds)))


def run(tries: Tries[str], times: dict[str, float | None], count: int = 9) -> list[tuple[str, str]]:
    found = []
    while len(tries) < count and (pick := tries.next()) is not None:
        found.append((pick.key, pick.by))
        tries.tell(pick.key, times.get(pick.key, 1.0))
    return found


RANKED = [("a", 1.0), ("b", 2.0), ("c", 3.0)]


def test_of_three_the_first_is_the_networks_and_two_are_the_process_s() -> None:
    said = group("abcdefg", 7.0, 6.0, 5.0, 0.4, 0.3, 0.2, 0.1)
    found = run(Tries(RANKED, [said]), {})
    network, process = "network", "process"
    # When the ranking has no more the process has its turns too.
    assert found == [("a", network), ("g", process), ("f", process), ("b", network), ("e", process), ("d", process), ("c", network)]
    assert cast(Any, said.asked).told == [(place, 1.0) for place in (0, 6, 5, 1, 4, 3, 2)]


def test_the_ranking_alone() -> None:
    tries = Tries(RANKED)
    assert run(tries, {"b": 0.5}) == [("a", "network"), ("b", "network"), ("c", "network")]
    assert tries.next() is None
    assert run(Tries(RANKED), {}, count=2) == [("a", "network"), ("b", "network")]
    assert Tries(RANKED).next() == Pick("a", 1.0, "network")


def test_failures_are_never_tried_again_and_nothing_is_learnt_of_them() -> None:
    said = group("abcd", 4.0, 3.0, 2.0, 1.0)
    tries = Tries(RANKED, [said])
    keys = [key for key, _ in run(tries, dict.fromkeys("abcd"))]
    # Nothing ran, so there is nothing to improve on: the process goes by the least time that it expects.
    assert keys == ["a", "d", "c", "b"]
    assert len(tries) == 4
    assert tries.next() is None
    assert cast(Any, said.asked).told == []


def test_two_processes_have_one_turn_for_the_better_of_them() -> None:
    one, two = group("abc", 3.0, 2.0, 1.5), group("xyz", 0.9, 0.5, 4.0)
    tries = Tries(RANKED, [one, two])
    found = run(tries, {"a": None, "y": 0.8}, count=3)
    # First by the time that is expected, then by what is to be gained over the best: both are of one kind in either process.
    assert found == [("a", "network"), ("y", "process"), ("b", "process")]
    assert (cast(Any, one.asked).told, cast(Any, two.asked).told) == ([(1, 1.0)], [(1, 0.8)])


@pytest.mark.parametrize("best_s", [None, 1.0])
def test_a_process_that_says_nothing_leaves_the_turn_to_the_ranking(best_s: float | None) -> None:
    tries = Tries(RANKED, [group("abc", np.nan, np.nan, np.nan)])
    tries.tell("a", best_s)
    assert tries.next() == Pick("b", 2.0, "network")


def test_a_pick_says_what_was_predicted_of_it() -> None:
    tries = Tries(RANKED, [group("abc", 3.0, 2.0, 0.25)])
    tries.tell("a", 1.0)
    pick = tries.next()
    assert pick is not None
    assert (pick.key, pick.by, pick.predicted_s) == ("c", "process", pytest.approx(0.25))


@pytest.mark.parametrize(
    ("seconds", "places"),
    [
        ([4.0, 1.3, None, 1.0, 1.2, 1.1], [3, 5, 4]),
        ([1.0, 1.0, 1.0, 1.0], [0, 1, 2]),
        ([1.51, 1.0, 1.49], [1, 2]),  # half as slow again does not come back
        ([None, 2.0], [1]),
        ([None, None], []),
        ([], []),
    ],
)
def test_the_fastest_three_that_ran_take_turns(seconds: list[float | None], places: list[int]) -> None:
    assert finalists(seconds) == places
