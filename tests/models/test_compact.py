from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from workbench.features.inputs import aligned_terms, schedule_terms, with_complexity
from workbench.models import compact
from workbench.models.compact import LIMIT, CompactMatrix, CompactModel, CompactSchedule, Options
from workbench.models.evidence import SmallNet

Invent = Callable[..., Any]

SHAPES = [(k, d) for k in ("mm", "mv", "mc", "mp") for d in ("cpu", "gpu")] + [("blur", "cpu"), ("blur_gpu", "gpu"), ("fft", "cpu"), ("fft", "gpu")]


@pytest.mark.parametrize(("kernel", "kind"), SHAPES)
def test_no_recipe_exceeds_74_weights_on_any_shape(kernel: str, kind: str, invent: Invent) -> None:
    data = invent(kernel, kind, rows=40)
    rows = np.arange(36)
    candidates = CompactMatrix.candidates if kernel in ("mm", "mv", "mc", "mp") else CompactSchedule.candidates
    for options in candidates:
        recipe = CompactMatrix(replace(options, restarts=1, steps=2))
        model: Any = recipe.fit([(data, rows)])[0]
        assert model.n_parameters == len(model.weights) <= LIMIT == 74
        assert len(model.terms) == model.net.inputs
        # As many units as the limit allows, where the recipe says so: one more would exceed it.
        if options.hidden == 0:
            assert replace(model.net, hidden=model.net.hidden + 1).n_parameters > LIMIT
        else:
            assert model.net.hidden == options.hidden


def test_the_recipes_are_frozen() -> None:
    first, emptied, stored = CompactMatrix.candidates
    assert first == Options(hidden=4, nu=3.0, robust_from=15, fast_weight=0.15, restarts=12, steps=70, inputs="aligned")
    assert emptied == replace(first, inputs="emptied")
    assert stored == Options(hidden=0, terms=2, nu=6.0, robust_from=15, fast_weight=0.3, restarts=8, steps=70, inputs="stored")
    (schedule,) = CompactSchedule.candidates
    assert (schedule.terms, schedule.nu, schedule.fast_weight, schedule.inputs) == (4, 6.0, 0.6, "schedule")


def law(invent: Invent, sparse: bool, seed: int) -> Any:
    """Synthetic: MV times that follow the non-zeros of A, where a density of 1 costs what the sparsest does; or the invented times as they are."""
    data = invent("mv", "cpu", rows=240, seed=seed, noise=0.01)
    if not sparse:
        return data
    frame = data.frame
    nonzeros = frame["c"] * np.where(frame["d1"] == 1, 2.0**-20, frame["d1"])
    return replace(data, frame=frame.assign(time_s=(1e-9 * nonzeros + 2e-6) * np.exp(0.02 * np.random.default_rng(seed).standard_normal(len(frame)))))


def error(model: Any, test: Any) -> float:
    return float(np.abs(np.log(model.predict_time_s(test) / test["time_s"])).mean())


def test_a_density_of_one_that_costs_nothing_calls_for_the_second_candidate(invent: Invent, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = tuple(replace(c, restarts=3, steps=60) for c in CompactMatrix.candidates)
    monkeypatch.setattr(CompactMatrix, "candidates", quick)
    rows = np.arange(180)
    sparse, plain = law(invent, True, 1), law(invent, False, 1)
    chosen: list[Any] = CompactMatrix().fit([(sparse, rows), (plain, rows)])
    operations = [{t.operation for t in model.terms} for model in chosen]
    assert "emptied" in operations[0]
    # Without such a path the first candidate stays: another must be better by a margin.
    assert "emptied" not in operations[1]
    test = sparse.frame.iloc[180:]
    kept: Any = CompactMatrix(quick[0]).fit([(sparse, rows)])[0]
    assert error(chosen[0], test) < 0.5 * error(kept, test)


def test_two_programs_call_for_the_candidate_that_tells_them_apart(invent: Invent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Synthetic: below half density a program over the non-zeros, from there on one over all elements that is ten times as quick an element."""
    quick = tuple(replace(c, restarts=3, steps=50) for c in CompactMatrix.candidates)
    monkeypatch.setattr(CompactMatrix, "candidates", quick)
    data = invent("mv", "cpu", rows=300, seed=4)
    frame = data.frame
    sparse = frame["d1"] < 0.5
    time = 2e-6 + frame["c"] * np.where(sparse, 1e-9 * frame["d1"], 1e-10)
    data = replace(data, frame=frame.assign(time_s=time * np.exp(0.01 * np.random.default_rng(0).standard_normal(300))))
    rows = np.arange(200)
    chosen: Any = CompactMatrix().fit([(data, rows)])[0]
    assert {"stored", "dense"} <= {t.operation for t in chosen.terms}
    assert chosen.n_parameters <= LIMIT
    kept: Any = CompactMatrix(quick[0]).fit([(data, rows)])[0]
    test = data.frame.iloc[200:]
    assert error(chosen, test) < 0.7 * error(kept, test)


def test_nothing_is_compared_where_no_row_tells_the_candidates_apart(invent: Invent, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("compared")

    monkeypatch.setattr(compact, "_inner_errors", refuse)
    monkeypatch.setattr(CompactMatrix, "candidates", tuple(replace(c, restarts=1, steps=3) for c in CompactMatrix.candidates))
    sparse = invent("mv", "cpu")
    rows = np.flatnonzero(sparse.frame["d1"] < 0.5)
    CompactMatrix().fit([(invent("mm", "gpu"), np.arange(60)), (sparse, rows)])
    with pytest.raises(AssertionError, match="compared"):
        CompactMatrix().fit([(sparse, np.arange(90))])


def test_the_choice_sees_training_rows_only(invent: Invent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompactMatrix, "candidates", tuple(replace(c, restarts=2, steps=15) for c in CompactMatrix.candidates))
    rows = np.arange(90)
    data = law(invent, True, 2)
    spoilt = replace(data, frame=data.frame.assign(time_s=np.where(data.frame.index < 90, data.frame["time_s"], 1e6)))
    a, b = (CompactMatrix().fit([(d, rows)])[0] for d in (data, spoilt))
    np.testing.assert_array_equal(a.predict_time_s(data.frame), b.predict_time_s(data.frame))


def test_a_model_does_not_depend_on_its_batch(invent: Invent) -> None:
    recipe = CompactMatrix(Options(restarts=2, steps=15))
    data = [invent("mc", "gpu", seed=s) for s in range(3)]
    rows = np.arange(60)
    together = recipe.fit([(data[0], rows), (invent("mv", "cpu"), rows), (data[1], rows), (data[2], rows[:50])])
    alone = [recipe.fit([(data[0], rows)])[0], recipe.fit([(data[1], rows)])[0], recipe.fit([(data[2], rows[:50])])[0]]
    for a, b in zip([together[0], together[2], together[3]], alone, strict=True):
        np.testing.assert_allclose(a.predict_time_s(data[0].frame), b.predict_time_s(data[0].frame), rtol=1e-6)


def test_an_input_that_never_varies_in_the_training_rows_costs_no_weights(invent: Invent) -> None:
    data = invent("mv", "cpu")
    one = replace(data, frame=data.frame.assign(threads=np.where(data.frame.index < 60, 1, 4)))
    model: Any = CompactMatrix(Options(restarts=1, steps=10)).fit([(one, np.arange(60))])[0]
    assert [t.column for t in model.terms] == ["m", "n", "d1", "c"]
    frame = data.frame.iloc[:60]
    np.testing.assert_array_equal(model.predict_time_s(frame.drop(columns="threads")), model.predict_time_s(frame.assign(threads=8)))


def test_training_rows_that_are_all_alike_still_give_a_model(invent: Invent) -> None:
    data = invent("mv", "cpu")
    same = replace(data, frame=data.frame.iloc[[0] * 40].reset_index(drop=True))
    model: Any = CompactMatrix(Options(restarts=1, steps=40)).fit([(same, np.arange(40))])[0]
    np.testing.assert_allclose(model.predict_time_s(same.frame), same.frame["time_s"], rtol=1e-3)


def test_prediction_by_hand(invent: Invent) -> None:
    data = with_complexity(invent("mv", "gpu"))
    terms = tuple(aligned_terms(data))
    weights = np.random.default_rng(0).normal(size=(len(terms) + 2) * 2 + 1)
    model = CompactModel("compact", terms, SmallNet(len(terms), 2), weights, np.zeros(len(terms)), np.full(len(terms), 2.0), -7.0, 0.5, 0.03)
    row = data.frame.iloc[0]
    m, n = int(row["m"]), int(row["n"])
    sizes = [value for side in (m, n) for value in (np.gcd(side, 16) / 16, np.log2(-(-side // 16) * 16 / side))]
    z = np.array([np.log2(m), np.log2(n), np.log2(m * n), *sizes]) / 2
    d = len(z)
    out = weights[2 * d + 2 : 2 * d + 4] @ np.tanh(weights[: 2 * d].reshape(2, d) @ z + weights[2 * d : 2 * d + 2]) + weights[-1]
    assert model.predict_time_s(data.frame.iloc[:1])[0] == pytest.approx(np.exp(out * 0.5 - 7), rel=1e-12)
    prediction = model.predict(data.frame.iloc[:1])
    assert prediction.mean[0] == pytest.approx(7 - out * 0.5)
    assert prediction.std[0] == 0.03


def test_a_noisy_law_is_learned_and_its_noise_reported(invent: Invent) -> None:
    data = invent("mc", "gpu", rows=300, noise=0.05)
    model: Any = CompactMatrix(Options(restarts=3, steps=50)).fit([(data, np.arange(200))])[0]
    test = data.frame.iloc[200:]
    assert np.abs(np.log(model.predict_time_s(test) / test["time_s"])).mean() < 0.06
    assert 0.02 < model.noise < 0.1


def test_schedules_are_sums_of_products(invent: Invent) -> None:
    data = invent("blur", "cpu", rows=250, noise=0.02)
    model: Any = CompactSchedule(replace(CompactSchedule.candidates[0], restarts=4, steps=60)).fit([(data, np.arange(200))])[0]
    assert model.terms == tuple(schedule_terms(data))
    assert model.net.terms == 4
    test = data.frame.iloc[200:]
    assert np.abs(np.log(model.predict_time_s(test) / test["time_s"])).mean() < 0.06


def test_times_that_are_all_one_value_are_predicted(invent: Invent) -> None:
    data = invent("mv", "gpu")
    data = replace(data, frame=data.frame.assign(time_s=1e-3))
    one = CompactMatrix(Options(restarts=1, steps=5)).fit([(data, np.arange(60))])[0]
    np.testing.assert_allclose(one.predict_time_s(data.frame), 1e-3, rtol=1e-3)


@pytest.mark.usefixtures("mirror")
def test_published_mm_tesla_is_predicted_to_two_percent() -> None:
    from workbench.data.datasets import load_dataset
    from workbench.metrics import mape

    data = load_dataset("nnc-mm-tesla-500")
    orders = [np.random.default_rng(seed).permutation(len(data.frame)) for seed in range(3)]
    models: list[Any] = CompactMatrix().fit([(data, order[:250]) for order in orders])
    scores = []
    for model, order in zip(models, orders, strict=True):
        frame = data.frame.iloc[order[250:]]
        scores.append(mape(frame["time_s"], model.predict_time_s(frame)))
        assert model.n_parameters < 75
    assert np.mean(scores) < 2, scores


def test_margin_and_folds_are_what_the_module_says() -> None:
    text = compact.__doc__ or ""
    assert f"at least {100 * (compact._MARGIN - 1):.0f}% better in a {compact._FOLDS}-fold comparison" in text
