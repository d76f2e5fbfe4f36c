"""Trees laid out side by side say what XGBoost says, to the last bit."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import DataError, MissingPackage
from workbench.models import forest
from workbench.models.boosting import Trees
from workbench.models.forest import Forest, QuickTrees


def grown(objective: str = "reg:squarederror", *, depth: int = 4, rounds: int = 20, columns: int = 5, seed: int = 0) -> tuple[xgboost.Booster, np.ndarray]:
    """A booster and 300 rows that it was grown on."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(300, columns)).astype(np.float32)
    rows[:, 0] = rng.integers(3, size=300)  # thresholds that values meet
    label = rows[:, 0] * rows[:, -1] + rng.normal(size=300)
    label = (label > 0).astype(float) if objective == "reg:logistic" else label
    data = xgboost.DMatrix(rows, label=label, nthread=1)
    if objective == "rank:pairwise":
        data = xgboost.DMatrix(rows, label=(label > 0).astype(float), qid=np.repeat([0, 1, 2], 100), nthread=1)
    return xgboost.train({"objective": objective, "max_depth": depth, "eta": 0.3, "nthread": 1, "seed": seed}, data, rounds), rows


@settings(max_examples=20, deadline=None)
@given(depth=st.integers(1, 7), rounds=st.integers(0, 30), columns=st.integers(1, 9), count=st.integers(0, 300), seed=st.integers(0, 999))
def test_sums_equal_xgboost(depth: int, rounds: int, columns: int, count: int, seed: int) -> None:
    booster, rows = grown(depth=depth, rounds=rounds, columns=columns, seed=seed)
    asked = rows[:count]
    expected = booster.inplace_predict(asked, predict_type="margin") if count else np.empty(0, dtype=np.float32)
    np.testing.assert_array_equal(Forest.of(booster).margin(asked), expected)


@pytest.mark.parametrize("objective", ["reg:squarederror", "rank:pairwise", "reg:logistic"])
def test_objectives(objective: str) -> None:
    booster, rows = grown(objective)
    np.testing.assert_array_equal(Forest.of(booster).margin(rows), booster.inplace_predict(rows, predict_type="margin"))


def test_rows_in_any_order_of_memory() -> None:
    booster, rows = grown()
    turned = np.asfortranarray(rows)[::3]
    np.testing.assert_array_equal(Forest.of(booster).margin(turned), booster.inplace_predict(np.ascontiguousarray(turned)))


def test_quick_trees_are_the_trees() -> None:
    booster, rows = grown()
    trees = Trees(booster, ("a", "b", "c", "d", "e"))
    quick = QuickTrees.of(trees)
    columns = {name: place for place, name in enumerate("edcba")}
    turned = np.ascontiguousarray(rows[:, ::-1])
    np.testing.assert_array_equal(quick.margin(turned, columns), trees.margin(turned, columns))
    onto = np.linspace(0, 1, len(rows))
    np.testing.assert_array_equal(quick.margin(turned, columns, onto), trees.margin(turned, columns, onto))


def test_what_cannot_be_read_is_said() -> None:
    booster, rows = grown()
    deep = xgboost.train({"max_depth": 12, "min_child_weight": 0, "nthread": 1}, xgboost.DMatrix(np.arange(4096.0)[:, None], label=np.arange(4096) % 7), 1)
    with pytest.raises(DataError, match=r"trees of depth 1\d; 10 at most"):
        Forest.of(deep)
    poisson = xgboost.train({"objective": "count:poisson", "nthread": 1}, xgboost.DMatrix(rows, label=np.ones(300)), 2)
    with pytest.raises(DataError, match="objective 'count:poisson'; one of reg:squarederror"):
        Forest.of(poisson)
    rows[7, 2] = np.nan
    with pytest.raises(DataError, match="column 2 of row 7 is nan"):
        Forest.of(booster).margin(rows)


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    forest._compiled.cache_clear()
    booster, rows = grown()
    with pytest.raises(MissingPackage, match="scoring by trees needs the package 'numba', which is not installed; run: pip install numba"):
        Forest.of(booster).margin(rows)
