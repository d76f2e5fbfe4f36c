"""The repeat policy: how often a kernel is run, and which number becomes its label."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench.errors import UsageError

__all__ = ["CONFIRMED_S", "Policy", "fault", "time_program"]

# A program of milliseconds can be ten times slower while something else has its processor, but not for so long.
CONFIRMED_S = 0.1


@dataclass(frozen=True)
class Policy:
    """Warm up, then repeat until there are `repeats` times or `limit_s` has passed, but at least `at_least` times.

    The label is the minimum: of one binary timed ten times the minima differ by about 1%, the medians by far more where threads wait for each other. All
    repeats are recorded.

    Attributes:
        repeats, at_least: number of times taken, and the fewest.
        limit_s: after this many seconds of repeats no further one is begun.
        warmup_s: before the first repeat the kernel runs once, and on until this many seconds have passed.
        batch_s: calls shorter than this are timed many at once, so that the clock's resolution does not count; a time is then their mean.
    """

    repeats: int = 7
    at_least: int = 3
    limit_s: float = 0.5
    warmup_s: float = 0.005
    batch_s: float = 5e-5

    def __post_init__(self) -> None:
        if not 1 <= self.at_least <= self.repeats:
            raise UsageError(f"the policy takes at least {self.at_least} of {self.repeats} repeats; use 1 <= at_least <= repeats")
        for name in ("limit_s", "warmup_s", "batch_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UsageError(f"the policy's {name} is {value!r}; it is a number of seconds, 0 or more")

    def label(self, times_s: Sequence[float]) -> float:
        """Seconds that stand for all repeats: their minimum."""
        return min(times_s)

    def describe(self) -> str:
        """The policy in one sentence, as a data set states it."""
        return (
            f"time_s is the minimum of times_s: {self.repeats} repeats, or as many as begin within {self.limit_s:g} s but at least {self.at_least}, after a "
            f"warm-up of one call and {self.warmup_s * 1e3:g} ms; a repeat is the mean of as many calls as take {self.batch_s * 1e6:g} us, with the same inputs"
        )


def fault(times_s: Sequence[float], policy: Policy) -> str:
    """What is wrong with the repeats of one run, "" if nothing is."""
    if not policy.at_least <= len(times_s) <= policy.repeats:
        return f"{len(times_s)} repeats; the policy takes {policy.at_least} to {policy.repeats}"
    bad = [seconds for seconds in times_s if not (math.isfinite(seconds) and seconds > 0)]
    return f"a repeat took {bad[0]!r} s: the clock cannot tell" if bad else ""


def time_program(call: Callable[[], object], policy: Policy, slowest_s: float = math.inf) -> list[float]:
    """Seconds a call in each repeat. A program that is always slower than `slowest_s` a call gets no further repeat after `CONFIRMED_S` of them, or one."""

    def repeat(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls

    start = time.perf_counter()
    fastest = repeat(1)
    while fastest > 0 and time.perf_counter() - start < policy.warmup_s:
        fastest = min(fastest, repeat(1))
    calls = max(1, math.ceil(policy.batch_s / fastest)) if fastest > 0 else 1  # 0 of a clock that stands still: the times will say so
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < policy.repeats:
        spent = time.perf_counter() - start
        hopeless = bool(times) and min(fastest, *times) > slowest_s and spent >= CONFIRMED_S
        if hopeless or (spent >= policy.limit_s and len(times) >= policy.at_least):
            break
        times.append(repeat(calls))
    return times
