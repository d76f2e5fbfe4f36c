"""Attempts of one input belong together, and the fastest of them stands for it. All numbers are invented."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from workbench.measure.passes import by_input, label, passes, remeasured, rounds, times_of
from workbench.schema import Measurement, Status, Workload


def attempt(time_s: float | Status, m: int = 1, threads: int = 1, space: str = "eigen") -> Measurement:
    ok = not isinstance(time_s, Status)
    return Measurement(Workload("mv", {"m": m}), "some-cpu", Status.OK if ok else time_s, time_s if ok else None, space=space, config={"threads": threads})


def test_attempts_of_an_input_in_the_order_in_which_they_came():
    records = [attempt(3.0), attempt(1.0, m=2), attempt(2.0, threads=2), attempt(5.0), attempt(4.0, space="boost"), attempt(Status.TIMEOUT, m=2), attempt(1.5)]
    assert [[record.time_s for record in attempts] for attempts in by_input(records)] == [[3.0, 5.0, 1.5], [1.0, None], [2.0], [4.0]]
    assert by_input([]) == []


@pytest.mark.parametrize(
    ("tried", "stands"),
    [
        ([3.0], 0),
        ([3.0, 2.0, 2.5], 1),
        ([2.0, 2.0], 0),
        ([Status.TIMEOUT, 2.0, 3.0], 1),
        ([Status.TIMEOUT, Status.RUN_ERROR], 0),
        ([2.0, Status.WRONG_RESULT, 1.0], 1),
        ([Status.TIMEOUT, Status.WRONG_RESULT], 1),
    ],
)
def test_the_fastest_stands_unless_a_result_was_wrong(tried, stands):
    attempts = [attempt(time_s) for time_s in tried]
    assert label(attempts) is attempts[stands]


def test_a_failure_has_no_time():
    first, second, third = times_of([attempt(2.0), attempt(Status.TIMEOUT), attempt(1.0)])
    assert (first, third) == (2.0, 1.0)
    assert math.isnan(second)


@pytest.mark.parametrize(("counts", "rounds"), [([1, 1, 2], 1), ([3, 4, 3, 3], 3), ([3, 2, 2], 2), ([1], 1), ([2], 1), ([4], 3)])
def test_passes_are_those_that_went_through_all(counts, rounds):
    assert passes([[attempt(1.0, m=m)] * count for m, count in enumerate(counts, 1)]) == rounds


@pytest.mark.parametrize(("count", "again"), [(0, 0), (1, 1), (33, 1), (34, 2), (100, 3), (500, 15)])
def test_what_is_measured_again_is_spread_evenly(count, again):
    drawn = list(range(count))
    chosen = remeasured(drawn)
    assert len(chosen) == len(set(chosen)) == again
    assert set(chosen) <= set(drawn)
    if again > 1:
        steps = {b - a for a, b in pairwise(chosen)}
        assert max(steps) - min(steps) <= 1


def test_the_rounds_of_a_series():
    assert rounds([1, 2, 3], 2, first=[9]) == [([9, 1, 2, 3], 1), ([9, 1, 2, 3], 2), ([1], 3)]
    assert rounds([1, 2], 1) == [([1, 2], 1), ([1], 2)]
