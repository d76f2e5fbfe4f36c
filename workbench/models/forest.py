"""Boosted trees that score configurations by the thousand: what XGBoost says of them, to the last bit, in a third of its time.

XGBoost goes through a tree row by row, and each step waits for the one before. Here every tree is filled up to the same depth, so that 64 rows take each step
side by side and no step has a branch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.errors import DataError, MissingPackage
from workbench.models.boosting import Trees

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xgboost import Booster

__all__ = ["Forest", "QuickTrees"]

_Floats = NDArray[np.float32]

_DEEPEST = 10  # a tree that is filled up has 2^depth leaves
_LOGISTIC = "reg:logistic"
_OBJECTIVES = ("reg:squarederror", "rank:pairwise", _LOGISTIC)


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees of one depth, node by node from the root, the children of node q being 2 q + 1 and 2 q + 2. A row goes to the second where it is not below.

    Attributes:
        feature: column that a node looks at [trees, 2^depth - 1].
        threshold: of each node, the same shape.
        leaf: what each leaf adds [trees, 2^depth].
        start: what is there before the first tree.
    """

    feature: NDArray[np.uint64]
    threshold: _Floats
    leaf: _Floats
    start: np.float32

    @classmethod
    def of(cls, booster: Booster) -> Forest:
        """The trees of XGBoost's booster of one output and numbers as columns. Raises DataError for trees deeper than 10 and for objectives other than ours."""
        learner = json.loads(booster.save_raw("json"))["learner"]
        if (objective := learner["objective"]["name"]) not in _OBJECTIVES:
            raise DataError(f"trees of the objective {objective!r}; one of {', '.join(_OBJECTIVES)} is what can be read")
        trees = learner["gradient_booster"]["model"]["trees"]
        depth = max(map(_depth, trees), default=0)
        if depth > _DEEPEST:
            raise DataError(f"trees of depth {depth}; {_DEEPEST} at most")
        feature = np.zeros((len(trees), 2**depth - 1), dtype=np.uint64)
        threshold = np.full(feature.shape, np.inf, dtype=np.float32)
        leaf = np.zeros((len(trees), 2**depth), dtype=np.float32)
        for number, tree in enumerate(trees):
            left, right, split, condition = (tree[name] for name in ("left_children", "right_children", "split_indices", "split_conditions"))
            waiting = [(0, 0, 0)]  # node, its place among those of its level, level
            while waiting:
                node, place, level = waiting.pop()
                if left[node] < 0:  # a leaf, whose value is its condition, for all leaves that would be under it
                    below = 2 ** (depth - level)
                    leaf[number, place * below : (place + 1) * below] = condition[node]
                else:
                    at = 2**level - 1 + place
                    feature[number, at], threshold[number, at] = split[node], condition[node]
                    waiting += [(left[node], 2 * place, level + 1), (right[node], 2 * place + 1, level + 1)]
        (start,) = np.atleast_1d(json.loads(learner["learner_model_param"]["base_score"])).astype(np.float32)
        if objective == _LOGISTIC:  # kept as a probability, which is 1 where no label was less
            with np.errstate(divide="ignore"):
                start = -np.log(np.float32(1) / start - np.float32(1))
        return cls(feature, threshold, leaf, start)

    def margin(self, rows: _Floats) -> _Floats:
        """What the trees say together of rows [n, columns] before any transformation [n]. Raises DataError for a row with what is no finite number."""
        if not np.isfinite(rows).all():
            row, column = np.argwhere(~np.isfinite(rows))[0]
            raise DataError(f"column {column} of row {row} is {rows[row, column]}; trees take finite numbers")
        found = np.full(len(rows), self.start, dtype=np.float32)
        _compiled()(np.ascontiguousarray(rows, dtype=np.float32), self.feature, self.threshold, self.leaf, found)
        return found


def _depth(tree: Mapping[str, Any]) -> int:
    level = [0] * len(tree["left_children"])
    for node, children in enumerate(zip(tree["left_children"], tree["right_children"], strict=True)):
        for child in children:
            if child >= 0:  # a child stands behind its parent
                level[child] = level[node] + 1
    return max(level)


@dataclass(frozen=True, eq=False)
class QuickTrees(Trees):
    """Trees that keep a forest of them, for many rows.

    Attributes:
        forest: of the booster.
    """

    forest: Forest

    @classmethod
    def of(cls, trees: Trees) -> QuickTrees:
        """The same trees."""
        return cls(trees.booster, trees.columns, Forest.of(trees.booster))

    def margin(self, rows: _Floats, columns: Mapping[str, int], onto: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """See `Trees`."""
        if onto is not None:
            return super().margin(rows, columns, onto)
        mine = rows[:, [columns[name] for name in self.columns]] if tuple(columns) != self.columns else rows
        return self.forest.margin(mine).astype(np.float64)


_SIDE = 64  # rows that take each step side by side: their numbers fit into the nearest cache


def _add(rows: _Floats, feature: NDArray[np.uint64], threshold: _Floats, leaf: _Floats, found: _Floats) -> None:
    # Rows [n, columns]: what trees say is added to `found` [n], in the order of the trees. Places are without a sign: no step asks whether one counts from
    # the end, and so the compiler takes several rows with one instruction.
    count, columns = rows.shape
    side, two = np.uint64(_SIDE), np.uint64(2)
    numbers = np.zeros(columns * _SIDE, np.float32)
    at = np.zeros(_SIDE, np.uint64)
    total = np.zeros(_SIDE, np.float32)
    for first in range(0, count, _SIDE):
        here = min(_SIDE, count - first)
        for i in range(here):
            for column in range(columns):
                numbers[column * _SIDE + i] = rows[first + i, column]
            total[i] = found[first + i]
        for tree in range(len(leaf)):
            looks, below, leaves = feature[tree], threshold[tree], leaf[tree]
            at[:] = np.uint64(0)
            start, wide = np.uint64(0), np.uint64(1)
            while wide < np.uint64(len(leaves)):
                for i in range(_SIDE):
                    node = start + at[i]
                    at[i] = two * at[i] + np.uint64(numbers[looks[node] * side + np.uint64(i)] >= below[node])
                start += wide
                wide *= two
            for i in range(_SIDE):
                total[i] += leaves[at[i]]
        for i in range(here):
            found[first + i] = total[i]


@cache
def _compiled() -> Any:
    try:
        import numba
    except ImportError as error:
        raise MissingPackage("scoring by trees needs the package 'numba', which is not installed; run: pip install numba") from error
    types = numba.types
    floats, table = types.Array(types.float32, 1, "C"), types.Array(types.float32, 2, "C")
    signature = types.void(table, types.Array(types.uint64, 2, "C"), table, table, floats)
    try:
        return numba.njit(signature, cache=True, nogil=True, error_model="numpy")(_add)
    except Exception:
        # The cache only saves time: no writable folder, a full disk or a damaged file must not stop a prediction. A real fault shows again below.
        return numba.njit(signature, nogil=True, error_model="numpy")(_add)
