"""A problem for the fault tests, which a worker loads by name: what a candidate does depends on its knob s1. No Halide, no work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from workbench.kernels.halide.base import Problem, Program
from workbench.schema import Value

HANG_BUILDING, CRASH_BUILDING, RAISE_BUILDING, HANG_RUNNING, CRASH_RUNNING, RAISE_RUNNING, WRONG, NOISY, FINE, SLOW = (2**p for p in range(1, 11))


def hang() -> None:
    time.sleep(1000)


def crash() -> None:
    os.write(2, b"about to crash\n")
    os.abort()


def refuse() -> None:
    raise ValueError("no such schedule\nin two lines")


class Faulty(Problem):
    tolerance = 0.0

    def __init__(self, n: int, seed: int) -> None:
        self.result = 0

    def compile(self, config: Mapping[str, Value]) -> Program:
        s1 = config["s1"]
        building: dict[Value, Callable[[], None]] = {HANG_BUILDING: hang, CRASH_BUILDING: crash, RAISE_BUILDING: refuse}
        building.get(s1, lambda: None)()
        if s1 == NOISY:
            print("a line that is no answer", flush=True)
            os.write(1, b'{"id": 1}\n')
        running: dict[Value, Callable[[], None]] = {
            HANG_RUNNING: hang,
            CRASH_RUNNING: crash,
            RAISE_RUNNING: refuse,
            SLOW: lambda: time.sleep(0.15),
            FINE: lambda: time.sleep(0.001),
        }

        def run() -> None:
            running.get(s1, lambda: None)()
            self.result = 2 if s1 == WRONG else 1

        return Program(run, 0.25)

    def autoschedule(self, scheduler: str, parallelism: int) -> Program:
        if scheduler == "Li2018":
            refuse()
        return Program(lambda: self.compile({"s1": SLOW}).run(), 0.5, f"schedule for {parallelism}")

    def spoil(self) -> None:
        self.result = 0

    def error(self) -> float:
        return abs(self.result - 1)


class Unbuildable(Faulty):
    def __init__(self, n: int, seed: int) -> None:
        raise RuntimeError("no image of this size")
