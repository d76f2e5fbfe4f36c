"""A series in several passes: which attempts an input has, and which of them stands for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

from workbench.data.store import Key
from workbench.schema import Measurement, Status

__all__ = ["Inputs", "by_input", "label", "passes", "remeasured", "rounds", "times_of"]

T = TypeVar("T")

# The attempts of each input (workload and configuration on a device).
Inputs = Sequence[Sequence[Measurement]]


def by_input(records: Iterable[Measurement]) -> list[list[Measurement]]:
    """The attempts of each input, in the order in which inputs and attempts came."""
    found: dict[Key, list[Measurement]] = {}
    for record in records:
        found.setdefault(Key.of(record.workload, record.device, record.space, record.index, record.config), []).append(record)
    return list(found.values())


def label(attempts: Sequence[Measurement]) -> Measurement:
    """The attempt that stands for its input: the fastest success, or the first attempt where none succeeded.

    What gave a wrong result once is wrong, however often it was right: then that attempt stands.
    """
    wrong = [attempt for attempt in attempts if attempt.status is Status.WRONG_RESULT]
    return wrong[0] if wrong else min(attempts, key=lambda attempt: math.inf if attempt.time_s is None else attempt.time_s)


def times_of(attempts: Sequence[Measurement]) -> list[float]:
    """Seconds of every attempt in order, NaN for a failed one."""
    return [math.nan if attempt.time_s is None else attempt.time_s for attempt in attempts]


def passes(inputs: Inputs) -> int:
    """How often a series went through all of its inputs; that some were measured once more at the end does not count."""
    fewest = min(len(attempts) for attempts in inputs)
    return fewest if len(inputs) > 1 else max(1, fewest - 1)  # a single input is among those measured again


def remeasured(drawn: Sequence[T], share: float = 0.03) -> list[T]:
    """What to measure once more at the end, evenly spread: a share of what was drawn, rounded up."""
    count = math.ceil(len(drawn) * share)
    return [drawn[i * len(drawn) // count] for i in range(count)]


def rounds(drawn: Sequence[T], passes: int, *, first: Sequence[T] = ()) -> list[tuple[list[T], int]]:
    """The rounds of a series: what to measure in each, and how many attempts of it there are then.

    Every pass goes through `first` and what was drawn; the last round measures a share of what was drawn once more.
    """
    return [([*first, *drawn], times) for times in range(1, passes + 1)] + [(remeasured(drawn), passes + 1)]
