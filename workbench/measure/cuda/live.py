"""Measure convolutions on this machine's GPU: the process that has it stays, and the next candidates are compiled while one is measured."""

from __future__ import annotations

import json
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import asdict
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workbench.errors import BuildError, MissingPackage, WorkbenchError
from workbench.kernels import kernel
from workbench.kernels.conv import GPU
from workbench.kernels.tir.program import CudaProgram
from workbench.measure import runner
from workbench.measure.cuda.clocks import driver_version
from workbench.measure.cuda.convolutions import Drawn, candidate, lowered, problem, tvm_crew
from workbench.measure.cuda.draft import REFERENCE
from workbench.measure.cuda.gpu import POLICY, architecture, describe_policy, device_of, open_gpu
from workbench.measure.cuda.pool import Compiled
from workbench.measure.host import load, usable_cpus
from workbench.measure.isolation import Closing
from workbench.measure.timing import Policy
from workbench.schema import Measurement, Status, Workload

__all__ = ["Runner", "Session", "open_series", "series"]

_VERIFY_LIMIT_S = 120.0


class Session(Closing):
    """The GPU and what compiles for it, for the runners of any number of workloads.

    Args:
        device: number of the device.
        compiler: a name in `compile.COMPILERS`; None takes the first that works.
        policy: how kernels are timed.
        compile_limit_s, run_limit_s: seconds that a program, and a candidate's run with its checks, may take.
        workers: processes that compile, and as many that make programs; None is one for each CPU but one.

    Raises:
        DeviceError, BuildError: no GPU, or no compiler whose programs run there.
        MissingPackage: TVM is not installed.
    """

    def __init__(
        self,
        device: int = 0,
        *,
        compiler: str | None = None,
        policy: Policy = POLICY,
        compile_limit_s: float = 10.0,
        run_limit_s: float = 20.0,
        workers: int | None = None,
    ) -> None:
        if find_spec("tvm") is None:
            raise MissingPackage.needed_by("measuring convolutions on a GPU", ModuleNotFoundError(name="tvm"))
        self.workers = workers or max(1, usable_cpus() - 1)
        self.run_limit_s = run_limit_s
        self._folder = tempfile.TemporaryDirectory(prefix="workbench-cuda-", ignore_cleanup_errors=True)
        self._crew = tvm_crew(self.workers)
        try:
            self.gpu, self._pool, self.facts = open_gpu(
                Path(self._folder.name), compiler=compiler, device=device, policy=policy, workers=self.workers, limit_s=compile_limit_s
            )
        except BaseException:
            self._crew.close()
            self._folder.cleanup()
            raise
        self.device = device_of(self.facts)
        self.driver = driver_version(device)
        reference = self._pool.compile(REFERENCE.read_text(encoding="utf-8"), limit_s=60.0)
        if reference.path is None:
            self.close()
            raise BuildError(f"{REFERENCE.name} does not compile: {reference.error}")
        self.reference = reference.path

    def close(self) -> None:
        """End all processes; the session cannot be used any more."""
        self._crew.close()
        self._pool.close()
        self.gpu.close()
        self._folder.cleanup()

    def compile(self, workload: Workload, index: int) -> tuple[Future[CudaProgram | str], Future[Compiled]]:
        """Begin to make and to compile the program of a configuration."""
        made = lowered(self._crew, workload, index, architecture(self.facts))

        def source() -> str:
            program = made.result()
            if isinstance(program, str):
                raise WorkbenchError(program)
            return program.source

        return made, self._pool.submit(source)


class Runner(runner.Runner[int]):
    """Measures configurations of a convolution on a GPU; a candidate is an index of the space "workbench-gpu".

    Args:
        workload: what is measured.
        session: the GPU; it stays open when the runner is closed.
        ahead: how many of the next candidates are compiled while one is measured; None is as many as the session has processes.
        hopeless: a configuration that takes this many times the best time so far is not repeated.
        seed: of the inputs.
        made_by: the command line that makes the series, without layers and number of trials.

    Attributes:
        space: the workload's.
        workload, device, best_s, provenance, series: see the contract.

    Raises:
        UsageError: a workload without the space "workbench-gpu".
        WorkbenchError: the device's inputs or expected result are not numpy's.
    """

    def __init__(self, workload: Workload, session: Session, *, ahead: int | None = None, hopeless: float = 10.0, seed: int = 0, made_by: str = "") -> None:
        self.workload = workload
        self.space = kernel(workload.kernel).space(workload, GPU)
        self.device = session.device
        self.best_s = None
        self.series = series(workload.kernel, self.device.name)
        self._session, self._hopeless = session, hopeless
        self._ahead = session.workers if ahead is None else ahead
        self._problem = problem(workload, seed).request(session.reference)
        if wrong := session.gpu.verify(self._problem, _VERIFY_LIMIT_S):
            raise WorkbenchError(f"{workload.key}: {wrong}")
        facts, gpu = session.facts, session.gpu
        early = f"; a configuration {hopeless:g} times slower than the best so far is not repeated"
        meanwhile = f"; up to {self._ahead} of the next candidates are compiled meanwhile" if self._ahead else ""
        self.provenance = {
            "compiler": f"TVM {metadata.version('apache-tvm')}, {facts['compiler']}",
            "policy": f"{describe_policy(gpu.policy, gpu.flush)}{early}{meanwhile}",
            "device": json.dumps(asdict(self.device)),
            "driver": session.driver,
            "processor": "",
            "seed": str(seed),
            "command": made_by,
        }

    def close(self) -> None:
        """The session stays open; nothing else is to be ended."""

    def measure(self, wanted: Iterable[int]) -> Iterator[Measurement]:
        """See the contract. Beside the candidate that is measured the next ones are taken, as many as are compiled ahead.

        Raises:
            SpaceError: an index that the space does not have.
            WorkbenchError: a process does not start.
        """
        source, compiling = iter(wanted), deque[tuple[int, Future[CudaProgram | str], Future[Compiled]]]()
        try:
            while True:
                for index in source:
                    self.space.config(index)
                    compiling.append((index, *self._session.compile(self.workload, index)))
                    if len(compiling) > self._ahead:
                        break
                if not compiling:
                    return
                yield self._measure(*compiling.popleft())
        finally:
            for _, made, compiled in compiling:
                made.cancel()
                compiled.cancel()

    def _measure(self, index: int, made: Future[CudaProgram | str], compiled: Future[Compiled]) -> Measurement:
        program = made.result()
        when: dict[str, Any] = {"timestamp": time.time(), "load": load()}
        if isinstance(program, str):
            return self.record(index, Status.TIMEOUT if program == Status.TIMEOUT else Status.COMPILE_ERROR, **when, error=f"lowering: {program}")
        found = compiled.result()
        if found.path is None:
            return self.record(index, found.status, **when, error=f"compiling: {found.error}", compile_s=found.compile_s)
        one = candidate(self.workload, Drawn(index, ""), program, 0, 0)
        when = {"timestamp": time.time(), "load": load()}
        answer = self._session.gpu.measure(
            found.path,
            self._problem,
            [launch.request() for launch in one.launches],
            scratch=one.scratch,
            copied=False,
            limit_s=self._session.run_limit_s,
            slowest_s=None if self.best_s is None else self._hopeless * self.best_s,
        )
        found.path.unlink(missing_ok=True)
        status = Status(answer["status"])
        if status is not Status.OK:
            return self.record(index, status, **when, error=answer["error"], compile_s=found.compile_s)
        times = tuple(answer["times_s"])
        self.best_s = min(times) if self.best_s is None else min(self.best_s, *times)
        return self.record(index, status, **when, time_s=min(times), times_s=times, compile_s=found.compile_s)


def open_series(workload: Workload, session: Session, *, seed: int = 0) -> Runner:
    """The runner of the series that `workbench measure convolutions --target cuda` makes: what one of the two has begun, the other goes on with."""
    return Runner(workload, session, seed=seed, made_by=f"workbench measure convolutions --target cuda --seed {seed}")


def series(kernel: str, device: str) -> str:
    """Name of a store's note on the measurements of a kind of convolution on a device."""
    return f"cuda {kernel} {GPU} {device}"
