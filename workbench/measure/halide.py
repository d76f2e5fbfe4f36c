"""Measure Halide's schedules on this machine: candidates compiled, checked and timed in a child process that is started again after a crash or a hang.

A workload has the image's size and the number of threads, `Workload("blur", {"n": 1024, "threads": 1})`. The choices of the autoschedulers are measured in the
same process as the configurations of the space, on the same input and by the same policy.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import MissingPackage, UsageError, WorkbenchError
from workbench.kernels import kernel
from workbench.kernels.base import whole
from workbench.kernels.halide import problem_of
from workbench.measure import runner
from workbench.measure.host import cpu, load, memory_limit_bytes, processor
from workbench.measure.isolation import Child, ChildFailure, plain_environment
from workbench.measure.timing import CONFIRMED_S, Policy
from workbench.schema import Device, Measurement, Status, Workload

__all__ = [
    "AUTOSCHEDULER_SPACE",
    "SPACE",
    "Candidate",
    "Limits",
    "Runner",
    "halide_workload",
    "open_series",
    "series",
]

SPACE = "workbench"
AUTOSCHEDULER_SPACE = "autoscheduler"

# An index of the workload's space, or the name of an autoscheduler.
Candidate = int | str


@dataclass(frozen=True)
class Limits:
    """Seconds after which a candidate is given up: to compile a configuration, to search and compile for an autoscheduler, to check and time either."""

    build_s: float = 60.0
    search_s: float = 300.0
    run_s: float = 60.0
    start_s: float = 60.0


def halide_workload(name: str, n: int, threads: int = 1) -> Workload:
    """The workload of a kernel ("blur", "fft") for an n x n image. Raises UsageError for another kernel, a size or a number of threads it cannot have."""
    problem_of(name)
    workload = Workload(name, {"n": n, "threads": threads})
    whole(workload, "threads")
    kernel(name).space(workload, SPACE)
    return workload


class Runner(runner.Runner[Candidate]):
    """Measures candidates of one workload.

    Args:
        workload: see `halide_workload`.
        device: None is this machine's CPU.
        policy: how programs are timed.
        limits: when a candidate is given up.
        hopeless: a configuration that takes this many times the best time so far is timed for 0.1 s only, which may be one repeat.
        pin: processors that the child process may use; none: all.
        check_share: share of the configurations whose output is compared with numpy's; the autoschedulers' always is.
        seed: of the input's numbers, and of which configurations are checked.
        problem: "module:class" of another problem than the kernel's own.
        made_by: the command line that makes the series, without the number of schedules.

    Attributes:
        best_s, provenance, series: see the contract.
        schedules: autoscheduler -> the schedule it chose, as Halide's C++ text.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        device: Device | None = None,
        policy: Policy | None = None,
        limits: Limits | None = None,
        hopeless: float = 10.0,
        pin: Sequence[int] = (),
        check_share: float = 0.1,
        seed: int = 0,
        problem: str | None = None,
        made_by: str = "",
    ) -> None:
        if problem is None and importlib.util.find_spec("halide") is None:
            raise MissingPackage.needed_by("measuring Halide's schedules", ModuleNotFoundError(name="halide"))
        self.workload = workload
        self.space = kernel(workload.kernel).space(workload, SPACE)
        self.device = device or cpu()
        self.policy = policy or Policy()
        self.limits = limits or Limits()
        self.hopeless = hopeless
        self.check_share = check_share
        self.seed = seed
        self.best_s = None
        self.series = series(workload, self.device.name)
        self.schedules: dict[str, str] = {}
        setup = {"parent": os.getpid(), "problem": problem or problem_of(workload.kernel), "arguments": {"n": workload.params["n"], "seed": seed}}
        # The child finds the modules that the parent finds, and none that lie in the folder it happens to run in.
        environment = {**plain_environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HL_NUM_THREADS": str(workload.params["threads"])}
        pinned = f"; pinned to CPU {', '.join(map(str, pin))}" if pin else ""
        early = f"; a configuration {hopeless:g} times slower than the best so far is timed for {CONFIRMED_S:g} s, which may be one repeat"
        self.provenance = {
            "compiler": f"Halide {importlib.metadata.version('halide')}",
            "policy": f"{self.policy.describe()}{early}{pinned}",
            "device": json.dumps(dataclasses.asdict(self.device)),
            "processor": "" if device else processor(),
            "seed": str(seed),
            "command": made_by,
        }
        self._child = Child(
            [sys.executable, "-P", "-m", "workbench.measure.halide_worker", json.dumps(setup)],
            env=environment,
            pin=pin,
            memory_bytes=memory_limit_bytes(),
            start_limit_s=self.limits.start_s,
            remedy="run the command again, and if that does not help, install the package halide anew",
        )

    def close(self) -> None:
        """End the child process; the next measurement starts another."""
        self._child.close()

    @property
    def pid(self) -> int | None:
        """Number of the child process, None while there is none."""
        return self._child.pid

    def measure(self, wanted: Iterable[Candidate]) -> Iterator[Measurement]:
        """See the contract.

        Raises:
            UsageError: an index that the space does not have.
            WorkbenchError: the child process does not start.
        """
        for candidate in wanted:
            yield self._measure(candidate)

    def race(self, wanted: Sequence[Candidate], repeats: int = 15) -> list[list[float]]:
        """Seconds [candidates][repeats] of candidates that take turns in one process. Raises WorkbenchError where one of them fails."""
        try:
            for number, candidate in enumerate(wanted):
                self._told(self._child.ask({"do": "build", "keep": number > 0, **self._request(candidate)}, self._build_limit(candidate)))
            request = {"do": "race", "repeats": repeats, "policy": dataclasses.asdict(self.policy)}
            times: list[list[float]] = self._told(self._child.ask(request, self.limits.run_s * len(wanted)))["times_s"]
        except ChildFailure as failure:
            raise WorkbenchError(f"{self.workload.key}: the race of {list(wanted)} was not finished: {failure}") from failure
        return times

    def _measure(self, candidate: Candidate) -> Measurement:
        stage, compile_s = Status.COMPILE_ERROR, None
        when = {"timestamp": time.time(), "load": load()}
        try:
            built = self._told(self._child.ask({"do": "build", **self._request(candidate)}, self._build_limit(candidate)))
            stage, compile_s = Status.RUN_ERROR, float(built["compile_s"])
            if isinstance(candidate, str):
                self.schedules[candidate] = built["schedule"]
            times = self._check_and_time(candidate)
        except ChildFailure as failure:
            # A process that ended, or a candidate that said why it failed: what that is depends on what it was doing.
            status = stage if failure.status is Status.RUN_ERROR else failure.status
            doing = "compiling" if stage is Status.COMPILE_ERROR else "running"
            return self.record(candidate, status, **when, compile_s=compile_s, error=f"{doing}: {failure.reason}")
        self.best_s = min(times) if self.best_s is None else min(self.best_s, *times)
        return self.record(candidate, Status.OK, time_s=min(times), times_s=times, compile_s=compile_s, **when)

    def _check_and_time(self, candidate: Candidate) -> tuple[float, ...]:
        end = time.monotonic() + self.limits.run_s
        if self._checked(candidate):
            verdict = self._told(self._child.ask({"do": "check"}, self.limits.run_s))
            if not verdict["right"]:
                raise ChildFailure(Status.WRONG_RESULT, f"relative error {verdict['relative_error']}")
        # An autoscheduler's choice is a baseline: it is timed in full, however slow.
        slowest_s = None if isinstance(candidate, str) or self.best_s is None else self.hopeless * self.best_s
        request = {"do": "time", "policy": dataclasses.asdict(self.policy), "slowest_s": slowest_s}
        return tuple(self._told(self._child.ask(request, max(0.0, end - time.monotonic())))["times_s"])

    @staticmethod
    def _told(answer: dict[str, Any]) -> dict[str, Any]:
        if "error" in answer:
            raise ChildFailure(Status.RUN_ERROR, answer["error"])
        return answer

    def identity(self, candidate: Candidate) -> dict[str, Any]:
        """See the contract: an autoscheduler's choice has no index."""
        if isinstance(candidate, str):
            return {"space": AUTOSCHEDULER_SPACE, "config": {"scheduler": candidate}}
        return super().identity(candidate)

    def _request(self, candidate: Candidate) -> dict[str, Any]:
        if isinstance(candidate, str):
            return {"autoscheduler": candidate, "parallelism": self.workload.params["threads"]}
        return {"config": self.space.config(candidate)}

    def _build_limit(self, candidate: Candidate) -> float:
        return self.limits.search_s if isinstance(candidate, str) else self.limits.build_s

    def _checked(self, candidate: Candidate) -> bool:
        # By candidate, not by turn: a resumed series checks the same ones.
        return isinstance(candidate, str) or random.Random(f"{self.seed} {candidate}").random() < self.check_share


def open_series(workload: Workload, *, seed: int = 0, pin: Sequence[int] = (), check_share: float = 0.1) -> Runner:
    """The runner of the series that `workbench measure halide` makes with these options: what one of the two has begun, the other goes on with.

    Arguments and errors as of `Runner`; UsageError also for more threads than there are CPUs to pin them to.
    """
    cpus, threads = sorted(set(pin)), int(workload.params["threads"])  # type: ignore[arg-type]
    if cpus and threads > len(cpus):
        raise UsageError(f"--threads {threads} on the {len(cpus)} CPUs of --pin would wait for each other; pin to {threads} CPUs")
    pins = "".join(f" --pin {cpu}" for cpu in cpus)
    made_by = f"workbench measure halide --kernel {workload.kernel} --threads {threads} --seed {seed} --check {check_share:g}{pins}"
    return Runner(workload, pin=cpus, check_share=check_share, seed=seed, made_by=made_by)


def series(workload: Workload, device: str) -> str:
    """Name of a store's note on the measurements of a workload on a device."""
    return f"halide {workload.key} {device}"
