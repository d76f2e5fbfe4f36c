"""Inputs from a seed: as many numbers that are not zero as asked for, at places and with values that no seed shares with another."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.measure.cuda.inputs import half_bits, mix, values

SEEDS = st.integers(0, 2**28 - 1)


@given(count=st.integers(1, 3000), share=st.floats(0, 1), seed=SEEDS)
def test_exactly_so_many_are_not_zero(count: int, share: float, seed: int) -> None:
    nonzero = round(share * count)
    found = values(count, nonzero, seed)
    assert found.dtype == np.float32
    assert np.count_nonzero(found) == nonzero
    assert np.all(np.abs(found) < 1)
    assert np.array_equal(found, values(count, nonzero, seed))
    whole = values(count, count, seed)
    assert np.all((found == 0) | (found == whole))  # the same numbers, fewer of them


@given(count=st.integers(1, 1 << 30))
def test_the_bits_of_a_random_order_hold_every_place(count: int) -> None:
    assert count <= 4 ** half_bits(count) <= max(4, 4 * count)


def test_values_and_places_are_spread_evenly() -> None:
    count = 1 << 16
    dense = values(count, count, 5)
    assert abs(dense.mean()) < 0.01
    assert abs(dense.var() - 1 / 3) < 0.01
    assert np.unique(dense).size > 0.99 * count
    places = np.flatnonzero(values(count, count // 16, 5))
    assert np.abs(np.histogram(places, 16, (0, count))[0] - 256).max() < 64
    other = np.flatnonzero(values(count, count // 16, 6))
    assert np.intersect1d(places, other).size < 2 * 256
    assert abs(np.corrcoef(dense, values(count, count, 6))[0, 1]) < 0.02


def test_a_bit_more_changes_half_of_the_bits() -> None:
    words = np.arange(4096, dtype=np.uint32)
    for bit in range(32):
        changed = np.bitwise_count(mix(words, 7) ^ mix(words ^ np.uint32(1 << bit), 7))
        assert 8 < changed.mean() < 24
