"""A runner without programs: its times are drawn anew by every process, so that what was measured twice is seen. One in four candidates fails."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from workbench.kernels import kernel
from workbench.kernels.conv import CPU
from workbench.measure import runner
from workbench.schema import Device, Measurement, Status

WORKLOAD = kernel("conv2d").workload({"n": 1, "ci": 4, "h": 8, "w": 8, "co": 8, "kh": 3, "kw": 3, "stride": (1, 1), "padding": (1, 1)})


class Invented(runner.Runner[int]):
    def __init__(self, seconds: float = 0.002) -> None:
        self.workload, self.device, self.best_s = WORKLOAD, Device("invented-cpu", "cpu"), None
        self.space = kernel("conv2d").space(WORKLOAD, CPU)
        self.series = "tvm conv2d workbench-cpu invented-cpu"
        self.provenance = {"compiler": "none", "policy": "invented", "device": json.dumps(asdict(self.device)), "seed": "0", "command": "a test"}
        self.seconds = seconds

    def measure(self, wanted: Iterable[int]) -> Iterator[Measurement]:
        for index in wanted:
            time.sleep(self.seconds)
            status = (Status.OK, Status.OK, Status.OK, Status.INVALID_CONFIG, Status.OK, Status.WRONG_RESULT, Status.OK, Status.TIMEOUT)[index % 8]
            if status is Status.OK:
                times = tuple(random.uniform(1e-5, 1e-3) for _ in range(7))
                yield self.record(index, status, time_s=min(times), times_s=times, compile_s=random.uniform(0.1, 0.2), timestamp=1.9e9)
            else:
                yield self.record(index, status, compile_s=None if status is Status.INVALID_CONFIG else 0.1, error="it fails", timestamp=1.9e9)

    def close(self) -> None:
        pass
