"""Numbers that are found once: what is asked for, what is found anew, and what is forgotten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.features.remembered import Remembered


def squares(asked: list[list[int]]) -> Any:
    def find(indices: NDArray[Any]) -> NDArray[Any]:
        asked.append(indices.tolist())
        return np.stack([indices, indices**2], axis=1).astype(np.float64)

    return find


def test_each_configuration_is_found_once_and_given_in_the_order_asked_for() -> None:
    asked: list[list[int]] = []
    found = Remembered(squares(asked), 2, np.float64)
    assert found.of([3, 1, 3])[:, 1].tolist() == [9, 1, 9]
    assert found.of(np.array([2, 3, 1]))[:, 1].tolist() == [4, 9, 1]
    assert asked == [[1, 3], [2]]
    assert found.of([]).shape == (0, 2)


def test_what_is_given_is_the_callers_own() -> None:
    found = Remembered(squares([]), 2, np.float64)
    found.of([5])[:] = 0
    assert found.of([5]).tolist() == [[5, 25]]


def test_at_most_so_many_are_kept() -> None:
    asked: list[list[int]] = []
    found = Remembered(squares(asked), 2, np.float64, kept=3)
    found.of([1, 2])
    assert found.of([2, 3, 4])[:, 0].tolist() == [2, 3, 4]  # of four no more than three: all are forgotten and found anew
    assert found.of([4, 3, 2])[:, 0].tolist() == [4, 3, 2]
    assert found.of([9, 9, 8, 7])[:, 0].tolist() == [9, 9, 8, 7]  # more than are kept: found as they stand
    assert asked == [[1, 2], [2, 3, 4], [9, 9, 8, 7]]


def test_indices_beyond_64_bits() -> None:
    large = np.array([2**70, 2**80], dtype=object)
    found = Remembered(lambda indices: np.array([[len(str(index))] for index in indices]), 1)
    assert found.of(large[::-1])[:, 0].tolist() == [25, 22]
    assert found.of(large)[:, 0].tolist() == [22, 25]


def test_threads_share_it() -> None:
    found = Remembered(squares([]), 2, np.float64, kept=500)
    rng = np.random.default_rng(0)
    wanted = [rng.integers(1000, size=100) for _ in range(200)]
    with ThreadPoolExecutor(8) as pool:
        for indices, rows in zip(wanted, pool.map(found.of, wanted), strict=True):
            assert np.array_equal(rows[:, 1], indices**2)
