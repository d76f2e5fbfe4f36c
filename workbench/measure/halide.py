"""Measure Halide's schedules on this machine: candidates compiled, checked and timed in a child process that is started again after a crash or a hang.

A workload has the image's size and the number of threads, `Workload("blur", {"n": 1024, "threads": 1})`. The choices of the autoschedulers are measured in the
same process as the configurations of the space, on the same input and by the same policy.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import platform
import random
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.errors import MissingPackage, UsageError, WorkbenchError
from workbench.kernels import kernel
from workbench.kernels.base import whole
from workbench.kernels.halide import problem_of
from workbench.measure._lines import Ended, LineProcess, TookTooLong
from workbench.measure.halide_worker import Policy
from workbench.schema import Measurement, Status, Workload

if TYPE_CHECKING:
    from workbench.data.store import Key, Store
    from workbench.space import Space

__all__ = ["AUTOSCHEDULER_SPACE", "SPACE", "Candidate", "Limits", "Runner", "candidates", "device_name", "halide_workload", "measure_schedules"]

SPACE = "workbench"
AUTOSCHEDULER_SPACE = "autoscheduler"

# An index of the workload's space, or the name of an autoscheduler.
Candidate = int | str

_STAGE_STATUS = {"build": Status.COMPILE_ERROR, "run": Status.RUN_ERROR, "check": Status.WRONG_RESULT}


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


def device_name() -> str:
    """A name for this machine's processor, such as "amd-epyc-7763"."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        model = found[1] if found else model
    model = re.sub(r"\((r|tm)\)|\bcpu\b|@.*|\bprocessor\b|\b\d+-core\b", " ", model.lower())
    return "-".join(re.findall(r"[a-z0-9]+", model)) or "cpu"


def candidates(space: Space, count: int, seed: int = 0) -> list[int]:
    """`count` indices of a space in random order, or all it has; more of them continue the same series."""
    return [int(index) for index in np.random.default_rng(seed).permutation(space.members())[:count]]


class Runner:
    """Measures candidates of one workload.

    Args:
        workload: see `halide_workload`.
        device: name of this machine in the records.
        policy: how programs are timed.
        limits: when a candidate is given up.
        pin: processor numbers that the child process may use, None for all.
        check_share: share of the configurations whose output is compared with numpy's; the autoschedulers' always is.
        seed: of the input's numbers, and of which configurations are checked.
        problem: "module:class" of another problem than the kernel's own.

    Attributes:
        best_s: the best time so far, beside which others are hopeless; set it when a series is resumed.
        schedules: autoscheduler -> the schedule it chose, as Halide's C++ text.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        device: str | None = None,
        policy: Policy | None = None,
        limits: Limits | None = None,
        pin: Sequence[int] | None = None,
        check_share: float = 0.1,
        seed: int = 0,
        problem: str | None = None,
    ) -> None:
        if problem is None and importlib.util.find_spec("halide") is None:
            raise MissingPackage.needed_by("measuring Halide's schedules", ModuleNotFoundError(name="halide"))
        if pin is not None:
            if not hasattr(os, "sched_setaffinity"):
                raise UsageError(f"{platform.system()} cannot pin a process to processors; measure without")
            if unknown := sorted(set(pin) - os.sched_getaffinity(0)):
                raise UsageError(f"cannot pin to processor {unknown[0]}; this process may use {sorted(os.sched_getaffinity(0))}")
        self.workload = workload
        self.space = kernel(workload.kernel).space(workload, SPACE)
        self.device = device or device_name()
        self.policy = policy or Policy()
        self.limits = limits or Limits()
        self.check_share = check_share
        self.seed = seed
        self.best_s: float | None = None
        self.schedules: dict[str, str] = {}
        self._pin = None if pin is None else sorted(pin)
        self._problem = problem or problem_of(workload.kernel)
        self._worker: LineProcess | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the child process; the next measurement starts another."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def key(self, candidate: Candidate) -> Key:
        """The key that a candidate's measurement has in a store."""
        from workbench.data.store import Key

        return Key.of(self.workload, self.device, **self._identity(candidate))

    def measure(self, wanted: Iterable[Candidate]) -> Iterator[Measurement]:
        """A measurement for each candidate, as soon as it is done; a failure is one too. `time_s` is the minimum of the repeats, one alone if it was hopeless.

        Raises:
            UsageError: an index that the space does not have.
            WorkbenchError: the child process does not start.
        """
        for candidate in wanted:
            yield self._measure(candidate)

    def race(self, wanted: Sequence[Candidate], repeats: int = 15) -> list[list[float]]:
        """Seconds [candidates][repeats] of candidates that take turns in one process. Raises WorkbenchError where one of them fails."""
        worker = self._started()
        worker.send({"race": [self._request(candidate) for candidate in wanted], "repeats": repeats})
        try:
            for candidate in wanted:
                self._expect(worker.receive(self._build_limit(candidate)), "built")
            reply = self._expect(worker.receive(self.limits.run_s * max(1, len(wanted))), "raced")
        except (TookTooLong, Ended) as error:
            self.close()
            raise WorkbenchError(f"{self.workload.key}: the race of {list(wanted)} was not finished: {error or 'a limit of time was reached'}") from error
        times: list[list[float]] = reply["times_s"]
        return times

    def _expect(self, reply: dict[str, Any], event: str) -> dict[str, Any]:
        if reply["event"] != event:
            self.close()
            raise WorkbenchError(f"{self.workload.key}: a candidate of the race failed: {reply.get('error')}")
        return reply

    def _measure(self, candidate: Candidate) -> Measurement:
        worker = self._started()
        # An autoscheduler's choice is a baseline: it is timed in full, however slow.
        best_s = None if isinstance(candidate, str) else self.best_s
        worker.send({**self._request(candidate), "policy": dataclasses.asdict(self.policy), "best_s": best_s, "check": self._checked(candidate)})
        stage, limit_s, compile_s = "build", self._build_limit(candidate), None
        try:
            reply = worker.receive(limit_s)
            if reply["event"] == "built":
                compile_s = float(reply["compile_s"])
                if isinstance(candidate, str):
                    self.schedules[candidate] = reply["schedule"]
                stage, limit_s = "run", self.limits.run_s
                reply = worker.receive(limit_s)
        except TookTooLong:
            self.close()
            return self._record(candidate, Status.TIMEOUT, compile_s=compile_s, error=f"{stage}: not done after {limit_s:g} s")
        except Ended as end:
            self.close()
            return self._record(candidate, _STAGE_STATUS[stage], compile_s=compile_s, error=f"{stage}: the process {end}")
        if reply["event"] == "failed":
            return self._record(candidate, _STAGE_STATUS[reply["stage"]], compile_s=compile_s, error=f"{reply['stage']}: {reply['error']}")
        times = tuple(float(t) for t in reply["times_s"])
        self.best_s = min(times) if self.best_s is None else min(self.best_s, *times)
        return self._record(candidate, Status.OK, time_s=min(times), times_s=times, compile_s=compile_s)

    def _record(self, candidate: Candidate, status: Status, **fields: Any) -> Measurement:
        fields |= {"host": platform.node(), "timestamp": time.time(), "load": os.getloadavg()[0]}
        return Measurement(self.workload, self.device, status, **self._identity(candidate), **fields)

    def _identity(self, candidate: Candidate) -> dict[str, Any]:
        if isinstance(candidate, str):
            return {"space": AUTOSCHEDULER_SPACE, "config": {"scheduler": candidate}}
        return {"space": self.space.name, "index": candidate, "config": self.space.config(candidate)}

    def _request(self, candidate: Candidate) -> dict[str, Any]:
        if isinstance(candidate, str):
            return {"autoscheduler": candidate, "parallelism": self.workload.params["threads"]}
        return {"config": self.space.config(candidate)}

    def _build_limit(self, candidate: Candidate) -> float:
        return self.limits.search_s if isinstance(candidate, str) else self.limits.build_s

    def _checked(self, candidate: Candidate) -> bool:
        # By candidate, not by turn: a resumed series checks the same ones.
        return isinstance(candidate, str) or random.Random(f"{self.seed} {candidate}").random() < self.check_share

    def _started(self) -> LineProcess:
        if self._worker is None:
            setup = {
                "parent": os.getpid(),
                "pin": self._pin,
                "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
                "problem": self._problem,
                "arguments": {"n": self.workload.params["n"], "seed": self.seed},
            }
            # The child finds the modules that the parent finds, and nothing else: no module of the folder it happens to run in.
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HL_NUM_THREADS": str(self.workload.params["threads"])}
            worker = LineProcess([sys.executable, "-P", "-m", "workbench.measure.halide_worker", json.dumps(setup)], environment)
            try:
                worker.receive(self.limits.start_s)
            except (TookTooLong, Ended) as error:
                worker.kill()
                raise WorkbenchError(f"{self.workload.key}: the process that measures did not start: {error or 'a limit of time was reached'}") from error
            self._worker = worker
        return self._worker


def measure_schedules(store: Store, runner: Runner, wanted: Iterable[Candidate]) -> Iterator[Measurement]:
    """Measure the candidates that the store has no record of, and give each measurement once it is on the disk: after a stop, the next call goes on."""
    done = store.done(workload=runner.workload, device=runner.device)
    times = [m.time_s for m in store.rows(workload=runner.workload, device=runner.device) if m.time_s is not None]
    runner.best_s = min(times, default=runner.best_s)
    for measurement in runner.measure(candidate for candidate in wanted if runner.key(candidate) not in done):
        store.add([measurement])
        yield measurement
