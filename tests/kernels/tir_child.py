"""What tests ask of TVM, in a process without torch: functions that the fixture `in_tvm_process` calls there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from workbench.kernels import kernel, tir
from workbench.kernels.conv_reference import inputs, reference
from workbench.schema import Value, Workload


def start() -> None:
    """One thread, on whichever CPU the process may run on."""
    os.environ |= {"TVM_NUM_THREADS": "1", "TVM_BIND_THREADS": "0"}


def errors(workload: Workload, space_name: str, configs: Sequence[Mapping[str, Value]], bind: bool = True) -> list[float]:
    """For each configuration, compiled for this machine, the largest difference from the reference, relative to the reference's largest value."""
    data, weight = inputs(workload, 1)
    right = reference(workload, data, weight)
    return [
        float(np.abs(_run(tir.schedule(workload, space_name, config, bind), data, weight, right.shape) - right).max() / np.abs(right).max())
        for config in configs
    ]


def drawn_errors(workload: Workload, space_name: str, count: int, seed: int, bind: bool = True) -> dict[int, float]:
    """Index -> error for configurations at random."""
    space = kernel(workload.kernel).space(workload, space_name)
    indices = [int(index) for index in space.sample(min(count, space.size), seed)]
    return dict(zip(indices, errors(workload, space_name, [space.config(index) for index in indices], bind), strict=True))


def error_of_definition(workload: Workload) -> float:
    """The same of the algorithm without a schedule."""
    data, weight = inputs(workload, 1)
    right = reference(workload, data, weight)
    return float(np.abs(_run(tir.compute(workload), data, weight, right.shape) - right).max() / np.abs(right).max())


def _run(module: object, data: np.ndarray, weight: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    import tvm

    program = tvm.compile(module, target=tir.llvm_target(1))
    buffers = [tvm.runtime.tensor(array) for array in (data, weight, np.full(shape, np.nan, np.float32))]
    program["main"](*buffers)
    return buffers[2].numpy()


def script(workload: Workload, space_name: str, config: Mapping[str, Value], bind: bool = True) -> str:
    """The scheduled module as TVM's script."""
    return str(tir.schedule(workload, space_name, config, bind).script())


def parameters(workload: Workload) -> list[tuple[str, tuple[int, ...], str]]:
    """Name, shape and type of the buffers that the algorithm takes."""
    return [(buffer.name, tuple(map(int, buffer.shape)), str(buffer.dtype)) for buffer in tir.compute(workload)["main"].params]


def target(threads: int) -> tuple[dict[str, object], bool]:
    """Attributes of the target, and whether torch has been loaded."""
    made = tir.llvm_target(threads)
    return {name: made.attrs[name] for name in ("mtriple", "mcpu", "num-cores")}, "torch" in sys.modules
