from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench.errors import DataError, UsageError
from workbench.metrics import mape, mse, mse_top, spearman, spearman_paper, top_k_score


def test_mse_by_hand() -> None:
    # (1 + 0 + 9) / 3
    assert mse([1, 2, 3], [2, 2, 0]) == pytest.approx(10 / 3)


def test_mse_top_takes_the_highest_measured_quarter() -> None:
    true = [8, 1, 2, 7, 3, 4, 5, 6]
    predicted = [6, 0, 0, 8, 0, 0, 0, 0]
    # the two highest measured are 8 and 7: (2^2 + 1^2) / 2
    assert mse_top(true, predicted) == pytest.approx(2.5)


def test_mse_top_rounds_the_count_up_and_keeps_ties() -> None:
    # 5 rows: ceil(1.25) = 2 rows, the second highest value is 4 and occurs twice: errors 1, 2, 3
    assert mse_top([5, 4, 4, 1, 0], [4, 2, 1, 9, 9]) == pytest.approx((1 + 4 + 9) / 3)
    assert mse_top([5, 4, 4, 1, 0], [4, 2, 1, 9, 9], share=1) == mse([5, 4, 4, 1, 0], [4, 2, 1, 9, 9])
    # 0.3 * 10 is three rows, not four
    assert mse_top(range(10), [0] * 10, share=0.3) == pytest.approx((81 + 64 + 49) / 3)


def test_mape_plain_by_hand() -> None:
    # 50%, 0%, 25%
    assert mape([2, 5, 4], [1, 5, 5], drop_fastest=0) == pytest.approx(25.0)


def test_mape_drops_the_fastest_thirty_percent_by_the_published_index() -> None:
    time = [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]
    # sorted(time)[int(0.3 * 10) - 1] = 3: rows with time > 3 stay, the wild predictions for 1, 2 and 3 do not count
    predicted = [11, 9, 8, 7, 6, 5, 4, 300, 200, 100]
    assert mape(time, predicted) == pytest.approx(100 * (1 / 10) / 7)


def test_mape_rule_truncates_and_drops_ties_of_the_threshold() -> None:
    # int(0.3 * 9) = 2: the threshold is the 2nd smallest
    assert mape(range(1, 10), [0, 0, 3, 4, 5, 6, 7, 8, 9]) == 0
    # sorted(time)[1] is 1 of n = 7, tied with a third row: all three go
    assert mape([1, 1, 1, 2, 2, 2, 4], [9, 9, 9, 2, 2, 2, 2]) == pytest.approx(50 / 4)


def test_mape_equals_the_published_formula() -> None:
    rng = np.random.default_rng(0)
    for n in (4, 5, 17, 100, 250):
        t, p = rng.lognormal(size=n), rng.normal(size=n)
        th = sorted(t)[int(0.3 * n) - 1]
        expected = 100 * np.mean([abs(a - b) / a for a, b in zip(t, p, strict=True) if a > th])
        assert mape(t, p) == pytest.approx(expected)


def test_mape_refuses_what_the_rule_cannot_do() -> None:
    with pytest.raises(UsageError, match="too few"):
        mape([1, 2, 3], [1, 2, 3])
    with pytest.raises(DataError, match="tied"):
        mape([2, 2, 2, 2], [1, 1, 1, 1])
    with pytest.raises(DataError, match="not a positive time"):
        mape([0, 1, 2, 3], [1, 1, 1, 1])
    with pytest.raises(UsageError, match="drop_fastest"):
        mape([1, 2, 3, 4], [1, 2, 3, 4], drop_fastest=1)


def test_spearman_by_hand() -> None:
    # ranks 1 2 3 4 5 and 2 1 4 3 5: sum d^2 = 4, 1 - 24 / 120
    assert spearman([10, 20, 30, 40, 50], [2, 1, 4, 3, 5]) == pytest.approx(0.8)
    assert spearman_paper([10, 20, 30, 40, 50], [2, 1, 4, 3, 5]) == pytest.approx(0.8)
    assert spearman([1, 2, 3], [3, 2, 1]) == -1


def test_spearman_with_ties_uses_average_ranks() -> None:
    # ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4: covariance 4.5, variances 4.5 and 5
    assert spearman([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    # the paper's formula on the same ranks: sum d^2 = 0.5
    assert spearman_paper([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(1 - 6 * 0.5 / 60)


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=40))
def test_spearman_equals_scipy(pairs: list[tuple[int, int]]) -> None:
    a, b = zip(*pairs, strict=True)
    if len(set(a)) == 1 or len(set(b)) == 1:
        with pytest.raises(DataError, match="not defined"):
            spearman(a, b)
    else:
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
        if len(set(a)) == len(a) and len(set(b)) == len(b):
            assert spearman_paper(a, b) == pytest.approx(spearman(a, b), abs=1e-12)


def test_top_k_score_by_hand() -> None:
    true = [10, 40, 20, 50]
    predicted = [4, 3, 2, 1]
    assert top_k_score(true, predicted, 1) == pytest.approx(10 / 50)
    assert top_k_score(true, predicted, 2) == pytest.approx(40 / 50)
    assert top_k_score(true, predicted, 4) == 1


def test_top_k_score_gives_no_credit_for_row_order() -> None:
    assert top_k_score([50, 10, 20], [1, 1, 1], 1) == pytest.approx(10 / 50)
    assert top_k_score([10, 20, 50], [1, 1, 1], 2) == pytest.approx(20 / 50)


def test_top_k_score_refuses() -> None:
    for k in (0, 4):
        with pytest.raises(UsageError, match="k is"):
            top_k_score([1, 2, 3], [1, 2, 3], k)
    with pytest.raises(DataError, match="above 0"):
        top_k_score([0, 0], [1, 2])


@pytest.mark.parametrize("measure", [mse, mse_top, mape, spearman, spearman_paper, top_k_score])
class TestEveryMeasureRefuses:
    def test_nan(self, measure) -> None:
        with pytest.raises(DataError, match=r"nan at position 1 \(1 of 4"):
            measure([1, 2, 3, 4], [1, float("nan"), 2, 3])
        with pytest.raises(DataError, match="inf"):
            measure([1, 2, float("inf"), 4], [1, 2, 3, 4])

    def test_empty(self, measure) -> None:
        with pytest.raises(DataError, match="empty"):
            measure([], [])

    def test_unequal_lengths(self, measure) -> None:
        with pytest.raises(UsageError, match=r"true|time.* has 4 values and predicted has 3"):
            measure([1, 2, 3, 4], [1, 2, 3])

    def test_two_dimensions(self, measure) -> None:
        with pytest.raises(UsageError, match="one dimension"):
            measure([[1, 2], [3, 4]], [1, 2, 3, 4])

    def test_text(self, measure) -> None:
        with pytest.raises(DataError, match="not an array of numbers"):
            measure(["fast", "slow"], [1, 2])


def test_constant_input_where_undefined() -> None:
    for correlation in (spearman, spearman_paper):
        with pytest.raises(DataError, match="all 3 values are 2;"):
            correlation([1, 2, 3], [2, 2, 2])
        with pytest.raises(DataError, match="not defined"):
            correlation([1], [1])
