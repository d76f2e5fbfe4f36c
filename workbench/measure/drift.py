"""Did the machine change while a series was measured? What was measured twice says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Unpack

from workbench.data.store import Key, Store, Where
from workbench.schema import Measurement, Status

__all__ = ["Drift", "drift", "first_and_last"]


@dataclass(frozen=True)
class Drift:
    """How the last time of what was measured again compares with the first.

    Attributes:
        pairs: number of inputs measured at least twice, both times with success.
        ratio: median of last over first: above 1 the machine became slower. NaN without pairs.
        spread: median of |log ratio| as a factor minus 1: 0.02 is a difference of 2% either way. NaN without pairs.
        worst: the ratio farthest from 1. NaN without pairs.
    """

    pairs: int
    ratio: float
    spread: float
    worst: float

    def __str__(self) -> str:
        if not self.pairs:
            return "nothing was measured twice"
        return f"{self.pairs} measured again: {self.ratio - 1:+.1%} in the median, {self.spread:.1%} apart, the worst {self.worst - 1:+.1%}"


def first_and_last(store: Store, **where: Unpack[Where]) -> list[tuple[Measurement, Measurement | None]]:
    """For each input its first record, and its last where it has more than one; in the order of the first."""
    found: dict[Key, tuple[Measurement, Measurement | None]] = {}
    for record in store.rows(**where):
        key = Key.of(record.workload, record.device, record.space, record.index, record.config)
        found[key] = (found[key][0], record) if key in found else (record, None)
    return list(found.values())


def drift(store: Store, **where: Unpack[Where]) -> Drift:
    """Compare the first and the last time of every input that a store has more than one record of."""
    ratios = [
        last.time_s / first.time_s
        for first, last in first_and_last(store, **where)
        if last is not None and first.status is last.status is Status.OK and first.time_s and last.time_s
    ]
    if not ratios:
        return Drift(0, math.nan, math.nan, math.nan)
    logs = [math.log(ratio) for ratio in ratios]
    return Drift(len(ratios), math.exp(median(logs)), math.expm1(median(map(abs, logs))), math.exp(max(logs, key=abs)))
