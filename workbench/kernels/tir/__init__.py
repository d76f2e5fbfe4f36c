"""The convolutions in TVM: their definitions, and the templates that the spaces `workbench-cpu` and `workbench-gpu` belong to.

The only place of `workbench.kernels` that needs TVM, which is loaded at the first call. Torch and TVM each bring an LLVM, and processes that held both have
crashed (apache/tvm issues 9362, 18316, 18651), so build and run what this gives in a process of its own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from workbench.errors import MissingPackage, UsageError
from workbench.kernels import kernel
from workbench.kernels.conv import CPU, GPU
from workbench.kernels.tir.program import CudaProgram
from workbench.schema import Value, Workload

if TYPE_CHECKING:
    import tvm

    from workbench.loopnest import LoopNest

__all__ = ["compute", "cuda_program", "llvm_target", "loop_nest", "schedule"]


def compute(workload: Workload) -> tvm.IRModule:
    """The algorithm of a convolution, without a schedule.

    Returns:
        A module whose function "main" takes the buffers data, weight and output (float32, shaped as `conv_shape.Shape` says).

    Raises:
        UsageError: the workload is none of a convolution.
        MissingPackage: TVM is not installed.
    """
    module: tvm.IRModule = _part("definitions").compute(workload)
    return module


def schedule(workload: Workload, space_name: str, config: Mapping[str, Value], bind: bool = True) -> tvm.IRModule:
    """The algorithm with the loop nest of a configuration.

    Args:
        workload: a convolution.
        space_name: "workbench-cpu" or "workbench-gpu".
        config: knob -> value, as `Space.config` gives it.
        bind: whether the loops of a GPU's nest belong to its blocks and threads; without that they run one after the other, so that a CPU can check
            the same nest.

    Raises:
        UsageError: a space without a template, or a workload that cannot be.
        SpaceError: a configuration that is not in the space.
        MissingPackage: TVM is not installed.
    """
    if space_name not in (CPU, GPU):
        raise UsageError(f"space {space_name!r} has no template here; there are {CPU}, {GPU}")
    space = kernel(workload.kernel).space(workload, space_name)
    config = space.config(space.index(config))
    if space_name == CPU:
        module: tvm.IRModule = _part("cpu").schedule(workload, config)
    else:
        module = _part("gpu").schedule(workload, config, bind)
    return module


def cuda_program(workload: Workload, config: Mapping[str, Value], arch: str) -> CudaProgram:
    """A configuration of "workbench-gpu" as CUDA source with its launches; needs no GPU.

    Args:
        workload: a convolution.
        config: knob -> value.
        arch: the architecture whose features may be used, such as "sm_75".

    Raises:
        UsageError, SpaceError, MissingPackage: see `schedule`.
    """
    made: CudaProgram = _part("cuda").program(schedule(workload, GPU, config), arch)
    return made


def llvm_target(threads: int = 1) -> tvm.target.Target:
    """The target of this machine's processor for schedules on `threads` threads; its triple and processor are named, not guessed by LLVM.

    The number of threads says how much parallelism is meant; how many TVM's runtime takes is set where programs run (TVM_NUM_THREADS).

    Raises:
        MissingPackage: TVM is not installed.
    """
    target: tvm.target.Target = _part("targets").llvm(threads)
    return target


def loop_nest(module: tvm.IRModule) -> LoopNest:
    """The loop nest of a schedule, read off its TIR: what `Kernel.loop_nest` has for its configuration, under TIR's names for loops, buffers and
    statements (blocks).

    Strides and mods are what the indices give for the iterations of a loop while the others are at their first. Iterations that a condition around the
    statement rules out are left out; conditions within a value (padding) rule out none.

    Args:
        module: as `schedule` gives it, or another with one function "main" whose arrays are float32.

    Returns:
        A nest of one configuration (batch 1), its numbers all Python ints. Where a name is there twice, the second has "#2" behind it.

    Raises:
        UsageError: an extent that depends on other loops, or a construct that no schedule of a convolution has.
        MissingPackage: TVM is not installed.
    """
    nest: LoopNest = _part("nest").extract(module)
    return nest


def _part(name: str) -> ModuleType:
    # TVM imports torch when it can, for conversions that nothing here needs: without it TVM loads three times as fast, and one LLVM stays out of the process.
    alone = "tvm" not in sys.modules and "torch" not in sys.modules
    if alone:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("tvm", "tvm_ffi"):
            raise
        raise MissingPackage.needed_by("a convolution's program", ModuleNotFoundError(name="tvm")) from error
    finally:
        if alone:
            del sys.modules["torch"]
