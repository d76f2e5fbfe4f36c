from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from workbench.errors import DataError, UsageError
from workbench.metrics import bootstrap_tasks, corrected_interval, holm, wilcoxon


class TestBootstrap:
    def test_estimate_weighs_tasks_equally_whatever_their_seeds(self) -> None:
        # means 2 and 6, though there are four scores
        assert bootstrap_tasks([[1, 2, 3], [6]]).estimate == pytest.approx(4)
        assert bootstrap_tasks([[1], [2], [9]], across="median").estimate == 2

    def test_two_tasks_by_hand(self) -> None:
        # One score each, 0 and 1: a replicate is 0 (1/4), 1/2 (1/2) or 1 (1/4), so the 95% interval is the whole range and the 40% one is a point.
        wide = bootstrap_tasks([0, 1])
        assert (wide.estimate, wide.low, wide.high) == (0.5, 0, 1)
        narrow = bootstrap_tasks([0, 1], level=0.4)
        assert (narrow.low, narrow.high) == (0.5, 0.5)

    def test_replicates_have_the_nested_variance(self) -> None:
        # Variance of a replicate of the mean: (variance between task means + mean variance inside a task / seeds) / tasks, all with divisor n.
        rng = np.random.default_rng(3)
        scores = rng.normal(size=(30, 1)) * 2 + rng.normal(size=(30, 4)) * 3
        spread = (scores.mean(axis=1).var() + scores.var(axis=1).mean() / 4) / 30
        interval = bootstrap_tasks(scores, level=0.6827, resamples=40_000)
        assert (interval.high - interval.low) / 2 == pytest.approx(math.sqrt(spread), rel=0.03)

    def test_seeds_inside_matter(self) -> None:
        quiet = bootstrap_tasks([[1, 1, 1], [2, 2, 2], [3, 3, 3]])
        noisy = bootstrap_tasks([[-9, 1, 11], [-8, 2, 12], [-7, 3, 13]])
        assert quiet.estimate == noisy.estimate
        assert noisy.high - noisy.low > 2 * (quiet.high - quiet.low)

    def test_reproducible_by_seed(self) -> None:
        scores = np.random.default_rng(0).normal(size=(8, 3))
        assert bootstrap_tasks(scores, seed=5) == bootstrap_tasks(scores, seed=5)
        assert bootstrap_tasks(scores, seed=5) != bootstrap_tasks(scores, seed=6)

    def test_unequal_seeds_never_read_the_padding(self) -> None:
        interval = bootstrap_tasks([[5, 5, 5, 5], [5], [5, 5]])
        assert (interval.low, interval.high) == (5, 5)

    def test_covers_the_truth(self) -> None:
        rng = np.random.default_rng(11)
        hits = 0
        for trial in range(200):
            scores = 1 + rng.normal(size=(25, 1)) + rng.normal(size=(25, 3))
            hits += not bootstrap_tasks(scores, resamples=400, seed=trial).excludes(1)
        assert 0.88 <= hits / 200 <= 0.99

    def test_refuses(self) -> None:
        with pytest.raises(DataError, match="at least two"):
            bootstrap_tasks([[1, 2, 3]])
        with pytest.raises(DataError, match="task 1: empty"):
            bootstrap_tasks([[1], []])
        with pytest.raises(DataError, match="task 0: nan"):
            bootstrap_tasks([[float("nan")], [1]])
        with pytest.raises(UsageError, match="level"):
            bootstrap_tasks([1, 2], level=95)
        with pytest.raises(UsageError, match="across"):
            bootstrap_tasks([1, 2], across="mode")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="resamples"):
            bootstrap_tasks([1, 2], resamples=0)


class TestCorrectedInterval:
    def test_by_hand(self) -> None:
        # mean 2, s^2 = 1, J = 3; n_test / n_train = 1: standard error sqrt(1/3 + 1); t(0.975, 2) = 4.302653
        interval = corrected_interval([1, 2, 3], n_train=250, n_test=250)
        half = 4.302653 * math.sqrt(4 / 3)
        assert interval.estimate == 2
        assert interval.low == pytest.approx(2 - half, abs=1e-5)
        assert interval.high == pytest.approx(2 + half, abs=1e-5)

    def test_without_test_rows_overlap_it_tends_to_the_plain_t_interval(self) -> None:
        scores = [3.0, 4.0, 6.0, 5.5]
        plain = stats.t.interval(0.95, 3, np.mean(scores), stats.sem(scores))
        near = corrected_interval(scores, n_train=10**9, n_test=1)
        assert (near.low, near.high) == pytest.approx(plain)
        assert corrected_interval(scores, 200, 300).low < near.low

    def test_refuses(self) -> None:
        with pytest.raises(DataError, match="at least two"):
            corrected_interval([1], 10, 10)
        with pytest.raises(UsageError, match="n_train"):
            corrected_interval([1, 2], 0, 10)
        with pytest.raises(DataError, match="nan"):
            corrected_interval([1, float("nan")], 1, 1)


class TestHolm:
    def test_by_hand(self) -> None:
        # sorted .01 .02 .03 .04 times 4 3 2 1 = .04 .06 .06 .04, made monotone
        assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
        assert holm([0.5, 0.6]) == pytest.approx([1, 1])
        assert holm([0.2]) == pytest.approx([0.2])

    def test_refuses(self) -> None:
        with pytest.raises(DataError, match="p-values"):
            holm([0.1, 1.2])
        with pytest.raises(DataError, match="empty"):
            holm([])


def exact_two_sided(difference: np.ndarray) -> float:
    """P-value by listing every pattern of signs."""
    ranks = stats.rankdata(np.abs(difference))
    total = ranks.sum()
    observed = min(ranks[difference > 0].sum(), total - ranks[difference > 0].sum())
    sums = [sum(r for r, s in zip(ranks, signs, strict=True) if s) for signs in product([0, 1], repeat=len(ranks))]
    return float(np.mean([min(s, total - s) <= observed + 1e-9 for s in sums]))


class TestWilcoxon:
    def test_all_in_one_direction_by_hand(self) -> None:
        # six differences, all positive: 2 / 2^6
        result = wilcoxon([2, 4, 6, 8, 10, 12], [1, 2, 3, 4, 5, 6])
        assert (result.statistic, result.p, result.median_difference) == (0, pytest.approx(2 / 64), 3.5)
        assert (result.pairs, result.zeros, result.method) == (6, 0, "exact")
        assert wilcoxon([2, 4, 6], [1, 2, 3], alternative="greater").p == pytest.approx(1 / 8)
        assert wilcoxon([2, 4, 6], [1, 2, 3], alternative="less").p == 1

    def test_zero_differences_are_left_out_and_counted(self) -> None:
        result = wilcoxon([2, 4, 6, 8, 5], [1, 2, 3, 4, 5])
        assert (result.p, result.zeros, result.pairs) == (pytest.approx(2 / 16), 1, 5)
        assert result.median_difference == 2

    @pytest.mark.parametrize("seed", range(4))
    def test_exact_with_and_without_ties(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        tied = rng.choice([-2, -1, 1, 2, 3], size=9)
        assert wilcoxon(tied, np.zeros(9)).p == pytest.approx(exact_two_sided(tied))
        distinct = rng.normal(size=10)
        assert wilcoxon(distinct, np.zeros(10)).p == pytest.approx(exact_two_sided(distinct))

    def test_says_when_it_is_not_exact(self) -> None:
        difference = np.repeat([1, -2, 3, 4], 20)
        assert wilcoxon(difference, np.zeros(80)).method == "asymptotic"

    def test_refuses(self) -> None:
        with pytest.raises(DataError, match="all 3 pairs are equal"):
            wilcoxon([1, 2, 3], [1, 2, 3])
        with pytest.raises(UsageError, match="pair up"):
            wilcoxon([1, 2], [1])
        with pytest.raises(UsageError, match="alternative"):
            wilcoxon([1, 2], [2, 1], alternative="lower")  # type: ignore[arg-type]
