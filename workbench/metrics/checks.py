"""What every measure demands of its input: finite numbers, at least one, of equal length."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import DataError, UsageError

__all__ = ["Floats", "finite", "fraction", "vector", "vectors"]

Floats = NDArray[np.float64]


def finite(name: str, values: ArrayLike) -> Floats:
    """`values` as float64 of any shape. Raises DataError if empty, not numeric, NaN or infinite (names the first such place)."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: not an array of numbers ({error})") from error
    if array.size == 0:
        raise DataError(f"{name}: empty; at least one value is needed")
    bad = ~np.isfinite(array)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        where = place[0] if len(place) == 1 else place
        raise DataError(f"{name}: {array[place]} at position {where} ({int(bad.sum())} of {array.size} values are not finite); drop failed rows first")
    return array


def vector(name: str, values: ArrayLike) -> Floats:
    """`values` as a float64 array of shape (n,), n >= 1. Raises DataError as `finite` does and UsageError for another number of dimensions."""
    array = finite(name, values)
    if array.ndim != 1:
        raise UsageError(f"{name}: shape {array.shape}; one dimension is needed")
    return array


def vectors(first_name: str, first: ArrayLike, second_name: str, second: ArrayLike) -> tuple[Floats, Floats]:
    """Both as float64 arrays of the same shape (n,). Raises UsageError if their lengths differ."""
    a, b = vector(first_name, first), vector(second_name, second)
    if len(a) != len(b):
        raise UsageError(f"{first_name} has {len(a)} values and {second_name} has {len(b)}; they must pair up")
    return a, b


def fraction(name: str, value: float, *, zero: bool = False, one: bool = False) -> float:
    """`value` if it lies between 0 and 1 (ends included only where said). Raises UsageError otherwise."""
    if not (0 < value < 1 or (zero and value == 0) or (one and value == 1)):
        raise UsageError(f"{name} is {value!r}; use a share from {'0' if zero else 'above 0'} to {'1' if one else 'below 1'}")
    return value
