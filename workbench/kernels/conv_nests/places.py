"""Where the axes of a direct convolution lead in its arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.errors import UsageError
from workbench.kernels.conv import slots
from workbench.kernels.conv_shape import Shape, shape_of
from workbench.kernels.nesting import Move, row_major
from workbench.loopnest import Buffer, Number
from workbench.schema import Workload
from workbench.space import Space

__all__ = ["Places", "Tiles", "arguments", "direct", "tiles_of"]

# For each axis the lengths of its loops, outermost first.
Tiles = Mapping[str, Sequence[Number]]


def direct(workload: Workload) -> Places:
    """The places of a workload. Raises UsageError for a convolution whose groups have several channels, or a channel several filters."""
    parts, shape = slots(workload), shape_of(workload)
    if shape.groups > 1 and not shape.groups == shape.ci == shape.co:
        raise UsageError(
            f"{shape.kernel}: no loop nest for {shape.groups} groups of {shape.ci} input and {shape.co} output channels: where a tile of channels crosses "
            "groups, extents change from block to block; there is one for a single group, and for a depthwise convolution with one filter a channel"
        )
    return Places(shape, tuple(parts.spatial), tuple(parts.reduction))


def tiles_of(space: Space, knobs: Mapping[str, NDArray[np.int64]]) -> Tiles:
    """Lengths of the tiles that configurations of a space have, their decoded knobs given; of a knob without a choice, numbers that all share."""
    return {
        knob.name.removeprefix("tile_"): knob.options[0].tolist() if knob.count == 1 else list(np.ascontiguousarray(knobs[knob.name].T))
        for knob in space.knobs
        if knob.name.startswith("tile_")
    }


def arguments(shape: Shape) -> tuple[Buffer, ...]:
    """The arrays that the function of a convolution takes."""
    shapes = {"data": shape.data_shape, "weight": shape.weight_shape, "output": shape.output_shape}
    return tuple(Buffer(name, "global", extents) for name, extents in shapes.items())


@dataclass(frozen=True)
class Places:
    """Axes and moves of a direct convolution.

    The axes are n and those of the slots; pn, pc, py and px of the padded input, which loops that pad or fetch go through; kf, kc, ky and kx of the filters.

    Attributes:
        shape: the convolution.
        spatial: f, then the axes of an image.
        reduction: the axes that are summed over; a depthwise convolution has no rc.
    """

    shape: Shape
    spatial: tuple[str, ...]
    reduction: tuple[str, ...]

    @property
    def channel(self) -> str:
        """The axis of the input's channels."""
        return "rc" if "rc" in self.reduction else "f"

    @property
    def padded(self) -> tuple[int, ...]:
        """Shape of the padded input; a transposed convolution's is spread by the stride first."""
        shape = self.shape
        if shape.transposed:
            return (shape.n, shape.ci, *(output + extent - 1 for output, extent in zip(shape.output, shape.filter, strict=True)))
        return (shape.n, shape.ci, *(size + sum(zeros) for size, zeros in zip(shape.size, shape.padding, strict=True)))

    @property
    def windows(self) -> tuple[tuple[str, int, int], ...]:
        """For each axis of an image its name and how far an output, and an element of the filter, is from the next in the padded input."""
        shape = self.shape
        steps = [(1, 1) for _ in shape.size] if shape.transposed else list(zip(shape.stride, shape.dilation, strict=True))
        return tuple((axis, *step) for axis, step in zip(self.spatial[1:], steps, strict=True))

    def region(self, outputs: Mapping[str, Number], elements: Mapping[str, Number]) -> tuple[Number, ...]:
        """Shape of the part of one padded input that some outputs (of each spatial axis) and elements of the filters (of each reduction axis) need."""
        channels = outputs["f"] if self.channel == "f" else elements["rc"]
        return (1, channels, *((outputs[axis] - 1) * step + (elements[f"r{axis}"] - 1) * gap + 1 for axis, step, gap in self.windows))

    def input(self, strides: Sequence[Number]) -> dict[str, Move]:
        """Moves of the output's and the filter's axes in a padded input, or in a part of one, whose neighbours are `strides` apart."""
        moves = {"n": Move(strides[0]), self.channel: Move(strides[1])}
        for (axis, step, gap), stride in zip(self.windows, strides[2:], strict=True):
            moves |= {axis: Move(stride, step), f"r{axis}": Move(stride, gap)}
        return moves

    def input_axes(self, strides: Sequence[Number]) -> dict[str, Move]:
        """Moves of the padded input's own axes there."""
        return dict(zip(("pn", "pc", *(f"p{axis}" for axis in self.spatial[1:])), map(Move, strides), strict=True))

    @property
    def data(self) -> dict[str, Move]:
        """Moves of all those axes in the input itself, of which a transposed convolution has an element at every stride-th place."""
        shape, strides = self.shape, row_major(self.shape.data_shape)
        moves = {**self.input(strides), **self.input_axes(strides)}
        if shape.transposed:
            for axis, spread, extent, (before, _) in zip(self.spatial[1:], shape.stride, shape.filter, shape.padding, strict=True):
                for name in (axis, f"r{axis}", f"p{axis}"):
                    moves[name] = moves[name]._replace(divisor=spread, phase=before + 1 - extent)
        return moves

    @property
    def filter_axes(self) -> dict[str, str]:
        """The filters' own axes, in the order (output channels, input channels, ...), and the axis of the convolution that each belongs to, "" for none."""
        channels = {"kf": "f", "kc": "rc" if self.channel == "rc" else ""}
        return {**channels, **{f"k{axis}": f"r{axis}" for axis in self.spatial[1:]}}

    @property
    def weight(self) -> dict[str, Move]:
        """Moves of the filters' own axes and of those they belong to in the filters, which a transposed convolution turns around."""
        strides = row_major(self.shape.weight_shape)
        if self.shape.transposed:
            strides = (strides[1], strides[0], *(-stride for stride in strides[2:]))
        moves = dict(zip(self.filter_axes.items(), map(Move, strides), strict=True))
        return {axis: move for axes, move in moves.items() for axis in axes if axis}

    def filters(self, strides: Sequence[Number]) -> dict[str, Move]:
        """Moves in a part of the filters, (output channels, input channels, ...), whose neighbours are `strides` apart."""
        return dict(zip(self.filter_axes.values(), map(Move, strides), strict=True))

    def output(self, strides: Sequence[Number]) -> dict[str, Move]:
        """Moves in the output, or in a part of it, whose neighbours are `strides` apart."""
        return dict(zip(("n", *self.spatial), map(Move, strides), strict=True))
