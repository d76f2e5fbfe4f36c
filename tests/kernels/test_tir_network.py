"""Convolutions of PyTorch modules: a ResNet-18 of our own, a module with one of each kind, and modules that cannot be read."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import tir_network_child as child
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.errors import MissingPackage, UsageError
from workbench.kernels.networks import network
from workbench.kernels.tir.network import from_torch

InChild = Callable[..., Any]


@pytest.fixture(scope="module")
def in_child() -> Iterator[InChild]:
    """Call a function of tir_network_child in a process that may have both torch and TVM."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda function, *args: pool.submit(function, *args).result()


def test_resnet_18(in_child: InChild) -> None:
    layers = in_child(child.layers, child.ResNet18, 1, 3, 224, 224)
    assert [(one.workload.key, one.count, one.names) for one in layers] == [(one.workload.key, one.count, one.names) for one in network("resnet-18")]


def test_each_kind_by_hand(in_child: InChild) -> None:
    """Inputs 2 x 4 x 33; (33 + 2 - 3) / 2 + 1 = 17 and (17 - 1) 2 + 4 - 2 = 34 in one dimension, then one channel of 4 x 34."""
    layers = in_child(child.layers, child.EachKind, 2, 4, 33)
    flat: dict[str, Any] = {"n": 2, "stride": 2, "padding": 1}
    square: dict[str, Any] = {"n": 2, "dilation": (1, 1), "groups": 1, "stride": (1, 1), "padding": (0, 0)}
    spread: dict[str, Any] = {"n": 2, "ci": 8, "h": 2, "w": 14, "co": 4, "kh": 3, "kw": 3, "stride": (2, 2), "padding": (1, 1)}
    assert [(one.workload.kernel, dict(one.workload.params), one.count, one.names) for one in layers] == [
        ("conv1d", {**flat, "ci": 4, "w": 33, "co": 8, "kw": 3, "dilation": 1, "groups": 1}, 1, ("flat",)),
        ("conv1d_transpose", {**flat, "ci": 8, "w": 17, "co": 4, "kw": 4}, 1, ("spread",)),
        (
            "conv2d",
            {**square, "ci": 1, "h": 4, "w": 34, "co": 4, "kh": 3, "kw": 4, "stride": (1, 2), "padding": (1, 2), "dilation": (1, 2)},
            1,
            ("dilated",),
        ),
        ("depthwise_conv2d", {**square, "ci": 4, "h": 4, "w": 16, "co": 8, "kh": 3, "kw": 3}, 1, ("depthwise",)),
        ("conv2d", {**square, "ci": 8, "h": 2, "w": 14, "co": 8, "kh": 3, "kw": 3, "padding": (1, 1), "groups": 2}, 1, ("grouped",)),
        ("conv2d_transpose", spread, 1, ("spread2",)),
        ("conv2d", {**square, "ci": 4, "h": 3, "w": 27, "co": 4, "kh": 1, "kw": 5, "padding": (0, 2)}, 2, ("twice",)),
        # Its filter is no parameter of a module.
        ("conv2d", {**square, "ci": 4, "h": 3, "w": 27, "co": 3, "kh": 1, "kw": 1, "stride": (2, 1)}, 1, ()),
    ]


def shapes() -> st.SearchStrategy[tuple[Any, ...]]:
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    # Groups of 4 channels, output channels, filter, stride, padding, dilation.
    return st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([4, 8]), pair, pair, st.tuples(st.integers(0, 2), st.integers(0, 2)), pair)


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=st.lists(shapes(), min_size=8, max_size=8, unique=True))
def test_any_conv2d_keeps_its_numbers(in_child: InChild, drawn: list[tuple[Any, ...]]) -> None:
    seen = {}
    for one in in_child(child.layers_of_conv2d, drawn, 1, 4, 9, 11):
        p = one.workload.params
        assert (p["n"], p["ci"], p["h"], p["w"], one.count) == (1, 4, 9, 11, 1)
        groups = 4 if one.workload.kernel == "depthwise_conv2d" else p["groups"]
        seen[one.names] = (groups, p["co"], (p["kh"], p["kw"]), p["stride"], p["padding"], p["dilation"])
    assert seen == {(f"parts.{number}",): shape for number, shape in enumerate(drawn)}


def test_what_no_kernel_expresses_is_named(in_child: InChild) -> None:
    (kept,), notes = in_child(child.layers_and_notes, child.Inexpressible, 1, 4, 8, 8)
    assert kept.names == ("plain",)
    expected = [
        ("conv3d 'deep' of inputs 1x1x4x8x8 and filters 2x1x3x3x3 is left out", "no kernel 'conv3d'"),
        ("conv2d_transpose 'grown' of inputs 1x4x8x8 and filters 4x4x3x3 is left out", "no parameter 'output_padding'"),
        ("conv1d_transpose 'parted'", "no parameter 'groups'"),
        ("conv2d 'wide'", "it computes in float64"),
    ]
    for (note, at_the_caller), parts in zip(notes, expected, strict=True):
        assert all(part in note for part in parts), note
        assert at_the_caller


def test_a_module_without_convolutions_has_no_layers(in_child: InChild) -> None:
    assert in_child(child.layers, child.linear, 1, 4) == ()


def test_a_module_that_is_a_convolution_has_no_name(in_child: InChild) -> None:
    (one,) = in_child(child.layers, child.conv1x3x3, 1, 1, 8, 8)
    assert (one.workload.kernel, one.count, one.names) == ("conv2d", 1, ())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ((child.layers_while_training,), r"module Conv2d is in training mode.*eval\(\)"),
        ((child.layers_of_a_list,), "torch.export cannot trace module Conv2d.*tuple"),
        ((child.layers, child.conv1x3x3, 1, 2, 8, 8), "torch.export cannot trace module Conv2d"),
        ((child.layers, child.Forks, 3), "torch.export cannot trace module Forks"),
        ((child.layers, child.Spectrum, 8), "TVM cannot import module Spectrum into Relax: .*fft"),
    ],
)
def test_what_cannot_be_read(in_child: InChild, call: tuple[Any, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        in_child(*call)
    assert "\n" not in str(caught.value)


def test_without_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm", None)
    with pytest.raises(MissingPackage, match=r"^from_torch needs the package 'apache-tvm', which is not installed; run: pip install apache-tvm$"):
        from_torch(child.linear().eval(), ())
