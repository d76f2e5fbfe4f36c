"""The inputs of a workload, made from a seed: the device makes them itself (device.cu), and this says in numpy what it made."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["half_bits", "values"]

_Words = NDArray[np.uint32]


def half_bits(count: int) -> int:
    """Half the number of bits that a random order of `count` numbers is made in."""
    return max(1, ((count - 1).bit_length() + 1) // 2)


def values(count: int, nonzero: int, seed: int) -> NDArray[np.float32]:
    """`count` numbers, bit by bit those of the device: `nonzero` of them are not zero but odd multiples of 2^-24 between -1 and 1."""
    places = np.arange(count, dtype=np.uint32)
    key = seed * 8
    odd = 2 * (mix(places, key + 7) >> 8).astype(np.int32) - 16777215
    there = np.ones(count, bool) if nonzero >= count else _order(places, key) < nonzero
    return np.where(there, odd.astype(np.float32) / np.float32(16777216), np.float32(0))


def mix(words: _Words, key: int) -> _Words:
    """Bits mixed so that every bit of a word and of the key changes about half of them."""
    x = (words ^ np.uint32(key % 2**32)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def _order(places: _Words, key: int) -> _Words:
    """A random order of all places: four Feistel rounds permute the numbers of 2 * half bits, and a number that leaves the range goes round again."""
    half = half_bits(places.size)
    mask = np.uint32((1 << half) - 1)
    order = places.copy()
    outside = np.ones(places.size, bool)
    while outside.any():
        left, right = order[outside] >> np.uint32(half), order[outside] & mask
        for step in range(4):
            left, right = right, left ^ (mix(right, key + step) & mask)
        order[outside] = left << np.uint32(half) | right
        outside = order >= places.size
    return order
