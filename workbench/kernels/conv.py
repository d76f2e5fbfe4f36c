"""Six kinds of convolution and their configuration spaces.

`autotvm` has the knobs of AutoTVM's CUDA templates, for logs of others. `workbench-gpu` and `workbench-cpu` are those of the templates in `kernels.tir`, which
schedule every direct convolution by one table of slots: the spatial axes f (output channels), y, x and the reduction axes rc (input channels), ry, rx. Winograd
takes the same templates on its batch of matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from workbench.errors import UsageError
from workbench.kernels.base import Kernel
from workbench.kernels.conv_shape import OPTIONAL, OPTIONAL_1D, PARAMETERS, PARAMETERS_1D, TRANSPOSED, Shape, macs, output_size, shape_of, transposed_macs
from workbench.schema import Workload
from workbench.space import Choice, Knob, Space, Split

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from workbench.loopnest import NestBatch

__all__ = [
    "CPU",
    "GPU",
    "KERNELS",
    "OPTIONAL",
    "PARAMETERS",
    "THREADS",
    "WINOGRAD_FILTER",
    "WINOGRAD_TILE",
    "Slots",
    "macs",
    "output_size",
    "slots",
    "winograd_tile",
]

GPU, CPU = "workbench-gpu", "workbench-cpu"
# Of the four tiles of an axis (block, virtual thread, thread, inner) the third is bound to threads.
THREADS: Mapping[str, int | None] = {"tile_f": 2, "tile_y": 2, "tile_x": 2}
# Output rows and columns of a winograd tile in `kernels.tir`, whatever the input's size, and of the filter: F(4 x 4, 3 x 3), as topi has it.
WINOGRAD_TILE, WINOGRAD_FILTER = 4, 3


@dataclass(frozen=True)
class Slots:
    """Axes that a template tiles, by the letters that stand in the names of their knobs (tile_f, ...), in the order of the loops.

    Attributes:
        spatial: extents of the axes of the output: f, y, x; of winograd's products b (batch), y (output channels), x (tiles).
        reduction: extents of the axes that are summed over: rc, ry, rx.
    """

    spatial: Mapping[str, int]
    reduction: Mapping[str, int]


def slots(workload: Workload) -> Slots:
    """The slots of a workload in the workbench's own templates. Raises UsageError for a workload that cannot be."""
    shape = shape_of(workload)
    if shape.kernel == "conv2d_winograd":
        _winograd_shape(shape)
        if shape.filter != (WINOGRAD_FILTER, WINOGRAD_FILTER):
            raise UsageError(f"{shape.kernel}: the filter is {shape.filter[0]} x {shape.filter[1]}; the workbench's winograd has 3 x 3")
        batch = (WINOGRAD_TILE + WINOGRAD_FILTER - 1) ** 2
        return Slots({"b": batch, "y": shape.co, "x": _tiles(shape, WINOGRAD_TILE)}, {"rc": shape.ci})
    axes = ("y", "x")[-len(shape.size) :]
    channels = {} if shape.kernel == "depthwise_conv2d" else {"rc": shape.ci // shape.groups}
    filters = {f"r{axis}": extent for axis, extent in zip(axes, shape.filter, strict=True)}
    return Slots({"f": shape.co, **dict(zip(axes, shape.output, strict=True))}, {**channels, **filters})


def _unroll(*steps: int) -> tuple[Knob, ...]:
    return Choice("auto_unroll_max_step", steps), Choice("unroll_explicit", (0, 1))


_UNROLL_STEPS = {"depthwise_conv2d": 256, "conv2d_winograd": 128}


@lru_cache(maxsize=512)
def _gpu(workload: Workload) -> Space:
    parts = slots(workload)
    spatial = (_tile(axis, size, 4) for axis, size in parts.spatial.items())
    reduction = (Split(f"tile_{axis}", size, 2) for axis, size in parts.reduction.items())
    return Space(GPU, (*spatial, *reduction, *_unroll(0, _UNROLL_STEPS.get(workload.kernel, 512), 1500)))


@lru_cache(maxsize=512)
def _cpu(workload: Workload) -> Space:
    parts = slots(workload)
    spatial = (_tile(axis, size, 3) for axis, size in parts.spatial.items())
    reduction = (Split(f"tile_{axis}", size, 2) for axis, size in parts.reduction.items())
    # Winograd's products read no input that could be padded in their loops.
    pad_at = () if workload.kernel == "conv2d_winograd" else (Choice("pad_at", (0, 1)),)
    return Space(CPU, (*spatial, *reduction, Choice("order", (0, 1)), *pad_at, Choice("unroll", (0, 16, 64))))


def _tile(axis: str, size: int, parts: int) -> Knob:
    # The batch of winograd's products is not tiled: each of them is a block or a task of its own.
    return Choice("tile_b", ((size, *(1,) * (parts - 1)),)) if axis == "b" else Split(f"tile_{axis}", size, parts)


@lru_cache(maxsize=512)
def _autotvm_direct(workload: Workload) -> Space:
    shape = shape_of(workload)
    if shape.groups != 1:
        raise UsageError(f"{workload.kernel}: groups is {shape.groups}; AutoTVM's direct template has no groups (depthwise_conv2d is a kernel of its own)")
    tiles = (Split("tile_f", shape.co, 4), Split("tile_y", shape.output[0], 4), Split("tile_x", shape.output[1], 4))
    reduction = (Split("tile_rc", shape.ci, 2), Split("tile_ry", shape.filter[0], 2), Split("tile_rx", shape.filter[1], 2))
    return Space("autotvm", (*tiles, *reduction, *_unroll(0, 512, 1500)))


@lru_cache(maxsize=512)
def _autotvm_depthwise(workload: Workload) -> Space:
    shape = shape_of(workload)
    tiles = (Split("tile_f", shape.co, 4), Split("tile_y", shape.output[0], 4), Split("tile_x", shape.output[1], 4))
    return Space("autotvm", (*tiles, *_unroll(0, 256, 1500)))


def winograd_tile(height: int) -> int:
    """Output rows and columns that a winograd tile covers: 4 where the input's height divides by 8, else 2, as AutoTVM's CUDA template chooses."""
    return 4 if height % 8 == 0 else 2


def _winograd_shape(shape: Shape) -> None:
    if shape.filter[0] != shape.filter[1] or shape.groups != 1 or {*shape.stride, *shape.dilation} != {1}:
        given = f"a filter of {shape.filter[0]} x {shape.filter[1]}, stride {shape.stride}, dilation {shape.dilation}, groups {shape.groups}"
        raise UsageError(f"{shape.kernel}: winograd needs a square filter, stride 1, dilation 1 and no groups, not {given}")


def _tiles(shape: Shape, tile: int) -> int:
    return shape.n * -(-shape.output[0] // tile) * -(-shape.output[1] // tile)


@lru_cache(maxsize=512)
def _autotvm_winograd(workload: Workload) -> Space:
    shape = shape_of(workload)
    _winograd_shape(shape)
    # The stage that is tuned: alpha^2 products of matrices, co x ci by ci x tiles.
    tile = winograd_tile(shape.size[0])
    alpha = tile + shape.filter[0] - 1
    tiles = (Choice("tile_b", ((alpha * alpha, 1, 1, 1),)), Split("tile_y", shape.co, 4), Split("tile_x", _tiles(shape, tile), 4))
    return Space("autotvm", (*tiles, Split("tile_rc", shape.ci, 2), *_unroll(0, 128, 1500)))


def _depthwise_macs(params: Mapping[str, Any]) -> Any:
    height, width = output_size(params)
    return params["n"] * params["co"] * height * width * params["kh"] * params["kw"]


def _nests(workload: Workload, space: Space, indices: ArrayLike) -> NestBatch:
    from workbench.kernels.conv_nests import nests  # which asks this module for the slots

    return nests(workload, space, indices)


def _kind(name: str, title: str, work: Callable[[Mapping[str, Any]], Any], spaces: Mapping[str, Callable[[Workload], Space]]) -> Kernel:
    flat = name.startswith("conv1d")
    threads = {"tile_f": 2, "tile_x": 2} if flat else {"tile_b": 2, "tile_y": 2, "tile_x": 2} if name == "conv2d_winograd" else THREADS
    return Kernel(
        name,
        title,
        parameters=PARAMETERS_1D if flat else PARAMETERS,
        complexity=work,
        flop=lambda params: 2 * work(params),
        spaces=spaces,
        optional={} if name in TRANSPOSED else OPTIONAL_1D if flat else OPTIONAL,
        threads={space: threads for space in spaces if space != CPU},
        nests={space: _nests for space in spaces if space in (CPU, GPU)},
    )


KERNELS: Mapping[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        _kind("conv2d", "Direct convolution", macs, {"autotvm": _autotvm_direct, GPU: _gpu, CPU: _cpu}),
        _kind("depthwise_conv2d", "Depthwise convolution", _depthwise_macs, {"autotvm": _autotvm_depthwise, GPU: _gpu, CPU: _cpu}),
        _kind("conv2d_winograd", "Winograd convolution", macs, {"autotvm": _autotvm_winograd, GPU: _gpu, CPU: _cpu}),
        _kind("conv1d", "Convolution in one dimension", macs, {GPU: _gpu, CPU: _cpu}),
        _kind("conv1d_transpose", "Transposed convolution in one dimension", transposed_macs, {GPU: _gpu, CPU: _cpu}),
        _kind("conv2d_transpose", "Transposed convolution", transposed_macs, {GPU: _gpu, CPU: _cpu}),
    )
}
