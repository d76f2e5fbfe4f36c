"""Loop nests as data: what a sequence of places makes of stride and mod, and nests that cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.errors import UsageError
from workbench.loopnest import Access, Buffer, Loop, LoopNest, NestBatch, Statement, pattern


@pytest.mark.parametrize(
    ("places", "stride", "mod"),
    [
        ([], 0, -1),
        ([7], 0, -1),
        ([7, 7, 7], 0, -1),
        ([0, 2, 4, 6], 2, -1),
        ([5, 4, 3], -1, -1),
        ([0, 1, 2, 10, 11, 12], 1, 3),
        ([0, 0, 9, 9], 0, 2),
        ([0, 9, 9, 18], 9, 2),
    ],
)
def test_stride_and_mod_of_places(places: list[int], stride: int, mod: int) -> None:
    assert pattern(np.array(places, dtype=np.int64)) == (stride, mod)


def nest(**changes: Any) -> LoopNest:
    """Rows of an array doubled: for each of 3 rows, four columns or the batch's numbers of them."""
    loops = (Loop("row", -1, 3, "parallel"), Loop("column", 0, np.array([4, 8])), Loop("rest", -1, 2))
    access = {"strides": (np.array([4, 8]), 1), "mods": (-1, -1)}
    given: dict[str, Any] = {
        "batch": 2,
        "loops": loops,
        "buffers": (Buffer("a", "global", (3, np.array([4, 8]))),),
        "statements": (Statement("double", 1, 1, 0, 0, (Access("a", False, **access), Access("a", True, **access))),),
    }
    return LoopNest(**{**given, **changes})


def test_paths() -> None:
    assert nest().paths == ((0,), (0, 1), (2,))
    assert nest().names == ("row", "column", "rest")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loops": (Loop("row", -1, 3), Loop("rest", -1, 2), Loop("column", 0, 4))}, "loop 'column' at 2 cannot be inside loop 0"),
        ({"loops": (Loop("row", 0, 3), Loop("column", 0, 4))}, "loop 'row' at 0 cannot be inside loop 0"),
        ({"loops": (Loop("row", -1, 3, "threads"), Loop("column", 0, 4))}, "loop 'row' cannot be 'threads'; a loop is one of blockIdx.x"),
        ({"loops": (Loop("row", -1, 3), Loop("row", 0, 4))}, "two loops have one name: row, row"),
        ({"loops": (Loop("row", -1, 3), Loop("column", 0, np.array([1, 2, 3])))}, r"loop 'column' has numbers of shape \(3,\); the batch has 2"),
        ({"buffers": 2 * (Buffer("a", "global", (3,)),)}, "two buffers have one name: a, a"),
        ({"buffers": (Buffer("b", "global", (3,)),)}, "an access is to buffer 'a'; there are b"),
        ({"statements": (Statement("store", 1, 0, 0, 0, (Access("a", True, (1,), (-1,)),)),)}, "'a' has 1 strides and 1 mods; 2 loops are around it"),
        ({"statements": (Statement("store", 0, 0, 0, 0, (Access("a", True, (np.array([1]),), (-1,)),)),)}, r"to 'a' has numbers of shape \(1,\)"),
    ],
)
def test_nests_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        nest(**changes)


def test_nodes_of_several_structures() -> None:
    one, other = nest(), nest(loops=(Loop("column", -1, 4), Loop("row", 0, 3), Loop("more", -1, 1)))
    assert NestBatch(4, ((np.array([0, 2]), one), (np.array([1, 3]), other))).nodes == ("row", "column", "rest", "more")
