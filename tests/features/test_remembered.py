"""Numbers that are found once: what is asked for, what is found anew, and what is forgotten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from workbench.features.remembered import Remembered


class Squares:
    """Remembers squares, and which it was asked for."""

    def __init__(self, kept: int = 100) -> None:
        self.asked: list[list[int]] = []
        self.remembered = Remembered(2, np.float64, kept)

    def of(self, indices: ArrayLike) -> NDArray[Any]:
        given = np.asarray(indices, dtype=np.int64)

        def find(places: NDArray[np.intp]) -> NDArray[Any]:
            self.asked.append(given[places].tolist())
            return np.stack([given[places], given[places] ** 2], axis=1)

        return self.remembered.of(given, find)


def test_each_configuration_is_found_once_and_given_in_the_order_asked_for() -> None:
    found = Squares()
    assert found.of([3, 1, 3])[:, 1].tolist() == [9, 1, 9]
    assert found.of([2, 3, 1])[:, 1].tolist() == [4, 9, 1]
    assert found.asked == [[3, 1], [2]]
    assert found.of([]).shape == (0, 2)


def test_what_is_given_is_the_callers_own() -> None:
    found = Squares()
    found.of([5])[:] = 0
    assert found.of([5]).tolist() == [[5, 25]]


def test_at_most_so_many_are_kept() -> None:
    found = Squares(kept=3)
    found.of([1, 2])
    assert found.of([2, 3, 4])[:, 0].tolist() == [2, 3, 4]  # of four no more than three: all are forgotten and found anew
    assert found.of([4, 3, 2])[:, 0].tolist() == [4, 3, 2]
    assert found.of([9, 9, 8, 7])[:, 0].tolist() == [9, 9, 8, 7]  # more than are kept: found as they stand
    assert found.asked == [[1, 2], [2, 3, 4], [9, 9, 8, 7]]


def test_what_fails_is_not_kept() -> None:
    found = Squares()
    found.of([1])

    def fails(places: NDArray[np.intp]) -> NDArray[Any]:
        raise ValueError(places)

    with pytest.raises(ValueError, match="1"):
        found.remembered.of([1, 2], fails)
    assert found.of([1, 2])[:, 1].tolist() == [1, 4]


def test_indices_beyond_64_bits() -> None:
    large = np.array([2**70, 2**80], dtype=object)
    found = Remembered(1)
    assert found.of(large[::-1], lambda places: np.array([[len(str(large[::-1][place]))] for place in places]))[:, 0].tolist() == [25, 22]
    assert found.of(large, lambda places: np.zeros((0, 1)))[:, 0].tolist() == [22, 25]


def test_indices_of_all_kinds_of_integers_are_the_same() -> None:
    found = Remembered(1)

    def of(indices: NDArray[Any], rows: list[float]) -> list[float]:
        asked: list[float] = found.of(indices, lambda places: np.array(rows)[:, None])[:, 0].tolist()
        return asked

    assert of(np.array([5, 3]), [50.0, 30.0]) == [50.0, 30.0]
    assert of(np.array([3, 5], dtype=np.int32), []) == [30.0, 50.0]
    assert of(np.array([3, 4], dtype=np.uint64), [40.0]) == [30.0, 40.0]
    assert of(np.array([2**70, 5], dtype=object), [70.0]) == [70.0, 50.0]
    assert of(np.array([4, 5]), []) == [40.0, 50.0]


def test_threads_share_it() -> None:
    found = Squares(kept=500)
    rng = np.random.default_rng(0)
    wanted = [rng.integers(1000, size=100) for _ in range(200)]
    with ThreadPoolExecutor(8) as pool:
        for indices, rows in zip(wanted, pool.map(found.of, wanted), strict=True):
            assert np.array_equal(rows[:, 1], indices**2)
