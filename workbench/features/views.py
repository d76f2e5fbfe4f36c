"""Views of a tuning task: the ways in which a cost model may look at its configurations, each as numbers with names.

    itervar   loop context vectors as logarithms, one after the other, and the knobs that are no tiles: AutoTVM's "itervar" features
    curve     curve features, and the knobs that are no tiles: AutoTVM's "curve" features
    knobs     knob vectors
    vectors   `TuningTask.vectors`: knobs, hardware terms, and the workload's sizes

Names are the same in all workloads of a kernel, so what is learnt of one can be asked of another. Unrolling changes no loop of a nest; that is why the knobs
that are no tiles stand beside the first two, as in AutoTVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UsageError
from workbench.features.curves import CurveVectors
from workbench.features.knobs import KnobVectors
from workbench.features.loops import LoopVectors
from workbench.features.tasks import TuningTask, aligned

__all__ = ["VIEWS", "View"]

_Floats = NDArray[np.float32]
VIEWS = ("itervar", "curve", "knobs", "vectors")


@dataclass(frozen=True, eq=False)
class View:
    """One of VIEWS of a task.

    Args:
        task: whose.
        kind: one of VIEWS.

    Raises:
        UsageError: another kind, or the task's configurations have no loop nests, or none of a convolution layer, which the kind is made of.
    """

    task: TuningTask
    kind: str

    def __post_init__(self) -> None:
        if self.kind not in VIEWS:
            raise UsageError(f"no features {self.kind!r}; choose one of {', '.join(VIEWS)}")
        self.columns  # noqa: B018 what cannot be is said now

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers."""
        if self.kind == "vectors":
            return self.task.columns
        if self.kind == "knobs":
            return self._knobs.columns
        if self.kind == "curve":
            return (*self._curves.columns, *self._choices)
        return (*(f"{node} {column}" for node in self._loops.nodes for column in self._loops.columns), *self._choices)

    def of(self, indices: ArrayLike, wanted: Sequence[str] | None = None) -> _Floats:
        """Numbers of configurations `indices` [n].

        Args:
            indices: configurations [n].
            wanted: names of the columns to give, in their order; None is all. One that the task does not have is zeros.

        Returns:
            [n, columns], float32.

        Raises:
            SpaceError: an index that is not in the space.
        """
        given = np.asarray(indices)
        wanted = self.columns if wanted is None else wanted
        if self.kind in ("vectors", "knobs"):
            return aligned(self.task.vectors(given) if self.kind == "vectors" else self._knobs.of(given), self.columns, wanted)
        found = np.zeros((len(given), len(wanted)), dtype=np.float32)
        place = {name: i for i, name in enumerate(self.columns)}
        knobs = len(self.columns) - len(self._choices)  # the first column of a knob
        into = np.array([i for i, name in enumerate(wanted) if place.get(name, knobs) < knobs], dtype=np.intp)
        source = np.array([place[wanted[i]] for i in into], dtype=np.intp)
        if len(into):
            pieces = self._curves.stream(given) if self.kind == "curve" else ((places, rows) for places, _, rows in self._loops.stream(given))
            for places, rows in pieces:
                found[np.ix_(places, into)] = rows.reshape(len(rows), -1)[:, source]
        into = np.array([i for i, name in enumerate(wanted) if name in self._choices], dtype=np.intp)
        found[:, into] = aligned(self._knobs.of(given), self._knobs.columns, [wanted[i] for i in into])
        return found

    @cached_property
    def _knobs(self) -> KnobVectors:
        return KnobVectors(self.task.space)

    @cached_property
    def _choices(self) -> tuple[str, ...]:
        tiles = {knob.name for knob in self.task.space.knobs if knob.options.ndim == 2}
        return tuple(name for name in self._knobs.columns if name.rpartition(".")[0] not in tiles)

    @cached_property
    def _loops(self) -> LoopVectors:
        return LoopVectors(self.task.kernel, self.task.workload, self.task.space_name, logarithms=True)

    @cached_property
    def _curves(self) -> CurveVectors:
        return CurveVectors(self.task.kernel, self.task.workload, self.task.space_name)
