"""NN+C's FFT kernel in Halide: the two-dimensional transform of an n x n image, with the schedules of Table IV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.errors import UsageError
from workbench.kernels.base import Kernel, whole
from workbench.schema import Workload
from workbench.space import Choice, Space

__all__ = ["KERNELS", "SIZES"]

SIZES = (16, 32, 64, 128)


def _complexity(params: Mapping[str, Any]) -> Any:
    # The paper's n log n, in base 2. The published files carry n^2 in its place.
    return params["n"] * np.log2(params["n"])


def _flop(params: Mapping[str, Any]) -> Any:
    # The usual convention, 5 N log2 N for N = n^2 points.
    return 10 * params["n"] ** 2 * np.log2(params["n"])


def _space(workload: Workload) -> Space:
    n = whole(workload, "n")
    if n < 4 or n & (n - 1):
        raise UsageError(f"fft: n is {n!r}; it is a power of two, at least 4")
    powers = tuple(2**p for p in range(1, n.bit_length()))
    return Space("halide", (Choice("s1", powers[:-1]), *(Choice(f"s{i}", powers) for i in range(2, 7))))


KERNELS: Mapping[str, Kernel] = {"fft": Kernel("fft", "Halide FFT", ("n",), _complexity, _flop, {"halide": _space})}
