"""Which schedule to try next, of those that were not tried: one in three is what the networks rank first, the others are where most improvement is expected.

A network ranks by what holds of schedules on average; a process (`models.process`) remembers each that was measured on another size, and learns from every try.
Either alone may be wrong of a new size, so they take turns. That was found on series of two machines that no report uses: there the process was far better
where the order of schedules changes between sizes, and the networks a little where it does not.

Of many that were measured once the fastest was lucky, so the last word belongs to turns that the few fastest take (`finalists`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from workbench.models.process import Asked

__all__ = ["TURNS", "Group", "Pick", "Tries", "finalists"]

_TURN = 3
# How many take turns in the end, and how often each. One that took so many times the least when it was measured once does not come back from that.
_FINALISTS, TURNS, _NEAR = 3, 15, 1.5
Key = TypeVar("Key", bound=Hashable)


def finalists(seconds: Sequence[float | None]) -> list[int]:
    """Which of those that were measured once are to take turns (`TURNS` each), for the least time of the turns to decide.

    Args:
        seconds: of each, None for a failure.

    Returns:
        Places of the three fastest, fastest first; fewer where fewer ran, or where the others took far longer.
    """
    ran = sorted((taken, place) for place, taken in enumerate(seconds) if taken is not None)
    return [place for taken, place in ran[:_FINALISTS] if taken <= _NEAR * ran[0][0]]


@dataclass(frozen=True)
class Group(Generic[Key]):
    """Schedules that one process speaks of.

    Attributes:
        keys: of the schedules, each once.
        asked: what the process says of them, in that order.
    """

    keys: Sequence[Key]
    asked: Asked


@dataclass(frozen=True)
class Pick(Generic[Key]):
    """A schedule to try.

    Attributes:
        key: which.
        predicted_s: seconds that whoever chose it predicts.
        by: "network" or "process".
    """

    key: Key
    predicted_s: float
    by: str


@dataclass(eq=False)
class Tries(Generic[Key]):
    """Asked for one schedule after another, and told what each took.

    Args:
        ranked: schedules with the seconds that the networks predict, fastest first: as many as may be tried, or all there are.
        groups: of processes; none, and the ranking alone counts.
    """

    ranked: Sequence[tuple[Key, float]]
    groups: Sequence[Group[Key]] = ()
    _tried: dict[Key, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._places: list[Mapping[Key, int]] = [{key: place for place, key in enumerate(group.keys)} for group in self.groups]

    def __len__(self) -> int:
        return len(self._tried)

    def next(self) -> Pick[Key] | None:
        """The next one; None where all were tried."""
        by_ranking = len(self._tried) % _TURN == 0
        ways: tuple[Callable[[], Pick[Key] | None], ...] = (self._by_network, self._by_process)
        first, second = ways if by_ranking else ways[::-1]
        return first() or second()

    def tell(self, key: Key, seconds: float | None) -> None:
        """A schedule took so long; None is a failure, of which a process learns nothing but that it is not to be tried again."""
        self._tried[key] = seconds
        for group, places in zip(self.groups, self._places, strict=True):
            if seconds is not None and key in places:
                group.asked.tell(places[key], seconds)

    def _by_network(self) -> Pick[Key] | None:
        return next((Pick(key, seconds, "network") for key, seconds in self.ranked if key not in self._tried), None)

    def _by_process(self) -> Pick[Key] | None:
        best_s = min((seconds for seconds in self._tried.values() if seconds is not None), default=None)
        found: tuple[float, Pick[Key]] | None = None
        for group, places in zip(self.groups, self._places, strict=True):
            # Before anything ran there is nothing to improve on: the least expected time.
            value = -group.asked.mean if best_s is None else group.asked.improvement(best_s)
            value[[places[key] for key in self._tried if key in places]] = -np.inf
            place = int(value.argmax())
            if value[place] > -np.inf and (found is None or value[place] > found[0]):
                found = float(value[place]), Pick(group.keys[place], float(np.exp(group.asked.mean[place])), "process")
        return found and found[1]
