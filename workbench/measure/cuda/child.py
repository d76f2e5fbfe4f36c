"""The process that has the GPU: loads compiled programs, checks what they compute and times them.

It runs as `python -m workbench.measure.cuda.child JSON`, where the JSON has `parent`, the number of the `device`, and `utility`, the compiled device.cu ("" to
describe the device only). What a candidate does to the context, it does to this process: an answer with `lost` means that another is to be started. Requests:

    describe  the device and its driver; `absent` says why there is none
    verify    the inputs and the expected result of a problem against numpy's
    measure   a candidate: `cubin` (or PTX), `launches`, `scratch` buffers and its problem, timed by `policy`, once where it is slower than `slowest_s`
    floor     seconds of a kernel that does nothing, timed the same way
"""

from __future__ import annotations

import dataclasses
import math
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from workbench.errors import DeviceError
from workbench.measure.cuda.driver import NAN, NOT_COMPILED, OUT_OF_MEMORY, REFUSED, Cuda, CudaError
from workbench.measure.cuda.inputs import half_bits, values
from workbench.measure.serving import Commands, serve
from workbench.measure.timing import Policy
from workbench.schema import Status, Workload

__all__ = ["SINGLE_S"]

# A kernel whose first run takes as long is not run again: that time stands.
SINGLE_S = 0.25
# Launches that are put behind the gate at once: a driver's queue holds about a thousand, and one more would wait for the gate that waits for it.
_QUEUED = 512
_GATE_CYCLES = 1 << 26  # tens of milliseconds: if enqueuing takes longer, gaps count
_BLOCK = 256
_PROBED = 8  # calls by which a short kernel's time is estimated

_Call = Callable[[], None]


@dataclass
class _Prepared:
    """A problem on the device: the addresses of its buffers."""

    buffers: dict[str, int]
    output: str
    count: int
    tolerance: float


@dataclass
class _Gpu:
    cuda: Cuda
    utility: Any
    problems: dict[str, _Prepared] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cuda = self.cuda
        self.kernels = {name: cuda.function(self.utility, name) for name in ("values", "compare", "gate", "nothing")}
        self.events = [cuda.event() for _ in range(65)]
        self.found = cuda.allocate(12)
        self.open, address = cuda.shared_flag()
        self.gate = cuda.prepare(self.kernels["gate"], (1, 1, 1), (1, 1, 1), (address, _GATE_CYCLES))
        self.flushed = max(1 << 20, 2 * cuda.describe().get("l2_bytes", 0))
        self.flush_buffer = 0

    # ------------------------------------------------------------------------------------------------ problems
    def problem(self, request: Mapping[str, Any]) -> _Prepared:
        """The inputs and the expected result of a request's problem, made when it is first asked for."""
        wanted = request["problem"]
        found = self.problems.get(wanted["key"])
        if found is None:
            output, count = wanted["output"]
            found = _Prepared({}, output, count, wanted["tolerance"])
            self.problems[wanted["key"]] = found
            try:
                self._make(found, wanted)
            except BaseException:
                self.forget(wanted["key"])
                raise
        return found

    def _make(self, problem: _Prepared, wanted: Mapping[str, Any]) -> None:
        for name, count, nonzero, seed in wanted["inputs"]:
            problem.buffers[name] = self.allocate(4 * count, problem)
            arguments = (problem.buffers[name], count, nonzero, half_bits(count), seed)
            self.cuda.prepare(self.kernels["values"], _grid(count), (_BLOCK, 1, 1), arguments)()
        for name, size in ((problem.output, 4), ("expected", 8), ("size", 4)):
            problem.buffers[name] = self.allocate(size * problem.count, problem)
        module = self.cuda.load(Path(wanted["reference"]["cubin"]).read_bytes())
        try:
            for call in self.calls(module, wanted["reference"]["launches"], problem.buffers):
                call()
            self.cuda.synchronize()
        finally:
            self.cuda.unload(module)

    def forget(self, key: str) -> None:
        """Give the buffers of a problem back."""
        problem = self.problems.pop(key, None)
        for address in problem.buffers.values() if problem else ():
            with suppress(CudaError):
                self.cuda.free(address)

    def allocate(self, size: int, needed: _Prepared) -> int:
        """A buffer; where there is no room, that of the problems other than `needed` is given back for it."""
        try:
            return self.cuda.allocate(size)
        except CudaError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            for key in [key for key, problem in self.problems.items() if problem is not needed]:
                self.forget(key)
            return self.cuda.allocate(size)

    def calls(self, module: Any, launches: Sequence[Any], buffers: Mapping[str, int]) -> list[_Call]:
        """What launches the kernels of a module; text among the arguments of one is the name of a buffer."""
        calls = []
        for kernel, grid, block, arguments, shared, _ in launches:
            values = [buffers[argument] if isinstance(argument, str) else argument for argument in arguments]
            calls.append(self.cuda.prepare(self.cuda.function(module, kernel), grid, block, values, shared))
        return calls

    def wrong(self, problem: _Prepared) -> tuple[float, str]:
        """The largest error of a result, and what is wrong with it ("" if nothing is)."""
        found = np.array([0, 0, problem.count], np.int32)
        self.cuda.upload(self.found, found)
        buffers, count = problem.buffers, problem.count
        arguments = (buffers[problem.output], buffers["expected"], buffers["size"], self.found, count, _bits(problem.tolerance))
        self.cuda.prepare(self.kernels["compare"], _grid(count), (_BLOCK, 1, 1), arguments)()
        self.cuda.download(found, self.found)
        error = float(found[:1].view(np.float32)[0])
        if not found[1]:
            return error, ""
        return error, f"{int(found[1]):,} of {count:,} elements are wrong, the first of them number {int(found[2])}; relative error {error:.3g}"

    # ------------------------------------------------------------------------------------------------ times
    def timed(self, calls: Sequence[_Call], repeats: int, times: int, flush: bool = False) -> list[float]:
        """Seconds of each repeat of so many `times` the calls, all enqueued before the first runs; with `flush` of one time each, the caches emptied before."""
        cuda, events = self.cuda, self.events
        self.open.value = 0
        self.gate()
        try:
            if not flush:
                cuda.record(events[0])
            for repeat in range(repeats):
                if flush:
                    cuda.fill(self.flush_buffer, repeat, self.flushed // 4)
                    cuda.record(events[2 * repeat])
                for _ in range(times):
                    for call in calls:
                        call()
                cuda.record(events[2 * repeat + 1 if flush else repeat + 1])
        finally:
            self.open.value = 1
        cuda.synchronize()
        pairs = [(2 * i, 2 * i + 1) if flush else (i, i + 1) for i in range(repeats)]
        return [cuda.elapsed_s(events[a], events[b]) / times for a, b in pairs]

    def repeats(self, calls: Sequence[_Call], policy: Policy, first_s: float, slowest_s: float, flush: bool) -> tuple[list[float], int]:
        """Seconds of each repeat by a policy, one where a call takes longer than `slowest_s`, and of how many calls each is the mean."""
        if first_s >= SINGLE_S:
            return [first_s], 1
        probed = _PROBED if first_s < policy.limit_s / _PROBED and not flush else 1
        guess = max(1e-7, self.timed(calls, 1, probed, flush)[0])
        if guess > slowest_s:
            return [guess], probed
        room = max(1, _QUEUED // (policy.repeats * len(calls)))
        times = 1 if flush else min(room, max(1, math.ceil(policy.batch_s / guess)))
        repeats = min(policy.repeats, max(policy.at_least, int(policy.limit_s / (times * guess))))
        return self.timed(calls, repeats, times, flush), times

    def with_copy(self, calls: Sequence[_Call], problem: _Prepared, repeats: int) -> list[float]:
        """Seconds by this process's clock of the calls and of copying the result to its memory, after one round that does not count."""
        host = np.empty(problem.count, np.float32)
        seconds = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            for call in calls:
                call()
            self.cuda.download(host, problem.buffers[problem.output])
            seconds.append(time.perf_counter() - start)
        return seconds[1:]

    # ------------------------------------------------------------------------------------------------ requests
    def floor(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """See the module."""
        call = self.cuda.prepare(self.kernels["nothing"], (1, 1, 1), (32, 1, 1), (0,))
        times, _ = self.repeats([call], Policy(**request["policy"]), 0.0, math.inf, False)
        return {"times_s": times}

    def verify(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """See the module."""
        from workbench.measure.cuda.expected import expected

        wanted, problem = request["problem"], self.problem(request)
        inputs = {}
        for name, count, nonzero, seed in wanted["inputs"]:
            inputs[name] = np.empty(count, np.float32)
            self.cuda.download(inputs[name], problem.buffers[name])
            if not np.array_equal(inputs[name], values(count, nonzero, seed)):
                return {"wrong": f"the device's input {name} is not the one that belongs to its seed"}
        found = np.empty(problem.count, np.float64)
        self.cuda.download(found, problem.buffers["expected"])
        right = expected(Workload.from_key(wanted["workload"]), list(inputs.values())).ravel()
        error = float(np.max(np.abs(found - right)) / max(np.max(np.abs(right)), 1e-30))
        return {"wrong": "" if error <= 1e-9 else f"the device's expected result is not numpy's (relative error {error:.3g})"}

    def measure(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """See the module."""
        answer: dict[str, Any] = {}
        module, scratch = None, {}
        try:
            answer["stage"] = "load"
            module = self.cuda.load(Path(request["cubin"]).read_bytes())
            answer["stage"] = "prepare"
            problem = self.problem(request)
            for name, count in request["scratch"].items():
                scratch[name] = self.allocate(4 * count, problem)
            if request["flush"] and not self.flush_buffer:
                self.flush_buffer = self.allocate(self.flushed, problem)
            self._check_and_time(request, module, problem, scratch, answer)
        except CudaError as error:
            status = Status.RUN_ERROR
            if error.call == "cuLaunchKernel" and error.code in REFUSED:
                status = Status.INVALID_CONFIG
            elif answer["stage"] == "load" and error.code in NOT_COMPILED:
                status = Status.COMPILE_ERROR
            answer |= {"status": str(status), "error": f"{answer['stage']}: {error}"}
            answer["lost"] = self._lost()
            self.forget(request["problem"]["key"])  # nobody knows what was written where
        for address in scratch.values():
            with suppress(CudaError):
                self.cuda.free(address)
        if module is not None:
            with suppress(CudaError):
                self.cuda.unload(module)
        return answer

    def _check_and_time(self, request: Mapping[str, Any], module: Any, problem: _Prepared, scratch: Mapping[str, int], answer: dict[str, Any]) -> None:
        launches = request["launches"]
        functions = {launch[0]: self.cuda.function(module, launch[0]) for launch in launches}
        answer["functions"] = {name: dataclasses.asdict(self.cuda.facts(function)) for name, function in functions.items()}
        for again in (False, True):
            calls = self.calls(module, launches, {**problem.buffers, **scratch})
            answer["stage"] = "run"
            first_s = self._first(calls, problem, {scratch[name]: count for name, count in request["scratch"].items()})
            answer["stage"] = "check"
            answer["relative_error"], wrong = self.wrong(problem)
            if not wrong:
                break
            # An earlier candidate may have spoiled the inputs: what is wrong with fresh ones is wrong.
            self.forget(request["problem"]["key"])
            if again:
                answer |= {"status": str(Status.WRONG_RESULT), "error": wrong}
                return
            answer["stage"] = "prepare"
            problem = self.problem(request)
        answer["first_s"] = first_s
        answer["stage"] = "time"
        timed = [call for call, launch in zip(calls, launches, strict=True) if launch[5]]
        policy = Policy(**request["policy"])
        slowest_s = math.inf if request["slowest_s"] is None else request["slowest_s"]
        answer["times_s"], answer["calls"] = self.repeats(timed, policy, first_s, slowest_s, request["flush"])
        if request["copied"]:
            answer["stage"] = "copy"
            fits = int(policy.limit_s / max(1e-7, min(answer["times_s"])))
            answer["copied_times_s"] = self.with_copy(timed, problem, min(policy.repeats, max(1, fits)))
        answer["stage"] = "check"
        answer["relative_error"], wrong = self.wrong(problem)
        if wrong:
            self.forget(request["problem"]["key"])
            answer |= {"status": str(Status.WRONG_RESULT), "error": f"after several runs {wrong}"}
            return
        answer["status"] = str(Status.OK)

    def _first(self, calls: Sequence[_Call], problem: _Prepared, scratch: Mapping[int, int]) -> float:
        """Seconds of the first run, which finds no number in its output and in what it keeps between kernels."""
        for address, count in {problem.buffers[problem.output]: problem.count, **scratch}.items():
            self.cuda.fill(address, NAN, count)
        self.cuda.record(self.events[0])
        for call in calls:
            call()
        self.cuda.record(self.events[1])
        self.cuda.synchronize()
        return self.cuda.elapsed_s(self.events[0], self.events[1])

    def _lost(self) -> bool:
        """Whether the context can be used no more."""
        try:
            self.cuda.synchronize()
            self.cuda.fill(self.found, 0, 3)
            self.cuda.synchronize()
        except CudaError:
            return True
        return False


def _grid(count: int) -> tuple[int, int, int]:
    return min(1024, -(-count // _BLOCK)), 1, 1


def _bits(number: float) -> int:
    """The bits of a float32 as a whole number."""
    return int(struct.unpack("<i", struct.pack("<f", number))[0])


def _prepare(setup: dict[str, Any]) -> Commands:
    try:
        cuda = Cuda(setup["device"])
    except DeviceError as error:
        reason = str(error)
        return {"describe": lambda _: {"absent": reason}}
    commands: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"describe": lambda _: cuda.describe()}
    if setup["utility"]:
        gpu = _Gpu(cuda, cuda.load(Path(setup["utility"]).read_bytes()))
        commands |= {"floor": gpu.floor, "verify": gpu.verify, "measure": gpu.measure}
    return commands


if __name__ == "__main__":
    serve(_prepare)
