"""What a workload's result is, in numpy and double precision: the measure of what the device takes for right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.kernels import conv_reference
from workbench.kernels.conv_shape import shape_of
from workbench.kernels.matrix import KERNELS as MATRIX
from workbench.kernels.matrix import reference as matrix_reference
from workbench.schema import Workload

__all__ = ["expected"]


def expected(workload: Workload, inputs: Sequence[NDArray[np.float32]]) -> NDArray[Any]:
    """The result of a workload of flat inputs, in the order in which its problem has them. Raises UsageError for a workload that is none."""
    if workload.kernel in MATRIX:
        first, second, _ = matrix_reference.shapes(workload.kernel, workload.params)
        a = inputs[0].astype(np.float64).reshape(first)
        b = inputs[1].astype(np.float64).reshape(second) if len(inputs) > 1 else np.empty((0, 0))
        return matrix_reference.reference(workload.kernel, workload.params, a, b)
    if workload.kernel == "blur_gpu":
        side = round(inputs[0].size ** 0.5)
        image = inputs[0].astype(np.float64).reshape(side, side)
        rows = image[:-2] + image[1:-1] + image[2:]
        return (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 9
    shape = shape_of(workload)
    return conv_reference.reference(workload, inputs[0].reshape(shape.data_shape), inputs[1].reshape(shape.weight_shape))
