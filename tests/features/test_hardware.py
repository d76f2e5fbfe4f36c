"""Hardware terms: by hand, against the limits' own count, and what devices do to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from workbench.errors import SpaceError, UsageError
from workbench.features.hardware import HardwareTerms
from workbench.kernels import kernel, limits
from workbench.kernels.limits import GpuLimits
from workbench.schema import Device, Workload

GPU = Device("invented-gpu", "gpu", peak_gflops=1e3, bandwidth_gb_s=100.0, max_threads=8)
CPU = Device("invented-cpu", "cpu", peak_gflops=10.0, bandwidth_gb_s=10.0, max_threads=4)
KINDS = ("conv2d", "depthwise_conv2d", "conv1d", "conv1d_transpose", "conv2d_transpose", "conv2d_winograd")
CASES = [*((name, "workbench-gpu", GPU) for name in KINDS), *((name, "workbench-cpu", CPU) for name in KINDS)]


def of(name: str, **params: Any) -> Workload:
    shape = {"n": 2, "ci": 16, "h": 12, "w": 12, "co": 16, "kh": 3, "kw": 3, "stride": 1, "padding": 1, **params}
    return kernel(name).workload({key: value for key, value in shape.items() if not (name.startswith("conv1d") and key in ("h", "kh"))})


def terms(workload: Workload, space: str, device: Device, **config: Any) -> dict[str, float]:
    found = kernel(workload.kernel).space(workload, space)
    vectors = HardwareTerms(kernel(workload.kernel), workload, device, space)
    return dict(zip(vectors.columns, vectors.of([found.index(config)])[0].tolist(), strict=True))


def test_a_gpu_by_hand() -> None:
    workload = kernel("conv1d").workload({"n": 1, "ci": 4, "w": 12, "co": 1, "kw": 3, "stride": 1, "padding": 0})
    tiles = {"tile_f": (1, 1, 1, 1), "tile_x": (2, 1, 5, 1), "tile_rc": (2, 2), "tile_rx": (1, 3)}
    # Two blocks of five threads; in each of two steps 2 channels of 7 numbers and 6 weights, so 320 bytes in all, and 40 written. A thread brings at most 3
    # of the 14 numbers, 2 of the 6 weights. For a product it has one of each and its sum.
    logarithms = {
        "threads": 5,
        "virtual_threads": 1,
        "blocks": 2,
        "steps": 2,
        "shared_bytes": 80,
        "accumulators": 1,
        "outputs": 1,
        "registers": 3,
        "spill": 1,
        "data_bytes": 56,
        "data_reads": 1,
        "data_passes": 3,
        "data_traffic": 224 / 240,
        "weight_bytes": 24,
        "weight_reads": 1,
        "weight_passes": 2,
        "weight_traffic": 96 / 240,
        "body": 6,
        "reads_per_product": 2,
        "traffic_bytes": 360,
        "intensity": 240 / 360,
        "rounds": 10 / 8,
        "compute_s": 240 / 1e12,
        "traffic_s": 360 / 1e11,
    }
    # 204 blocks fit by their threads, 614 by their memory.
    shares = {"occupancy": 204 * 5 / 1024, "within_limits": 1, "balance": 0.625}
    found = terms(workload, "workbench-gpu", GPU, **tiles, auto_unroll_max_step=0, unroll_explicit=0)
    assert found == pytest.approx({**{name: np.log2(value) for name, value in logarithms.items()}, **shares}, rel=1e-5)


def test_what_a_thread_uses_again() -> None:
    tiles = {"tile_f": (1, 2, 2, 4), "tile_y": (6, 1, 1, 2), "tile_x": (2, 3, 2, 1), "tile_rc": (16, 1), "tile_ry": (3, 1), "tile_rx": (3, 1)}
    unroll = {"auto_unroll_max_step": 0, "unroll_explicit": 0}
    found = terms(of("conv2d"), "workbench-gpu", GPU, **tiles, **unroll)
    # 8 filters, 6 places of the input: 14 numbers for 48 products.
    assert found["reads_per_product"] == pytest.approx(np.log2(14 / 48), rel=1e-5)
    assert 2 ** found["accumulators"] == pytest.approx(48)
    # The virtual threads are two along f and three along x.
    assert {name: round(2 ** found[name]) for name in ("outputs", "weight_reads", "data_reads", "registers", "spill")} == {
        "outputs": 8,
        "weight_reads": 8,
        "data_reads": 6,
        "registers": 62,
        "spill": 1,
    }
    # A depthwise convolution shares no inputs between channels: 48 of them and 8 weights.
    found = terms(of("depthwise_conv2d"), "workbench-gpu", GPU, **{name: tile for name, tile in tiles.items() if name != "tile_rc"}, **unroll)
    assert found["reads_per_product"] == pytest.approx(np.log2(56 / 48), rel=1e-5)


@pytest.mark.parametrize("pad_at", [0, 1])
def test_a_cpu_by_hand(pad_at: int) -> None:
    workload = kernel("conv1d").workload({"n": 1, "ci": 4, "w": 12, "co": 2, "kw": 3, "stride": 1, "padding": 0})
    tiles = {"tile_f": (1, 1, 2), "tile_x": (2, 1, 5), "tile_rc": (2, 2), "tile_rx": (1, 3)}
    found = terms(workload, "workbench-cpu", CPU, **tiles, order=1, pad_at=pad_at, unroll=0)
    # Two tasks of 2 x 5 sums. An inner tile reads 2 channels and 3 elements of 12 weights; by 5 places and 3 elements two channels of input are counted as 30
    # numbers, but a padded input of a task has only 4 x 7, one that is padded before has 4 x 12. Two steps read 4 channels, 60 numbers.
    region, steps = (28, 28) if pad_at else (30, 48)
    padded = 4 * 2 * 28 if pad_at else 4 * 48
    task = 4 * (10 + steps + 24)
    logarithms = {
        "tasks": 2,
        "work_per_task": 240,
        "vector": 5,
        "accumulators": 10,
        "inner_bytes": 4 * (10 + region + 12),
        "step_bytes": task,
        "task_bytes": task,
        "padded_bytes": padded,
        "traffic_bytes": 2 * task + padded + 80,
        "intensity": 480 / (2 * task + padded + 80),
        "rounds": 0.5,
        "compute_s": 480 / 1e10,
        "traffic_s": (2 * task + padded + 80) / 1e10,
    }
    assert found == pytest.approx({**{name: np.log2(value) for name, value in logarithms.items()}, "balance": 0.5}, rel=1e-5)


def test_winograd_on_a_cpu_by_hand() -> None:
    workload = kernel("conv2d_winograd").workload({"n": 1, "ci": 2, "h": 8, "w": 8, "co": 4, "kh": 3, "kw": 3, "stride": 1, "padding": 1})
    tiles = {"tile_b": (36, 1, 1), "tile_y": (2, 1, 2), "tile_x": (1, 2, 2), "tile_rc": (2, 1)}
    found = terms(workload, "workbench-cpu", CPU, **tiles, order=0, unroll=0)
    # 36 products of 4 x 2 by 2 x 4 tiles, in two tasks each. A task has two filters and all tiles: 8 numbers of the input, 4 weights, 4 sums at once. Padding
    # makes 2 channels of 10 x 10, and 36 x 4 x 4 products are written. Operations are those of the direct convolution.
    padded, products, task = 4 * 200, 4 * 36 * 16, 4 * (4 + 8 + 4)
    traffic = 72 * task + padded + products
    logarithms = {
        "tasks": 72,
        "work_per_task": 9216 / 72,
        "vector": 2,
        "accumulators": 4,
        "inner_bytes": 4 * (4 + 2 + 2),
        "step_bytes": 4 * (4 + 4 + 4),
        "task_bytes": task,
        "padded_bytes": padded,
        "traffic_bytes": traffic,
        "intensity": 9216 / traffic,
        "rounds": 18,
        "compute_s": 9216 / 1e10,
        "traffic_s": traffic / 1e10,
    }
    assert found == pytest.approx({**{name: np.log2(value) for name, value in logarithms.items()}, "balance": 1}, rel=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_a_gpu_is_asked_for_what_the_limits_count(name: str) -> None:
    workload = of(name, stride=2) if name in ("conv2d", "conv1d_transpose") else of(name)
    space = kernel(name).space(workload, "workbench-gpu")
    indices = space.sample(500, 0)
    vectors = HardwareTerms(kernel(name), workload, GPU, "workbench-gpu")
    table = dict(zip(vectors.columns, vectors.of(indices).T, strict=True))
    asked = limits.demand(workload, indices)
    for term, numbers in {
        "threads": asked.threads,
        "virtual_threads": asked.virtual_threads,
        "shared_bytes": asked.shared_bytes,
        "accumulators": asked.local_bytes / 4,
    }.items():
        np.testing.assert_allclose(np.exp2(table[term]), numbers, rtol=1e-5)
    np.testing.assert_allclose(np.exp2(table["data_bytes"]) + np.exp2(table["weight_bytes"]), asked.shared_bytes, rtol=1e-5)
    np.testing.assert_allclose(np.exp2(table["spill"]), np.maximum(np.exp2(table["registers"]) / 255, 1), rtol=1e-5)
    assert (table["registers"] > table["accumulators"]).all()
    broken = np.any(list(limits.exceeded(workload, indices).values()), axis=0)
    np.testing.assert_array_equal(table["within_limits"], ~broken)
    assert (table["occupancy"][(asked.threads > GpuLimits().threads) | (asked.shared_bytes > GpuLimits().shared_bytes)] == 0).all()


@pytest.mark.parametrize(("name", "space", "device"), CASES)
def test_what_holds_for_all(name: str, space: str, device: Device) -> None:
    found, workload = kernel(name), of(name)
    indices = found.space(workload, space).sample(300, 1)
    vectors = HardwareTerms(found, workload, device, space)
    table = vectors.of(indices)
    assert table.shape == (300, len(vectors.columns))
    assert table.dtype == np.float32
    assert np.isfinite(table).all()
    at = dict(zip(vectors.columns, table.T, strict=True))
    for share in {"occupancy", "within_limits", "balance"} & set(at):
        assert ((at[share] >= 0) & (at[share] <= 1)).all()
    # No program moves less than it writes.
    assert (np.exp2(at["traffic_bytes"]) > 4 * 2 * 16 * 12).all()
    np.testing.assert_allclose(at["intensity"] + at["traffic_bytes"], np.log2(found.flop(workload.params)), rtol=1e-5)
    for place in (0, 150, 299):
        np.testing.assert_array_equal(vectors.of(indices[place : place + 1])[0], table[place])
    assert vectors.of([]).shape == (0, len(vectors.columns))
    # Another name is no other device, and what is not known of one has no term.
    other = HardwareTerms(found, workload, replace(device, name="other", model="other"), space)
    np.testing.assert_array_equal(other.of(indices), table)
    unknown = HardwareTerms(found, workload, Device("unknown", device.kind), space)
    assert set(vectors.columns) - set(unknown.columns) == {"rounds", "balance", "compute_s", "traffic_s"}


def test_flextensor_has_terms() -> None:
    found, workload = kernel("flextensor_conv2d"), of("flextensor_conv2d")
    vectors = HardwareTerms(found, workload, GPU)
    assert np.isfinite(vectors.of(found.space(workload).sample(50, 0))).all()
    assert vectors.columns == HardwareTerms(kernel("conv2d"), of("conv2d"), GPU, "workbench-gpu").columns


def test_what_has_no_terms() -> None:
    conv = kernel("conv2d")
    with pytest.raises(UsageError, match="device 'invented-cpu' is a cpu; configurations of 'conv2d' in the space 'workbench-gpu' run on a gpu"):
        HardwareTerms(conv, of("conv2d"), CPU, "workbench-gpu")
    with pytest.raises(UsageError, match="the space 'autotvm' of kernel 'conv2d' have no loop nests"):
        HardwareTerms(conv, of("conv2d"), GPU, "autotvm")
    image = kernel("convolution")
    with pytest.raises(UsageError, match="no hardware terms for configurations that hold nothing in shared memory"):
        HardwareTerms(image, image.workload({"w": 64, "h": 48, "kw": 5, "kh": 3}), GPU, "convolution_milo")
    with pytest.raises(UsageError, match="kernel 'conv2d' has no count of floating-point operations"):
        HardwareTerms(replace(conv, flop=None), of("conv2d"), GPU, "workbench-gpu")
    with pytest.raises(SpaceError, match="index -1 is out of range"):
        HardwareTerms(conv, of("conv2d"), GPU, "workbench-gpu").of([-1])
