"""NN+C's matrix kernels: the work of Table II, worked out by hand, of numbers and of columns."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.kernels import kernel
from workbench.kernels.matrix import INSTANCES


@pytest.mark.parametrize(
    ("name", "params", "work", "flop"),
    [
        ("mm", {"m": 2, "n": 3, "k": 5}, 30, 60),
        ("mv", {"m": 7, "n": 11}, 77, 154),
        ("mc", {"m": 10, "n": 8, "r": 3}, 8 * 6 * 9, 2 * 8 * 6 * 9),
        ("mc", {"m": 7, "n": 7, "r": 7}, 49, 98),
        ("mp", {"m": 7, "n": 5, "r": 3, "s": 2}, 3 * 4 * 4, None),
        ("mp", {"m": 7, "n": 5, "r": 3, "s": 1}, 35, None),
    ],
)
def test_work_by_hand(name: str, params: dict[str, int], work: int, flop: int | None) -> None:
    found = kernel(name)
    assert found.complexity is not None
    assert found.complexity(params) == work
    columns = {key: np.array([value, value]) for key, value in params.items()}
    assert found.complexity(columns).tolist() == [work, work]
    assert (found.flop is None) == (flop is None)
    if found.flop is not None:
        assert found.flop(params) == flop


def test_ranges_of_table_2() -> None:
    assert set(INSTANCES) == {"mm", "mv", "mc", "mp"}
    for name, instances in INSTANCES.items():
        parameters = kernel(name).parameters
        assert {*instances.sizes, *instances.densities} == set(parameters)
        assert all(rows in instances.sizes and columns in instances.sizes for rows, columns in instances.densities.values())
        assert (min(instances.sizes["m"]), max(instances.sizes["m"])) == (1, 1024)
    assert INSTANCES["mc"].sizes["r"] == (3, 5, 7)
    assert INSTANCES["mp"].sizes["r"] == (2, 3, 4, 5)
    assert INSTANCES["mp"].sizes["s"] == (1, 2)
    assert INSTANCES["mm"].densities == {"d1": ("m", "n"), "d2": ("n", "k")}
    assert INSTANCES["mc"].at_least == INSTANCES["mp"].at_least == {"m": "r", "n": "r"}
