"""NN+C's matrix kernels: the work of Table II, worked out by hand, of numbers and of columns."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.kernels.matrix import INSTANCES, LIBRARIES, Instances


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


@pytest.mark.parametrize("name", INSTANCES)
def test_a_draw_stays_within_the_ranges_and_reaches_their_ends(name: str) -> None:
    instances, drawn = INSTANCES[name], INSTANCES[name].draw(3000, 1)
    assert len({tuple(sorted(one.items())) for one in drawn}) == 3000
    for one in drawn:
        assert list(one) == [*instances.sizes, *instances.densities]
        assert all(one[size] in values for size, values in instances.sizes.items())
        assert all(one[size] >= one[least] for size, least in instances.at_least.items())
        for density, (rows, columns) in instances.densities.items():
            power = -np.log2(one[density])
            assert power == int(power)
            assert 0 <= power <= np.log2(one[rows] * one[columns])
    for size, values in instances.sizes.items():
        found = np.array([one[size] for one in drawn])
        if len(values) < 10:
            assert {*found} == {*values}
        else:
            # A uniform draw's mean is within five standard errors of the middle, and its ends are met within a hundredth.
            assert abs(found.mean() - 512.5) < 5 * 296 / np.sqrt(3000) + 4
            assert found.min() <= 10
            assert found.max() >= 1014
    for density, (rows, columns) in instances.densities.items():
        assert {one[density] for one in drawn} >= {1.0, 0.5, 0.25, 2.0**-10}
        # p is uniform over 0 .. floor(log2 of the matrix's elements): its share of the highest p is one half on average.
        shares = [-np.log2(one[density]) / max(1, int(np.log2(one[rows] * one[columns]))) for one in drawn]
        assert abs(np.mean(shares) - 0.5) < 0.05


def test_a_longer_draw_begins_with_a_shorter_one() -> None:
    for instances in INSTANCES.values():
        assert instances.draw(50, 4) == instances.draw(400, 4)[:50]
        assert instances.draw(50, 4) != instances.draw(50, 5)
        assert instances.draw(0) == []


def test_a_draw_that_cannot_be_had_is_refused() -> None:
    few = Instances({"m": (1, 2), "n": (1, 2)}, densities={"d1": ("m", "n")})
    # (1, 1) has one density, (1, 2) and (2, 1) have two each, (2, 2) has three.
    assert len(few.draw(8)) == 8
    with pytest.raises(UsageError, match="cannot draw 9 different instances from these ranges; 8 were found"):
        few.draw(9)
    with pytest.raises(UsageError, match="cannot draw -1"):
        few.draw(-1)


def test_every_library_has_its_program() -> None:
    assert all(library.source.is_file() for library in LIBRARIES.values())
    assert [library.threads for library in LIBRARIES.values()] == [True, False]
