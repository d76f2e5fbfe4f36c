"""A template and programs for the fault tests, which the children load by name: what a candidate does is what its knob says. No TVM, no work.

`install` gives the kernel of `WORKLOAD` the space of these candidates, in the process of the runner.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from workbench.kernels.base import Kernel
from workbench.kernels.conv import CPU
from workbench.measure import timing, tvm
from workbench.schema import Device, Workload
from workbench.space import Choice, Space

BUILDING = ("hang building", "crash building", "refuse building", "no schedule", "allocate building", "no library")
RUNNING = ("hang running", "crash running", "refuse running", "allocate running", "wrong", "clock", "orphan")
FINE = ("fine", "slow", "noisy", "slowly built")
BEHAVIOURS = (*FINE, *BUILDING, *RUNNING)

WORKLOAD = Workload("conv2d", {"n": 1, "ci": 3, "h": 8, "w": 8, "co": 4, "kh": 3, "kw": 3, "stride": (1, 1), "padding": (1, 1)})
OTHER = Workload("conv2d", {**WORKLOAD.params, "co": 8})
CANDIDATES = Space(CPU, (Choice("behaviour", BEHAVIOURS), Choice("turn", tuple(range(100)))))


def index(behaviour: str, turn: int = 0) -> int:
    return CANDIDATES.index({"behaviour": behaviour, "turn": turn})


def install(setattr: Callable[..., Any] = setattr) -> None:
    setattr(tvm, "kernel", lambda name: Kernel(name, name, (), spaces={CPU: lambda workload: CANDIDATES}))


def runner(**options: Any) -> tvm.Runner:
    limits = tvm.Limits(build_s=1.0, run_s=1.0, prepare_s=10.0, start_s=30.0)
    names = {"template": "faulty_convolution:Template", "programs": "faulty_convolution:Programs"}
    return tvm.Runner(options.pop("workload", WORKLOAD), **{"device": Device("here", "cpu"), "limits": limits, "memory_bytes": 1 << 30, **names, **options})


def misbehave(behaviour: str, when: str) -> None:
    if behaviour == f"hang {when}":
        time.sleep(1000)
    if behaviour == f"crash {when}":
        os.write(2, b"about to crash\n")
        os.abort()
    if behaviour == f"refuse {when}":
        raise ValueError("no such loop\nin two lines")
    if behaviour == f"allocate {when}":
        bytearray(1 << 40)


class Template:
    def __init__(self, threads: int, link: Sequence[str], target: str = "") -> None:
        self.threads = threads

    def describe(self) -> str:
        return f"compiler of {self.threads} threads"

    def schedule(self, workload: Workload, config: Mapping[str, Any]) -> Mapping[str, Any]:
        if config["behaviour"] == "no schedule":
            raise ValueError("the tile\ndoes not fit")
        return config

    def build(self, program: Mapping[str, Any], path: Path) -> None:
        behaviour = program["behaviour"]
        if behaviour == "noisy":
            print("a line that is no answer", flush=True)
            os.write(1, b'{"id": 1}\n')
        if behaviour == "slowly built":
            time.sleep(0.2)
        misbehave(behaviour, "building")
        if behaviour != "no library":
            path.write_text(json.dumps(program))


class Programs:
    def __init__(self) -> None:
        self.result: int | None = None

    def prepare(self, workload: Workload, seed: int) -> None:
        if seed == 13:
            raise MemoryError("no room for the inputs")
        self.seed = seed

    def load(self, path: Path) -> Callable[[], object]:
        behaviour = json.loads(path.read_text())["behaviour"]
        still = SimpleNamespace(perf_counter=lambda: 1.0)
        timing.time = still if behaviour == "clock" else time  # type: ignore[assignment]
        if behaviour == "orphan":
            process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
            sys.stderr.write(f"{process.pid}\n")
            os._exit(3)
        seconds = 0.15 if behaviour == "slow" else 0.001

        def run() -> None:
            misbehave(behaviour, "running")
            time.sleep(seconds)
            self.result = 2 if behaviour == "wrong" else 1

        return run

    def spoil(self) -> None:
        self.result = None

    def fault(self) -> str:
        return "" if self.result == 1 else f"the result is {self.result}"


class Unbuildable:
    def __init__(self, *_: Any) -> None:
        raise RuntimeError("no compiler")
