"""Few-shot tasks: distinct rows, each as likely as the others, support and query apart. All numbers are invented."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.errors import DataError, UsageError
from workbench.meta.tasks import FewShot, Pool


def pool(*sizes: int) -> Pool:
    """Kernels whose inputs say whose they are and which row."""
    return Pool.of([[np.stack([np.full(n, k), np.arange(n)], 1).astype(np.float64), np.arange(n) / n] for k, n in enumerate(sizes)])


def test_a_pool_has_one_kernel_after_another_in_single_precision():
    made = pool(3, 5)
    assert made.sizes.tolist() == [3, 5]
    assert made.starts.tolist() == [0, 3, 8]
    assert len(made) == 8
    assert made.inputs[0].dtype == made.labels.dtype == np.float32
    assert made.inputs[0][3].tolist() == [1, 0]


def test_an_input_that_is_no_float_stays_what_it_is():
    made = Pool.of([[np.ones((2, 3)), np.array([True, False]), np.zeros(2)]])
    assert [array.dtype for array in made.inputs] == [np.float32, np.bool_]


@pytest.mark.parametrize("shots", [FewShot(2, 3), FewShot(2, 3, "paper", 4), FewShot.as_published()], ids=["clean", "4-way", "20-way"])
def test_a_task_has_its_share_of_distinct_rows_of_distinct_kernels(shots):
    made = pool(*range(7, 32))
    drawn = shots.draw(made, 50, np.random.default_rng(0))
    assert drawn.support.shape == (50, shots.ways * shots.support)
    assert drawn.query.shape == (50, shots.ways * shots.query)
    for support, query in zip(drawn.support, drawn.query, strict=True):
        assert len({*support, *query}) == shots.ways * (shots.support + shots.query)
        for rows, each in ((support, shots.support), (query, shots.query)):
            kernels, counts = np.unique(made.inputs[0][rows, 0], return_counts=True)
            assert len(kernels) == shots.ways
            assert set(counts) == {each}
        assert set(made.inputs[0][support, 0]) == set(made.inputs[0][query, 0])


def test_every_row_is_as_likely_in_the_support_as_in_the_query_whatever_its_place():
    drawn = FewShot(2, 3).draw(pool(6, 6), 12_000, np.random.default_rng(1))
    for rows in (drawn.support, drawn.query):
        for column in rows.T:  # 12,000 in 12 rows: 1,000 each, with a standard deviation of 30
            assert np.abs(np.bincount(column, minlength=12) - 1000).max() < 150


def test_kernels_are_equally_likely_however_many_rows_they_have():
    made = pool(5, 500)
    kernels = made.inputs[0][FewShot(1, 1).draw(made, 4000, np.random.default_rng(2)).support[:, 0], 0]
    assert abs(kernels.mean() - 0.5) < 0.04


def test_all_rows_of_a_kernel_can_be_asked_for():
    drawn = FewShot(4, 3).draw(pool(7), 20, np.random.default_rng(0))
    assert np.sort(np.concatenate([drawn.support, drawn.query], 1), 1).tolist() == [list(range(7))] * 20


def test_the_letter_of_algorithm_1_judges_on_the_support():
    drawn = FewShot(2, 0, "paper", 3).draw(pool(9, 9, 9, 9), 5, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn.support, drawn.query)


def test_a_seed_says_which_tasks():
    made, shots = pool(*[40] * 30), FewShot.as_published()
    one, again, other = (shots.draw(made, 8, np.random.default_rng(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.support, again.support)
    np.testing.assert_array_equal(one.query, again.query)
    assert (one.support != other.support).any()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1, 0), "apart from the support"),
        ((1, 1, "clean", 3), "one kernel a task"),
        ((0, 1), "at least 1, 1 and 0"),
        ((1, 1, "other"), "unknown protocol 'other'"),
    ],
)
def test_numbers_that_do_not_fit_the_protocol_are_refused(arguments, said):
    with pytest.raises(UsageError, match=said):
        FewShot(*arguments)


def test_a_pool_that_is_too_small_is_named():
    with pytest.raises(UsageError, match="20 kernels cannot be drawn from 2"):
        FewShot.as_published().draw(pool(9, 9), 1, np.random.default_rng(0))
    with pytest.raises(UsageError, match="kernel 1 has 3 rows, fewer than 2 support and 2 query"):
        FewShot(2, 2).draw(pool(9, 3), 1, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        ([], "no kernels"),
        ([[np.ones((2, 1)), np.ones(3)]], "rows; each kernel is"),
        ([[np.ones((0, 1)), np.ones(0)]], "at least 1"),
        ([[np.ones((2, 1)), np.ones(2)], [np.ones((2, 4)), np.ones(2)]], "kernel 1: rows of"),
        ([[np.ones((2, 1)), np.array([1, np.inf])]], "kernel 0: row 1 has a number that is not finite"),
        ([[np.array([[1.0, 2], [np.nan, 1]]), np.ones(2)]], "kernel 0: row 1 has"),
    ],
)
def test_arrays_that_are_no_examples_are_refused(kernels, said):
    with pytest.raises(DataError, match=said):
        Pool.of(kernels)
