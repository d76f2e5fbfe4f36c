"""Measure a bundle on this machine's GPU within a budget of time: `python -m workbench.measure.cuda.run BUNDLE --out FOLDER --budget-s 540`.

Needed are Python 3.10, numpy, pyarrow, a CUDA driver and a compiler (the package nvidia-cuda-nvrtc, which torch brings, or a CUDA toolkit); of this package its
files. Every record is on the disk before the next candidate begins. Exit codes: 0 measured, or as much as the budget allowed; 2 nothing can be measured here;
3 the first programs of most groups are wrong, and nothing else was measured; 4 it did not end by itself within the budget; 130 it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from workbench.errors import StoreError, UsageError, WorkbenchError
from workbench.measure.cuda.bundle import Bundle, read_bundle
from workbench.measure.cuda.clocks import Clocks, driver_version
from workbench.measure.cuda.gpu import POLICY, Gpu, describe_policy, device_of, open_gpu
from workbench.measure.cuda.pool import Compiled, Pool
from workbench.measure.cuda.records import Results, identity_of, read_results, record, right_groups
from workbench.measure.cuda.schedule import Schedule
from workbench.measure.host import load, usable_cpus
from workbench.schema import Status

__all__ = ["Options", "main", "run_bundle"]

DONE, ABSENT, WRONG, LATE, STOPPED = 0, 2, 3, 4, 130

_SAID_EVERY_S = 10.0
# Of the budget, for the end: writing the results takes seconds.
_RESERVE_S, _RESERVE_SHARE = 20.0, 0.1
# So many candidates of a group that took the GPU's process along are enough: each costs seconds.
_MOST_LOSSES = 25
_FIRST_LIMIT_S = 90.0
# So many candidates of a group are tried first; more only while none is right.
_TRIED = 2
# Of every group.
_NOTES = ("relative_error is the largest error of an output relative to the sum of the sizes of its terms; each was compared with a direct computation.",)


@dataclass(frozen=True)
class Options:
    """How a bundle is measured.

    Attributes:
        budget_s: seconds after which all has ended.
        done: folders of earlier results; what stands there is not measured again.
        workers: number of compiling processes; None is the number of CPUs minus two.
        compile_limit_s, run_limit_s: seconds that a program, and a candidate's run with its checks, may take.
        compiler: a name in `compile.COMPILERS`; None takes the first that works.
        device: number of the device.
        cubins: folder where machine code is kept and found again; None keeps none.
        flush: whether the caches are emptied before every run that is timed.
        groups: only candidates of these groups; none: all.
        most: at most so many candidates; None: all.
    """

    budget_s: float = 540.0
    done: Sequence[Path] = ()
    workers: int | None = None
    compile_limit_s: float = 10.0
    run_limit_s: float = 20.0
    compiler: str | None = None
    device: int = 0
    cubins: Path | None = None
    flush: bool = False
    groups: Sequence[str] = ()
    most: int | None = None


def run_bundle(path: Path, out: Path, options: Options) -> int:
    """Measure the candidates of a bundle in their order until the budget ends, and return the exit code.

    Raises:
        UsageError: options that cannot be used, or a folder that has other results.
        MissingData, DataError: the bundle or earlier results cannot be read.
        DeviceError, BuildError: no GPU or no compiler.
        StoreError: the results cannot be written.
    """
    clock = _Clock(options.budget_s)
    bundle = read_bundle(path)
    for group in options.groups:
        if group not in {candidate.group for candidate in bundle.candidates}:
            raise UsageError(f"{path}: it has no group {group!r}; it has {', '.join(sorted({candidate.group for candidate in bundle.candidates}))}")
    earlier = [entry for folder in options.done for entry in read_results(folder)[1]]
    done = {identity_of(entry) for entry in earlier}
    wanted = [
        number
        for number, candidate in enumerate(bundle.candidates)
        if bundle.identities[number] not in done and (not options.groups or candidate.group in options.groups)
    ][: options.most]
    try:
        out.mkdir(parents=True, exist_ok=True)
        log = _Log(out / "log.txt", clock)
    except OSError as error:
        raise StoreError(f"{out}: cannot be written ({error.strerror or error}); name a folder that can be written") from error
    with ExitStack() as stack:
        stack.callback(log.close)
        folder = options.cubins or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="workbench-cuda-", ignore_cleanup_errors=True)))
        folder.mkdir(parents=True, exist_ok=True)
        workers = options.workers or max(1, usable_cpus() - 2)
        log.say(f"bundle {path.name}: {len(bundle.candidates):,} candidates, {len(done):,} measured earlier, {len(wanted):,} to measure; {workers} compilers")
        gpu, pool, facts = open_gpu(
            folder, compiler=options.compiler, device=options.device, flush=options.flush, workers=workers, limit_s=options.compile_limit_s
        )
        stack.enter_context(pool)
        stack.enter_context(gpu)
        header = _header(bundle, facts, options)
        results = Results(out, header, going_on=any(folder.resolve() == out.resolve() for folder in options.done))
        schedule = Schedule(bundle, wanted, right_groups(earlier))
        run = _Run(bundle, schedule, gpu, pool, results, log, clock, options.run_limit_s, header["device"]["name"])
        return run.all(out, header, Clocks(options.device))


class _Clock:
    """Seconds since the start, and until the run is to come to its end."""

    def __init__(self, budget_s: float) -> None:
        self._begun = time.monotonic()
        self.budget_s = budget_s
        self.end_s = budget_s - min(_RESERVE_S, _RESERVE_SHARE * budget_s)

    def now(self) -> float:
        return time.monotonic() - self._begun

    def left(self) -> float:
        return self.end_s - self.now()


class _Log:
    """Lines for standard output and for a file, each with the seconds since the start."""

    def __init__(self, path: Path, clock: _Clock) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._clock = clock

    def say(self, text: str) -> None:
        line = f"[{self._clock.now():7.1f} s] {text}"
        print(line, flush=True)
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


@dataclass
class _Run:
    bundle: Bundle
    schedule: Schedule
    gpu: Gpu
    pool: Pool
    results: Results
    log: _Log
    clock: _Clock
    run_limit_s: float
    device: str

    def __post_init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.by_group: dict[str, Counter[str]] = {}
        self.losses: Counter[str] = Counter()
        self.given_up: dict[str, str] = {}
        self.programs: dict[int, Compiled] = {}
        self.finished: SimpleQueue[tuple[int, Future[Compiled]]] = SimpleQueue()
        self.said_s = 0.0
        self.reference = Path()
        self.host = platform.node()
        self.wanted = len(self.schedule.left)

    def all(self, out: Path, header: dict[str, Any], clocks: Clocks) -> int:
        """Measure, and put the results together whatever ends it; the exit code."""
        clocks.start()
        late = threading.Timer(max(0.0, self.clock.budget_s - self.clock.now()), self._late)
        late.daemon = True
        late.start()
        before = signal.signal(signal.SIGTERM, _stop) if threading.current_thread() is threading.main_thread() else None
        code = DONE
        try:
            code = self._measure()
        except KeyboardInterrupt:
            self.log.say("stopped from outside")
            code = STOPPED
        finally:
            self.pool.close()
            self.gpu.close()
            count = self.results.finish()
            summary = {
                **header,
                "clocks": clocks.stop(),
                "empty_kernel_s": self.gpu.floor_s,
                "gpu_processes": self.gpu.starts,
                "given_up": self.given_up,
                "statuses": dict(self.statuses),
                "seconds": self.clock.now(),
            }
            (out / "device.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
            for group, statuses in sorted(self.by_group.items()):
                self.log.say(f"  {group}: {', '.join(f'{number:,} {status}' for status, number in statuses.most_common())}")
            self.log.say(f"{sum(self.statuses.values()):,} of {self.wanted:,} measured; {count:,} records in {out}")
            if before is not None:
                signal.signal(signal.SIGTERM, before)
            late.cancel()
        return code

    def _late(self) -> None:
        """The last resort, for what waits for a device that does not answer: all records are on the disk."""
        self.log.say("the budget is used up: ended where it stood")
        os._exit(LATE)

    def _measure(self) -> int:
        reference = self.pool.compile(self.bundle.reference, limit_s=_FIRST_LIMIT_S)
        if reference.path is None:
            raise WorkbenchError(f"the bundle's reference program does not compile: {reference.error}")
        self.reference = reference.path
        for program in self.schedule.programs():
            self._submit(program)
        if self._try_first() == WRONG:
            return WRONG
        for stage, of_stage in enumerate(self.bundle.stages):
            self._stage(stage, self.clock.now() + of_stage.share * self.clock.left())
        for stage in range(len(self.bundle.stages)):
            self._stage(stage, self.clock.end_s)
        return DONE

    def _submit(self, program: int) -> None:
        future = self.pool.submit(lambda: self.bundle.source(program))
        future.add_done_callback(lambda done: self.finished.put((program, done)))

    # ------------------------------------------------------------------------------------------------ the first of each group
    def _try_first(self) -> int:
        """Measure the first candidates of each group; a group none of which is right is given up. WRONG if most are."""
        groups = self.schedule.first
        verified: dict[str, str] = {}
        for group, numbers in groups.items():
            problem = self.bundle.problems[self.bundle.candidates[numbers[0]].problem]
            kernel = problem.workload.kernel
            if kernel not in verified:
                verified[kernel] = self.gpu.verify(problem.request(self.reference), self._limit(_FIRST_LIMIT_S))
            if self.clock.left() <= 0:
                return DONE
            if verified[kernel]:
                self._give_up(group, verified[kernel])
                continue
            for tried, number in enumerate(numbers):
                if tried >= _TRIED and self.by_group[group][str(Status.OK)]:
                    break
                while self.bundle.candidates[number].program not in self.programs and self.clock.left() > 0:
                    self._collect(1.0)
                if self.clock.left() <= 0:
                    return DONE
                if self.programs[self.bundle.candidates[number].program].path is not None:
                    self.schedule.take(number)
                    self._one(number)
            seen = self.by_group.get(group, Counter())
            statuses = ", ".join(f"{number} {status}" for status, number in seen.items())
            self.log.say(f"first of {group}: {statuses}; what they are compared with agrees with numpy for {problem.workload.key}")
            if not seen[str(Status.OK)]:
                self._give_up(group, "none of its first candidates is right")
        if 2 * len(self.given_up) > len(groups):
            self.log.say(f"{len(self.given_up)} of {len(groups)} groups are wrong: nothing else is measured")
            return WRONG
        return DONE

    def _give_up(self, group: str, reason: str) -> None:
        self.given_up[group] = reason
        self.log.say(f"given up: {group}: {reason}")

    # ------------------------------------------------------------------------------------------------ the rest
    def _stage(self, stage: int, until_s: float) -> None:
        while self.schedule.unfinished(stage) and self.clock.now() < until_s:
            self._collect(0.0)
            number = self.schedule.next(stage)
            if number is None:
                self._collect(0.2)
            elif self.bundle.candidates[number].group not in self.given_up:
                self._one(number)
            self._say()

    def _collect(self, wait_s: float) -> None:
        """Take what has been compiled meanwhile, after waiting for at most so long; what does not compile has its record at once."""
        while True:
            try:
                program, future = self.finished.get(timeout=wait_s) if wait_s else self.finished.get_nowait()
            except Empty:
                return
            wait_s = 0.0
            compiled = self.programs[program] = future.result()
            for number in self.schedule.compiled(program):
                if compiled.path is None:
                    self.schedule.take(number)
                    self._keep(number, compiled, None, time.time())

    def _one(self, number: int) -> None:
        candidate = self.bundle.candidates[number]
        problem, compiled = self.bundle.problems[candidate.problem], self.programs[candidate.program]
        assert compiled.path is not None
        begun = time.time()
        answer = self.gpu.measure(
            compiled.path,
            problem.request(self.reference),
            [launch.request() for launch in candidate.launches],
            scratch=candidate.scratch,
            copied=candidate.copied,
            limit_s=self._limit(self.run_limit_s),
        )
        if answer["status"] == Status.TIMEOUT and self.clock.left() <= 0:
            return  # the budget ended it, not its own limit
        self._keep(number, compiled, answer, begun)
        if not self.gpu.alive:
            self.losses[candidate.group] += 1
            self.log.say(f"the GPU's process ended with {problem.workload.key} {candidate.space} {candidate.index}: {answer.get('error')}")
            if self.losses[candidate.group] == _MOST_LOSSES:
                self._give_up(candidate.group, f"{_MOST_LOSSES} of its candidates took the GPU's process along")

    def _keep(self, number: int, compiled: Compiled, answer: dict[str, Any] | None, begun: float) -> None:
        candidate = self.bundle.candidates[number]
        entry = record(candidate, self.bundle.problems[candidate.problem], compiled, answer, device=self.device, host=self.host, timestamp=begun, load=load())
        entry["details"] |= {"elapsed_s": round(self.clock.now(), 3), "gpu_process": self.gpu.starts}
        self.results.add(entry)
        self.statuses[entry["status"]] += 1
        self.by_group.setdefault(candidate.group, Counter())[entry["status"]] += 1

    def _limit(self, limit_s: float) -> float:
        return max(1.0, min(limit_s, self.clock.left() + 1.0))

    def _say(self) -> None:
        now = self.clock.now()
        if now - self.said_s < _SAID_EVERY_S:
            return
        measured = sum(self.statuses.values())
        rate = measured / now
        needed = (self.wanted - measured) / rate if rate else float("inf")
        ends = f"all of them in {needed:.0f} s" if needed < self.clock.left() else f"{measured + rate * self.clock.left():,.0f} of them when the budget ends"
        statuses = ", ".join(f"{number:,} {status}" for status, number in self.statuses.most_common())
        self.log.say(f"{measured:,} of {self.wanted:,} ({statuses}); {len(self.programs):,} programs compiled; {rate:.1f} a second: {ends}")
        self.said_s = now


def _header(bundle: Bundle, facts: dict[str, Any], options: Options) -> dict[str, Any]:
    """How the results of this run are made."""
    return {
        "bundle": bundle.sha256,
        "made_by": bundle.made_by,
        "notes": {**bundle.notes, "": _NOTES},
        "policy": describe_policy(POLICY, options.flush),
        "compiler": facts["compiler"],
        "driver": ", ".join(filter(None, (driver_version(options.device), f"CUDA {facts['driver_cuda'] // 1000}.{facts['driver_cuda'] % 1000 // 10}"))),
        "device": asdict(device_of(facts)),
        "facts": facts,
        "started": time.time(),
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in ("numpy", "pyarrow")}},
        "options": {"budget_s": options.budget_s, "compile_limit_s": options.compile_limit_s, "run_limit_s": options.run_limit_s},
    }


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m workbench.measure.cuda.run", description="Measure a bundle on this machine's GPU.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--budget-s", type=_positive, default=Options.budget_s, help="seconds after which all has ended (default: %(default)g)")
    parser.add_argument("--skip-done", type=Path, action="append", default=[], help="folder of earlier results, not to be measured again; may be given again")
    parser.add_argument("--workers", type=int, help="compiling processes (default: the CPUs minus two)")
    parser.add_argument("--compile-limit-s", type=_positive, default=Options.compile_limit_s)
    parser.add_argument("--run-limit-s", type=_positive, default=Options.run_limit_s)
    parser.add_argument("--compiler", help="nvrtc or nvcc (default: the first that works)")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--cubins", type=Path, help="folder where machine code is kept and found again")
    parser.add_argument("--flush", action="store_true", help="empty the caches before every run that is timed")
    parser.add_argument("--group", action="append", default=[], help="only these groups; may be given again")
    parser.add_argument("--most", type=int, help="at most so many candidates")
    given = parser.parse_args(arguments)
    options = Options(
        budget_s=given.budget_s,
        done=given.skip_done,
        workers=given.workers,
        compile_limit_s=given.compile_limit_s,
        run_limit_s=given.run_limit_s,
        compiler=given.compiler,
        device=given.device,
        cubins=given.cubins,
        flush=given.flush,
        groups=given.group,
        most=given.most,
    )
    try:
        return run_bundle(given.bundle, given.out, options)
    except WorkbenchError as error:
        print(f"workbench: {' '.join(str(error).split())}", file=sys.stderr)
        return ABSENT


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


_positive.__name__ = "positive number"


if __name__ == "__main__":
    sys.exit(main())
