"""The algorithms as TVM's tensor expressions: topi's, and a winograd of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import te, topi

from workbench.kernels.conv import slots
from workbench.kernels.conv_shape import Shape, shape_of
from workbench.kernels.tir.winograd import winograd
from workbench.schema import Workload

__all__ = ["DTYPE", "PRODUCTS", "compute", "main_block"]

DTYPE = "float32"
# The block of winograd's batch of matrix products.
PRODUCTS = "bgemm"

_ALGORITHMS: dict[str, Callable[[te.Tensor, te.Tensor, Shape, list[int]], te.Tensor]] = {
    "conv1d": lambda data, weight, s, sides: topi.nn.group_conv1d_ncw(data, weight, s.stride, sides, s.dilation, s.groups),
    "conv2d": lambda data, weight, s, sides: topi.nn.group_conv2d_nchw(data, weight, s.stride, sides, s.dilation, s.groups),
    "depthwise_conv2d": lambda data, weight, s, sides: topi.nn.depthwise_conv2d_nchw(data, weight, s.stride, sides, s.dilation),
    "conv1d_transpose": lambda data, weight, s, sides: topi.nn.conv1d_transpose_ncw(data, weight, s.stride, sides, DTYPE, 0),
    "conv2d_transpose": lambda data, weight, s, sides: topi.nn.conv2d_transpose_nchw(data, weight, s.stride, sides, DTYPE, (0, 0)),
}


def compute(workload: Workload, halves: bool = False) -> tvm.IRModule:
    """See `workbench.kernels.tir.compute`; `halves` is of winograd's transforms alone, see there."""
    slots(workload)  # what no template can schedule has no algorithm here either
    shape = shape_of(workload)
    data, weight = te.placeholder(shape.data_shape, DTYPE, "data"), te.placeholder(shape.weight_shape, DTYPE, "weight")
    # topi takes the zeros of all axes before, then those after.
    sides = [pair[side] for side in (0, 1) for pair in shape.padding]
    output = winograd(data, weight, shape, halves) if shape.kernel == "conv2d_winograd" else _ALGORITHMS[shape.kernel](data, weight, shape, sides)
    function = te.create_prim_func([data, weight, output])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def main_block(schedule: tvm.s_tir.Schedule, workload: Workload) -> Any:
    """The block with the multiplications: winograd's products of matrices, else the one that writes the output."""
    if workload.kernel == "conv2d_winograd":
        return schedule.get_sblock(PRODUCTS)
    (block,) = schedule.get_output_blocks(schedule.get_sblock("root"))
    return block
