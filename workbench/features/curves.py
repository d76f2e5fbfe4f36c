"""Curve features: how the buffers of a convolution's innermost statement are touched, as relations sampled at fixed points (AutoTVM's "curve" features).

Each loop around the statement that adds up products is a point of a buffer: log2 of how many places the loop and those inside it touch (count), of how often
they touch each (reuse), and of the iterations of the loop and those around it (topdown). A point 0 stands for no loop. Each of the three is sorted by itself,
as AutoTVM does, which for count and reuse is the order of the loops from the inside out. Two of them make a curve, of which a sample at x = 0, 1, ..., 19, that
is at powers of two, says two things about the last point that is not beyond x: its y, and how far before x it stands. Curves are

    reuse at count, count at reuse, topdown at count, count at topdown

AutoTVM takes the buffers of the innermost loop. A direct convolution has three there, its sums, its data and its filters, and so have ours: 3 buffers, 4
curves, 20 samples and 2 values are the 480 numbers that MetaTune's published rows have. It reads them off lowered TIR and writes the buffers in the order of
their names; here they come from loop context vectors, in the order sums, data, weight for every kind on both targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.features.supergraph import COLUMNS, SuperGraphs, slots
from workbench.kernels.base import Kernel
from workbench.schema import Workload

__all__ = ["BUFFERS", "CURVES", "SAMPLES", "CurveVectors"]

_Floats = NDArray[np.float32]
BUFFERS = ("sums", "data", "weight")
CURVES = (("count", "reuse"), ("reuse", "count"), ("count", "topdown"), ("topdown", "count"))
"""The x and the y of each curve."""
SAMPLES = 20
# Logarithms of whole numbers that should be whole may be a little more.
_SLACK = 1e-6
_ROWS = 256


@dataclass(frozen=True)
class CurveVectors:
    """Curve features of the configurations of a workload in one space.

    Args:
        kernel, workload, space: whose; the name of the space may be None for the kernel's first.

    Raises:
        UsageError: the space is not there, or has no loop nests of a convolution.
    """

    kernel: Kernel
    workload: Workload
    space: str | None = None

    def __post_init__(self) -> None:
        self._graphs  # noqa: B018 what cannot be is said now

    @cached_property
    def _graphs(self) -> SuperGraphs:
        return SuperGraphs(self.kernel, self.workload, self.space)

    @cached_property
    def _around(self) -> list[list[int]]:
        # For each structure the slots of the loops around the statement that adds up.
        found = []
        for _, nest in self.kernel.loop_nest(self.workload, np.arange(0), self.space).parts:
            (update,) = (statement for statement in nest.statements if statement.name == "update")
            places = slots(nest)
            found.append([places[nest.names[loop]] for loop in nest.paths[update.loop]])
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers: "data.reuse_at_count.3" is log2 of the reuse where the count is 2^3, "data.reuse_at_count.3.after" how far before it stands."""
        names = (f"{buffer}.{y}_at_{x}.{i}" for buffer in BUFFERS for x, y in CURVES for i in range(SAMPLES))
        return tuple(name + of for name in names for of in ("", ".after"))

    def of(self, indices: ArrayLike) -> _Floats:
        """Curve features of configurations `indices` [n]: [n, 480], float32. Raises SpaceError for an index that is not in the space."""
        given = np.asarray(indices)
        found = np.empty((len(given), len(self.columns)), dtype=np.float32)
        for places, features in self.stream(given):
            found[places] = features
        return found

    def stream(self, indices: ArrayLike, rows: int = _ROWS) -> Iterator[tuple[NDArray[np.intp], _Floats]]:
        """The same in pieces of at most `rows`: places in `indices` [m], and features [m, 480] in an array that is written anew for the next piece.

        Raises:
            UsageError: `rows` is not positive.
            SpaceError: an index that is not in the space.
        """
        samples = np.empty((max(rows, 0), len(BUFFERS), len(CURVES), SAMPLES, 2), dtype=np.float32)
        for places, structure, vectors in self._graphs.stream(indices, rows):
            around, m = self._around[structure], len(places)
            topdown = _Points(vectors[:, around, COLUMNS.index("topdown")])
            for b, buffer in enumerate(BUFFERS):
                count, reuse = (_Points(vectors[:, around, COLUMNS.index(f"update.{buffer}.{number}")]) for number in ("count", "reuse"))
                points = {"count": count, "reuse": reuse, "topdown": topdown}
                for c, (x, y) in enumerate(CURVES):
                    points[x].sample(points[y], samples[:m, b, c])
            yield places, samples[:m].reshape(m, -1)


class _Points:
    # Logarithms of numbers [configurations, loops] in ascending order, after that of no loop.

    def __init__(self, numbers: _Floats) -> None:
        self._values = np.zeros((len(numbers), numbers.shape[1] + 1), dtype=np.float32)
        np.log2(numbers, out=self._values[:, 1:])
        self._values.sort(axis=1)

    @cached_property
    def _last(self) -> NDArray[np.int64]:
        # Position, in all values one after the other, of the last point that is not beyond each x. A point counts from the next whole x on.
        count, points = self._values.shape
        begins = np.minimum(np.ceil(self._values - np.float32(_SLACK)), SAMPLES).astype(np.int64) + (SAMPLES + 1) * np.arange(count)[:, None]
        begun = np.bincount(begins.ravel(), minlength=(SAMPLES + 1) * count).reshape(count, SAMPLES + 1)[:, :SAMPLES]
        last: NDArray[np.int64] = begun.cumsum(axis=1) + (points * np.arange(count) - 1)[:, None]
        return last

    @cached_property
    def _after(self) -> _Floats:
        return np.arange(SAMPLES, dtype=np.float32) - self._values.take(self._last)

    def sample(self, other: _Points, into: _Floats) -> None:
        # The curve of which these are x and the others y, into [configurations, SAMPLES, 2].
        into[..., 0] = other._values.take(self._last)
        into[..., 1] = self._after
