"""Which candidate is measured next, by what has been compiled and by how much time is left."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from workbench.measure.cuda.bundle import Bundle

__all__ = ["Schedule"]

# Candidates of a group that may be tried before the others.
_FIRST = 6
# Labels of candidates that are expected to fail: they prove nothing.
_DOUBTFUL = ("invalid",)


class Schedule:
    """The candidates of a bundle, stage by stage and in their order, each once its program is there.

    Args:
        bundle: the candidates.
        wanted: numbers of those to measure.
        proven: groups of which a candidate was right in an earlier run.

    Attributes:
        left: the candidates to measure, in their order.
        first: group -> its first candidates, of which one should be right before the others are measured; none of a group that is proven.
    """

    def __init__(self, bundle: Bundle, wanted: Iterable[int], proven: Iterable[str] = ()) -> None:
        self._bundle = bundle
        self.left = sorted(wanted)
        self.first = self._first(set(proven))
        self._waiting: dict[int, list[int]] = {}
        for number in self.left:
            self._waiting.setdefault(bundle.candidates[number].program, []).append(number)
        ends = [sum(stage.candidates for stage in bundle.stages[: i + 1]) for i in range(len(bundle.stages))]
        self._stage_of = {number: next(i for i, end in enumerate(ends) if number < end) for number in self.left}
        self._ready: list[list[int]] = [[] for _ in bundle.stages]
        self._left_of = [0] * len(bundle.stages)
        for number in self.left:
            self._left_of[self._stage_of[number]] += 1

    def programs(self) -> list[int]:
        """Programs in the order in which to compile them."""
        order = [self._bundle.candidates[number].program for number in (*(n for numbers in self.first.values() for n in numbers), *self.left)]
        return list(dict.fromkeys(order))

    def compiled(self, program: int) -> list[int]:
        """The candidates that wait for a program, which need wait no longer."""
        numbers = self._waiting.pop(program, [])
        for number in numbers:
            heapq.heappush(self._ready[self._stage_of[number]], number)
        return numbers

    def next(self, stage: int) -> int | None:
        """The next candidate: of the stage if one is ready, else of another; None while none is."""
        for ready in (self._ready[stage], *self._ready):
            if ready:
                number = heapq.heappop(ready)
                self._left_of[self._stage_of[number]] -= 1
                return number
        return None

    def take(self, number: int) -> None:
        """Take a candidate out of its turn. It was named by `compiled`."""
        ready = self._ready[self._stage_of[number]]
        ready.remove(number)
        heapq.heapify(ready)
        self._left_of[self._stage_of[number]] -= 1

    def unfinished(self, stage: int) -> bool:
        """Whether the stage has candidates left."""
        return self._left_of[stage] > 0

    def _first(self, proven: set[str]) -> dict[str, Sequence[int]]:
        first: dict[str, list[int]] = {}
        for number in self.left:
            candidate = self._bundle.candidates[number]
            chosen = first.setdefault(candidate.group, [])
            if len(chosen) < _FIRST and candidate.group not in proven and candidate.label not in _DOUBTFUL:
                chosen.append(number)
        return {group: numbers for group, numbers in first.items() if numbers}
