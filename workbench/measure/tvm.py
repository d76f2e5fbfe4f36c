"""Measure TVM's convolutions on this machine's CPU: candidates are built in one child process and checked and timed in another, while the next are being built.

The number of threads belongs to how a series is measured, not to the workload: sets of a CPU and of a GPU have the same workloads.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from workbench.errors import MissingPackage, UsageError, WorkbenchError
from workbench.kernels import kernel
from workbench.kernels.conv import CPU
from workbench.measure import runner
from workbench.measure.build import find_compiler
from workbench.measure.host import cpu, load, memory_limit_bytes, processor
from workbench.measure.isolation import Child, ChildFailure, checked_cpus, plain_environment
from workbench.measure.timing import CONFIRMED_S, Policy, fault
from workbench.schema import Device, Measurement, Status, Workload

__all__ = ["Limits", "Runner", "open_series", "series"]


@dataclass(frozen=True)
class Limits:
    """Seconds after which something is given up: building a candidate, running it (AutoTVM's limits), making inputs and expected output, a child's start."""

    build_s: float = 10.0
    run_s: float = 10.0
    prepare_s: float = 120.0
    start_s: float = 60.0


class Runner(runner.Runner[int]):
    """Measures configurations of one workload; a candidate is an index of its space.

    The output of every candidate is compared with numpy's after the last repeat: beside the timing that costs nothing.

    Args:
        workload: a convolution that the space "workbench-cpu" has.
        threads: that a program may use.
        device: None is this machine's CPU.
        policy: how programs are timed.
        limits: when something is given up.
        hopeless: a configuration that takes this many times the best time so far is timed for 0.1 s only, which may be one repeat.
        pin: CPUs that programs run on; building keeps off them.
        ahead: how many of the next candidates are built while one is timed; None is 4 where there are CPUs to build on beside those of `pin`, else 0.
        seed: of the inputs' numbers.
        memory_bytes: address space that each child may have; None is most of the machine's memory.
        template, programs: "module:class" that build and load other candidates than TVM's.
        made_by: the command line that makes the series, without layers and number of trials.
        target: what programs are built for, as TVM describes it; "" is this machine's processor.
        link: the command that links them; none finds a C++ compiler.

    Attributes:
        space: the workload's.
        best_s, provenance, series: see the contract.

    Raises:
        UsageError: a workload, a number of threads or a CPU that cannot be used.
        BuildError: no C++ compiler, which links, or the builder does not start.
        MissingPackage: TVM is not installed.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        threads: int = 1,
        device: Device | None = None,
        policy: Policy | None = None,
        limits: Limits | None = None,
        hopeless: float = 10.0,
        pin: Sequence[int] = (),
        ahead: int | None = None,
        seed: int = 0,
        memory_bytes: int | None = None,
        template: str = "workbench.measure.tvm_builder:Tir",
        programs: str = "workbench.measure.tvm_worker:Convolutions",
        made_by: str = "",
        target: str = "",
        link: Sequence[str] = (),
    ) -> None:
        if find_spec("tvm") is None:
            raise MissingPackage.needed_by("measuring TVM's convolutions", ModuleNotFoundError(name="tvm"))
        pin = checked_cpus(pin)
        if threads < 1 or (pin and threads > len(pin)):
            raise UsageError(f"{threads} threads on {len(pin) or 'all'} CPUs; use 1 or more, and as many CPUs to pin to")
        command = tuple(link) or find_compiler().command
        self.workload = workload
        self.space = kernel(workload.kernel).space(workload, CPU)
        self.device = device or cpu()
        self.policy = policy or Policy()
        self.limits = limits or Limits()
        self.hopeless = hopeless
        self.seed = seed
        self.best_s = None
        self.series = series(workload.kernel, self.device.name)
        others = sorted(os.sched_getaffinity(0) - set(pin)) if pin else []
        self._ahead = ahead if ahead is not None else 4 if others else 0
        self._scratch = tempfile.TemporaryDirectory(prefix="workbench-tvm-")
        self._numbers = count()
        self._prepared = False
        # One thread asks the builder, so that a build that hangs is given up while this one waits for a program.
        self._thread = ThreadPoolExecutor(1, "workbench-builder")
        self._asking = self._closed = False
        memory = memory_limit_bytes() if memory_bytes is None else memory_bytes
        building = {"template": template, "threads": threads, "link": command, "target": target}
        self._builder = self._child("tvm_builder", building, threads, others or pin, memory)
        self._worker = self._start_worker(programs, threads, pin, memory)
        pinned = f"; pinned to CPU {', '.join(map(str, pin))}" if pin else ""
        meanwhile = f"; up to {self._ahead} of the next candidates are built on other CPUs meanwhile" if others and self._ahead else ""
        early = f"; a configuration {hopeless:g} times slower than the best so far is timed for {CONFIRMED_S:g} s, which may be one repeat"
        try:
            compiler = self._thread.submit(self._ask_builder, {"do": "describe"}, self.limits.start_s).result()["text"]
        except BaseException:
            self.close()
            raise
        self.provenance = {
            "compiler": compiler,
            "policy": f"{self.policy.describe()}{early}; threads: {threads}{pinned}{meanwhile}",
            "device": json.dumps(asdict(self.device)),
            "processor": "" if device else processor(),
            "seed": str(seed),
            "command": made_by,
        }

    def close(self) -> None:
        """End both children and remove what was built; the runner cannot be used any more."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)
        while self._asking:
            self._builder.kill()  # again and again: it may have been about to start
            time.sleep(0.01)
        self._thread.shutdown()
        self._builder.close()
        self._worker.close()
        self._scratch.cleanup()

    @property
    def pids(self) -> tuple[int, ...]:
        """Numbers of the child processes that there are now."""
        return tuple(pid for pid in (self._builder.pid, self._worker.pid) if pid is not None)

    def measure(self, wanted: Iterable[int]) -> Iterator[Measurement]:
        """See the contract. Beside the candidate that is measured the next ones are taken, as many as are built ahead.

        Raises:
            SpaceError: an index that the space does not have.
            WorkbenchError: a child does not start, or the inputs cannot be made.
        """
        source, building = iter(wanted), deque[tuple[int, Path, Future[dict[str, Any]]]]()
        try:
            while True:
                for candidate in source:
                    building.append(self._submit(candidate))
                    if len(building) > self._ahead:
                        break
                if not building:
                    return
                candidate, path, built = building[0]
                measurement = self._measure(candidate, path, built)
                building.popleft()
                path.unlink(missing_ok=True)
                yield measurement
        finally:
            for _, path, built in building:
                built.cancel()
                built.add_done_callback(lambda _, path=path: path.unlink(missing_ok=True))  # type: ignore[misc]

    def _submit(self, candidate: int) -> tuple[int, Path, Future[dict[str, Any]]]:
        path = Path(self._scratch.name) / f"{next(self._numbers)}.so"
        request = {"do": "build", "workload": self.workload.key, "config": self.space.config(candidate), "path": str(path)}
        return candidate, path, self._thread.submit(self._ask_builder, request, self.limits.build_s)

    def _ask_builder(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self._asking = True
        try:
            if self._closed:
                raise ChildFailure(Status.RUN_ERROR, "the runner was closed")
            return self._builder.ask(request, limit_s)
        finally:
            self._asking = False

    def _measure(self, candidate: int, path: Path, built: Future[dict[str, Any]]) -> Measurement:
        stage, compile_s = Status.COMPILE_ERROR, None
        begun, before = time.time(), load()
        times: tuple[float, ...] = ()
        try:
            answer = built.result()
            if "error" in answer:
                raise ChildFailure(Status.INVALID_CONFIG if answer.get("invalid") else Status.COMPILE_ERROR, answer["error"])
            stage, compile_s = Status.RUN_ERROR, float(answer["compile_s"])
            self._prepare()
            begun, before = time.time(), load()
            times = self._time(path)
            status, reason = Status.OK, ""
        except ChildFailure as failure:
            # A process that ended: what that is depends on what it was doing.
            status = stage if failure.status is Status.RUN_ERROR else failure.status
            reason = f"{'building' if stage is Status.COMPILE_ERROR else 'running'}: {failure.reason}"
        time_s = self.policy.label(times) if times else None
        if time_s is not None:
            self.best_s = time_s if self.best_s is None else min(self.best_s, time_s)
        return self.record(candidate, status, time_s=time_s, times_s=times, compile_s=compile_s, error=reason, timestamp=begun, load=before)

    def _prepare(self) -> None:
        if self._prepared and self._worker.pid is not None:
            return
        try:
            answer = self._worker.ask({"do": "prepare", "workload": self.workload.key, "seed": self.seed}, self.limits.prepare_s)
        except ChildFailure as failure:
            answer = {"error": failure.reason}
        if "error" in answer:
            raise WorkbenchError(f"{self.workload.key}: its inputs and expected output cannot be made ({answer['error']}); free memory, or leave the layer out")
        self._prepared = True

    def _time(self, path: Path, limit_s: float | None = None) -> tuple[float, ...]:
        slowest_s = None if self.best_s is None else self.hopeless * self.best_s
        answer = self._worker.ask({"do": "run", "path": str(path), "policy": asdict(self.policy), "slowest_s": slowest_s}, limit_s or self.limits.run_s)
        if "error" in answer:
            raise ChildFailure(Status.RUN_ERROR, answer["error"])
        times = tuple(map(float, answer["times_s"]))
        if wrong := fault(times, replace(self.policy, at_least=1)):
            raise ChildFailure(Status.RUN_ERROR, wrong)
        if answer["wrong"]:
            raise ChildFailure(Status.WRONG_RESULT, answer["wrong"])
        return times

    def _start_worker(self, programs: str, threads: int, pin: Sequence[int], memory_bytes: int) -> Child:
        return self._child("tvm_worker", {"programs": programs}, threads, pin, memory_bytes)

    def _child(self, module: str, setup: dict[str, Any], threads: int, pin: Sequence[int], memory_bytes: int) -> Child:
        # The child finds the modules that the parent finds, and none that lie in the folder it happens to run in. TVM leaves binding its threads to `pin`.
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TVM_NUM_THREADS": str(threads), "TVM_BIND_THREADS": "0"}
        return Child(
            [sys.executable, "-P", "-m", f"workbench.measure.{module}", json.dumps({"parent": os.getpid(), **setup})],
            env={**plain_environment(), **environment},
            pin=pin,
            memory_bytes=memory_bytes,
            start_limit_s=self.limits.start_s,
            remedy="run the command again, and if that does not help, install the package apache-tvm anew",
        )


def open_series(workload: Workload, *, threads: int = 1, seed: int = 0, pin: Sequence[int] = ()) -> Runner:
    """The runner of the series that `workbench measure convolutions` makes with these options: what one of the two has begun, the other goes on with.

    Arguments and errors as of `Runner`.
    """
    pin = sorted(set(pin))
    pins = "".join(f" --pin {cpu}" for cpu in pin)
    made_by = f"workbench measure convolutions --target llvm --threads {threads} --seed {seed}{pins}"
    return Runner(workload, threads=threads, seed=seed, pin=pin, made_by=made_by)


def series(kernel: str, device: str) -> str:
    """Name of a store's note on the measurements of a kind of convolution on a device."""
    return f"tvm {kernel} {CPU} {device}"
