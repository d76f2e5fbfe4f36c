"""CUDA source of a schedule, without a GPU or CUDA's compiler: TVM lowers, splits host from device, and prints."""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir.pipeline import default_s_tir_pipeline, finalize_device_passes
from tvm.tirx.build import split_host_device_mods

from workbench.kernels.tir.barriers import repair
from workbench.kernels.tir.program import CudaProgram, Launch

__all__ = ["program", "target"]

_BYTES = 4


def target(arch: str) -> tvm.target.Target:
    """A CUDA target such as "sm_90", with the limits of every capability."""
    return tvm.target.Target({"kind": "cuda", "arch": arch, "max_threads_per_block": 1024, "max_shared_memory_per_block": 48 * 1024}, host="llvm")


def program(module: tvm.IRModule, arch: str) -> CudaProgram:
    """See `workbench.kernels.tir.cuda_program`; `module` has a schedule with bindings."""
    output = str(module["main"].params[2].name)
    pipeline, _, _ = default_s_tir_pipeline()
    # Common subexpressions are computed and not used by the CUDA printer.
    with tvm.transform.PassContext(config={"tirx.disable_cse_tir": True}):
        host, devices = split_host_device_mods(pipeline(tirx.transform.BindTarget(target(arch))(module)))
    ((device_target, device),) = devices.items()
    repaired = {variable: repair(function) for variable, function in device.functions.items()}
    device = tvm.IRModule({variable: function for variable, (function, _) in repaired.items()}, attrs=device.attrs)
    source = tvm_ffi.get_global_func("target.build.cuda")(finalize_device_passes()(device), device_target).inspect_source()

    sizes = {("output" if buffer.name == output else str(buffer.name)): _floats(buffer) for buffer in module["main"].params}
    calls: list[tuple[str, tuple[str, ...]]] = []

    def between(statement: Any) -> None:
        sizes[str(statement.buffer.name)] = _floats(statement.buffer)

    def called(call: Any) -> None:
        if getattr(call.op, "name", "") == "tirx.call_ffi_kernel":
            names = [str(argument.args[0].name) for argument in call.args if isinstance(argument, tvm.ir.Call)]
            calls.append((str(call.args[0].value), tuple("output" if name == output else name for name in names)))

    (main,) = host.functions.values()
    tvm_ffi.structural_walk(main.body, [(tirx.AllocBuffer, between), (tvm.ir.Call, called)])
    functions = {str(variable.name_hint): function for variable, function in device.functions.items()}
    launches = tuple(_launch(name, arguments, functions[name]) for name, arguments in calls)
    # The lines before the functions define types that no convolution has, some from headers that NVRTC comes without.
    functions_only = str(source)[str(source).index('extern "C"') :]
    return CudaProgram(functions_only, launches, sizes, sum(added for _, added in repaired.values()))


def _floats(buffer: Any) -> int:
    return math.prod(map(int, buffer.shape))


def _launch(name: str, arguments: tuple[str, ...], function: tirx.PrimFunc) -> Launch:
    extents: dict[str, int] = {}
    room = {"shared": 0, "local": 0}

    def bound(statement: Any) -> None:
        if statement.attr_key == "thread_extent":
            extents[str(statement.node.thread_tag)] = int(statement.value)

    def allocated(statement: Any) -> None:
        room[str(statement.buffer.scope())] += _BYTES * _floats(statement.buffer)

    tvm_ffi.structural_walk(function.body, [(tirx.AttrStmt, bound), (tirx.AllocBuffer, allocated)])
    blocks, threads = ([extents.get(f"{level}.{dimension}", 1) for dimension in "xyz"] for level in ("blockIdx", "threadIdx"))
    return Launch(name, (blocks[0], blocks[1], blocks[2]), (threads[0], threads[1], threads[2]), arguments, room["shared"], room["local"])
