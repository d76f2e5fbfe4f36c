from __future__ import annotations

import numpy as np
import pytest

from workbench.errors import DataError, UsageError
from workbench.metrics import area_under_curve, best_so_far, restricted_mean_trials, simple_regret, trials_to_target


def test_best_so_far_by_hand() -> None:
    assert best_so_far([3, 1, 4, 1, 5]).tolist() == [3, 3, 4, 4, 5]
    assert best_so_far([[1, 2], [2, 1]]).tolist() == [[1, 2], [2, 2]]


def test_failed_trials_hold_the_curve() -> None:
    curve = best_so_far([float("nan"), 2, float("nan"), 3], valid=[False, True, False, True])
    assert curve.tolist() == [0, 2, 2, 3]


def test_a_failure_must_be_declared() -> None:
    with pytest.raises(DataError, match="nan at position 1"):
        best_so_far([1, float("nan")])
    with pytest.raises(DataError, match="negative"):
        best_so_far([1, -1])
    with pytest.raises(UsageError, match="boolean"):
        best_so_far([1, 2], valid=[1, 0])
    with pytest.raises(UsageError, match="boolean"):
        best_so_far([1, 2], valid=[True])
    with pytest.raises(UsageError, match="single number"):
        best_so_far(3)


def test_area_by_hand() -> None:
    # (1 + 2 + 2 + 4) / 4 / 4
    assert area_under_curve([1, 2, 2, 4], best=4) == pytest.approx(9 / 16)
    assert area_under_curve([1, 2, 2, 4], best=4, budget=2) == pytest.approx(3 / 8)
    assert area_under_curve([[1, 2], [4, 4]], best=[2, 4]).tolist() == [0.75, 1.0]


def test_regret_by_hand() -> None:
    assert simple_regret([1, 2, 3], best=4) == pytest.approx(0.25)
    assert simple_regret([1, 2, 3], best=4, budget=1) == pytest.approx(0.75)
    assert simple_regret([[4], [1]], best=4).tolist() == [0, 0.75]


def test_trials_to_target_by_hand() -> None:
    curves = [[1, 2, 3, 4], [3, 3, 3, 3], [0, 1, 1, 2]]
    assert trials_to_target(curves, 3).tolist() == [3, 1, np.inf]
    assert trials_to_target(curves, [4, 4, 1]).tolist() == [4, np.inf, 2]
    assert trials_to_target([1, 5], 5) == 2


def test_restricted_mean_censors_at_the_budget() -> None:
    curves = [[1, 2, 3, 4], [3, 3, 3, 3], [0, 1, 1, 2]]
    # 3, 1 and never (counts as 4)
    assert restricted_mean_trials(curves, 3) == pytest.approx(8 / 3)
    # within two trials only the second search arrives
    assert restricted_mean_trials(curves, 3, budget=2) == pytest.approx((2 + 1 + 2) / 3)


def test_curves_that_cannot_be_used() -> None:
    with pytest.raises(UsageError, match="falls"):
        area_under_curve([2, 1], best=2)
    with pytest.raises(DataError, match="cover every search"):
        simple_regret([1, 5], best=4)
    with pytest.raises(DataError, match="not above 0"):
        simple_regret([1, 5], best=0)
    for budget in (0, 3):
        with pytest.raises(UsageError, match="budget"):
            restricted_mean_trials([[1, 2]], 2, budget=budget)
    with pytest.raises(DataError, match="empty"):
        best_so_far([])
    with pytest.raises(DataError, match="target: nan"):
        trials_to_target([[1, 2]], [float("nan")])


def test_best_of_each_search_must_match_their_number() -> None:
    with pytest.raises(UsageError, match=r"best.*shape"):
        area_under_curve([[1, 2], [2, 2]], best=[2, 2, 2])
    with pytest.raises(UsageError, match=r"target.*shape"):
        trials_to_target([[1, 2], [2, 2]], [1, 2, 3])
