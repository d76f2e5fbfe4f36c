"""Convolutions in a bundle: which configurations are drawn, and that what TVM makes of them runs and is right on an emulated device."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from workbench.kernels import kernel
from workbench.kernels.conv import GPU
from workbench.kernels.limits import GpuLimits, demand, exceeded
from workbench.kernels.networks import layer, training_kernels
from workbench.kernels.tir.program import CudaProgram, Launch
from workbench.measure.cuda import convolutions
from workbench.measure.cuda.bundle import read_bundle
from workbench.measure.cuda.draft import Draft
from workbench.measure.cuda.measuring import DONE
from workbench.measure.cuda.records import read_results
from workbench.measure.cuda.run import Options, run_bundle

SMALL = {
    "conv1d": {"n": 1, "ci": 4, "w": 12, "co": 8, "kw": 3, "stride": 1, "padding": 1},
    "conv2d": {"n": 1, "ci": 3, "h": 6, "w": 8, "co": 8, "kh": 3, "kw": 3, "stride": (2, 2), "padding": (1, 1)},
    "depthwise_conv2d": {"n": 1, "ci": 8, "h": 6, "w": 6, "co": 8, "kh": 3, "kw": 3, "stride": (1, 1), "padding": (1, 1)},
    "conv2d_winograd": {"n": 1, "ci": 4, "h": 8, "w": 8, "co": 16, "kh": 3, "kw": 3, "stride": (1, 1), "padding": (1, 1)},
    "conv1d_transpose": {"n": 1, "ci": 4, "w": 8, "co": 4, "kw": 3, "stride": 2, "padding": 1},
    "conv2d_transpose": {"n": 1, "ci": 2, "h": 4, "w": 4, "co": 4, "kh": 3, "kw": 3, "stride": (2, 2), "padding": (1, 1)},
}


@pytest.mark.parametrize("workload", [layer("resnet-18", 2).workload, training_kernels()[0], training_kernels()[-1]], ids=lambda workload: workload.kernel)
def test_classes_come_in_their_proportions_and_are_what_they_are_called(workload) -> None:
    drawn = convolutions.draw(workload, 100, seed=3)
    assert Counter(one.label for one in drawn) == {"valid": 80, "small": 10, "invalid": 10}
    assert len({one.index for one in drawn}) == 100
    assert convolutions.draw(workload, 40, seed=3) == drawn[:40]
    assert convolutions.draw(workload, 40, seed=4) != drawn[:40]
    indices = [one.index for one in drawn]
    broken, threads = exceeded(workload, indices, GpuLimits()), demand(workload, indices).threads
    assert not broken.pop("virtual_threads").any()
    for i, one in enumerate(drawn):
        assert (one.label == "invalid") == any(limit[i] for limit in broken.values())
        assert one.label == "invalid" or (one.label == "small") == (threads[i] < 32)


def test_what_a_space_does_not_have_is_replaced_and_a_small_space_ends() -> None:
    tiny = kernel("conv1d").workload({"n": 1, "ci": 1, "w": 4, "co": 64, "kw": 1, "stride": 1, "padding": 0})
    drawn = convolutions.draw(tiny, 5000)
    labels = Counter(one.label for one in drawn)
    assert labels["invalid"] == 0
    assert len({one.index for one in drawn}) == len(drawn) < 5000
    left = kernel("conv1d").space(tiny, GPU)
    kept = demand(tiny, np.arange(left.size))
    assert labels["valid"] == int(((kept.threads >= 32) & (kept.virtual_threads <= 64)).sum())


def measured(folder: Path, kinds: list[str], count: int) -> Counter[tuple[str, str, str]]:
    draft = Draft()
    workloads = [kernel(kind).workload(SMALL[kind]) for kind in kinds]
    told: list[None] = []
    missing = convolutions.add(draft, workloads, count, workers=1, told=lambda: told.append(None))
    assert len(told) == sum(missing.values()) + len(draft.candidates)
    draft.write(folder / "b.zip", "made by a test")
    bundle = read_bundle(folder / "b.zip")
    assert [stage.name for stage in bundle.stages] == ["convolutions"]
    assert [candidate.group for candidate in bundle.candidates[: len(kinds)]] == kinds  # in turns
    assert run_bundle(folder / "b.zip", folder / "out", Options(budget_s=250.0, workers=1)) == DONE
    records = read_results(folder / "out")[1]
    assert len(records) == len(bundle.candidates)
    for one in records:
        assert one["config"] == {k: list(v) if isinstance(v, tuple) else v for k, v in bundle.candidates[bundle.identities.index(identity(one))].config.items()}
    return Counter((one["workload"].split()[0], one["details"]["label"], one["status"]) for one in records)


def identity(one: dict) -> tuple[str, str, str]:
    return one["workload"], one["space"], f"#{one['index']}"


def test_what_tvm_makes_of_a_configuration_is_right(emulated: None, tmp_path: Path) -> None:
    assert measured(tmp_path, ["conv1d", "conv1d_transpose"], 2) == {("conv1d", "valid", "ok"): 2, ("conv1d_transpose", "valid", "ok"): 2}


@pytest.mark.slow
def test_every_kind_is_right_in_every_class(emulated: None, tmp_path: Path) -> None:
    statuses = measured(tmp_path, list(SMALL), 10)
    assert {status for (_, label, status) in statuses if label != "invalid"} == {"ok"}
    assert {kind for kind, _, _ in statuses} == set(SMALL)


def test_only_the_transform_of_the_weights_is_not_timed() -> None:
    one = ((1, 1, 1), (32, 1, 1))
    arguments = [("data", "packed"), ("kernel", "weight"), ("product", "packed", "kernel"), ("product", "kernel"), ("output", "kernel")]
    launches = [Launch(str(i), *one, names, 0, 0) for i, names in enumerate(arguments)]
    workload = kernel("conv2d_winograd").workload(SMALL["conv2d_winograd"])
    program = CudaProgram("", tuple(launches), {"data": 1, "weight": 2, "output": 3, "packed": 4, "kernel": 5, "product": 6}, 0)
    made = convolutions.candidate(workload, convolutions.Drawn(0, "valid"), program, 7, 9)
    assert [launch.timed for launch in made.launches] == [True, False, True, True, True]
    # The constant is not overwritten by what TVM keeps in its place.
    assert [launch.arguments for launch in made.launches[:3]] == arguments[:3]
    assert [launch.arguments for launch in made.launches[3:]] == [("product", "kernel (reused)"), ("output", "kernel (reused)")]
    assert made.scratch == {"packed": 4, "kernel": 5, "product": 6, "kernel (reused)": 5}
    assert (made.problem, made.program, made.group, made.label) == (7, 9, "conv2d_winograd", "valid")
