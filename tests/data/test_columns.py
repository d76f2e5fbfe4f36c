"""Workloads and configurations become plain columns, and come back."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.data.columns import config_of, knob_columns, workload_columns, workload_of
from workbench.errors import DataError
from workbench.kernels import kernel
from workbench.kernels.conv import CPU
from workbench.schema import Workload

FLAT = ("conv1d", "conv1d_transpose")
KINDS = ("conv2d", "depthwise_conv2d", "conv2d_transpose", *FLAT)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    kind = draw(st.sampled_from(KINDS))
    size, step, pad, filters = st.integers(12, 40), st.integers(1, 3), st.integers(0, 2), st.integers(1, 5)
    flat = kind in FLAT
    ci = draw(st.integers(1, 8))
    params: dict[str, Any] = {"n": draw(st.integers(1, 4)), "ci": ci, "w": draw(size), "co": ci * draw(st.integers(1, 4)), "kw": draw(filters)}
    if flat:
        params |= {"stride": draw(step), "padding": draw(st.one_of(pad, st.tuples(pad, pad).filter(lambda both: both[0] != both[1])))}
    else:
        sides = st.tuples(pad, pad, pad, pad).filter(lambda four: four[:2] != four[2:])
        params |= {"h": draw(size), "kh": draw(filters), "stride": (draw(step), draw(step)), "padding": draw(st.one_of(st.tuples(pad, pad), sides))}
    if kernel(kind).optional:
        params |= {"dilation": draw(st.integers(1, 2)) if flat else (draw(st.integers(1, 2)), draw(st.integers(1, 2)))}
        params |= {"groups": draw(st.sampled_from([1, ci]))}
    return kernel(kind).workload(params)


@given(workloads(), st.integers(0, 10**9))
def test_there_and_back(workload: Workload, number: int) -> None:
    columns = workload_columns(workload)
    assert all(type(value) is int for value in columns.values())
    space = kernel(workload.kernel).space(workload, CPU)
    config = space.config(number % space.size)
    knobs = knob_columns(config)
    assert not any(isinstance(value, tuple) for value in knobs.values())
    row = pd.DataFrame([{**columns, **knobs}]).iloc[0]
    assert workload_of(workload.kernel, row).key == workload.key
    assert config_of(space, row) == config


def test_the_same_convolution_written_otherwise_has_the_same_columns() -> None:
    sizes = {"n": 1, "ci": 3, "h": 8, "w": 9, "co": 4, "kh": 3, "kw": 2}
    pairs = Workload("conv2d", {**sizes, "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 1})
    for padding in (1, (1, 1), (1, 1, 1, 1)):
        columns = workload_columns(Workload("conv2d", {**sizes, "stride": 2, "padding": padding}))
        assert columns == workload_columns(pairs)
        assert workload_of("conv2d", columns) == pairs
    pads = {"pad_top": 1, "pad_left": 1, "pad_bottom": 1, "pad_right": 1}
    assert columns == {**sizes, "stride_h": 2, "stride_w": 2, **pads, "dilation_h": 1, "dilation_w": 1, "groups": 1}
    assert list(columns)[:9] == ["n", "ci", "h", "w", "co", "kh", "kw", "stride_h", "stride_w"]
    lines = workload_columns(Workload("conv1d_transpose", {"n": 1, "ci": 3, "w": 9, "co": 4, "kw": 2, "stride": 2, "padding": 1}))
    assert list(lines) == ["n", "ci", "w", "co", "kw", "stride_w", "pad_left", "pad_right"]


def test_a_row_that_lacks_a_column_says_which() -> None:
    workload = kernel("conv1d").workload({"n": 1, "ci": 3, "w": 9, "co": 4, "kw": 2, "stride": 2, "padding": 1})
    columns = workload_columns(workload)
    with pytest.raises(DataError, match="conv1d: a row without the column 'stride_w'"):
        workload_of("conv1d", {name: value for name, value in columns.items() if name != "stride_w"})
    space = kernel("conv1d").space(workload, CPU)
    with pytest.raises(DataError, match=f"without the column 'tile_x_1' is no configuration of the space '{CPU}'"):
        config_of(space, {"tile_f_0": 1, "tile_f_1": 2, "tile_f_2": 2, "tile_x_0": 1})
