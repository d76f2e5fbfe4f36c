"""The paper's baselines C, LR+C and NLR+C, our own trees, and the contract that every recipe shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from workbench.errors import DataError, WorkbenchError
from workbench.models.base import Recipe
from workbench.models.compact import CompactMatrix, CompactSchedule, Options
from workbench.models.linear import Constant, LinearModel, LinearRegressionC
from workbench.models.nnc import LogNetwork, PaperNetwork
from workbench.models.trees import BoostedTrees, NonlinearRegressionC, RandomForest

Invent = Callable[..., Any]

ROWS = np.arange(60)
QUICK = Options(restarts=1, steps=12)
RECIPES: list[Recipe] = [
    Constant(),
    LinearRegressionC(),
    NonlinearRegressionC(),
    PaperNetwork(epochs_scale=0.001),
    PaperNetwork(complexity=False, epochs_scale=0.001),
    LogNetwork(),
    CompactMatrix(QUICK),
    CompactSchedule(replace(CompactSchedule.candidates[0], restarts=1, steps=12)),
]
NAMES = [f"{type(r).__name__}-{r.name}" for r in RECIPES]


def test_lr_c_equals_least_squares(invent: Invent) -> None:
    data = invent("mm", "cpu")
    model = LinearRegressionC().fit([(data, ROWS)])[0]
    frame = data.frame.iloc[ROWS]
    design = np.column_stack([*(frame[c] for c in ("m", "n", "k", "d1", "d2", "threads", "c")), np.ones(len(ROWS))])
    expected, *_ = np.linalg.lstsq(design / np.abs(design).max(0), frame["time_s"].to_numpy(), rcond=None)
    assert isinstance(model, LinearModel)
    np.testing.assert_allclose([*model.weights, model.intercept], expected / np.abs(design).max(0), rtol=1e-5)
    np.testing.assert_allclose(model.predict_time_s(frame), design @ [*model.weights, model.intercept], rtol=1e-12)
    assert model.n_parameters == 8


def test_c_uses_the_count_alone(invent: Invent) -> None:
    data = invent("mv", "gpu")
    model = Constant().fit([(data, ROWS)])[0]
    slope, intercept = np.polyfit(data.frame["c"][ROWS], data.frame["time_s"][ROWS], 1)
    frame = data.frame[["c"]]
    np.testing.assert_allclose(model.predict_time_s(frame), slope * frame["c"] + intercept, rtol=1e-8)
    assert model.n_parameters == 2


@pytest.mark.parametrize(("kernel", "kind", "trees"), [("mm", "cpu", 200), ("mm", "gpu", 100), ("mv", "cpu", 100), ("mc", "gpu", 100), ("blur", "cpu", 100)])
def test_nlr_c_has_the_papers_number_of_trees(kernel: str, kind: str, trees: int, invent: Invent) -> None:
    data = invent(kernel, kind, rows=40)
    model: Any = NonlinearRegressionC().fit([(data, np.arange(30))])[0]
    assert len(model.estimator.estimators_) == trees
    assert model.estimator.max_features == 1.0
    assert [t.to_json() for t in model.terms] == [["value", c] for c in (*data.inputs, "c")]
    assert model.n_parameters == sum(t.tree_.node_count for t in model.estimator.estimators_)


@pytest.mark.parametrize("recipe", [RandomForest(), BoostedTrees()], ids=lambda r: r.name)
def test_trees_on_logarithms_learn_a_law(recipe: Recipe, invent: Invent) -> None:
    data = invent("mc", "gpu", rows=200)
    model = recipe.fit([(data, np.arange(150))], seed=3)[0]
    test = data.frame.iloc[150:]
    residual = np.log(model.predict_time_s(test) / test["time_s"])
    assert np.abs(residual).mean() < 0.5 * np.abs(np.log(test["time_s"] / np.exp(np.log(data.frame["time_s"][:150]).mean()))).mean()
    again = recipe.fit([(data, np.arange(150))], seed=3)[0]
    np.testing.assert_array_equal(again.predict_time_s(test), model.predict_time_s(test))
    assert model.n_parameters > 1000


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
def test_predictions_are_log_throughput(recipe: Recipe, invent: Invent) -> None:
    data = invent("mv", "cpu")
    model = recipe.fit([(data, ROWS)])[0]
    time = model.predict_time_s(data.frame)
    prediction = model.predict(data.frame)
    assert time.shape == prediction.mean.shape == prediction.std.shape == (len(data.frame),)
    assert np.isfinite(time).all()
    np.testing.assert_allclose(prediction.mean, -np.log(np.maximum(time, 1e-9)))
    assert model.name == recipe.name


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
def test_an_input_that_never_varies_is_no_trouble(recipe: Recipe, invent: Invent) -> None:
    data = invent("mv", "cpu")
    data = replace(data, frame=data.frame.assign(d1=1.0, threads=2))
    assert np.isfinite(recipe.fit([(data, ROWS)])[0].predict_time_s(data.frame)).all()


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
def test_what_cannot_be_learned_from_is_named_in_one_line(recipe: Recipe, invent: Invent) -> None:
    data = invent("mv", "cpu")

    def message(frame_change: Callable[[Any], Any], rows: np.ndarray = ROWS) -> str:
        with pytest.raises(WorkbenchError) as caught:
            recipe.fit([(replace(data, frame=frame_change(data.frame.copy())), rows)])
        text = str(caught.value)
        assert "\n" not in text
        return text

    failed = message(lambda f: f.assign(time_s=f["time_s"].where(f.index != 7), status=f["status"].where(f.index != 7, "timeout")))
    assert "row 7: no time to learn from (status timeout)" in failed
    assert "row 3: no time" in message(lambda f: f.assign(time_s=f["time_s"].where(f.index != 3, 0.0)))
    assert "no rows to learn from" in message(lambda f: f, np.array([], dtype=np.int64))
    if recipe.name != "C":
        assert "'threads' is not a column of the frame" in message(lambda f: f.drop(columns="threads"))
        assert "m is nan" in message(lambda f: f.assign(m=f["m"].where(f.index != 5)))
    if isinstance(recipe, LogNetwork | CompactMatrix | CompactSchedule):
        assert "log2(m) is -inf" in message(lambda f: f.assign(m=f["m"].where(f.index != 5, 0)))


def test_a_frame_without_an_input_is_refused(invent: Invent) -> None:
    data = invent("mv", "cpu")
    model = LinearRegressionC().fit([(data, ROWS)])[0]
    with pytest.raises(DataError, match="'threads' is not a column of the frame"):
        model.predict_time_s(data.frame.drop(columns="threads"))


def test_c_is_made_where_the_source_has_none(invent: Invent) -> None:
    data = invent("mm", "gpu")
    bare = replace(data, frame=data.frame.drop(columns="c"))
    with_c, without = (LinearRegressionC().fit([(d, ROWS)])[0] for d in (data, bare))
    np.testing.assert_array_equal(with_c.predict_time_s(data.frame), without.predict_time_s(data.frame))
