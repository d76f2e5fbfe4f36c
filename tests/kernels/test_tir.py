"""Definitions of the convolutions in TVM: they compute what numpy does, and what cannot be asked for is refused in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import tir_child

from workbench.errors import MissingPackage, SpaceError, UsageError
from workbench.kernels import kernel, tir
from workbench.kernels.conv_shape import shape_of
from workbench.schema import Workload

InChild = Callable[..., Any]


def of(name: str, **params: Any) -> Workload:
    return kernel(name).workload({"n": 1, "ci": 4, "w": 9, "co": 6, "kw": 3, "stride": 1, "padding": 1, **params})


# Sizes that no tile divides evenly, strides, dilations, groups, padding on one side and none, more inputs than one.
WORKLOADS = {
    "conv2d": of("conv2d", h=7, kh=3),
    "conv2d, groups": of("conv2d", n=2, h=8, kh=2, w=11, groups=2, stride=(2, 1), padding=0, dilation=(1, 2)),
    "depthwise": of("depthwise_conv2d", n=2, h=8, kh=3, co=8, stride=2),
    "conv1d": of("conv1d", n=2, w=17, stride=2, padding=(2, 0)),
    "conv1d, groups": of("conv1d", groups=2, dilation=3, padding=2),
    "conv1d_transpose": of("conv1d_transpose", n=2, stride=2),
    "conv1d_transpose, padding beyond the filter": of("conv1d_transpose", padding=(3, 0)),
    "conv2d_transpose": of("conv2d_transpose", h=5, w=4, kh=2, stride=(2, 3), padding=(0, 1, 1, 0)),
    "winograd": of("conv2d_winograd", n=2, h=6, kh=3, padding=(0, 1, 2, 1)),
    "winograd, tiles beyond an input without padding": of("conv2d_winograd", h=7, w=6, kh=3, padding=0),
}


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_a_definition_computes_the_convolution(workload: Workload, in_tvm_process: InChild) -> None:
    shape = shape_of(workload)
    (data, weight, output) = in_tvm_process(tir_child.parameters, workload)
    assert (data, weight) == (("data", shape.data_shape, "float32"), ("weight", shape.weight_shape, "float32"))
    assert output[1:] == (shape.output_shape, "float32")
    assert in_tvm_process(tir_child.error_of_definition, workload) < 1e-5


def test_the_target_is_named(in_tvm_process: InChild) -> None:
    attributes, torch_loaded = in_tvm_process(tir_child.target, 3)
    assert attributes["num-cores"] == 3
    assert all(attributes.values())
    assert not torch_loaded


def test_without_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm", None)
    for call in (lambda: tir.compute(WORKLOADS["conv1d"]), lambda: tir.llvm_target(1)):
        with pytest.raises(MissingPackage, match=r"needs the package 'apache-tvm', which is not installed; run: pip install apache-tvm$"):
            call()


def test_what_has_no_template() -> None:
    with pytest.raises(UsageError, match="space 'autotvm' has no template here; there are workbench-cpu, workbench-gpu"):
        tir.schedule(WORKLOADS["conv2d"], "autotvm", {})
    with pytest.raises(SpaceError, match="no value for knob 'tile_f'"):
        tir.schedule(WORKLOADS["conv2d"], "workbench-cpu", {})
    config = kernel("conv2d").space(WORKLOADS["conv2d"], "workbench-cpu").config(0)
    with pytest.raises(SpaceError, match=r"knob 'tile_f' cannot be \(5, 1, 1\)"):
        tir.schedule(WORKLOADS["conv2d"], "workbench-cpu", {**config, "tile_f": (5, 1, 1)})
