"""Knob vectors, hardware terms and curve features of 100,000 configurations, beside the same one configuration at a time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from workbench.features.curves import CurveVectors
from workbench.features.hardware import HardwareTerms
from workbench.features.knobs import KnobVectors
from workbench.kernels import kernel
from workbench.kernels.networks import layer
from workbench.schema import Device

COUNT = 100_000
DEVICES = {"workbench-gpu": Device("invented-gpu", "gpu", "", 10_000.0, 500.0, 100_000), "workbench-cpu": Device("invented-cpu", "cpu", "", 100.0, 20.0, 8)}


@pytest.mark.parametrize("space", list(DEVICES))
@pytest.mark.parametrize("which", ["knobs", "hardware", "curves"])
def test_features_of_a_layer_of_resnet(benchmark: Any, which: str, space: str) -> None:
    """Layer 2 of ResNet-18: 64 channels of 56 x 56, filters of 3 x 3."""
    conv, workload = kernel("conv2d"), layer("resnet-18", 2).workload
    indices = conv.space(workload, space).sample(COUNT, 0)
    vectors = {
        "knobs": lambda: KnobVectors(conv.space(workload, space)),
        "hardware": lambda: HardwareTerms(conv, workload, DEVICES[space], space),
        "curves": lambda: CurveVectors(conv, workload, space),
    }[which]()

    def all_of_them() -> None:
        if isinstance(vectors, CurveVectors):
            for _ in vectors.stream(indices):
                pass
        else:
            vectors.of(indices)

    all_of_them()
    cpu: list[float] = []

    def measured() -> None:
        start = time.process_time()
        all_of_them()
        cpu.append(time.process_time() - start)

    benchmark.pedantic(measured, rounds=5)
    # Processor time: what other programs take of a busy machine is not the features'. The wall time stands in the record.
    ours = float(np.median(cpu)) / COUNT
    start = time.process_time()
    for place in range(50):
        vectors.of(indices[place : place + 1])
    alone = (time.process_time() - start) / 50
    benchmark.extra_info |= {"columns": len(vectors.columns), "us": round(ours * 1e6, 3), "one_at_a_time_us": round(alone * 1e6, 1)}
    print(f"\n{which}, {space}: {len(vectors.columns)} columns in {ours * 1e6:.2f} us; one configuration at a time {alone * 1e6:.0f} us ({alone / ours:.0f}x)")
    assert np.median(cpu) < 1
