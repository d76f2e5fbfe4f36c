"""The schedule: every candidate once, in its order as far as programs are there, and groups that failed earlier are tried before anything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from workbench.measure.cuda.bundle import Bundle, Candidate, Stage
from workbench.measure.cuda.schedule import Schedule


def bundle(programs: list[int], sizes: list[int], groups: list[str], labels: list[str]) -> Bundle:
    candidates = [
        Candidate(group, 0, program, "s", i, {}, (), label=label) for i, (program, group, label) in enumerate(zip(programs, groups, labels, strict=True))
    ]
    return Bundle("", {}, "", tuple(Stage(str(i), size, 1.0) for i, size in enumerate(sizes)), [], candidates, "", None)


@st.composite
def bundles(draw: st.DrawFn) -> tuple[Bundle, list[int]]:
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    count = sum(sizes)
    each: Any = lambda of: draw(st.lists(of, min_size=count, max_size=count))  # noqa: E731
    made = bundle(each(st.integers(0, 4)), sizes, each(st.sampled_from("abc")), each(st.sampled_from(("valid", "small", "invalid"))))
    return made, draw(st.lists(st.integers(0, count - 1), unique=True)) if count else []


@given(made=bundles(), data=st.data())
def test_every_candidate_once_and_none_before_its_program(made: tuple[Bundle, list[int]], data: st.DataObject) -> None:
    whole, wanted = made
    schedule = Schedule(whole, wanted)
    programs = schedule.programs()
    assert sorted(programs) == sorted({whole.candidates[number].program for number in wanted})
    early = [number for numbers in schedule.first.values() for number in numbers]
    assert programs[: len({whole.candidates[n].program for n in early})] == list(dict.fromkeys(whole.candidates[n].program for n in early))
    compiled: set[int] = set()
    seen: list[int] = []
    arriving = data.draw(st.permutations(programs))
    stage = 0
    while True:
        stages = [i for i in range(len(whole.stages)) if schedule.unfinished(i)]
        if not stages:
            break
        stage = stages[0]
        if arriving and data.draw(st.booleans()):
            program = arriving.pop()
            compiled.add(program)
            waited = schedule.compiled(program)
            assert all(whole.candidates[number].program == program for number in waited)
            if waited and data.draw(st.booleans()):
                schedule.take(waited[0])
                seen.append(waited[0])
            continue
        number = schedule.next(stage)
        if number is None:
            assert {whole.candidates[n].program for n in set(wanted) - set(seen)} & compiled == set()
            compiled.add(arriving[-1])
            schedule.compiled(arriving.pop())
        else:
            assert whole.candidates[number].program in compiled
            seen.append(number)
    assert sorted(seen) == sorted(wanted)


def test_in_order_and_another_stage_while_one_waits() -> None:
    schedule = Schedule(bundle([0, 0, 1, 2, 0], [3, 2], ["a"] * 5, ["valid"] * 5), range(5))
    schedule.compiled(2)
    assert schedule.next(0) == 3
    schedule.compiled(0)
    assert [schedule.next(0), schedule.next(0), schedule.next(0), schedule.next(0)] == [0, 1, 4, None]
    assert (schedule.unfinished(0), schedule.unfinished(1)) == (True, False)


def test_the_first_of_a_group_are_none_that_should_fail_and_none_of_a_group_that_was_right() -> None:
    made = bundle(list(range(11)), [11], [*9 * "a", "b", "c"], ["invalid", *8 * ["valid"], "small", "invalid"])
    assert Schedule(made, range(11)).first == {"a": [1, 2, 3, 4, 5, 6], "b": [9]}
    assert Schedule(made, range(11), proven={"a"}).first == {"b": [9]}
    assert Schedule(made, [3]).first == {"a": [3]}
    assert Schedule(replace(made, candidates=[]), []).programs() == []
