"""Few-shot tasks drawn from the labelled examples of several kernels, as index arrays of many tasks at once.

In the paper (MetaTune, section 5) a task mixes kernels, N of them with K examples each (N-way, K-shot; its Figure 4 shows 3-way, 2-shot), so adapting to a
task is fitting a mixture of kernels. A tuner adapts to one kernel instead: that is the protocol "clean".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workbench.errors import DataError, UsageError

__all__ = ["Episodes", "FewShot", "Pool", "Protocol"]

Protocol = Literal["paper", "clean"]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pool:
    """Labelled examples of several kernels, one kernel's rows after another's.

    Attributes:
        inputs: what a network is called with, one array each [rows, ...].
        labels: [rows], float32.
        starts: where each kernel's rows begin, and the end of the last's [kernels + 1].
    """

    inputs: tuple[NDArray[np.generic], ...]
    labels: NDArray[np.float32]
    starts: Indices

    @classmethod
    def of(cls, kernels: Sequence[Sequence[NDArray[np.generic]]]) -> Pool:
        """The pool of [inputs..., labels] of each kernel: arrays of as many rows, of the same widths and as many inputs in all kernels.

        Raises:
            DataError: no kernels, one without rows, arrays that do not fit each other, or a number that is not finite.
        """
        if not kernels:
            raise DataError("no kernels to draw few-shot tasks from")
        for place, arrays in enumerate(kernels):
            lengths = {len(array) for array in arrays}
            if len(arrays) < 2 or len(lengths) != 1 or lengths == {0}:
                raise DataError(f"kernel {place}: arrays of {[len(a) for a in arrays]} rows; each kernel is [inputs..., labels] of as many rows, at least 1")
            if [array.shape[1:] for array in arrays] != [array.shape[1:] for array in kernels[0]]:
                raise DataError(f"kernel {place}: rows of {[a.shape[1:] for a in arrays]}, kernel 0 has {[a.shape[1:] for a in kernels[0]]}")
            for array in arrays:
                if not np.isfinite(array).all():
                    row = int(np.argmin(np.isfinite(array).reshape(len(array), -1).all(1)))
                    raise DataError(f"kernel {place}: row {row} has a number that is not finite; leave such rows out or label a failure 0")
        *inputs, labels = (np.concatenate(columns) for columns in zip(*kernels, strict=True))
        starts = np.cumsum([0, *(len(arrays[-1]) for arrays in kernels)])
        floats = tuple(a.astype(np.float32) if a.dtype == np.float64 else a for a in inputs)
        return cls(floats, labels.astype(np.float32), starts)

    @property
    def sizes(self) -> Indices:
        """Rows of each kernel [kernels]."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Episodes:
    """Rows of a pool that make up tasks: what each is adapted to [tasks, ways * support], and what the adapted network is judged on [tasks, ways * query]."""

    support: Indices
    query: Indices


@dataclass(frozen=True)
class FewShot:
    """How tasks are drawn. The rows of a task are distinct.

    Attributes:
        support: examples of each kernel that a task is adapted to (K).
        query: examples of each kernel that the adapted network is judged on, other ones; 0 judges it on the support, as Algorithm 1 is written (lines 9 to 13
            use one set of data). The author's runs had a query.
        protocol: "paper" mixes `ways` kernels in a task, "clean" has one kernel a task and always a query.
        ways: kernels of a task (N).

    Raises:
        UsageError: a number of examples or kernels that does not fit the protocol.
    """

    support: int
    query: int
    protocol: Protocol = "clean"
    ways: int = 1

    def __post_init__(self) -> None:
        if self.protocol not in ("paper", "clean"):
            raise UsageError(f"unknown protocol {self.protocol!r}; there are 'paper' (several kernels a task) and 'clean' (one)")
        if self.support < 1 or self.query < 0 or self.ways < 1:
            raise UsageError(f"{self.ways} kernels, {self.support} support and {self.query} query examples: at least 1, 1 and 0")
        if self.protocol == "clean" and (self.ways != 1 or self.query == 0):
            raise UsageError(f"the protocol 'clean' has one kernel a task and a query apart from the support; here {self.ways} and {self.query} examples")

    @classmethod
    def as_published(cls) -> FewShot:
        """The author's runs: 20-way, 1-shot to adapt and 1-shot to judge."""
        return cls(1, 1, "paper", 20)

    def draw(self, pool: Pool, tasks: int, rng: np.random.Generator) -> Episodes:
        """Draw tasks: distinct kernels, each as likely as the others, then distinct rows of each.

        Raises:
            UsageError: the pool has fewer kernels than `ways`, or a kernel has fewer rows than support and query together.
        """
        sizes, each = pool.sizes, self.support + self.query
        if self.ways > len(sizes):
            raise UsageError(f"a task of {self.ways} kernels cannot be drawn from {len(sizes)}; ask for at most that many ways")
        if sizes.min() < each:
            place = int(sizes.argmin())
            raise UsageError(f"kernel {place} has {sizes[place]} rows, fewer than {self.support} support and {self.query} query examples")
        kernels = _distinct(np.full(tasks, len(sizes)), self.ways, rng).ravel()
        rows = pool.starts[kernels, None] + _distinct(sizes[kernels], each, rng)
        rows = rows.reshape(tasks, self.ways, each)
        support = rows[:, :, : self.support].reshape(tasks, -1)
        return Episodes(support, rows[:, :, self.support :].reshape(tasks, -1) if self.query else support)


def _distinct(sizes: Indices, count: int, rng: np.random.Generator) -> Indices:
    # `count` distinct numbers below each of `sizes` [n], in random order: [n, count]. Floyd's algorithm (Bentley, CACM 30, 1987), whose work does not grow
    # with the sizes; it favours large numbers late, so the order is drawn too.
    drawn = np.empty((len(sizes), count), dtype=np.int64)
    for place in range(count):
        last = sizes - count + place
        number = rng.integers(0, last + 1)
        taken = (drawn[:, :place] == number[:, None]).any(1)
        drawn[:, place] = np.where(taken, last, number)
    return rng.permuted(drawn, axis=1)
