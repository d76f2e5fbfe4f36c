"""Convolutions as problems of a bundle."""

from __future__ import annotations

import math
import zlib

from workbench.kernels.conv_shape import Shape, shape_of
from workbench.measure.cuda.bundle import Input, Launch, Problem
from workbench.schema import Workload

__all__ = ["problem"]

_BLOCK = 256
# See `workbench.measure.cuda.matrix`; an output is the sum of up to 4,608 products. Winograd's transforms add and cancel more.
_TOLERANCE, _WINOGRAD_TOLERANCE = 1e-5, 1e-4


def problem(workload: Workload, seed: int = 0) -> Problem:
    """What a convolution is on a GPU: of the buffers "data" and "weight" it makes "output". Raises UsageError for a workload that is no convolution."""
    shape = shape_of(workload)
    of_workload = (zlib.crc32(workload.key.encode()) + seed) % 2**27
    sizes = (math.prod(shape.data_shape), math.prod(shape.weight_shape))
    inputs = tuple(Input(name, size, size, 2 * of_workload + i) for i, (name, size) in enumerate(zip(("data", "weight"), sizes, strict=True)))
    count = math.prod(shape.output_shape)
    name = "reference_transposed" if shape.transposed else "reference_convolution"
    reference = Launch(name, (-(-count // _BLOCK), 1, 1), (_BLOCK, 1, 1), ("data", "weight", "expected", "size", *_arguments(shape)))
    tolerance = _WINOGRAD_TOLERANCE if workload.kernel == "conv2d_winograd" else _TOLERANCE
    return Problem(workload, inputs, "output", count, (reference,), tolerance)


def _arguments(shape: Shape) -> tuple[int, ...]:
    """What the reference kernels take, one-dimensional convolutions as those of one row."""
    flat = len(shape.size) == 1

    def both(pair: tuple[int, ...], one: int) -> tuple[int, ...]:
        return (one, *pair) if flat else pair

    sizes = (shape.n, shape.ci, *both(shape.size, 1), shape.co, *both(shape.filter, 1), *both(shape.output, 1), *both(shape.stride, 1))
    before = both(tuple(first for first, _ in shape.padding), 0)
    return (*sizes, *before) if shape.transposed else (*sizes, *before, *both(shape.dilation, 1), shape.groups)
