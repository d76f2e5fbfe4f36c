"""The course of a run on a GPU: the first candidates of each group, then stage by stage while there is time; each has its record before the next begins."""

from __future__ import annotations

import json
import os
import platform
import signal
import threading
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from workbench.errors import WorkbenchError
from workbench.measure.cuda.bundle import Bundle
from workbench.measure.cuda.clocks import Clocks
from workbench.measure.cuda.gpu import Gpu
from workbench.measure.cuda.pool import Compiled, Pool
from workbench.measure.cuda.records import Results, record
from workbench.measure.cuda.schedule import Schedule
from workbench.measure.host import load
from workbench.schema import Status

__all__ = ["DONE", "LATE", "STOPPED", "WRONG", "Clock", "Log", "Measuring"]

# How a run ends, as its exit code.
DONE, WRONG, LATE, STOPPED = 0, 3, 4, 130

_SAID_EVERY_S = 10.0
# Of the budget, for the end: writing the results takes seconds.
_RESERVE_S, _RESERVE_SHARE = 20.0, 0.1
# So many candidates of a group that took the GPU's process along are enough: each costs seconds.
_MOST_LOSSES = 25
_FIRST_LIMIT_S = 90.0
# So many candidates of a group are tried first; more only while none is right.
_TRIED = 2


class Clock:
    """Seconds since the start, and until the run is to come to its end."""

    def __init__(self, budget_s: float) -> None:
        self._begun = time.monotonic()
        self.budget_s = budget_s
        self.end_s = budget_s - min(_RESERVE_S, _RESERVE_SHARE * budget_s)

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun

    def left(self) -> float:
        """Seconds until the end begins."""
        return self.end_s - self.now()


class Log:
    """Lines for standard output and for a file, each with the seconds since the start."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._clock = clock

    def say(self, text: str) -> None:
        """Write a line."""
        line = f"[{self._clock.now():7.1f} s] {text}"
        print(line, flush=True)
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass
class Measuring:
    """A run.

    Attributes:
        bundle, schedule: what is measured, and in which order.
        gpu, pool: with what; `all` closes them.
        results, log, clock: where it is kept and told, and how long it may take.
        run_limit_s: seconds that a candidate's run with its checks may take.
        device: name of the device.
    """

    bundle: Bundle
    schedule: Schedule
    gpu: Gpu
    pool: Pool
    results: Results
    log: Log
    clock: Clock
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


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
