"""What programs are compiled for."""

from __future__ import annotations

import tvm
import tvm_ffi

__all__ = ["llvm"]

# The features of x86-64-v3 that programs of float32 use; a processor with them runs code for that level.
_X86_64_V3 = ("avx2", "bmi2", "fma")


def llvm(threads: int = 1) -> tvm.target.Target:
    """See `workbench.kernels.tir.llvm_target`."""
    triple = str(tvm_ffi.get_global_func("target.llvm_get_system_triple")())
    cpu = str(tvm_ffi.get_global_func("target.llvm_get_system_cpu")())
    if triple.startswith("x86_64"):
        # One level for all recent machines, so that a program measured on one is the program measured on another.
        features = dict(tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")())
        cpu = "x86-64-v3" if all(features.get(name) for name in _X86_64_V3) else cpu
    return tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": cpu, "num-cores": threads})
