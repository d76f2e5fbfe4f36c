"""What tests ask of TVM, in a process without torch: functions that the fixture `in_tvm_process` calls there."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from unittest.mock import patch

import numpy as np

from workbench.errors import BuildError
from workbench.kernels import kernel, tir
from workbench.kernels.conv_reference import inputs, reference
from workbench.kernels.tir.program import CudaProgram
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


def cuda(workload: Workload, config: Mapping[str, Value], repaired: bool = True) -> CudaProgram:
    """The program for a GPU; without the repair as TVM leaves it."""
    if repaired:
        return tir.cuda_program(workload, config, "sm_75")
    tir.compute(workload)  # loads TVM, which the module to be patched needs
    with patch("workbench.kernels.tir.cuda.repair", lambda function: (function, 0)):
        return tir.cuda_program(workload, config, "sm_75")


def verdicts(workload: Workload, indices: Sequence[int], limits: Mapping[str, int]) -> list[bool]:
    """Whether TVM's own check finds each configuration, lowered, within `limits`."""
    space = kernel(workload.kernel).space(workload, "workbench-gpu")
    return [_verified(tir.schedule(workload, "workbench-gpu", space.config(index)), limits) for index in indices]


def _verified(module: object, limits: Mapping[str, int]) -> bool:
    from tvm import s_tir, tirx
    from tvm.ir.transform import Sequential

    s, t = s_tir.transform, tirx.transform
    allocated = [s.PlanAndUpdateBufferAllocationLocation(), s.ConvertBlocksToOpaque(), s.LiftThreadBinding(), s.CompactBufferAllocation()]
    flat = [s.UnifyThreadBinding(), s.LowerMatchBuffer(), s.StmtSimplify(), s.LowerOpaqueBlock(), t.FlattenBuffer(), t.NarrowDataType(32)]
    passes = [s.CanonicalizeLoop(), s.LowerCrossThreadReduction(), s.LowerInitBlock(), *allocated, *flat, s.InjectVirtualThread(), t.StorageRewrite()]
    return bool(s_tir.analysis.verify_gpu_code(Sequential(passes)(module)["main"], dict(limits)))


def repairs() -> dict[str, tuple[int, list[str]] | str]:
    """Kernels written out: name -> barriers added and the order of what is then done with shared memory, or why there can be no barrier."""
    from tvm.script import tirx as T

    from workbench.kernels.tir.barriers import repair

    @T.prim_func(s_tir=True)
    def apart(a: T.Buffer((32,), "float32"), b: T.Buffer((32,), "float32")):
        thread = T.launch_thread("threadIdx.x", 32)
        s = T.alloc_shared((32,))
        s[thread] = a[thread]
        b[thread] = s[31 - thread]

    @T.prim_func(s_tir=True)
    def kept(a: T.Buffer((32,), "float32"), b: T.Buffer((32,), "float32")):
        thread = T.launch_thread("threadIdx.x", 32)
        s = T.alloc_shared((32,))
        s[thread] = a[thread]
        T.tvm_storage_sync("shared")
        b[thread] = s[31 - thread]

    @T.prim_func(s_tir=True)
    def around(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        thread = T.launch_thread("threadIdx.x", 32)
        s = T.alloc_shared((32,))
        for i in range(2):
            s[thread] = a[i * 32 + thread]
            T.tvm_storage_sync("shared")
            b[i * 32 + thread] = s[31 - thread]

    @T.prim_func(s_tir=True)
    def before_a_loop(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        thread = T.launch_thread("threadIdx.x", 32)
        s = T.alloc_shared((32,))
        s[thread] = a[thread]
        for i in range(2):
            b[i * 32 + thread] = s[31 - thread]
            s[thread] = a[i * 32 + thread]

    @T.prim_func(s_tir=True)
    def two_buffers(a: T.Buffer((32,), "float32"), b: T.Buffer((32,), "float32")):
        thread = T.launch_thread("threadIdx.x", 32)
        s = T.alloc_shared((32,))
        r = T.alloc_shared((32,))
        s[thread] = a[thread]
        T.tvm_storage_sync("shared")
        r[thread] = a[thread]
        b[thread] = s[31 - thread]

    @T.prim_func(s_tir=True)
    def under_a_condition(a: T.Buffer((32,), "float32"), b: T.Buffer((32,), "float32")):
        thread = T.launch_thread("threadIdx.x", 32)
        s = T.alloc_shared((32,))
        if thread < 16:
            s[thread] = a[thread]
            b[thread] = s[15 - thread]

    found: dict[str, tuple[int, list[str]] | str] = {}
    for name, function in locals().copy().items():
        if hasattr(function, "with_body"):
            try:
                mended, added = repair(function)
                found[name] = added, re.findall(r"storage_sync|\b[sr]\[\w+\] =|= [sr]\[|for ", mended.script())
            except BuildError as error:
                found[name] = str(error)
    return found
