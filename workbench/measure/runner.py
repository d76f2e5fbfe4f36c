"""The contract of a runner, and the series that any of them adds to a store."""

from __future__ import annotations

import platform
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

from workbench.measure.isolation import Closing
from workbench.measure.provenance import claim
from workbench.schema import Device, Measurement, Status, Workload
from workbench.space import Space

if TYPE_CHECKING:
    from workbench.data.store import Key, Store

__all__ = ["Runner", "attempts", "candidates", "measure_missing"]

C = TypeVar("C")

_ENUMERATED = 1 << 22  # configurations; larger spaces are drawn from by chance
_DRAWN_AT_ONCE = 1024


class Runner(Closing, Generic[C]):
    """Measures candidates of one workload on one device: indices of its space, and what else a runner's `identity` knows.

    Attributes:
        workload, device: what is measured, and on what.
        space: the workload's configurations.
        best_s: the best time so far, which decides how long a slow candidate is looked at; set it when a series is resumed.
        provenance: what a series of measurements is made with, in texts; the store holds it, and refuses rows made with anything else.
        series: name of the store's note that holds the provenance.
    """

    workload: Workload
    device: Device
    space: Space
    best_s: float | None
    provenance: dict[str, str]
    series: str

    @abstractmethod
    def measure(self, wanted: Iterable[C]) -> Iterator[Measurement]:
        """A measurement for each candidate, in their order and as soon as it is done; a failure is one too. `time_s` is the minimum of the repeats."""

    def identity(self, candidate: C) -> dict[str, Any]:
        """The fields of a measurement that say which candidate it is of. Raises SpaceError for an index that the space does not have."""
        index = cast(int, candidate)
        return {"space": self.space.name, "index": index, "config": self.space.config(index)}

    def key(self, candidate: C) -> Key:
        """The key that a candidate's measurement has in a store."""
        from workbench.data.store import Key

        return Key.of(self.workload, self.device.name, **self.identity(candidate))

    def record(self, candidate: C, status: Status, **fields: Any) -> Measurement:
        """The measurement of a candidate on this host, with what else was found (`Measurement`)."""
        return Measurement(self.workload, self.device.name, status, **self.identity(candidate), host=platform.node(), **fields)


def candidates(space: Space, wanted: int, seed: int = 0) -> list[int]:
    """`wanted` different indices of a space in random order, or all it has; more of them continue the same series. Raises SpaceError as `Space.sample` does."""
    rng = np.random.default_rng(seed)
    if space.size <= _ENUMERATED:
        return [int(index) for index in rng.permutation(space.members())[:wanted]]
    drawn: dict[int, None] = {}
    while len(drawn) < wanted:
        drawn |= dict.fromkeys(int(index) for index in space.sample(_DRAWN_AT_ONCE, rng))
    return list(drawn)[:wanted]


def attempts(store: Store, runner: Runner[C]) -> Counter[Key]:
    """How many records the store has of each candidate of the runner's workload on its device."""
    from workbench.data.store import Key

    rows = store.rows(workload=runner.workload, device=runner.device.name)
    return Counter(Key.of(row.workload, row.device, row.space, row.index, row.config) for row in rows)


def measure_missing(store: Store, runner: Runner[C], wanted: Iterable[C], *, times: int = 1) -> Iterator[Measurement]:
    """Measure the candidates of which the store has fewer than `times` records, and give each measurement once it is on the disk.

    Stopped at any moment, the next call goes on where it was. What is hopeless depends on the best time of all that the store has.

    Raises:
        UsageError: the store has measurements of the series that were made otherwise (policy, seed, version of the compiler, ...).
    """
    claim(store, runner.series, runner.workload.key, runner.provenance)
    done = attempts(store, runner)
    known = [row.time_s for row in store.rows(workload=runner.workload, device=runner.device.name) if row.time_s is not None]
    runner.best_s = min(known, default=runner.best_s)
    for measurement in runner.measure(candidate for candidate in wanted if done[runner.key(candidate)] < times):
        store.add([measurement])
        yield measurement
