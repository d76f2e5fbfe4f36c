"""NN+C's Halide kernels as programs: blur and FFT pipelines, their schedules, and Halide's autoschedulers on the same pipelines.

Nothing here needs Halide to be imported; building a problem does.
"""

from __future__ import annotations

from collections.abc import Mapping

from workbench.errors import UsageError

__all__ = ["PROBLEMS", "problem_of"]

# Kernel -> "module:class" of its Problem, by name so that a child process can be told which one to build.
PROBLEMS: Mapping[str, str] = {
    "blur": "workbench.kernels.halide.blur:Blur",
    "fft": "workbench.kernels.halide.fft:FFT",
}


def problem_of(kernel: str) -> str:
    """The "module:class" of a kernel's problem. Raises UsageError for a kernel that has no Halide pipeline."""
    if kernel not in PROBLEMS:
        raise UsageError(f"kernel {kernel!r} has no Halide pipeline; there are {', '.join(PROBLEMS)}")
    return PROBLEMS[kernel]
