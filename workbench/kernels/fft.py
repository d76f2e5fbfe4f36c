"""NN+C's FFT kernel in Halide: the two-dimensional transform of an n x n image.

The space `halide` has the schedules of Table IV, whose program was not published whole; `workbench` has those of our own program, kernels/halide/fft.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.errors import UsageError
from workbench.kernels.base import Kernel, whole
from workbench.schema import Workload
from workbench.space import Choice, Constraint, Space, product_at_most

__all__ = ["KERNELS", "SIZES"]

SIZES = (16, 32, 64, 128)


def _complexity(params: Mapping[str, Any]) -> Any:
    # The paper's n log n, in base 2. The published files carry n^2 in its place.
    return params["n"] * np.log2(params["n"])


def _flop(params: Mapping[str, Any]) -> Any:
    # The usual convention, 5 N log2 N for N = n^2 points.
    return 10 * params["n"] ** 2 * np.log2(params["n"])


def _power_of_two(workload: Workload) -> int:
    n = whole(workload, "n")
    if n < 4 or n & (n - 1):
        raise UsageError(f"fft: n is {n!r}; it is a power of two, at least 4")
    return n


def _space(workload: Workload) -> Space:
    powers = tuple(2**p for p in range(1, _power_of_two(workload).bit_length()))
    return Space("halide", (Choice("s1", powers[:-1]), *(Choice(f"s{i}", powers) for i in range(2, 7))))


def _workbench(workload: Workload) -> Space:
    """Knobs of `workbench.kernels.halide.fft.FFT.schedule`."""
    groups = tuple(2**p for p in range(1, _power_of_two(workload).bit_length()))
    vectors = tuple(width for width in (1, 2, 4, 8, 16, 32) if width <= groups[-1])
    knobs: list[Choice] = []
    constraints: list[Constraint] = []
    for i in (1, 2):
        group, vector, unroll = f"group{i}", f"vector{i}", f"unroll{i}"
        knobs += [Choice(group, groups), Choice(vector, vectors), Choice(unroll, (1, 2, 4, 8))]
        constraints += [
            Constraint(f"{vector} at most {group}", (vector, group), lambda width, columns: width <= columns),
            # Beyond this a butterfly does not fit into the registers and takes seconds to compile; with gathers it takes longer sooner.
            product_at_most(64, "columns of butterflies side by side", {vector: None, unroll: None}),
        ]
    gathers = Constraint(
        "at most 16 columns of butterflies (vector2 x unroll2) side by side without a stored transpose",
        ("vector2", "unroll2", "transpose"),
        lambda width, factor, stored: (stored == 1) | (width * factor <= 16),
    )
    return Space("workbench", (*knobs, Choice("vector_out", vectors), Choice("transpose", (0, 1)), Choice("parallel", (0, 1, 2))), (*constraints, gathers))


KERNELS: Mapping[str, Kernel] = {"fft": Kernel("fft", "Halide FFT", ("n",), _complexity, _flop, {"halide": _space, "workbench": _workbench})}
