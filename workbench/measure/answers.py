"""What a tuner asks for: outcomes of configurations, measured now, looked up in a cache of measurements, or replayed from a recorded table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Answer", "Answers"]


@dataclass(frozen=True, eq=False)
class Answer:
    """What measuring a batch gave.

    Attributes:
        throughput: GFLOP/s, or runs a second where the kernel has no count of operations [n], 0 for a failure.
        valid: whether each ran and was right [n].
        build_s, run_s: seconds of building and of running each [n], NaN where not recorded.
    """

    throughput: NDArray[np.float64]
    valid: NDArray[np.bool_]
    build_s: NDArray[np.float64]
    run_s: NDArray[np.float64]


class Answers(Protocol):
    """Measures configurations, or looks them up."""

    def __call__(self, indices: NDArray[np.int64]) -> Answer:
        """An outcome for each of `indices` [n], in their order."""
