"""Trying a few: the fastest is taken, what fails is shown and never chosen, and what trying cost is told. Only the last test compiles."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.errors import UsageError, WorkbenchError
from workbench.kernels import kernel
from workbench.measure.halide import Limits, Runner
from workbench.measure.host import cpu, last_cpus
from workbench.schema import Device, Status, Workload
from workbench.tune import trial as module
from workbench.tune.select import Selector, Variant
from workbench.tune.trial import try_variants
from workbench.tune.tries import TURNS, finalists

# What a schedule of the faulty problem does follows from its s1 (tests/measure/faulty_problem.py).
HANG_BUILDING, CRASH_BUILDING, CRASH_RUNNING, WRONG, FINE, SLOW = 2, 4, 32, 128, 512, 1024
MEASURE = Path(__file__).parents[1] / "measure"


class Told(Selector):
    """Ranks the schedules that a test names, in its order."""

    order: Sequence[int] = ()

    def ranking(self, inputs: Any, count: int = 5) -> list[tuple[Variant, float]]:
        data_set, device = self.sources[0].data_set, self.sources[0].device.name
        # The second schedule of an s1 has another s3.
        schedules = [{"s1": s1, "s2": 2, "s3": 2 << self.order[:place].count(s1), "s4": 2} for place, s1 in enumerate(self.order)]
        return [(Variant(data_set, device, "", 1, schedule), 1e-3 * place) for place, schedule in enumerate(schedules, 1)][:count]


@pytest.fixture
def told(blurred: Selector) -> Callable[..., Selector]:
    """A selector of one that was trained here, which ranks what it is told first and keeps nothing that was measured, so that the ranking alone counts."""

    def built(*order: int, device: Device | None = None, measured: Any = None) -> Selector:
        kind = type("Told", (Told,), {"order": order})
        values = {field.name: getattr(blurred, field.name) for field in fields(blurred)}
        found: Selector = kind(**{**values, "sources": tuple(replace(source, device=device or cpu(), measured=measured or {}) for source in blurred.sources)})
        return found

    return built


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Schedules are the faulty problem's, with short limits; gives the options of every series that was opened."""
    monkeypatch.syspath_prepend(str(MEASURE))
    opened: list[dict[str, Any]] = []

    def open_series(workload: Workload, **options: Any) -> Runner:
        opened.append({"threads": workload.params["threads"], **options})
        limits = Limits(build_s=1.0, search_s=1.0, run_s=2.0, start_s=30.0)
        return Runner(workload, device=Device("here", "cpu"), limits=limits, problem="faulty_problem:Faulty", **options)

    monkeypatch.setattr(module, "open_series", open_series)
    return opened


def test_the_fastest_is_taken_and_its_cost_is_told(told: Any, faulty: list[dict[str, Any]]) -> None:
    found = try_variants(told(SLOW, FINE), {"n": 1024})
    assert [attempt.variant.schedule["s1"] for attempt in found.attempts] == [SLOW, FINE]
    assert found.chosen is found.attempts[1]
    assert [(attempt.predicted_s, attempt.by) for attempt in found.attempts] == [(1e-3, "network"), (2e-3, "network")]
    slow, fine = (attempt.measured_s for attempt in found.attempts)
    assert slow is not None
    assert fine is not None
    assert slow > 0.1 > fine > 0.0009
    assert found.gain_s == slow - fine  # a hundred times slower, the first choice takes no turns, and one alone has nothing to decide
    assert [attempt.turns_s for attempt in found.attempts] == [(), ()]
    assert found.cost_s > 0.5  # a slow run takes 0.15 s, and it is run to warm up, to be checked and to be timed
    assert found.runs_to_pay == math.ceil(found.cost_s / found.gain_s)
    assert found.asked.cost_s < found.cost_s
    assert found.attempts[0].variant.device == cpu().name
    assert found.notes == ()
    # Every result is compared with numpy's, and the process stays on one CPU.
    (options,) = faulty
    assert (options["threads"], options["check_share"], options["pin"]) == (1, 1.0, last_cpus(1))


def test_of_the_fastest_turns_decide(told: Any, faulty: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    raced: list[list[dict[str, Any]]] = []

    def race(runner: Runner, wanted: Sequence[int], repeats: int) -> list[list[float]]:
        raced.append([runner.space.config(index) for index in wanted])
        # In turns what was the slowest of the three when it was measured once is the fastest.
        return [[10.0 - place] * (repeats - 1) + [3.0 - place] for place in range(len(wanted))]

    monkeypatch.setattr(Runner, "race", race)
    found = try_variants(told(FINE, SLOW, FINE, FINE, FINE), {"n": 1024})
    ran = sorted((attempt for attempt in found.attempts if attempt.variant.schedule["s1"] == FINE), key=lambda attempt: attempt.measured_s or 0.0)
    assert raced == [[attempt.variant.schedule for attempt in ran[:3]]]
    assert found.chosen is ran[2]
    assert [attempt.least_s for attempt in ran] == [3.0, 2.0, 1.0, ran[3].measured_s]
    assert [len(attempt.turns_s) for attempt in ran] == [15, 15, 15, 0]
    # The gain is over the first choice's turns, where it took some; never less than nothing.
    assert found.gain_s == max(0.0, (found.first.least_s or 0.0) - 1.0)


def test_a_race_that_fails_leaves_what_was_measured_once(told: Any, faulty: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    def race(runner: Runner, wanted: Sequence[int], repeats: int) -> list[list[float]]:
        raise WorkbenchError("the race was not finished")

    monkeypatch.setattr(Runner, "race", race)
    found = try_variants(told(FINE, FINE), {"n": 1024})
    assert found.chosen.measured_s == min(attempt.measured_s or math.inf for attempt in found.attempts)
    assert found.notes == ("The fastest were measured once: the race was not finished",)


def test_what_fails_has_its_status_and_is_never_chosen(told: Any, faulty: list[dict[str, Any]]) -> None:
    order = (WRONG, CRASH_RUNNING, HANG_BUILDING, FINE, CRASH_BUILDING)
    found = try_variants(told(*order), {"n": 1024})
    statuses = [Status.WRONG_RESULT, Status.RUN_ERROR, Status.TIMEOUT, Status.OK, Status.COMPILE_ERROR]
    assert [attempt.status for attempt in found.attempts] == statuses
    assert [attempt.measured_s is None for attempt in found.attempts] == [status is not Status.OK for status in statuses]
    assert [bool(attempt.error) for attempt in found.attempts] == [status is not Status.OK for status in statuses]
    assert found.chosen.variant.schedule["s1"] == FINE
    # The first choice has no time to compare with.
    assert found.first.variant.schedule["s1"] == WRONG
    assert (found.gain_s, found.runs_to_pay) == (None, None)


def test_where_the_first_choice_is_the_fastest_nothing_is_gained(told: Any, faulty: list[dict[str, Any]]) -> None:
    found = try_variants(told(FINE, SLOW, WRONG), {"n": 1024}, 2)
    assert len(found.attempts) == 2
    assert found.chosen is found.first
    assert (found.gain_s, found.runs_to_pay) == (0.0, None)


def test_when_all_fail_one_error_says_how(told: Any, faulty: list[dict[str, Any]]) -> None:
    with pytest.raises(
        WorkbenchError, match=r"none of the 3 schedules .* runs here \(2 compile_error, 1 wrong_result; the first: compiling: it was ended"
    ) as error:
        try_variants(told(CRASH_BUILDING, WRONG, CRASH_BUILDING), {"n": 1024})
    assert "workbench measure halide --kernel blur --n 1024" in str(error.value)
    assert "\n" not in str(error.value)


def test_models_of_another_machine_are_asked_only_where_there_are_none_of_this_one(told: Any, faulty: list[dict[str, Any]]) -> None:
    elsewhere = told(FINE, device=Device("other-cpu", "cpu"))
    found = try_variants(elsewhere, {"n": 1024})
    assert found.notes == (
        f"The models were trained elsewhere, on measurements of other-cpu, and this machine is {cpu().name}: their order is a guess here, so try more.",
    )
    (own,), (other,) = told(FINE).sources, elsewhere.sources
    both = replace(elsewhere, sources=(replace(other, data_set="other-blur"), own))
    found = try_variants(both, {"n": 1024})
    assert (found.chosen.variant.data_set, found.notes) == (own.data_set, ())
    gpu = replace(elsewhere, sources=(replace(other, device=Device("gpu", "gpu")),))
    with pytest.raises(UsageError, match=r"none of the models is of schedules on a CPU \(invented-blur\)"):
        try_variants(gpu, {"n": 1024})


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not pin processes")
def test_schedules_of_more_threads_than_cpus_are_left_out(told: Any, faulty: list[dict[str, Any]]) -> None:
    here = told(FINE)
    (one,) = here.sources
    many = replace(one, data_set="many-blur", threads=4096)
    last = max(os.sched_getaffinity(0))
    found = try_variants(replace(here, sources=(one, many)), {"n": 1024}, pin=[last])
    assert found.notes == ("Schedules of more threads than the 1 CPU to run on were left out: many-blur.",)
    assert faulty[0]["pin"] == [last]
    with pytest.raises(UsageError, match="runs on 1 threads; the least is 4096"):
        try_variants(replace(here, sources=(many,)), {"n": 1024}, pin=[last])


def test_each_number_of_threads_has_a_series_of_its_own(told: Any, faulty: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    here = told(SLOW, FINE, SLOW)
    (one,) = here.sources
    sources = {1: one, 2: replace(one, data_set="two-blur", threads=2)}

    def ranking(selector: Selector, inputs: Any, count: int = 5) -> list[tuple[Variant, float]]:
        ranked = Told.ranking(selector, inputs, count)  # type: ignore[arg-type]
        return [(replace(v, data_set=sources[threads].data_set, threads=threads), s) for (v, s), threads in zip(ranked, (2, 1, 2), strict=True)]

    monkeypatch.setattr(type(here), "ranking", ranking)
    monkeypatch.setattr(module, "usable_cpus", lambda: 2)
    found = try_variants(replace(here, sources=tuple(sources.values())), {"n": 1024}, pin=())
    assert [(options["threads"], options["pin"]) for options in faulty] == [(2, ()), (1, ())]
    assert [attempt.variant.threads for attempt in found.attempts] == [2, 1, 2]
    assert found.chosen is found.attempts[1]


def test_what_was_fast_on_another_size_is_tried_second(told: Any, faulty: list[dict[str, Any]]) -> None:
    # Synthetic: on n = 2048 the fine schedule was by far the fastest, of which the ranking knows nothing.
    space = kernel("blur").space(kernel("blur").workload({"n": 2048}), "workbench")
    fine = space.index({"s1": FINE, "s2": 2, "s3": 2, "s4": 2})
    rows = pd.DataFrame(space.decode(np.array([fine, *space.sample(60, 0)]))).assign(n=2048, time_s=[0.5, *[1.0] * 60])
    measured = {str(name): tuple(rows[name]) for name in rows}
    found = try_variants(told(SLOW, WRONG, measured=measured), {"n": 1024}, 2)
    assert [(attempt.variant.schedule["s1"], attempt.by) for attempt in found.attempts] == [(SLOW, "network"), (FINE, "process")]
    assert found.chosen is found.attempts[1]
    # Of one try the ranking's first is all there is, and no process is fitted: it could not be, of such times.
    spoilt = {**measured, "time_s": (0.0,) * 61}
    assert [attempt.by for attempt in try_variants(told(FINE, measured=spoilt), {"n": 1024}, 1).attempts] == ["network"]


@pytest.mark.parametrize("most", [100, 5000])
def test_a_process_is_asked_of_a_part_of_a_large_space(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    space = kernel("blur").space(kernel("blur").workload({"n": 1024}), "workbench")
    members = space.members()
    assert 100 < len(members) < 5000 < space.size  # of all combinations few meet the constraints
    monkeypatch.setattr(module, "_LOOKED_AT", most)
    some = module._some(space, 0)
    assert len(set(some.tolist())) == len(some) == min(most, len(members))
    assert set(some.tolist()) <= set(members.tolist())
    np.testing.assert_array_equal(some, module._some(space, 0))


def test_what_cannot_be_tried(mm: Selector, blurred: Selector) -> None:
    with pytest.raises(UsageError, match=r"trying is for Halide's schedules \(blur, fft\), and kernel 'mm' has none"):
        try_variants(mm, {"m": 4, "n": 4, "k": 4})
    with pytest.raises(UsageError, match="0 schedules to try; 1 is the least"):
        try_variants(blurred, {"n": 64}, 0)
    with pytest.raises(UsageError, match="parameter 'n' is missing"):
        try_variants(blurred, {})
    with pytest.raises(UsageError, match="cannot pin to CPU 4096"):
        try_variants(blurred, {"n": 64}, pin=[4096])


def test_a_small_blur_for_real(blurred: Selector) -> None:
    pytest.importorskip("halide")
    alone = replace(blurred, sources=tuple(replace(source, measured={}) for source in blurred.sources))
    found = try_variants(alone, {"n": 64}, 3)
    assert [attempt.status for attempt in found.attempts] == [Status.OK] * 3
    ranking = blurred.ranking({"n": 64}, 3)
    assert [(attempt.variant.schedule, attempt.predicted_s) for attempt in found.attempts] == [(variant.schedule, seconds) for variant, seconds in ranking]
    # Which are near enough to the fastest for turns is the machine's matter: those that are take them all, and the least of theirs decides.
    last = finalists([attempt.measured_s for attempt in found.attempts])
    turns = TURNS if len(last) > 1 else 0
    assert [len(attempt.turns_s) for attempt in found.attempts] == [turns if place in last else 0 for place in range(3)]
    assert found.chosen.least_s == min(found.attempts[place].least_s or math.inf for place in last)
    assert all(0 < (attempt.compile_s or 0) < found.cost_s for attempt in found.attempts)
    assert found.asked.variant == ranking[0][0]
    assert found.notes[0].startswith("The models were trained elsewhere, on measurements of invented-cpu")
    # With what was measured of other sizes the process has two of three turns, and no schedule is tried twice.
    learning = try_variants(blurred, {"n": 64}, 4)
    assert [attempt.by for attempt in learning.attempts] == ["network", "process", "process", "network"]
    assert learning.first.variant.schedule == ranking[0][0].schedule
    assert len({tuple(attempt.variant.schedule.items()) for attempt in learning.attempts}) == 4
