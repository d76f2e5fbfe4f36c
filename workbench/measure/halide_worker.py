"""The child process of `workbench.measure.halide`: builds, checks and times candidates, one request a line.

It runs as `python -m workbench.measure.halide_worker JSON`, where the JSON names the problem. Requests and replies are JSON, one a line, on standard input and
on what was standard output at the start: whatever a candidate or a compiler prints goes to standard error.

A request has a candidate (`config`, or `autoscheduler` and `parallelism`), `policy`, `best_s` and `check`; the replies are `built` and `timed`, or `failed`
with the stage. A request with `race`, a list of candidates, and `repeats` has a reply `built` for each candidate, then `raced`. In a race the candidates take
turns, so that what else the machine does meets all of them alike.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.kernels.halide.base import Problem, Program

__all__ = ["Policy", "time_program"]


@dataclass(frozen=True)
class Policy:
    """How a program is timed, after a call to warm up.

    Attributes:
        repeats: how often, at most.
        least: how often, at least.
        budget_s: no repeat beyond `least` begins after this much time.
        window_s: a repeat makes as many calls as fill this, and its time is theirs divided by their number: a clock cannot time a microsecond.
        hopeless: a program that takes this many times the best time so far, in its first call and in those after it, is timed once.
    """

    repeats: int = 7
    least: int = 3
    budget_s: float = 0.5
    window_s: float = 1e-3
    hopeless: float = 10.0


def time_program(call: Callable[[], object], policy: Policy, best_s: float | None = None, runs: int = 1) -> list[float]:
    """Seconds of each repeat, for one of the `runs` kernel runs of a call; a single one where the program is hopeless beside `best_s`."""

    def repeat(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls / runs

    limit = math.inf if best_s is None else policy.hopeless * best_s
    spent = first = repeat(1)
    if first * runs < policy.window_s or first > limit:
        # The first call met cold caches and pages that were not there yet: only a second one tells how many fill a window, or that there is no hope.
        spent = repeat(max(1, math.ceil(policy.window_s / (first * runs))))
    if min(first, spent) > limit:
        return [spent]
    calls = max(1, math.ceil(policy.window_s / (spent * runs)))
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < policy.least or (len(times) < policy.repeats and time.perf_counter() - begin < policy.budget_s):
        times.append(repeat(calls))
    return times


class _Worker:
    def __init__(self, problem: Problem, replies: IO[str]) -> None:
        self.problem = problem
        self.replies = replies

    def reply(self, event: str, **content: Any) -> None:
        self.replies.write(json.dumps({"event": event, **content}) + "\n")
        self.replies.flush()

    def serve(self, request: Mapping[str, Any]) -> None:
        """Answer one request; what a candidate raises is a reply, not an end."""
        stage = "build"
        try:
            if "race" in request:
                programs = [self._build(candidate) for candidate in request["race"]]
                stage = "run"
                self.reply("raced", times_s=self._race(programs, int(request["repeats"])))
                return
            program = self._build(request)
            stage = "run"
            error = self._check(program) if request["check"] else None
            if error is not None and not error <= self.problem.tolerance:
                self.reply("failed", stage="check", error=f"relative error {error:.2g}, more than {self.problem.tolerance:g}")
                return
            self.reply("timed", times_s=time_program(program.run, Policy(**request["policy"]), request["best_s"], self.problem.runs), error=error)
        except Exception as error:  # whatever a candidate does wrong is what the reply is about
            self.reply("failed", stage=stage, error=" ".join(f"{type(error).__name__}: {error}".split())[:500])

    def _build(self, candidate: Mapping[str, Any]) -> Program:
        if "autoscheduler" in candidate:
            program = self.problem.autoschedule(candidate["autoscheduler"], int(candidate["parallelism"]))
        else:
            program = self.problem.compile(candidate["config"])
        self.reply("built", compile_s=program.compile_s, schedule=program.schedule)
        return program

    def _check(self, program: Program) -> float:
        self.problem.spoil()
        program.run()
        return self.problem.error()

    def _race(self, programs: list[Program], repeats: int) -> list[list[float]]:
        times: list[list[float]] = [[] for _ in programs]
        order = list(range(len(programs)))
        single = Policy(repeats=1, least=1)
        shuffle = random.Random(0).shuffle
        for _ in range(repeats):
            shuffle(order)
            for i in order:
                times[i] += time_program(programs[i].run, single, runs=self.problem.runs)
        return times


def _die_with_parent(parent: int) -> None:
    """A candidate may hang in machine code: only the kernel can end this process when nobody waits for it any more."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _limit_memory(limit_bytes: int) -> None:
    """An allocation beyond the limit then fails in the candidate, instead of the machine running out of memory."""
    import resource

    with contextlib.suppress(ValueError, OSError):  # not every system has the limit
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))


def main() -> None:
    """Serve requests until standard input ends."""
    setup = json.loads(sys.argv[1])
    _die_with_parent(setup["parent"])
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if setup["pin"] is not None:
        os.sched_setaffinity(0, setup["pin"])
    _limit_memory(setup["memory_bytes"])
    module, _, name = setup["problem"].partition(":")
    worker = _Worker(getattr(importlib.import_module(module), name)(**setup["arguments"]), replies)
    worker.reply("ready")
    gc.disable()
    for line in sys.stdin:
        worker.serve(json.loads(line))
        gc.collect()


if __name__ == "__main__":
    main()
