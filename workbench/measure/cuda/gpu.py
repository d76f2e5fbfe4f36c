"""A GPU as its measurements see it: the process that has it, started again after every candidate that took it along."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from workbench.errors import BuildError, DeviceError, UsageError
from workbench.measure.cuda.child import SINGLE_S
from workbench.measure.cuda.compile import compilers
from workbench.measure.cuda.crew import python_child
from workbench.measure.cuda.pool import Pool
from workbench.measure.isolation import Child, ChildFailure, Closing
from workbench.measure.timing import Policy, fault
from workbench.schema import Device, Status

__all__ = ["POLICY", "Gpu", "architecture", "describe_policy", "device_of", "open_gpu"]

# Kernels of microseconds: ten repeats of 0.2 ms each, and half a tenth of a second for a slow one.
POLICY = Policy(repeats=10, at_least=3, limit_s=0.05, warmup_s=0.0, batch_s=2e-4)
_MOST_REPEATS = 32

# Single-precision units of a multiprocessor by compute capability (CUDA C++ Programming Guide, arithmetic instructions).
_UNITS: dict[tuple[Any, Any], int] = {
    (6, 0): 64,
    (6, 1): 128,
    (7, 0): 64,
    (7, 5): 64,
    (8, 0): 64,
    (8, 6): 128,
    (8, 9): 128,
    (9, 0): 128,
    (10, 0): 128,
    (12, 0): 128,
}

_START_LIMIT_S = 90.0
_UTILITY = Path(__file__).with_name("device.cu")


class Gpu(Closing):
    """The process that has the GPU.

    Args:
        utility: the compiled device.cu.
        device: number of the device.
        policy: how kernels are timed.
        flush: whether the caches are emptied before every run that is timed.

    Attributes:
        floor_s: seconds of a kernel that does nothing: the least that can be measured.

    Raises:
        UsageError: a policy that cannot be used.
        BuildError: the process does not start.
    """

    def __init__(self, utility: Path, *, device: int = 0, policy: Policy = POLICY, flush: bool = False) -> None:
        if policy.repeats > _MOST_REPEATS:
            raise UsageError(f"{policy.repeats} repeats; on a GPU they are all enqueued at once, at most {_MOST_REPEATS}")
        self.policy, self.flush = policy, flush
        self._child = _child(device, str(utility))
        try:
            answer = self._child.ask({"do": "floor", "policy": asdict(policy)}, _START_LIMIT_S)
        except ChildFailure as failure:
            answer = {"error": failure.reason}
        if "times_s" not in answer:
            self.close()
            raise BuildError(f"the GPU's process runs no kernel: {answer.get('error', 'it gave no reason')}")
        self.floor_s: float = min(answer["times_s"])

    @property
    def starts(self) -> int:
        """How often the process was started."""
        return self._child.starts

    @property
    def alive(self) -> bool:
        """Whether the process is there: the last candidate has left it well."""
        return self._child.pid is not None

    def close(self) -> None:
        """End the process; the next candidate starts another."""
        self._child.close()

    def kill(self) -> None:
        """End the process from another thread; what it was asked fails then."""
        self._child.kill()

    def verify(self, problem: Mapping[str, Any], limit_s: float) -> str:
        """What is wrong with the inputs and the expected result that the device makes of a problem, "" if nothing is."""
        try:
            answer = self._child.ask({"do": "verify", "problem": problem}, limit_s)
        except ChildFailure as failure:
            return f"the GPU's process: {failure.reason}"
        if "error" in answer:
            self.close()
        return str(answer.get("error", answer.get("wrong")))

    def measure(
        self,
        cubin: Path,
        problem: Mapping[str, Any],
        launches: Sequence[Any],
        *,
        scratch: Mapping[str, int],
        copied: bool,
        limit_s: float,
        slowest_s: float | None = None,
    ) -> dict[str, Any]:
        """How a candidate ended: `status`, `stage`, `error`, and where it got so far `first_s`, `relative_error`, `functions`.

        With success there are also `times_s` and `calls`, and `copied_times_s` if `copied`.

        Args:
            cubin: its compiled program.
            problem: what it is to compute, as `Problem.request` has it.
            launches: see `Launch.request`.
            scratch: name -> number of float32 of each buffer that it needs beside input and output.
            copied: whether it is also timed with the copy of its result to the host.
            limit_s: seconds that all of it may take.
            slowest_s: a kernel that takes longer is not repeated.
        """
        request = {
            "do": "measure",
            "cubin": str(cubin),
            "problem": problem,
            "launches": launches,
            "scratch": scratch,
            "copied": copied,
            "policy": asdict(self.policy),
            "flush": self.flush,
            "slowest_s": slowest_s,
        }
        try:
            answer = self._child.ask(request, limit_s)
        except ChildFailure as failure:
            return {"status": str(failure.status), "stage": "run", "error": f"the GPU's process: {failure.reason}"}
        if "status" not in answer:  # the process is well, but not what it was asked to do
            answer |= {"status": str(Status.RUN_ERROR), "error": f"{answer.get('stage', 'load')}: {answer.get('error', 'no reason')}", "lost": True}
        answer.pop("id")
        if answer.pop("lost", False):
            self.close()
        if answer["status"] == Status.OK and (wrong := fault(answer["times_s"], replace(self.policy, at_least=1))):
            answer |= {"status": str(Status.RUN_ERROR), "error": f"time: {wrong}"}
        return answer


def open_gpu(
    folder: Path, *, compiler: str | None = None, device: int = 0, policy: Policy = POLICY, flush: bool = False, workers: int = 1, limit_s: float = 10.0
) -> tuple[Gpu, Pool, dict[str, Any]]:
    """The GPU, a pool of the first compiler whose programs it runs, and facts: what the driver says of the device, and `compiler`, its version.

    Args:
        folder: where machine code is kept.
        compiler: a name in COMPILERS; None tries them in turn.
        device, policy, flush: see Gpu.
        workers, limit_s: see Pool.

    Raises:
        DeviceError: no driver, or no such device.
        BuildError: no compiler whose programs run there.
        UsageError: an unknown compiler, or a policy that cannot be used.
    """
    with _child(device, "") as child:
        facts = child.ask({"do": "describe"}, _START_LIMIT_S)
    if "absent" in facts or "error" in facts:
        raise DeviceError(facts.get("absent") or facts["error"])
    facts.pop("id")
    there, reasons = compilers(compiler)
    for name, version in there.items():
        pool = Pool(name, version, architecture(facts), folder, workers=workers, limit_s=limit_s)
        try:
            compiled = pool.compile(_UTILITY.read_text(encoding="utf-8"), limit_s=60.0)
            if compiled.path is None:
                raise BuildError(compiled.error)
            return Gpu(compiled.path, device=device, policy=policy, flush=flush), pool, {**facts, "compiler": version}
        except BuildError as error:
            reasons[name] = str(error)
            pool.close()
        except BaseException:
            pool.close()
            raise
    raise BuildError(f"no compiler whose programs run on {facts['model']}: {'; '.join(f'{name}: {reason}' for name, reason in reasons.items())}")


def architecture(facts: Mapping[str, Any]) -> str:
    """What the device's machine code is called, such as "sm_90"."""
    return f"sm_{facts['compute_capability_major']}{facts['compute_capability_minor']}"


def device_of(facts: Mapping[str, Any]) -> Device:
    """The device that measurements are recorded under: its name is the model in lower case, such as "nvidia-h200".

    Peak and bandwidth follow from clocks and widths as the driver states them, at boost; where it does not, they are None.
    """
    model = re.sub(r"\((r|tm)\)", " ", facts["model"], flags=re.IGNORECASE)
    units = _UNITS.get((facts.get("compute_capability_major"), facts.get("compute_capability_minor")))
    peak = units and 2e-6 * units * facts.get("multiprocessors", 0) * facts.get("clock_khz", 0)
    bandwidth = 2e-6 * facts.get("memory_clock_khz", 0) * facts.get("memory_bus_bits", 0) / 8  # two transfers a clock, as a multiply-add is two operations
    return Device(
        re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "gpu",
        "gpu",
        facts["model"],
        peak_gflops=_rounded(peak),
        bandwidth_gb_s=_rounded(bandwidth),
        max_threads=facts.get("max_threads_per_block"),
    )


def describe_policy(policy: Policy, flush: bool) -> str:
    """How times are taken, in one sentence, as a data set states it."""
    caches = "with the caches emptied before each run" if flush else "with the caches as the run before left them"
    mean = "a repeat is one run" if flush else f"a repeat is the mean of as many runs as take {policy.batch_s * 1e6:g} us"
    return (
        f"time_s is the minimum of times_s: up to {policy.repeats} repeats within {policy.limit_s:g} s but at least {policy.at_least}, between CUDA events of "
        f"one stream that was held until all was enqueued, {caches}; {mean}; a kernel whose first run takes {SINGLE_S:g} s or more is run once; every output "
        "is compared with a direct computation in double precision, before and after timing"
    )


def _rounded(number: float | None) -> float | None:
    return round(number, 1) if number and math.isfinite(number) else None


def _child(device: int, utility: str) -> Child:
    remedy = "see what nvidia-smi says of the device"
    return python_child("workbench.measure.cuda.child", {"device": device, "utility": utility}, start_limit_s=_START_LIMIT_S, remedy=remedy)
