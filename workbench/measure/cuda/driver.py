"""CUDA's driver through ctypes: as much of it as loading a compiled program, launching its kernels and timing them takes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.errors import DeviceError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LIBRARY", "NAN", "NOT_COMPILED", "OUT_OF_MEMORY", "REFUSED", "Cuda", "CudaError", "FunctionFacts"]

# Names another driver library than the system's.
LIBRARY = "WORKBENCH_CUDA_DRIVER"

NAN = 0x7FC00000  # the bits of a float32 that is no number
OUT_OF_MEMORY = 2
# Errors of a launch that this device can never make: more threads, blocks, shared memory or registers than it has (CUDA_ERROR_INVALID_VALUE,
# CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES).
REFUSED = (1, 701)
# Errors of loading PTX: it is none, there is no compiler in the driver, the PTX is of a later version, or the driver may not compile (CUDA_ERROR_INVALID_PTX,
# JIT_COMPILER_NOT_FOUND, UNSUPPORTED_PTX_VERSION, JIT_COMPILATION_DISABLED).
NOT_COMPILED = (218, 221, 222, 223)

_Pointer, _Address, _Int, _Size = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_size_t
_SIGNATURES: Mapping[str, Sequence[Any]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDriverGetVersion": (_Pointer,),
    "cuDeviceGetCount": (_Pointer,),
    "cuDeviceGet": (_Pointer, _Int),
    "cuDeviceGetName": (_Pointer, _Int, _Int),
    "cuDeviceGetAttribute": (_Pointer, _Int, _Int),
    "cuDeviceTotalMem_v2": (_Pointer, _Int),
    "cuDevicePrimaryCtxRetain": (_Pointer, _Int),
    "cuCtxSetCurrent": (_Pointer,),
    "cuCtxSynchronize": (),
    "cuModuleLoadData": (_Pointer, ctypes.c_char_p),
    "cuModuleUnload": (_Pointer,),
    "cuModuleGetFunction": (_Pointer, _Pointer, ctypes.c_char_p),
    "cuFuncGetAttribute": (_Pointer, _Int, _Pointer),
    "cuMemAlloc_v2": (_Pointer, _Size),
    "cuMemFree_v2": (_Address,),
    "cuMemHostAlloc": (_Pointer, _Size, ctypes.c_uint),
    "cuMemHostGetDevicePointer_v2": (_Pointer, _Pointer, ctypes.c_uint),
    "cuMemcpyHtoD_v2": (_Address, _Pointer, _Size),
    "cuMemcpyDtoH_v2": (_Pointer, _Address, _Size),
    "cuMemsetD32Async": (_Address, ctypes.c_uint, _Size, _Pointer),
    "cuEventCreate": (_Pointer, ctypes.c_uint),
    "cuEventRecord": (_Pointer, _Pointer),
    "cuEventElapsedTime": (_Pointer, _Pointer, _Pointer),
    "cuGetErrorName": (_Int, _Pointer),
}
# CUdevice_attribute
_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "max_shared_bytes_per_block": 8,
    "warp_size": 10,
    "max_registers_per_block": 12,
    "clock_khz": 13,
    "multiprocessors": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "max_threads_per_multiprocessor": 39,
    "compute_capability_major": 75,
    "compute_capability_minor": 76,
    "max_shared_bytes_per_multiprocessor": 81,
    "max_shared_bytes_per_block_optin": 97,
}
_MAPPED = 2  # CU_MEMHOSTALLOC_DEVICEMAP


class CudaError(RuntimeError):
    """What a call of the driver answered instead of success: its `code` and the name of that."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.code = code
        self.call = call


@dataclass(frozen=True)
class FunctionFacts:
    """What a compiled kernel needs: registers and bytes of local memory a thread, bytes of static shared memory a block; and the most threads of a block."""

    registers: int
    shared_bytes: int
    local_bytes: int
    max_threads: int


class Cuda:
    """The primary context of a device, current in the thread that makes it. Everything goes through the default stream.

    Raises:
        DeviceError: there is no driver, or no such device.
    """

    def __init__(self, device: int = 0) -> None:
        library = _library()
        for name, types in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = _Int, types
        self._library = library
        self._launch = library.cuLaunchKernel  # without argtypes: its arguments are ctypes objects already, and it is called in a hurry
        self._launch.restype = _Int
        try:
            self._call("cuInit", 0)
            count = self._number("cuDeviceGetCount")
        except CudaError as error:
            raise DeviceError(f"CUDA's driver finds no device ({error}); see what nvidia-smi says") from error
        if not 0 <= device < count:
            raise DeviceError(f"there is no CUDA device {device}; there are {count}, numbered from 0")
        self._device = self._number("cuDeviceGet", device)
        try:
            context = _Pointer()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
            self._call("cuCtxSetCurrent", context)
        except CudaError as error:
            raise DeviceError(f"CUDA device {device} cannot be used ({error}); another process may hold it") from error

    def describe(self) -> dict[str, Any]:
        """Name, memory and attributes of the device, and the CUDA version that the driver is made for, as 1000 x major + 10 x minor."""
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), self._device)
        total = _Size()
        self._call("cuDeviceTotalMem_v2", ctypes.byref(total), self._device)
        attributes: dict[str, int] = {}
        for attribute, number in _ATTRIBUTES.items():
            value = _Int()
            if self._library.cuDeviceGetAttribute(ctypes.byref(value), number, self._device) == 0:  # an old driver does not know all of them
                attributes[attribute] = value.value
        return {"model": name.value.decode(errors="replace"), "driver_cuda": self._number("cuDriverGetVersion"), "memory_bytes": total.value, **attributes}

    # ------------------------------------------------------------------------------------------------ programs
    def load(self, image: bytes) -> ctypes.c_void_p:
        """A module of a compiled program, or of PTX, which the driver compiles. Raises CudaError, for a program of another architecture too."""
        module = _Pointer()
        self._call("cuModuleLoadData", ctypes.byref(module), image)
        return module

    def unload(self, module: ctypes.c_void_p) -> None:
        """Forget a module. Raises CudaError."""
        self._call("cuModuleUnload", module)

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        """A kernel of a module. Raises CudaError where there is none of that name."""
        function = _Pointer()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def facts(self, function: ctypes.c_void_p) -> FunctionFacts:
        """What a kernel needs. Raises CudaError."""
        registers, shared, local, threads = (self._number("cuFuncGetAttribute", attribute, function) for attribute in (4, 1, 3, 0))
        return FunctionFacts(registers, shared, local, threads)

    def prepare(
        self, function: ctypes.c_void_p, grid: Sequence[int], block: Sequence[int], arguments: Sequence[int], shared_bytes: int = 0
    ) -> Callable[[], None]:
        """A call that launches a kernel. An argument is the address of a buffer or a whole number of 32 bits; the call raises CudaError."""
        slots = (_Address * len(arguments))(*(argument % 2**64 for argument in arguments))  # a kernel reads as many bytes as its parameter has
        pointers = (_Pointer * len(arguments))(*(ctypes.addressof(slots) + 8 * i for i in range(len(arguments))))
        sizes = [ctypes.c_uint(extent) for extent in (*grid, *block, shared_bytes)]
        launch, everything = self._launch, (function, *sizes, _Pointer(0), pointers, _Pointer(0))

        def call(slots: object = slots) -> None:  # the slots live as long as the call
            if code := launch(*everything):
                raise self._error("cuLaunchKernel", code)

        return call

    def synchronize(self) -> None:
        """Wait for all that was launched. Raises CudaError, for what a kernel did wrong too; the context may be lost then."""
        self._call("cuCtxSynchronize")

    # ------------------------------------------------------------------------------------------------ memory
    def allocate(self, size: int) -> int:
        """Address of a new buffer of so many bytes, whose contents are anything. Raises CudaError, with code OUT_OF_MEMORY where there is no room."""
        address = _Address()
        self._call("cuMemAlloc_v2", ctypes.byref(address), max(size, 4))
        return address.value

    def free(self, address: int) -> None:
        """Give a buffer back, once nothing uses it any more. Raises CudaError."""
        self._call("cuMemFree_v2", address)

    def fill(self, address: int, word: int, count: int) -> None:
        """Write a word of 32 bits so many times, in the order of launches."""
        if count:
            self._call("cuMemsetD32Async", address, word, count, _Pointer(0))

    def upload(self, address: int, values: NDArray[np.generic]) -> None:
        """Copy a contiguous array to a buffer."""
        self._call("cuMemcpyHtoD_v2", address, values.ctypes.data, values.nbytes)

    def download(self, values: NDArray[np.generic], address: int) -> None:
        """Copy from a buffer into a contiguous array, once all before it has run. Raises CudaError as `synchronize` does."""
        self._call("cuMemcpyDtoH_v2", values.ctypes.data, address, values.nbytes)

    def shared_flag(self) -> tuple[ctypes.c_int, int]:
        """A whole number that this process and a running kernel both see: here, and its address there."""
        host, there = _Pointer(), _Address()
        self._call("cuMemHostAlloc", ctypes.byref(host), 4, _MAPPED)
        self._call("cuMemHostGetDevicePointer_v2", ctypes.byref(there), host, 0)
        return ctypes.c_int.from_address(host.value or 0), there.value

    # ------------------------------------------------------------------------------------------------ clocks
    def event(self) -> ctypes.c_void_p:
        """An event, to be recorded between launches."""
        event = _Pointer()
        self._call("cuEventCreate", ctypes.byref(event), 0)
        return event

    def record(self, event: ctypes.c_void_p) -> None:
        """Have the device note the time once it has done all before."""
        self._call("cuEventRecord", event, _Pointer(0))

    def elapsed_s(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        """Seconds between two recorded events, after `synchronize`. The clock counts half microseconds."""
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value / 1e3

    # ------------------------------------------------------------------------------------------------
    def _number(self, name: str, *arguments: Any) -> int:
        """The whole number that a call writes to its first argument."""
        value = _Int()
        self._call(name, ctypes.byref(value), *arguments)
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise self._error(name, code)

    def _error(self, call: str, code: int) -> CudaError:
        name = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(name))
        return CudaError(call, code, (name.value or b"an error without a name").decode(errors="replace"))


def _library() -> ctypes.CDLL:
    named = os.environ.get(LIBRARY, "")
    reasons = []
    for path in [named] if named else ["libcuda.so.1", "libcuda.so", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"]:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            reasons.append(str(error))
    looked = f"{LIBRARY} names {named!r}, which does not load ({reasons[0]})" if named else f"libcuda does not load ({reasons[0]})"
    raise DeviceError(f"no CUDA driver here: {looked}; run this where nvidia-smi finds a device")
