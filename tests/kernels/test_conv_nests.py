"""Analytic loop nests of convolutions: value by value those of the schedules' TIR, for batches of configurations of any structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nest_child
import numpy as np
import pytest

from workbench.errors import SpaceError, UsageError
from workbench.kernels import kernel
from workbench.loopnest import LoopNest
from workbench.schema import Workload

InChild = Callable[..., Any]


def of(name: str, **params: Any) -> Workload:
    shape = {"n": 1, "ci": 8, "w": 12, "co": 12, "kw": 3, "stride": 1, "padding": 1}
    flat = name.startswith("conv1d")
    return kernel(name).workload({**shape, **({} if flat else {"h": 10, "kh": 3}), **params})


# Several inputs, strides, dilations, padding on one side, beyond the filter and none, filters of one element, extents that no thread count divides.
WORKLOADS = {
    "conv2d": of("conv2d", n=2, ci=4, stride=2, padding=(1, 0, 2, 1)),
    "conv2d, dilation": of("conv2d", kh=2, stride=(3, 1), dilation=(2, 1)),
    "conv2d, 1 x 1": of("conv2d", n=3, ci=6, kh=1, kw=1, padding=0),
    "conv2d of ResNet-18": of("conv2d", ci=64, h=56, w=56, co=64),
    "depthwise": of("depthwise_conv2d", n=2, ci=12, kw=5, stride=(2, 1)),
    "depthwise, 1 x 1": of("depthwise_conv2d", ci=12, kh=1, kw=1, padding=0),
    "conv1d": of("conv1d", n=2, w=31, stride=2, padding=(2, 0), dilation=2),
    "conv1d_transpose": of("conv1d_transpose", n=2, kw=4, stride=3),
    "conv1d_transpose, padding beyond the filter": of("conv1d_transpose", padding=(3, 0)),
    "conv2d_transpose": of("conv2d_transpose", n=2, kh=2, stride=(2, 3), padding=(0, 1, 1, 0)),
    "conv2d_transpose, stride 1": of("conv2d_transpose", ci=3, kw=5),
}


WINOGRAD = {
    "winograd": of("conv2d_winograd", n=2, padding=(0, 1, 2, 1)),
    "winograd of few elements": of("conv2d_winograd", ci=2, h=3, w=5, co=3, padding=0),
}
CASES = {f"{name}, {target}": (workload, f"workbench-{target.lower()}") for target in ("CPU", "GPU") for name, workload in {**WORKLOADS, **WINOGRAD}.items()}
each_case = pytest.mark.parametrize(("workload", "space"), CASES.values(), ids=CASES)


@each_case
def test_nests_are_those_of_the_templates(workload: Workload, space: str, in_tvm_process: InChild) -> None:
    found = in_tvm_process(nest_child.differences, workload, space, 2, 1)
    assert len(found) == 2
    assert not any(found.values()), {index: pairs[:4] for index, pairs in found.items() if pairs}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@each_case
def test_many_nests_are_those_of_the_templates(workload: Workload, space: str, in_tvm_process: InChild) -> None:
    found = in_tvm_process(nest_child.differences, workload, space, 200, 2)
    assert len(found) == min(200, kernel(workload.kernel).space(workload, space).size)
    assert not any(found.values()), {index: pairs[:4] for index, pairs in found.items() if pairs}


def test_a_batch_mixes_structures() -> None:
    workload = WORKLOADS["conv2d"]
    conv = kernel("conv2d")
    space = conv.space(workload, "workbench-cpu")
    indices = space.sample(64, 3)
    knobs = space.decode(indices)
    batch = conv.loop_nest(workload, indices, "workbench-cpu")
    assert batch.size == 64
    assert sorted(np.concatenate([places for places, _ in batch.parts]).tolist()) == list(range(64))
    for places, nest in batch.parts:
        assert nest.batch == len(places) > 0
        padding = [loop for loop in nest.loops if loop.name.startswith("pad.")]
        for row, place in enumerate(places):
            (alone,) = [part for rows, part in conv.loop_nest(workload, indices[place : place + 1], "workbench-cpu").parts if len(rows)]
            assert nest_child.rows(alone, 0) == nest_child.rows(nest, row)
            assert [loop.annotation for loop in padding] == (["none"] * 4 if knobs["pad_at"][place] else ["parallel", "none", "none"])
            last = nest.names.index("step.rx") + 1
            assert nest.names[last].startswith("inner.r") == knobs["order"][place]


def test_winograd_s_transforms_are_the_same_in_every_configuration() -> None:
    """Only its products have numbers that differ, and only they have another order of loops."""
    workload, found = WINOGRAD["winograd"], kernel("conv2d_winograd")
    indices = found.space(workload, "workbench-cpu").sample(50, 0)
    batch = found.loop_nest(workload, indices, "workbench-cpu")
    first, second = (nest for _, nest in batch.parts)
    assert sorted(len(places) for places, _ in batch.parts) == sorted(np.bincount(found.space(workload, "workbench-cpu").decode(indices)["order"]).tolist())

    def transforms(nest: LoopNest) -> list[tuple[Any, ...]]:
        kept = {"pad", "pack_data", "pack_weight", "unpack", "assemble"}
        loops = [(loop.name, loop.extent, loop.annotation) for loop in nest.loops if loop.name.partition(".")[0].removesuffix("_half") in kept]
        accesses = [
            (each.name, *((a.buffer, a.strides, a.mods) for a in each.accesses))
            for each in nest.statements
            if each.name.removesuffix("_init").removesuffix("_half") in kept
        ]
        return [*loops, *accesses]

    assert transforms(first) == transforms(second)
    assert not any(isinstance(number, np.ndarray) for entry in transforms(first) for number in entry)
    assert [loop.name for loop in first.loops if loop.annotation == "parallel"] == [
        *("pad.nc", "pack_data.outer", "pack_weight.outer", "outer", "unpack.outer", "assemble.outer")
    ]
    assert [next(name for name in nest.names if name.startswith("inner.")) for nest in (first, second)] == ["inner.b", "inner.rc"]


def test_nodes_do_not_depend_on_the_batch() -> None:
    workload = WORKLOADS["conv1d"]
    conv = kernel("conv1d")
    nodes = conv.loop_nest(workload, [0], "workbench-cpu").nodes
    assert conv.loop_nest(workload, np.arange(0, dtype=np.int64), "workbench-cpu").nodes == nodes
    assert conv.loop_nest(workload, conv.space(workload, "workbench-cpu").sample(50, 0), "workbench-cpu").nodes == nodes
    assert nodes[:6] == ("pad.nc", "pad.x", "outer", "middle.f", "middle.x", "init.f")


def test_numbers_without_a_choice_are_shared() -> None:
    """A filter of 1 x 1 has no tiles to choose: its loops have one iteration in every configuration."""
    nest = kernel("conv2d").loop_nest(WORKLOADS["conv2d, 1 x 1"], [0, 1, 2], "workbench-cpu").parts[0][1]
    extents = {loop.name: loop.extent for loop in nest.loops}
    assert extents["step.ry"] == extents["inner.rx"] == 1
    assert isinstance(extents["middle.y"], np.ndarray)


def test_what_has_no_nests() -> None:
    conv = kernel("conv2d")
    with pytest.raises(UsageError, match="no loop nest for 4 groups of 8 input and 12 output channels: where a tile of channels crosses groups"):
        conv.loop_nest(of("conv2d", groups=4), [0], "workbench-cpu")
    with pytest.raises(UsageError, match="no loop nest for 8 groups of 8 input and 16 output channels"):
        kernel("depthwise_conv2d").loop_nest(of("depthwise_conv2d", co=16), [0], "workbench-cpu")
    with pytest.raises(UsageError, match="the space 'autotvm' of kernel 'conv2d' have no loop nests; those of workbench-gpu, workbench-cpu have"):
        conv.loop_nest(WORKLOADS["conv2d"], [0])
    with pytest.raises(UsageError, match="no configuration spaces"):
        kernel("mm").loop_nest(Workload("mm", {}), [0])
    with pytest.raises(SpaceError, match="index -1 is out of range"):
        conv.loop_nest(WORKLOADS["conv2d"], [-1], "workbench-cpu")
