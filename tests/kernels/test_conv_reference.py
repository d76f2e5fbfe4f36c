"""The convolutions in numpy against torch's, over shapes at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.kernels.conv_reference import inputs, reference
from workbench.kernels.conv_shape import shape_of
from workbench.schema import Workload

KINDS = ("conv2d", "depthwise_conv2d", "conv2d_winograd", "conv1d", "conv1d_transpose", "conv2d_transpose")


@st.composite
def workloads(draw: st.DrawFn, kind: str) -> Workload:
    flat, transposed, winograd = kind.startswith("conv1d"), kind.endswith("transpose"), kind == "conv2d_winograd"
    axes = ("w",) if flat else ("h", "w")
    many = len(axes)
    groups = draw(st.integers(1, 3)) if kind in ("conv1d", "conv2d") else 1
    ci = groups * draw(st.integers(1, 4))
    params: dict[str, Any] = {"n": draw(st.integers(1, 3)), "ci": ci, "co": (ci if kind == "depthwise_conv2d" else groups) * draw(st.integers(1, 4))}
    for axis in axes:
        params |= {axis: draw(st.integers(1, 9)), f"k{axis}": 3 if winograd else draw(st.integers(1, 4))}
    params["stride"] = 1 if winograd else draw(st.integers(1, 3) | st.tuples(*many * [st.integers(1, 3)]))
    params["padding"] = draw(st.integers(0, 3) | st.tuples(*many * [st.integers(0, 3)]) | st.tuples(*2 * many * [st.integers(0, 3)]))
    if not transposed:
        params |= {"dilation": 1 if winograd else draw(st.integers(1, 3)), "groups": groups}
    return kernel(kind).workload(params)


def by_torch(workload: Workload, data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    shape = shape_of(workload)
    x, w = torch.from_numpy(data).double(), torch.from_numpy(weight).double()
    if shape.transposed:
        whole = getattr(torch.nn.functional, f"conv_transpose{len(shape.size)}d")(x, w, stride=shape.stride).numpy()
        return whole[(..., *(slice(before, end - after) for (before, after), end in zip(shape.padding, whole.shape[2:], strict=True)))]
    sides = [side for pair in reversed(shape.padding) for side in pair]
    filters = w.reshape(shape.co, shape.ci // shape.groups, *shape.filter)
    convolve = getattr(torch.nn.functional, f"conv{len(shape.size)}d")
    return convolve(torch.nn.functional.pad(x, sides), filters, stride=shape.stride, dilation=shape.dilation, groups=shape.groups).numpy()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_equal_to_torch(kind: str, data: st.DataObject) -> None:
    workload = data.draw(workloads(kind))
    try:
        shape = shape_of(workload)
    except UsageError:
        reject()
    image, weight = inputs(workload, 3)
    result = reference(workload, image, weight)
    assert result.shape == shape.output_shape
    np.testing.assert_allclose(result, by_torch(workload, image, weight), rtol=1e-12, atol=1e-12)


def test_inputs_belong_to_their_seed_and_make_outputs_of_size_1() -> None:
    for name, more in (("conv1d", {}), ("conv1d", {"groups": 8}), ("conv1d_transpose", {"stride": 1})):
        found = kernel(name)
        workload = found.workload({"n": 4, "ci": 64, "w": 80, "co": 64, "kw": 3, "stride": 1, "padding": 0, **more})
        data, weight = inputs(workload, 1)
        assert data.dtype == weight.dtype == np.float32
        for array, same, other in zip((data, weight), inputs(workload, 1), inputs(workload, 2), strict=True):
            np.testing.assert_array_equal(array, same)
            assert (array != other).mean() > 0.99
        assert abs(data.mean()) < 0.05
        assert abs(data.std() - 1) < 0.05
        assert abs(reference(workload, data, weight)[..., 2:78].std() - 1) < 0.05


def test_arrays_of_another_shape_are_refused() -> None:
    conv = kernel("conv1d")
    workload = conv.workload({"n": 1, "ci": 2, "w": 8, "co": 4, "kw": 3, "stride": 1, "padding": 0})
    data, weight = inputs(workload, 0)
    with pytest.raises(UsageError, match=r"conv1d: data has shape \(1, 2, 7\); this workload's is \(1, 2, 8\)"):
        reference(workload, data[..., 1:], weight)
    with pytest.raises(UsageError, match=r"weight has shape \(2, 4, 3\); this workload's is \(4, 2, 3\)"):
        reference(workload, data, weight.transpose(1, 0, 2))
