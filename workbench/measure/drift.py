"""Did the machine change while a series was measured? What was measured twice says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Unpack

from workbench.data.store import Store, Where
from workbench.measure.passes import by_input, times_of
from workbench.schema import Measurement

__all__ = ["Drift", "drift", "drift_of", "drift_of_times"]


@dataclass(frozen=True)
class Drift:
    """How the last time of what was measured again compares with the first.

    Attributes:
        pairs: number of inputs measured at least twice, the first and the last time with success.
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


def drift(store: Store, **where: Unpack[Where]) -> Drift:
    """Compare the first and the last time of every input that a store has more than one record of."""
    return drift_of(by_input(store.rows(**where)))


def drift_of(inputs: Iterable[Sequence[Measurement]]) -> Drift:
    """Compare the first and the last of the attempts of each input."""
    return drift_of_times(times_of(attempts) for attempts in inputs)


def drift_of_times(inputs: Iterable[Sequence[float]]) -> Drift:
    """Compare the first and the last of the times of each input, in seconds, NaN for a failure: `times_of` its attempts, or `pass_s` of a data set's row."""
    ratios = [times[-1] / times[0] for times in inputs if len(times) > 1 and math.isfinite(times[0]) and math.isfinite(times[-1])]
    if not ratios:
        return Drift(0, math.nan, math.nan, math.nan)
    logs = [math.log(ratio) for ratio in ratios]
    return Drift(len(ratios), math.exp(median(logs)), math.expm1(median(map(abs, logs))), math.exp(max(logs, key=abs)))
