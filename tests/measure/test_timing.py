"""The repeat policy's numbers, and what counts as a time."""

from __future__ import annotations

import pytest

from workbench.errors import UsageError
from workbench.measure.timing import Policy, fault


@pytest.mark.parametrize(
    "numbers", [{"at_least": 0}, {"repeats": 2}, {"at_least": 8}, {"limit_s": -1.0}, {"warmup_s": float("nan")}, {"batch_s": float("inf")}]
)
def test_numbers_that_cannot_be_a_policy(numbers):
    with pytest.raises(UsageError, match="the policy"):
        Policy(**numbers)


def test_the_label_is_the_minimum_and_the_policy_says_so():
    policy = Policy(repeats=9, at_least=4, limit_s=0.25, warmup_s=0.02, batch_s=1e-4)
    assert policy.label([3.0, 1.0, 2.0]) == 1.0
    for words in ("minimum of times_s", "9 repeats", "0.25 s", "at least 4", "20 ms", "100 us"):
        assert words in policy.describe()


@pytest.mark.parametrize(
    ("times", "said"),
    [([1e-6] * 3, ""), ([1e-6] * 7, ""), ([1e-6] * 2, "2 repeats"), ([1e-6] * 8, "8 repeats"), ([1e-6, 0.0, 1e-6], "0.0 s"), ([float("inf")] * 3, "inf s")],
)
def test_repeats_that_are_none(times, said):
    found = fault(times, Policy())
    assert said in found if said else not found
