"""The child process of `workbench.measure.tvm` that runs: libraries are loaded, timed, and their output is compared with numpy's.

It runs as `python -m workbench.measure.tvm_worker JSON`, where the JSON names the class of programs. Requests:

    prepare  the inputs of a `workload` and what its output should be
    run      the library `path`, timed by `policy`, with fewer repeats where it is slower than `slowest_s`

Of TVM it has the runtime only, not the compiler: it starts in half a second and takes 50 MB.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import math
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workbench.measure.serving import Commands, serve
from workbench.measure.timing import Policy, time_program
from workbench.measure.tvm_builder import without_torch
from workbench.schema import Workload

__all__ = ["TOLERANCE", "Convolutions", "Programs", "aligned", "difference"]

# Relative to the largest value of the output. Its values are about normal, the largest some 5 standard deviations. Summing K products in another order changes
# them by about sqrt(K) roundings of 6e-8 of a standard deviation, 1e-6 of the largest value for the 4,608 products of ResNet's deepest layers; one product left
# out by about 1 / sqrt(K), 3e-3 of the largest.
TOLERANCE = 1e-4

_ALIGNMENT = 64  # bytes; TVM's code loads whole vectors from where an argument begins


class Programs(Protocol):
    """What loads libraries and knows what they should compute."""

    def prepare(self, workload: Workload, seed: int) -> None:
        """Make the inputs and the expected output."""

    def load(self, path: Path) -> Callable[[], object]:
        """A call of the program of a library, which writes the output."""

    def spoil(self) -> None:
        """Make sure that what is not written counts as wrong."""

    def fault(self) -> str:
        """What is wrong with the output, "" if nothing is."""


def aligned(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """A copy that begins where TVM expects arrays to."""
    room = np.empty(values.nbytes + _ALIGNMENT, dtype=np.uint8)
    offset = -room.ctypes.data % _ALIGNMENT
    copy = room[offset : offset + values.nbytes].view(np.float32).reshape(values.shape)
    copy[...] = values
    return copy


def difference(output: NDArray[np.float32], expected: NDArray[np.float64]) -> str:
    """What is wrong with an output that was all NaN before the program ran, "" if nothing is."""
    error = float(np.max(np.abs(output - expected)) / np.max(np.abs(expected)))
    if math.isnan(error):
        return f"{int(np.isnan(output).sum()):,} of {output.size:,} values are not written or no numbers"
    return "" if error <= TOLERANCE else f"an error of {error:.3g} of the largest value; {TOLERANCE:g} is rounding"


class Convolutions:
    """Libraries whose function `main` takes data, weight and output."""

    def __init__(self) -> None:
        without_torch()
        import tvm_ffi

        self._load = tvm_ffi.load_module
        self._tensor = tvm_ffi.from_dlpack
        package = importlib.util.find_spec("tvm")
        if package is None or package.origin is None:
            raise ModuleNotFoundError("No module named 'tvm'", name="tvm")
        self._runtime = ctypes.CDLL(str(Path(package.origin).parent / "lib" / "libtvm_runtime.so"), mode=ctypes.RTLD_GLOBAL)
        # A crash ends this process at once; TVM would print a page about it first.
        for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT):
            signal.signal(number, signal.SIG_DFL)

    def prepare(self, workload: Workload, seed: int) -> None:
        """See the protocol."""
        from workbench.kernels import conv_reference

        data, weight = conv_reference.inputs(workload, seed)
        self.expected = conv_reference.reference(workload, data, weight)
        self.output = aligned(np.full(self.expected.shape, np.nan, dtype=np.float32))
        self.arguments = [self._tensor(array) for array in (aligned(data), aligned(weight), self.output)]

    def load(self, path: Path) -> Callable[[], object]:
        """See the protocol."""
        function = self._load(str(path))["main"]
        return lambda: function(*self.arguments)

    def spoil(self) -> None:
        """See the protocol."""
        self.output[...] = np.nan

    def fault(self) -> str:
        """See the protocol."""
        return difference(self.output, self.expected)


class _Worker:
    def __init__(self, programs: Programs) -> None:
        self.programs = programs

    def prepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.programs.prepare(Workload.from_key(request["workload"]), request["seed"])
        return {}

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        call = self.programs.load(Path(request["path"]))
        self.programs.spoil()
        slowest_s = math.inf if request["slowest_s"] is None else request["slowest_s"]
        times_s = time_program(call, Policy(**request["policy"]), slowest_s)
        return {"times_s": times_s, "wrong": self.programs.fault()}


def _prepare(setup: dict[str, Any]) -> Commands:
    module, _, name = setup["programs"].partition(":")
    worker = _Worker(getattr(importlib.import_module(module), name)())
    return {"prepare": worker.prepare, "run": worker.run}


if __name__ == "__main__":
    serve(_prepare)
