"""Choices where the truth is known, what is said of them, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.tune import selector as module
from workbench.tune.select import Selector, Variant
from workbench.tune.variants import complete

VARIANTS = [("eigen", 1), ("eigen", 2), ("eigen", 8), ("boost", 1)]


def test_the_variants(mm: Selector) -> None:
    found = {(v.library, v.threads) for v, _ in mm.ranking({"m": 100, "n": 100, "k": 100}, count=100)}
    assert found == set(VARIANTS)
    assert mm.parameters == ("m", "n", "k", "d1", "d2")


def test_the_choice_is_right_where_the_variants_are_apart(mm: Selector, law: Callable[..., Any]) -> None:
    judged = 0
    for m, n, k in itertools.product((2, 20, 100, 300, 900), repeat=3):
        times = {v: float(law(v[0], m * n * k, v[1])) for v in VARIANTS}
        best, second = sorted(times.values())[:2]
        chosen = mm.choose(m, n, k, 1.0, 1.0)
        assert times[chosen.library, chosen.threads] < 1.5 * best
        if second > 1.4 * best:
            judged += 1
            assert times[chosen.library, chosen.threads] == best, (m, n, k)
    assert judged > 40


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 1024), st.integers(1, 1024), st.integers(1, 1024), st.sampled_from([1.0, 0.5, 0.25]), st.sampled_from([1.0, 0.125]))
def test_choose_select_and_ranking_agree_with_the_models(mm: Selector, m: int, n: int, k: int, d1: float, d2: float) -> None:
    inputs = {"m": m, "n": n, "k": k, "d1": d1, "d2": d2}
    expected = {}
    for source in mm.sources:
        for config in source.configs:
            frame = pd.DataFrame([{**inputs, **config, "c": float(m * n * k)}])
            expected[source.library, config["threads"]] = float(source.model.predict_time_s(frame)[0])
    order = sorted(expected, key=expected.__getitem__)
    choice, ranking = mm.select(inputs), mm.ranking(inputs, count=4)
    assert mm.choose(m, n, k, d1, d2) == choice.variant == ranking[0][0]
    assert [(v.library, v.threads) for v, _ in ranking] == order
    np.testing.assert_allclose([s for _, s in ranking], [expected[v] for v in order], rtol=1e-6)
    assert (choice.runner_up, choice.runner_up_s) == ranking[1]
    assert choice.predicted_s == ranking[0][1]
    assert choice.default is not None
    assert choice.default_s == pytest.approx(expected[choice.default.library, choice.default.threads], rel=1e-6)
    assert choice.gain_s == pytest.approx(choice.default_s - choice.predicted_s, rel=1e-9)
    assert choice.pays == (choice.gain_s > choice.cost_s)


def test_the_default_is_best_on_average(mm: Selector) -> None:
    averages = [average for source in mm.sources for average in source.averages]
    choice = mm.select({"m": 50, "n": 50, "k": 50})
    (source,) = [s for s in mm.sources if s.data_set == choice.default.data_set]
    place = [config["threads"] for config in source.configs].index(choice.default.threads)
    assert source.averages[place] == min(averages)


def test_asking_pays_for_large_inputs_and_never_for_the_smallest(mm: Selector, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = {"m": 2, "n": 2, "k": 1}, {"m": 900, "n": 900, "k": 900}
    costly = replace(mm)
    monkeypatch.setattr(module, "_seconds", lambda call: 1e-3)
    choice = costly.select(large)
    assert choice.cost_s == 1e-3
    assert choice.pays
    assert choice.runs_to_pay == 1
    again = replace(mm)
    monkeypatch.setattr(module, "_seconds", lambda call: 10.0)
    assert not again.select(large).pays
    assert again.select(large).runs_to_pay > 10
    note, *others = again.select(small).notes
    assert tuple(others) == mm.notes
    assert note.startswith("Even the default takes only ")
    assert note.endswith("no more than asking (10 s): it never pays to ask for one run of inputs so small.")


def test_the_cost_is_measured_on_this_machine(mm: Selector) -> None:
    assert 0 < mm.cost_s < 1e-3
    assert mm.select({"m": 9, "n": 9, "k": 9}).cost_s == mm.cost_s


def test_at_most(mm: Selector) -> None:
    two = mm.at_most(2)
    assert {(v.library, v.threads) for v, _ in two.ranking({"m": 9, "n": 9, "k": 9}, count=9)} == {("eigen", 1), ("eigen", 2), ("boost", 1)}
    assert two.choose(900, 900, 900, 1.0, 1.0) == Variant("invented-mm-eigen", "invented-cpu", "eigen", 2)
    only = replace(two, sources=two.sources[:1]).at_most(1)
    alone = only.select({"m": 9, "n": 9, "k": 9})
    assert alone.runner_up is None
    assert alone.variant == alone.default
    assert alone.gain_s == 0
    assert not alone.pays
    assert alone.runs_to_pay is None
    eight = replace(mm, sources=(replace(mm.sources[0], configs=mm.sources[0].configs[2:], averages=mm.sources[0].averages[2:]),))
    with pytest.raises(UsageError, match="no variant of 'mm' runs on 4 threads; the least is 8"):
        eight.at_most(4)


def test_inputs_outside_the_training_rows_are_named(mm: Selector) -> None:
    note, *others = mm.select({"m": 90_000, "n": 64, "k": 64}).notes
    assert note.startswith("m = 90000 is outside 1 to 10")
    assert "invented-mm-eigen, invented-mm-boost" in note
    # What holds of the data is said of every choice.
    assert mm.select({"m": 64, "n": 64, "k": 64}).notes == tuple(others) == mm.notes != ()


def test_a_runner_up_within_the_models_error_is_named(mm: Selector) -> None:
    inputs = {"m": 64, "n": 64, "k": 64}
    choice = mm.select(inputs)
    apart = 100 * (choice.runner_up_s / choice.predicted_s - 1)
    for error, said in ((apart * 1.01, True), (apart * 0.99, False)):
        unsure = replace(mm, sources=tuple(replace(source, mape=error) for source in mm.sources))
        assert [note for note in unsure.select(inputs).notes if "either may be faster" in note] == [
            f"The runner-up is predicted {apart:.3g}% slower, and the models err by {error:.3g}%: either may be faster."
        ] * said


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"m": 4, "n": 4}, "parameter 'k' is missing; it takes m, n, k, d1, d2"),
        ({"m": 4, "n": 4, "k": 4, "q": 1}, "has no parameter 'q'; it takes m, n, k, d1, d2"),
        ({"m": 0, "n": 4, "k": 4}, "m is 0; it is a positive number"),
        ({"m": float("nan"), "n": 4, "k": 4}, "m is nan; it is a positive number"),
        ({"m": 4.5, "n": 4, "k": 4}, "m is 4.5; it is a whole number"),
        ({"m": 1e300, "n": 4, "k": 4}, r"m is 1e\+300; it is at most 2\^53"),
        ({"m": "4", "n": 4, "k": 4}, "m is '4'; it is a positive number"),
        ({"m": 4, "n": 4, "k": 4, "d1": 1.5}, "d1 is 1.5; a density is at most 1"),
    ],
)
def test_inputs_that_cannot_be(mm: Selector, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        mm.select(inputs)


def test_a_window_fits_into_the_matrix() -> None:
    assert complete(kernel("mc"), {"m": 5, "n": 7, "r": 5}) == {"m": 5, "n": 7, "r": 5, "d1": 1}
    with pytest.raises(UsageError, match="n is 3, less than r = 5; the window must fit into the matrix"):
        complete(kernel("mc"), {"m": 5, "n": 3, "r": 5})


def test_choose_refuses_what_it_cannot_answer(mm: Selector) -> None:
    with pytest.raises(UsageError, match=r"takes 5 numbers \(m, n, k, d1, d2\), not \(1, 2\)"):
        mm.choose(1, 2)
    with pytest.raises(UsageError, match="takes 5 numbers"):
        mm.choose("64", None, 64, 1.0, 1.0)
    for bad in (0, -3, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="no model makes a number of m = "):
            mm.choose(bad, 64, 64, 1.0, 1.0)
    assert mm.choose(np.int64(64), np.float32(64), 64.0, True, 1) == mm.choose(64, 64, 64, 1.0, 1.0)


def test_variants_read_well() -> None:
    assert str(Variant("a", "cpu-x", "eigen", 2)) == "eigen, 2 threads on cpu-x"
    assert str(Variant("a", "cpu-x", "", 1, {"s1": 4, "s2": 8})) == "s1=4 s2=8, 1 thread on cpu-x"
    assert str(Variant("nnc-mm-tesla-500", "tesla")) == "nnc-mm-tesla-500 on tesla"


def test_schedules_are_searched_over_the_whole_space(blurred: Selector, schedule_law: Callable[..., Any]) -> None:
    found = kernel("blur")
    for n in (64, 128, 256):
        space = found.space(found.workload({"n": n}), "workbench")
        every = pd.DataFrame(space.decode(space.members())).assign(n=n)
        truth = schedule_law(every)
        choice = blurred.select({"n": n})
        assert choice.variants == len(every)
        mine = schedule_law(pd.DataFrame([{**choice.variant.schedule, "n": n}]))[0]
        assert mine < 1.1 * truth.min()
        assert mine < 0.7 * truth.median()
        assert blurred.choose(n) == choice.variant
        ranking = blurred.ranking({"n": n}, count=7)
        assert [s for _, s in ranking] == sorted(s for _, s in ranking)
        assert ranking[0] == (choice.variant, choice.predicted_s)
        assert len({tuple(v.schedule.values()) for v, _ in ranking}) == 7
        every = every.assign(c=float(n * n))
        assert choice.predicted_s == pytest.approx(blurred.sources[0].model.predict_time_s(every).min(), rel=1e-6)
        assert space.satisfies([space.index(choice.variant.schedule)])[0]


def test_the_cost_of_compiling_is_what_the_data_know(blurred: Selector) -> None:
    choice = blurred.select({"n": 128})
    assert choice.compile_s == pytest.approx(0.2)
    assert choice.default is not None
    if choice.gain_s:
        assert choice.runs_to_pay == pytest.approx((0.2 + choice.cost_s) / choice.gain_s, abs=1)


def test_a_default_that_cannot_run_leaves_the_gain_unknown(blurred: Selector) -> None:
    source = replace(blurred.sources[0], configs=({"s1": 1024, "s2": 2, "s3": 2, "s4": 2},))
    choice = replace(blurred, sources=(source,)).select({"n": 64})
    assert (choice.default, choice.default_s, choice.gain_s, choice.pays) == (None, None, None, False)


def test_a_space_too_large_to_enumerate_is_sampled(blurred: Selector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENUMERATED", 100)
    monkeypatch.setattr(module, "DRAWN", 90)
    choice = replace(blurred).select({"n": 256})
    assert 90 <= choice.variants <= 91
    assert any("90 schedules drawn at random were compared" in note for note in choice.notes)
    assert choice.default is not None
    twice = replace(blurred, sources=(blurred.sources[0], replace(blurred.sources[0], data_set="again"))).select({"n": 256})
    assert len([note for note in twice.notes if "drawn at random" in note]) == 1


def test_tables_of_sizes_do_not_pile_up(blurred: Selector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 2)
    fresh = replace(blurred)
    first = fresh.choose(32)
    for n in (64, 128, 256):
        fresh.choose(n)
    assert len(fresh._tables) == 2
    assert fresh.choose(32) == first
