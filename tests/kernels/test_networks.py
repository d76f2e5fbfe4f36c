"""Networks against their architectures, laid out here by hand; the training kernels against MetaTune's Table 2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.kernels.networks import by_id, layer, network, networks, training_kernels, winograd_layers

# (module, ci, size, co, k, stride, padding)
Conv = tuple[str, int, int, int, int, int, int]


def after(size: int, k: int, stride: int, padding: int = 0, up: bool = False) -> int:
    """Size behind a convolution or a pooling, which may round up."""
    return -(-(size + 2 * padding - k) // stride) + 1 if up else (size + 2 * padding - k) // stride + 1


def resnet_18() -> Iterator[Conv]:
    yield "conv1", 3, 224, 64, 7, 2, 3
    ci, size = 64, after(after(224, 7, 2, 3), 3, 2, 1)
    for stage, co in enumerate((64, 128, 256, 512), 1):
        stride = 1 if stage == 1 else 2
        yield f"layer{stage}.0.conv1", ci, size, co, 3, stride, 1
        if stride == 2:
            yield f"layer{stage}.0.downsample.0", ci, size, co, 1, stride, 0
        size = after(size, 3, stride, 1)
        for name in ("0.conv2", "1.conv1", "1.conv2"):
            yield f"layer{stage}.{name}", co, size, co, 3, 1, 1
        ci = co


def vgg_16() -> Iterator[Conv]:
    ci, size, position = 3, 224, 0
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            yield f"features.{position}", ci, size, width, 3, 1, 1
            ci, position = width, position + 2
        size, position = after(size, 2, 2), position + 1


def squeezenet() -> Iterator[Conv]:
    yield "features.0", 3, 224, 96, 7, 2, 0
    ci, size = 96, after(after(224, 7, 2), 3, 2, up=True)
    squeezed = {3: 16, 4: 16, 5: 32, 7: 32, 8: 48, 9: 48, 10: 64, 12: 64}
    for position in range(3, 13):
        if position not in squeezed:
            size = after(size, 3, 2, up=True)
            continue
        co = squeezed[position]
        yield f"features.{position}.squeeze", ci, size, co, 1, 1, 0
        yield f"features.{position}.expand1x1", co, size, 4 * co, 1, 1, 0
        yield f"features.{position}.expand3x3", co, size, 4 * co, 3, 1, 1
        ci = 8 * co
    yield "classifier.1", ci, size, 1000, 1, 1, 0


def alexnet() -> Iterator[Conv]:
    yield "features.0", 3, 224, 64, 11, 4, 2
    size = after(after(224, 11, 4, 2), 3, 2)
    yield "features.3", 64, size, 192, 5, 1, 2
    size = after(size, 3, 2)
    for position, ci, co in ((6, 192, 384), (8, 384, 256), (10, 256, 256)):
        yield f"features.{position}", ci, size, co, 3, 1, 1


def mobilenet() -> Iterator[Conv]:
    ci, size = 32, after(224, 3, 2, 1)
    # Stride of the depthwise convolution and channels behind the pointwise one that follows it (Table 1 of the paper).
    separable = [(1, 64), (2, 128), (1, 128), (2, 256), (1, 256), (2, 512), *5 * [(1, 512)], (2, 1024), (1, 1024)]
    for number, (stride, co) in enumerate(separable, 1):
        yield f"dw{number}", ci, size, ci, 3, stride, 1
        ci, size = co, after(size, 3, stride, 1)


ARCHITECTURES = {"resnet-18": resnet_18, "vgg-16": vgg_16, "squeezenet-1.0": squeezenet, "alexnet": alexnet, "mobilenet-v1": mobilenet}


@pytest.mark.parametrize(
    ("name", "convolutions", "distinct"), [("resnet-18", 20, 11), ("vgg-16", 13, 9), ("squeezenet-1.0", 26, 22), ("alexnet", 5, 5), ("mobilenet-v1", 13, 9)]
)
def test_a_network_is_its_architecture(name: str, convolutions: int, distinct: int) -> None:
    expected: dict[tuple[int, ...], list[str]] = {}
    for module, *shape in ARCHITECTURES[name]():
        expected.setdefault(tuple(shape), []).append(module)
    layers = network(name)
    found = {}
    for one in layers:
        p = one.workload.params
        assert p["n"] == 1
        assert p["h"] == p["w"]
        assert p["kh"] == p["kw"]
        (stride, _), (padding, _) = p["stride"], p["padding"]  # type: ignore[misc]
        assert (p["stride"], p["padding"]) == ((stride, stride), (padding, padding))
        found[p["ci"], p["h"], p["co"], p["kh"], stride, padding] = list(one.names)
        assert one.count == len(one.names)
        assert one.workload.kernel == ("depthwise_conv2d" if name == "mobilenet-v1" else "conv2d")
    assert list(found.items()) == list(expected.items())
    assert (sum(one.count for one in layers), len(layers)) == (convolutions, distinct)


def test_the_networks() -> None:
    assert networks() == tuple(ARCHITECTURES)


def test_work_of_the_networks() -> None:
    """Multiply-accumulates of the convolutions: 1.81e9 for ResNet-18 without its 512 x 1000 classifier, 15.35e9 for VGG-16."""
    macs = {name: sum(one.count * one.flop for one in network(name)) // 2 for name in networks()}
    assert macs["resnet-18"] == 1_813_561_344
    assert macs["vgg-16"] == 15_346_630_656
    assert network("resnet-18")[0].flop == 2 * 64 * 112 * 112 * 3 * 49
    # A depthwise filter sees one channel.
    assert network("mobilenet-v1")[0].flop == 2 * 32 * 112 * 112 * 9


def test_winograd_layers_are_layers_of_the_network() -> None:
    assert {name: len(winograd_layers(name)) for name in networks()} == {"resnet-18": 4, "vgg-16": 4, "squeezenet-1.0": 0, "alexnet": 0, "mobilenet-v1": 0}
    for name in networks():
        direct = {str(sorted(one.workload.params.items())): one for one in network(name)}
        for twin in winograd_layers(name):
            one = direct[str(sorted(twin.workload.params.items()))]
            assert (twin.count, twin.names, twin.flop) == (one.count, one.names, one.flop)
            assert twin.id != one.id
            assert twin.workload.kernel == "conv2d_winograd"
            assert (one.workload.params["kh"], one.workload.params["stride"]) == (3, (1, 1))


def test_a_layer_by_its_number() -> None:
    assert layer("resnet-18", 1).names == ("conv1",)
    assert layer("vgg-16", 9).names == ("features.24", "features.26", "features.28")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: network("resnet18"), "no network 'resnet18'; close: resnet-18"),
        (lambda: winograd_layers("VGG-16"), "no network 'VGG-16'"),
        (lambda: network(""), "no network ''; there are resnet-18, vgg-16, squeezenet-1.0, alexnet, mobilenet-v1"),
        (lambda: layer("alexnet", 0), "alexnet has no layer 0; its distinct convolutions have numbers from 1 to 5"),
        (lambda: layer("alexnet", 6), "no layer 6"),
        (lambda: layer("alexnet", 1.5), "no layer 1.5"),  # type: ignore[arg-type]
        (lambda: layer("lenet", 1), "no network 'lenet'"),
    ],
)
def test_what_there_is_not(call, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call()


def test_training_kernels_are_as_in_table_2() -> None:
    """Kind, input size, input channels, output channels; filter 3 and padding 1 (Section 6)."""
    flat, square = ((150, 600), (32, 128), (32, 512)), ((7, 224), (3, 128), (16, 128))
    ranges = {"conv1d": flat, "conv1d_transpose": flat, "conv2d": square, "conv2d_transpose": square, "conv2d_winograd": square}
    workloads = training_kernels()
    assert len({one.key for one in workloads}) == len(workloads) == 47
    assert Counter(one.kernel for one in workloads) == {"conv1d": 9, "conv1d_transpose": 9, "conv2d": 10, "conv2d_transpose": 9, "conv2d_winograd": 10}
    for one in workloads:
        p = one.params
        for name, (low, high) in zip(("w", "ci", "co"), ranges[one.kernel], strict=True):
            assert low <= p[name] <= high, one.key  # type: ignore[operator]
        assert p["kw"] == 3
        two = one.kernel.startswith("conv2d")
        assert p["padding"] == ((1, 1) if two else 1)
        assert p["stride"] in (((1, 1), (2, 2)) if two else (1, 2))
        assert not two or (p["h"], p["kh"]) == (p["w"], p["kw"])
        # The kernel itself accepts it: it has a space.
        assert kernel(one.kernel).space(one).size > 1


def test_no_layer_is_a_training_kernel() -> None:
    """Not even as another kind of the same shape, such as the winograd twin of a layer."""

    def shape(params: object) -> str:
        return str(sorted(params.items()))  # type: ignore[attr-defined]

    layers = {shape(one.workload.params) for name in networks() for one in (*network(name), *winograd_layers(name))}
    assert layers.isdisjoint({shape(one.params) for one in training_kernels()})


def test_an_id_is_one_workload() -> None:
    found = by_id()
    layers = [one for name in networks() for one in (*network(name), *winograd_layers(name))]
    assert len(found) == len(layers) + len(training_kernels()) == 111
    assert len({workload.key for workload in found.values()}) == 111
    assert all(found[one.id] == one.workload for one in layers)
    assert {key: workload.kernel for key, workload in found.items() if key.endswith("_01")} == {
        "n_conv2d_01": "conv2d",
        "n_depthwise_01": "depthwise_conv2d",
        "n_winograd_01": "conv2d_winograd",
        "t_conv1d_01": "conv1d",
        "t_conv1d_transpose_01": "conv1d_transpose",
        "t_conv2d_01": "conv2d",
        "t_conv2d_transpose_01": "conv2d_transpose",
        "t_winograd_01": "conv2d_winograd",
    }
