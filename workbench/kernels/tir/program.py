"""A CUDA program as data: what a machine with a GPU needs to compile, launch and check it. Needs no TVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CudaProgram", "Launch"]


@dataclass(frozen=True)
class Launch:
    """One kernel of a program.

    Attributes:
        name: of its function.
        grid, block: blocks and threads along x, y, z.
        arguments: names of the buffers that it takes, in order.
        shared_bytes: static shared memory of a block.
        local_bytes: arrays of a thread, in registers where the compiler can keep them there.
    """

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[str, ...]
    shared_bytes: int
    local_bytes: int


@dataclass(frozen=True)
class CudaProgram:
    """A convolution as CUDA C++.

    Attributes:
        source: all functions, for nvcc or NVRTC.
        launches: the kernels, in the order in which they run.
        buffers: floats in each buffer that a launch names: "data", "weight", "output", and those between the kernels.
        barriers_added: barriers that TVM had left out.
    """

    source: str
    launches: tuple[Launch, ...]
    buffers: Mapping[str, int]
    barriers_added: int
