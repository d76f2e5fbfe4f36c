from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import DataError, UsageError
from workbench.features.inputs import OPERATIONS, Term
from workbench.models.base import CostModel
from workbench.models.compact import CompactMatrix, CompactModel, CompactSchedule, Options
from workbench.models.compiled import CompiledModel, compile_alternatives, compile_model
from workbench.models.evidence import SmallNet
from workbench.models.interpreter import BLOCK
from workbench.models.linear import LinearModel, LinearRegressionC
from workbench.models.nnc import LogNetwork, Network, PaperNetwork
from workbench.models.training import n_weights
from workbench.models.trees import RandomForest

Invent = Callable[..., Any]

# Every operation, a column used twice, and columns in another order than the frame's.
TERMS = (*(Term(op, "b", "a" if op == "overhang" else "") for op in OPERATIONS), Term("log2", "a"), Term("value", "c"), Term("alignment", "a"))


def frame(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"a": rng.integers(1, 1025, rows), "b": rng.choice([0.25, 1.0, 2.5, 16.0, 48.0, 700.0], rows), "c": rng.normal(size=rows)})


def network(layers: tuple[int, ...], log: bool, seed: int = 0, terms: tuple[Term, ...] = TERMS) -> Network:
    rng = np.random.default_rng(seed)
    d = layers[0]
    weights = rng.normal(size=n_weights(layers)) / np.sqrt(d)
    out = (-6.0, 0.7) if log else (0.0, 1.0)
    return Network("random", terms, layers, weights, rng.normal(size=d), rng.uniform(0.5, 200, d), *out, log)


def small(hidden: int, mixture: int, seed: int = 0, terms: tuple[Term, ...] = TERMS) -> CompactModel:
    rng = np.random.default_rng(seed)
    net = SmallNet(len(terms), hidden, mixture)
    weights = rng.normal(size=net.n_parameters)
    return CompactModel("random", terms, net, weights, rng.normal(size=len(terms)), rng.uniform(0.5, 200, len(terms)), -5.0, 0.8, 0.1)


D = len(TERMS)
MODELS: dict[str, CostModel] = {
    "linear": LinearModel("random", TERMS, np.random.default_rng(1).normal(size=D), 0.3),
    "no hidden layer": network((D, 1), False),
    "one hidden layer": network((D, 7, 1), False),
    "two hidden layers": network((D, 15, 15, 1), False),
    "three hidden layers": network((D, 4, 9, 3, 1), True),
    "log": network((D, 7, 1), True),
    "tanh": small(4, 0),
    "tanh and one term": small(3, 1),
    "tanh and terms": small(5, 4),
    **{f"{op} alone": network((1, 3, 1), True, terms=(Term(op, "b", "a" if op == "overhang" else ""),)) for op in OPERATIONS},
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 1000])
def test_equals_the_model(model: CostModel, rows: int) -> None:
    data = frame(rows)
    fast = compile_model(model)
    expected = model.predict_time_s(data)
    # Relative to the size of the outputs where a raw output comes near zero.
    np.testing.assert_allclose(fast.predict_time_s(data), expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())
    values = data[list(fast.columns)].to_numpy(dtype=float)
    assert fast.predict_one(*values[-1].tolist()) == pytest.approx(expected[-1], rel=1e-6)
    np.testing.assert_array_equal(fast.predict(values), fast.predict_time_s(data))


def test_many_random_models() -> None:
    data = frame(70, seed=9)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        chosen = tuple(TERMS[i] for i in rng.choice(D, rng.integers(1, D + 1), replace=False))
        hidden = tuple(rng.integers(1, 12, rng.integers(0, 4)).tolist())
        for model in (network((len(chosen), *hidden, 1), True, seed, chosen), small(int(rng.integers(1, 9)), int(rng.integers(0, 6)), seed, chosen)):
            np.testing.assert_allclose(compile_model(model).predict_time_s(data), model.predict_time_s(data), rtol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "kind", "recipe"),
    [
        ("mm", "cpu", LinearRegressionC()),
        ("mm", "cpu", PaperNetwork(epochs_scale=0.002)),
        ("mm", "gpu", PaperNetwork(unconstrained=True, epochs_scale=0.002)),
        ("mc", "gpu", LogNetwork()),
        ("mm", "cpu", CompactMatrix(Options(hidden=0, restarts=1, steps=10, inputs="indicated"))),
        ("mm", "gpu", CompactMatrix(Options(restarts=1, steps=10))),
        ("blur", "cpu", CompactSchedule(replace(CompactSchedule.candidates[0], restarts=1, steps=10))),
    ],
)
def test_fitted_models_compile(kernel: str, kind: str, recipe: Any, invent: Invent) -> None:
    data = invent(kernel, kind)
    model = recipe.fit([(data, np.arange(60))])[0]
    fast = compile_model(model)
    np.testing.assert_allclose(fast.predict_time_s(data.frame), model.predict_time_s(data.frame), rtol=1e-6)
    assert set(fast.columns) <= {*data.inputs, "c"}


@pytest.mark.parametrize(
    "name", ["linear", "one hidden layer", "two hidden layers", "tanh", "tanh and terms", "alignment alone", "emptied alone", "inverse alone"]
)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_gives_nan_and_spares_the_others(name: str, bad: float) -> None:
    fast = compile_model(MODELS[name])
    values = frame(130)[list(fast.columns)].to_numpy(dtype=float)
    clean = fast.predict(values)
    for column in range(values.shape[1]):
        spoilt = values.copy()
        spoilt[70, column] = bad
        out = fast.predict(spoilt)
        assert np.isnan(out[70])
        np.testing.assert_array_equal(np.delete(out, 70), np.delete(clean, 70))
        assert np.isnan(fast.predict_one(*spoilt[70].tolist()))


def test_what_has_no_logarithm_gives_nan() -> None:
    fast = compile_model(MODELS["log2 alone"])
    out = fast.predict([[4.0], [0.0], [-1.0]])
    assert np.isfinite(out).tolist() == [True, False, False]
    assert np.isnan(out[1:]).all()


def test_large_and_saturated_values_stay_finite() -> None:
    model = small(4, 3, terms=(Term("value", "a"), Term("alignment", "a")))
    data = pd.DataFrame({"a": [1e3, -1e3, 1e4, 0.0]})
    fast = compile_model(replace(model, out_scale=1e-6))
    np.testing.assert_allclose(fast.predict_time_s(data), replace(model, out_scale=1e-6).predict_time_s(data), rtol=1e-6)


def test_columns_are_checked() -> None:
    fast = compile_model(MODELS["tanh"])
    assert fast.columns == ("b", "a", "c")
    for shape in ((5, 2), (5, 4), (3,), (1, 1, 3)):
        with pytest.raises(UsageError, match=r"takes an array \[n, 3\] of b, a, c; this one has shape"):
            fast.predict(np.ones(shape))
    with pytest.raises(UsageError, match=r"takes 3 values \(b, a, c\); 2 were given"):
        fast.predict_one(1.0, 2.0)
    with pytest.raises(DataError, match="'c' is not a column of the frame; it has a, b"):
        fast.predict_time_s(frame(3)[["a", "b"]])
    assert fast.predict(np.empty((0, 3))).shape == (0,)


def test_any_memory_layout_gives_the_same() -> None:
    fast = compile_model(MODELS["tanh"])
    values = frame(200)[list(fast.columns)].to_numpy(dtype=float)
    expected = fast.predict(values)
    read_only = values.copy()
    read_only.flags.writeable = False
    for layout in (np.asfortranarray(values), read_only, values.tolist(), np.repeat(values, 2, axis=0)[::2]):
        np.testing.assert_array_equal(fast.predict(layout), expected)


def test_other_models_and_broken_ones_are_refused(invent: Invent) -> None:
    forest = RandomForest().fit([(invent("mv", "gpu", rows=20), np.arange(15))])[0]
    with pytest.raises(UsageError, match="is a TreeModel; only linear models, networks and compact models compile"):
        compile_model(forest)
    model = network((D, 7, 1), False)
    for weights in (model.weights[:-1], np.where(np.arange(len(model.weights)) == 3, np.nan, model.weights)):
        with pytest.raises(UsageError, match=rf"it needs {n_weights((D, 7, 1))} finite ones"):
            compile_model(replace(model, weights=weights))


def test_a_compiled_model_cannot_be_changed_by_its_source() -> None:
    model = network((D, 7, 1), False)
    fast = compile_model(model)
    before = fast.predict_time_s(frame(4))
    model.weights[:] = 0
    np.testing.assert_array_equal(fast.predict_time_s(frame(4)), before)
    assert isinstance(fast, CompiledModel)
    assert not fast.numbers.flags.writeable


def test_alternatives_equal_the_models_row_by_row() -> None:
    """Models of different kinds and columns; rows beyond a chunk; given values that a model reads in another order."""
    mixed = [MODELS["log"], MODELS["tanh and terms"], MODELS["one hidden layer"]]
    values = {"c": 0.3, "a": 96.0}
    rows = [BLOCK * 20 + 5, 1, 70]
    groups = [(compile_model(model), frame(count, seed)[["b"]]) for seed, (model, count) in enumerate(zip(mixed, rows, strict=True))]
    found = compile_alternatives(groups, tuple(values))
    expected = np.concatenate([model.predict_time_s(fixed.assign(**values)) for model, (_, fixed) in zip(mixed, groups, strict=True)])
    np.testing.assert_allclose(found.times(*values.values()), expected, rtol=1e-6)
    assert found.size == len(expected)

    def least(times: np.ndarray) -> int:
        return int(np.argmin(np.where(times > 0, times, np.inf)))

    # The network of raw seconds predicts times below zero, which are none.
    assert (expected <= 0).any()
    assert found.fastest(*values.values()) == least(expected)
    # Integers, and numbers of numpy.
    assert found.fastest(0, np.int64(96)) == least(found.times(0.0, 96.0))


def test_alternatives_of_one_row_and_none_fixed() -> None:
    model = compile_model(small(3, 1, terms=(Term("log2", "a"), Term("value", "b"))))
    alone = compile_alternatives([(model, pd.DataFrame(index=range(1)))], ("b", "a"))
    assert alone.times(2.5, 64.0)[0] == model.predict_one(64.0, 2.5)
    assert alone.fastest(2.5, 64.0) == 0
    for bad in (0.0, np.nan, np.inf):
        assert alone.fastest(2.5, bad) == -1
        assert np.isnan(alone.times(2.5, bad)).all()


def test_the_first_of_equal_rows_is_the_fastest_and_nan_never_is() -> None:
    model = compile_model(MODELS["log"])
    fixed = pd.DataFrame({"a": [0.0, 64.0, 64.0, -1.0], "b": 16.0, "c": 0.5})
    found = compile_alternatives([(model, fixed), (model, fixed)], ())
    assert found.fastest() == 1
    assert np.isnan(found.times()).tolist() == [True, False, False, True] * 2


# Three models of each of five structures, one of which predicts seconds as they are.
ALIKE = [
    [make(seed) for seed in range(3)]
    for make in (
        partial(small, 4, 0),
        partial(small, 3, 2),
        partial(small, 3, 2, terms=TERMS[::-1]),
        partial(network, (D, 7, 1), True),
        partial(network, (D, 5, 6, 1), False),
    )
]
FAST = {id(model): compile_model(model) for models in ALIKE for model in models}


@given(
    drawn=st.lists(st.tuples(st.integers(0, len(ALIKE) - 1), st.integers(0, 2), st.integers(1, 12)), min_size=1, max_size=24),
    c=st.floats(-3, 3),
    a=st.integers(1, 1024),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=40)
def test_stacked_models_equal_each_alone(drawn: list[tuple[int, int, int]], c: float, a: int, seed: int) -> None:
    """Whatever is packed together, in whatever order: rows of few models or many, stacks that overflow a block, models of many rows between."""
    models = [ALIKE[structure][which] for structure, which, _ in drawn]
    frames = [frame(rows, seed + i)[["b"]] for i, (_, _, rows) in enumerate(drawn)]
    together = compile_alternatives([(FAST[id(m)], f) for m, f in zip(models, frames, strict=True)], ("c", "a"))
    alone = [compile_alternatives([(FAST[id(m)], f)], ("c", "a")) for m, f in zip(models, frames, strict=True)]
    times = together.times(c, a)
    np.testing.assert_allclose(times, np.concatenate([one.times(c, a) for one in alone]), rtol=1e-10, atol=1e-12)
    expected = [m.predict_time_s(f.assign(c=c, a=float(a))) for m, f in zip(models, frames, strict=True)]
    np.testing.assert_allclose(times, np.concatenate(expected), rtol=1e-6, atol=1e-9)
    place = together.fastest(c, a)
    if place < 0:
        assert (times <= 0).all()
    else:
        assert times[place] == pytest.approx(times[times > 0].min(), rel=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 8, 9])
@pytest.mark.parametrize("structures", [(0, 3), (3, 0)])
def test_the_first_of_equal_rows_wins_in_the_order_of_the_caller(rows: int, structures: tuple[int, int]) -> None:
    """Two models take turns, so that the places of their stacks interleave."""
    one, other = (FAST[id(ALIKE[structure][0])] for structure in structures)
    fixed = pd.DataFrame({"b": [16.0] * rows})
    found = compile_alternatives([(one, fixed), (other, fixed)] * 4, ("c", "a"))
    times = found.times(0.5, 64.0)
    np.testing.assert_array_equal(times, np.tile(times[: 2 * rows], 4))
    assert found.fastest(0.5, 64.0) == (0 if times[0] < times[rows] else rows)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_of_a_stack_that_is_not_finite_spares_the_others(bad: float) -> None:
    for models in ALIKE:
        frames = [frame(2, seed)[["b"]] for seed in range(3)]
        clean = compile_alternatives([(FAST[id(m)], f) for m, f in zip(models, frames, strict=True)], ("c", "a")).times(0.5, 64.0)
        frames[1].loc[1, "b"] = bad
        spoilt = compile_alternatives([(FAST[id(m)], f) for m, f in zip(models, frames, strict=True)], ("c", "a"))
        assert np.flatnonzero(np.isnan(spoilt.times(0.5, 64.0))).tolist() == [3]
        np.testing.assert_array_equal(np.delete(spoilt.times(0.5, 64.0), 3), np.delete(clean, 3))
        # A given value that is not finite spoils all rows.
        assert np.isnan(spoilt.times(bad, 64.0)).all()
        assert spoilt.fastest(bad, 64.0) == -1


def test_alternatives_that_cannot_be() -> None:
    model = compile_model(MODELS["log"])
    with pytest.raises(DataError, match=r"the model's input 'b' is neither given \(a, c\) nor a column \(q\)"):
        compile_alternatives([(model, pd.DataFrame({"q": [1.0]}))], ("a", "c"))
    with pytest.raises(UsageError, match="has no rows to choose among"):
        compile_alternatives([(model, frame(0))], ())
    with pytest.raises(UsageError, match="0 models and 1 given values"):
        compile_alternatives([], ("a",))
    with pytest.raises(UsageError, match="1 models and 6 given values"):
        compile_alternatives([(model, frame(1))], tuple("abcdef"))
    with pytest.raises(UsageError, match=r"1 values are needed \(a\); 2 were given"):
        compile_alternatives([(model, frame(1))], ("a",)).fastest(1.0, 2.0)


def test_the_operation_count_is_computed_in_the_call() -> None:
    terms = (Term("log2", "m"), Term("log2", "c"), Term("value", "threads"))
    model = small(3, 2, terms=terms)
    fixed = pd.DataFrame({"threads": [1.0, 2.0, 8.0, 16.0]})
    found = compile_alternatives([(compile_model(model), fixed)], ("m", "r"), lambda p: -(-p["m"] // p["r"]) * p["r"] ** 2 + 1)
    for m, r in ((7, 2), (1000, 3), (1, 1)):
        expected = model.predict_time_s(fixed.assign(m=float(m), c=float(-(-m // r) * r**2 + 1)))
        np.testing.assert_allclose(found.times(m, r), expected, rtol=1e-6)
        assert found.fastest(m, r) == found.call(m, r) == int(np.argmin(expected))
