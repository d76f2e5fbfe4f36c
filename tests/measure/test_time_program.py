"""The repeat policy, on a clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from workbench.measure import timing
from workbench.measure.timing import Policy, time_program


class Clock:
    """A program whose calls take the given times, the last one for ever after, on a clock that nothing else moves."""

    def __init__(self, seconds: Iterable[float]) -> None:
        self.now = 0.0
        self.calls = 0
        self._seconds: Iterator[float] = iter(seconds)
        self._last = 0.0

    def perf_counter(self) -> float:
        return self.now

    def program(self) -> None:
        self._last = next(self._seconds, self._last)
        self.now += self._last
        self.calls += 1


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[float], int]]:
    def run(*seconds: float, slowest_s: float = float("inf"), policy: Policy | None = None) -> tuple[list[float], int]:
        clock = Clock(seconds)
        monkeypatch.setattr(timing.time, "perf_counter", clock.perf_counter)
        return time_program(clock.program, policy or Policy(), slowest_s), clock.calls

    return run


def test_seven_repeats(timed) -> None:
    times, calls = timed(0.02)
    assert times == pytest.approx([0.02] * 7)
    assert calls == 1 + 7


def test_no_repeat_begins_after_the_limit_but_three_are_taken(timed) -> None:
    assert timed(0.2)[0] == pytest.approx([0.2] * 3)
    assert timed(5.0)[0] == pytest.approx([5.0] * 3)
    assert timed(0.12)[0] == pytest.approx([0.12] * 5)


def test_the_first_call_is_no_repeat(timed) -> None:
    assert timed(1.0, 0.01)[0] == pytest.approx([0.01] * 7)


def test_warming_up_goes_on_for_a_while(timed) -> None:
    times, calls = timed(0.002)
    assert times == pytest.approx([0.002] * 7)
    assert calls == 3 + 7


def test_calls_too_short_for_the_clock_are_timed_together(timed) -> None:
    # 1 us: fifty calls fill the 50 us of a repeat, whatever the first call took.
    times, calls = timed(0.004, 1e-6)
    assert times == pytest.approx([1e-6] * 7)
    assert calls - 7 * 50 == pytest.approx(1001, abs=2)


def test_a_hopeless_program_is_timed_for_a_tenth_of_a_second(timed) -> None:
    assert timed(3.0, slowest_s=0.5)[0] == pytest.approx([3.0])
    assert timed(0.06, slowest_s=0.05)[0] == pytest.approx([0.06] * 2)
    assert timed(0.01, slowest_s=0.005)[0] == pytest.approx([0.01] * 7)


def test_a_program_that_was_only_disturbed_is_timed_in_full(timed) -> None:
    assert len(timed(0.9, 0.9, 0.01, slowest_s=0.5)[0]) == 1  # nothing spoke for it yet
    assert len(timed(0.01, 0.9, 0.01, slowest_s=0.5)[0]) == 3
    assert len(timed(0.9, 0.06, 0.01, slowest_s=0.5)[0]) == 7


def test_a_clock_that_stands_still_gives_zeros(timed) -> None:
    assert timed(0.0) == ([0.0] * 7, 8)
