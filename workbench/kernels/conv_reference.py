"""What the convolutions compute, in numpy and double precision: the measure of every program that is timed.

Each element of the filter is one product of matrices, (output channels x input channels) by (input channels x positions), summed over the filter.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.errors import UsageError
from workbench.kernels.conv_shape import Shape, shape_of
from workbench.schema import Workload

__all__ = ["inputs", "reference"]


def inputs(workload: Workload, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Input and filters of a workload, shaped as `Shape.data_shape` and `Shape.weight_shape`: normal random numbers that belong to `seed`.

    The filters are scaled by 1 / sqrt(fan-in), the number of products in an output element, so that outputs of every workload are about as large as 1.
    """
    shape = shape_of(workload)
    rng = np.random.default_rng(seed)
    fan_in = shape.ci // shape.groups * math.prod(shape.filter)
    data = rng.standard_normal(shape.data_shape, dtype=np.float32)
    return data, rng.standard_normal(shape.weight_shape, dtype=np.float32) * np.float32(1 / math.sqrt(fan_in))


def reference(workload: Workload, data: NDArray[np.float32], weight: NDArray[np.float32]) -> NDArray[np.float64]:
    """The output of a workload, shaped as `Shape.output_shape`. Raises UsageError for arrays of another shape."""
    shape = shape_of(workload)
    for name, array, wanted in (("data", data, shape.data_shape), ("weight", weight, shape.weight_shape)):
        if array.shape != wanted:
            raise UsageError(f"{workload.kernel}: {name} has shape {array.shape}; this workload's is {wanted}")
    return (_scattered if shape.transposed else _gathered)(shape, data.astype(np.float64), weight.astype(np.float64))


def _gathered(shape: Shape, data: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    # A depthwise convolution has groups of one input channel.
    filters = weight.reshape(shape.groups, shape.co // shape.groups, shape.ci // shape.groups, -1)
    padded = np.pad(data, ((0, 0), (0, 0), *shape.padding))
    positions = math.prod(shape.output)
    result = np.zeros((shape.n, shape.groups, shape.co // shape.groups, positions))
    for element, place in enumerate(product(*map(range, shape.filter))):
        first = [at * gap for at, gap in zip(place, shape.dilation, strict=True)]
        seen = [slice(f, f + (out - 1) * step + 1, step) for f, out, step in zip(first, shape.output, shape.stride, strict=True)]
        result += filters[..., element] @ padded[_inner(seen)].reshape(shape.n, shape.groups, -1, positions)
    return result.reshape(shape.output_shape)


def _scattered(shape: Shape, data: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    filters = weight.reshape(shape.ci, shape.co, -1)
    # The output before the padding is cut off it.
    whole = [(size - 1) * step + extent for size, step, extent in zip(shape.size, shape.stride, shape.filter, strict=True)]
    result = np.zeros((shape.n, shape.co, *whole))
    columns = data.reshape(shape.n, shape.ci, -1)
    for element, place in enumerate(product(*map(range, shape.filter))):
        written = [slice(at, at + (size - 1) * step + 1, step) for at, size, step in zip(place, shape.size, shape.stride, strict=True)]
        result[_inner(written)] += (filters[..., element].T @ columns).reshape(shape.n, shape.co, *shape.size)
    return result[_inner([slice(before, before + out) for (before, _), out in zip(shape.padding, shape.output, strict=True)])]


def _inner(slices: list[slice]) -> tuple[Any, ...]:
    return (..., *slices)
