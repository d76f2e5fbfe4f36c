"""A project with an invented data set of training kernels, and a runner whose times are drawn anew by every process, so that what was measured twice is seen.

Run as a program it is a live comparison: python invented_tuning.py FOLDER SECONDS_EACH [PIN]
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from workbench.data.store import Store
from workbench.kernels import kernel
from workbench.kernels.conv import CPU
from workbench.kernels.networks import Layer, training_kernels
from workbench.measure import runner, tvm
from workbench.measure.export import export
from workbench.measure.provenance import claim
from workbench.measure.runner import candidates
from workbench.reproduce.tuning import live
from workbench.schema import Device, Measurement, Status

DEVICE = Device("invented-cpu", "cpu", "Invented CPU", max_threads=2)
PROVENANCE = {"compiler": "TVM 0, none", "policy": "invented", "device": json.dumps(asdict(DEVICE)), "processor": "I 1", "seed": "0", "command": "a test"}
TRAINING = "conv-cpu-invented-training-conv2d"
# Layers of small spaces.
COMPARISON = live.Comparison("resnet-18", (7, 10), (TRAINING,), ("random", "xgb-Xfer-shrunk"), seeds=(0, 1), trials=24, batch=8)


def project(folder: Path) -> Path:
    """Two training kernels, forty configurations each."""
    (folder / "data" / "raw").mkdir(parents=True)
    with Store(folder / "training.db") as store:
        claim(store, tvm.series("conv2d", DEVICE.name), "conv2d", PROVENANCE)
        for workload in [found for found in training_kernels() if found.kernel == "conv2d"][:2]:
            space = kernel("conv2d").space(workload, CPU)
            for index in candidates(space, 40):
                config = space.config(index)
                time_s = 1e-3 / (1 + config["tile_f"][2])  # type: ignore[index, operator]
                store.add([Measurement(workload, DEVICE.name, Status.OK, time_s, CPU, index, config, timestamp=1.9e9, times_s=(time_s,), compile_s=0.1)])
        export(store, TRAINING.removesuffix("-conv2d"), folder / "data" / "raw")
    return folder


class Invented(runner.Runner[int]):
    """One in eight candidates fails."""

    def __init__(self, layer: Layer, seconds: float = 0.0) -> None:
        self.workload, self.device, self.best_s, self.seconds = layer.workload, DEVICE, None, seconds
        self.space = kernel("conv2d").space(layer.workload, CPU)
        self.series, self.provenance = tvm.series("conv2d", DEVICE.name), PROVENANCE

    def measure(self, wanted: Iterable[int]) -> Iterator[Measurement]:
        for index in wanted:
            time.sleep(self.seconds)
            if index % 8 == 3:
                yield self.record(index, Status.TIMEOUT, compile_s=0.1, error="running: no answer", timestamp=time.time())
            else:
                width = self.space.config(index)["tile_f"][2]  # type: ignore[index]
                times = tuple(random.uniform(1, 1.5) * 1e-3 / (1 + width) for _ in range(3))  # type: ignore[operator]
                yield self.record(index, Status.OK, time_s=min(times), times_s=times, compile_s=random.uniform(0.1, 0.2), timestamp=time.time())

    def close(self) -> None:
        pass


if __name__ == "__main__":
    path, seconds, *pin = sys.argv[1:]
    if pin:  # as on a machine of two CPUs
        os.sched_getaffinity = lambda _: {0, 1}
        os.sched_setaffinity = lambda _, cpus: print("on CPUs", *sorted(cpus), flush=True)
    live.run(
        COMPARISON,
        Path(path),
        lambda layer: Invented(layer, float(seconds)),
        processor=PROVENANCE["processor"],
        pin=[int(cpu) for cpu in pin],
        on_session=lambda report: print("session", report.path.name, flush=True),
        on_measurement=lambda measurement: print("measured", measurement.workload.key, measurement.index, flush=True),
    )
    print("finished", flush=True)
