"""Shapes of convolutions: outputs, work and refusals, worked out by hand and by counting what each output reads."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.kernels.conv_shape import shape_of
from workbench.schema import Workload

FLAT = {"n": 2, "ci": 6, "w": 20, "co": 4, "kw": 3, "stride": 2, "padding": 1}
DEEP = {**FLAT, "h": 10, "kh": 5}


def of(name: str, **params: Any) -> Workload:
    base = FLAT if name.startswith("conv1d") else DEEP
    return kernel(name).workload({**base, **params})


@pytest.mark.parametrize(
    ("workload", "data", "weight", "output"),
    [
        # (20 + 2 - 3) // 2 + 1 = 10; (10 + 2 - 5) // 2 + 1 = 4.
        (of("conv1d"), (2, 6, 20), (4, 6, 3), (2, 4, 10)),
        (of("conv1d", groups=2), (2, 6, 20), (4, 3, 3), (2, 4, 10)),
        # One more before than after: (20 + 3 - 5) // 1 + 1 = 19 with a dilation of 2.
        (of("conv1d", stride=(1,), padding=(2, 1), dilation=2), (2, 6, 20), (4, 6, 3), (2, 4, 19)),
        (of("conv2d"), (2, 6, 10, 20), (4, 6, 5, 3), (2, 4, 4, 10)),
        (of("conv2d", stride=(1, 2), padding=(2, 1), groups=2), (2, 6, 10, 20), (4, 3, 5, 3), (2, 4, 10, 10)),
        # Top, left, bottom, right: 10 + 1 + 3 - 5 + 1 = 10 rows, 20 + 0 + 2 - 3 + 1 = 20 columns.
        (of("conv2d", stride=1, padding=(1, 0, 3, 2)), (2, 6, 10, 20), (4, 6, 5, 3), (2, 4, 10, 20)),
        (of("depthwise_conv2d", co=12), (2, 6, 10, 20), (6, 2, 5, 3), (2, 12, 4, 10)),
        (of("conv2d_winograd", stride=1, kh=3), (2, 6, 10, 20), (4, 6, 3, 3), (2, 4, 10, 20)),
        # (20 - 1) 2 + 3 - 2 = 39; (10 - 1) 2 + 5 - 2 = 21.
        (of("conv1d_transpose"), (2, 6, 20), (6, 4, 3), (2, 4, 39)),
        (of("conv2d_transpose"), (2, 6, 10, 20), (6, 4, 5, 3), (2, 4, 21, 39)),
    ],
)
def test_shapes_by_hand(workload: Workload, data: tuple[int, ...], weight: tuple[int, ...], output: tuple[int, ...]) -> None:
    shape = shape_of(workload)
    assert (shape.data_shape, shape.weight_shape, shape.output_shape) == (data, weight, output)


def test_work_by_hand() -> None:
    for name, params, macs in (
        ("conv1d", {}, 2 * 4 * 10 * 6 * 3),
        ("conv1d", {"groups": 2}, 2 * 4 * 10 * 3 * 3),
        ("conv2d", {"groups": 2}, 2 * 4 * 40 * 3 * 15),
        # Every input position meets every filter element, whatever the stride and the padding.
        ("conv1d_transpose", {}, 2 * 6 * 4 * 20 * 3),
        ("conv1d_transpose", {"stride": 3, "padding": 0}, 2 * 6 * 4 * 20 * 3),
        ("conv2d_transpose", {}, 2 * 6 * 4 * 200 * 15),
    ):
        found = kernel(name)
        assert found.complexity is not None
        assert found.flop is not None
        workload = of(name, **params)
        assert found.complexity(workload.params) == macs
        assert found.flop(workload.params) == 2 * macs
        columns = {key: np.array([value, value]) for key, value in workload.params.items() if not isinstance(value, tuple)}
        assert found.flop(columns).tolist() == [2 * macs, 2 * macs]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.integers(0, 4))
def test_a_transposed_convolution_scatters_what_a_convolution_gathers(size: int, filter_size: int, stride: int, padding: int) -> None:
    """Its output has the size of an input that the convolution thins to `size`, and without padding each product of the formula lands in it."""
    params = {"n": 1, "ci": 1, "w": size, "co": 1, "kw": filter_size, "stride": stride, "padding": padding}
    landed = [i * stride + k - padding for i, k in product(range(size), range(filter_size))]
    if (size - 1) * stride + filter_size - 2 * padding < 1:
        with pytest.raises(UsageError, match="the padding takes it all"):
            shape_of(Workload("conv1d_transpose", params))
        return
    (width,) = shape_of(Workload("conv1d_transpose", params)).output
    assert width == max(landed) - padding + 1
    assert shape_of(Workload("conv1d", {**params, "w": width})).output == (size,)
    if padding == 0:
        assert kernel("conv1d_transpose").flop(params) == 2 * sum(0 <= place < width for place in landed)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("conv1d", {**FLAT, "kw": 0}, "conv1d: kw is 0; it is a whole number of at least 1$"),
        ("conv1d", {**FLAT, "stride": (1, 1)}, r"stride is \(1, 1\); .* or 1 of them"),
        ("conv1d", {**FLAT, "padding": (1, 1, 1)}, r"padding is \(1, 1, 1\); .* at least 0, or 1 or 2 of them"),
        ("conv1d", {**FLAT, "groups": 4}, "groups is 4; it divides both ci, 6, and co, 4"),
        ("conv1d", {**FLAT, "kw": 30}, "output would be -3; the filter does not fit"),
        ("conv1d", {key: value for key, value in FLAT.items() if key != "w"}, "'w' is missing; it takes n, ci, w, co, kw, stride, padding"),
        ("conv2d", {**DEEP, "groups": 3}, "groups is 3; it divides both ci, 6, and co, 4"),
        ("conv1d_transpose", {**FLAT, "dilation": 2}, "dilation is 2; a transposed convolution has neither dilation nor groups here"),
        ("conv2d_transpose", {**DEEP, "groups": 2}, "groups is 2; a transposed convolution"),
        ("conv2d_transpose", {**DEEP, "w": 1, "padding": 2}, "the output would be 19 x -1; the padding takes it all"),
    ],
)
def test_what_cannot_be_convolved(name: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        shape_of(Workload(name, params))


@pytest.mark.parametrize("name", ["conv1d_transpose", "conv2d_transpose"])
def test_a_transposed_kernel_takes_no_dilation(name: str) -> None:
    with pytest.raises(UsageError, match=f"kernel '{name}' has no parameter 'dilation'; it takes n, ci"):
        of(name, dilation=1)
    assert shape_of(Workload(name, {**of(name).params, "dilation": 1, "groups": 1})) == shape_of(of(name))
