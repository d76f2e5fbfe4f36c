"""Answers from what was measured before: replay of a recorded table, and a runner behind a store that every tuning of a workload shares."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbench.errors import DataError
from workbench.features.tasks import MeasuredTask
from workbench.kernels import kernel
from workbench.locks import locked
from workbench.measure.answers import Answer
from workbench.measure.runner import Runner, measure_missing
from workbench.schema import Measurement

if TYPE_CHECKING:
    from workbench.data.store import Store

__all__ = ["Cached", "Replay"]

Indices = NDArray[np.int64]


class Replay:
    """Answers from a table. What building and running took is charged as recorded, and NaN where it was not.

    Args:
        table: the configurations that can be asked for.
    """

    def __init__(self, table: MeasuredTask) -> None:
        self.table = table
        self._order = np.argsort(table.indices, kind="stable")
        self._sorted = table.indices[self._order]

    @cached_property
    def exhaustive(self) -> bool:
        """Whether every configuration of the space is in the table, so that a search can go where it likes."""
        space = self.table.task.space
        return space.size <= 1 << 20 and bool(np.isin(space.members(), self.table.indices).all())

    def __call__(self, indices: Indices) -> Answer:
        """See `Answers`. Raises DataError for a configuration that is not in the table."""
        places = np.searchsorted(self._sorted, indices).clip(max=len(self._sorted) - 1)
        unknown = self._sorted[places] != indices
        if unknown.any():
            raise DataError(
                f"{self.table.task.name}: configuration {indices[int(unknown.argmax())]} was not measured ({int(unknown.sum())} of {len(indices)} asked for); "
                f"its table has {len(self.table):,} configurations: propose from those alone, `Candidates(space, table.indices)`"
            )
        rows = self._order[places]
        return Answer(self.table.throughput[rows], self.table.valid[rows], self.table.build_s[rows], self.table.run_s[rows])


class Cached:
    """Answers from a store, in which the runner measures what is missing: every tuning of the workload shares one cache, which replays bit for bit.

    The first measurement of a configuration stands. One process at a time measures into a store, since two would disturb each other's times; the others wait,
    and find what it has measured. Killed at any moment, the same tuning goes on from what the store has.

    Args:
        store: the cache.
        runner: measures candidates that are indices of its space.
        on_measurement: called with each new measurement once it is on the disk.
    """

    def __init__(self, store: Store, runner: Runner[int], on_measurement: Callable[[Measurement], None] | None = None) -> None:
        flop = kernel(runner.workload.kernel).flop
        self.store, self.runner, self.on_measurement = store, runner, on_measurement
        self._work = flop(runner.workload.params) / 1e9 if flop else 1.0
        self._known: dict[int, Measurement] = {}

    def __call__(self, indices: Indices) -> Answer:
        """See `Answers`.

        Raises:
            UsageError: the store has measurements of the series that were made otherwise.
            SpaceError: an index that the runner's space does not have.
            WorkbenchError: the runner does not start.
        """
        wanted = [int(index) for index in indices]
        if not all(index in self._known for index in wanted):
            with locked(self.store.path.with_name(f"{self.store.path.name}.lock"), "that this store is being measured into"):
                for row in self.store.rows(workload=self.runner.workload, device=self.runner.device.name, space=self.runner.space.name):
                    self._keep(row)
                for measurement in measure_missing(self.store, self.runner, wanted):
                    self._keep(measurement)
                    if self.on_measurement is not None:
                        self.on_measurement(measurement)
        found = [self._known[index] for index in wanted]
        return Answer(
            throughput=np.array([self._work / row.time_s if row.time_s else 0.0 for row in found]),
            valid=np.array([row.time_s is not None for row in found], dtype=bool),
            build_s=np.array([np.nan if row.compile_s is None else row.compile_s for row in found]),
            run_s=np.array([float(np.sum(row.times_s)) if row.times_s else np.nan for row in found]),
        )

    def _keep(self, row: Measurement) -> None:
        if row.index is not None:
            self._known.setdefault(row.index, row)
