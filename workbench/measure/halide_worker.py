"""The child process of `workbench.measure.halide`: builds, checks and times candidates.

It runs as `python -m workbench.measure.halide_worker JSON`, where the JSON names the problem. Requests and answers are JSON, one a line, on standard input and
on what was standard output at the start: whatever a candidate or a compiler prints goes to standard error. An answer has the request's `id`, and `error` where
the candidate failed.

    build  a candidate, by `config` or by `autoscheduler` and `parallelism`; those built before are dropped, unless `keep`
    check  the last one built: the relative error of its result, and whether it is within the tolerance
    time   the last one built, by `policy`, with fewer repeats where it is slower than `slowest_s`
    race   all that are kept, `repeats` times in turns, so that what else the machine does meets all of them alike
"""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any

from workbench.measure.timing import Policy

if TYPE_CHECKING:
    from workbench.kernels.halide.base import Problem, Program

__all__ = ["CONFIRMED_S", "time_program"]

# A program of milliseconds can be ten times slower while something else has its processor, but not for so long.
CONFIRMED_S = 0.1


def time_program(call: Callable[[], object], policy: Policy, slowest_s: float = math.inf) -> list[float]:
    """Seconds a call in each repeat. A program that is always slower than `slowest_s` a call gets no further repeat after `CONFIRMED_S` of them, or one."""

    def repeat(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls

    start = time.perf_counter()
    fastest = repeat(1)
    while time.perf_counter() - start < policy.warmup_s:
        fastest = min(fastest, repeat(1))
    calls = max(1, math.ceil(policy.batch_s / fastest))
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < policy.repeats:
        spent = time.perf_counter() - start
        hopeless = bool(times) and min(fastest, *times) > slowest_s and spent >= CONFIRMED_S
        if hopeless or (spent >= policy.limit_s and len(times) >= policy.at_least):
            break
        times.append(repeat(calls))
    return times


class _Worker:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.programs: list[Program] = []

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request; what a candidate raises is an answer, not an end."""
        if request.get("kernel") == "ping":
            return {}
        commands: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "build": self._build,
            "check": self._check,
            "time": self._time,
            "race": self._race,
        }
        command = commands[request["do"]]
        try:
            return command(request)
        except Exception as error:  # whatever a candidate does wrong is what the answer is about
            return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}

    def _build(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if not request.get("keep"):
            self.programs.clear()
        if "autoscheduler" in request:
            program = self.problem.autoschedule(request["autoscheduler"], int(request["parallelism"]))
        else:
            program = self.problem.compile(request["config"])
        self.programs.append(program)
        return {"compile_s": program.compile_s, "schedule": program.schedule}

    def _check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.problem.spoil()
        self.programs[-1].run()
        error = float(self.problem.error())
        return {"right": error <= self.problem.tolerance, "relative_error": repr(error)}

    def _time(self, request: Mapping[str, Any]) -> dict[str, Any]:
        runs = self.problem.runs
        slowest_s = math.inf if request["slowest_s"] is None else request["slowest_s"] * runs
        return {"times_s": [seconds / runs for seconds in time_program(self.programs[-1].run, Policy(**request["policy"]), slowest_s)]}

    def _race(self, request: Mapping[str, Any]) -> dict[str, Any]:
        times: list[list[float]] = [[] for _ in self.programs]
        order = list(range(len(self.programs)))
        single = Policy(**{**request["policy"], "repeats": 1, "at_least": 1})
        shuffle = random.Random(0).shuffle
        for _ in range(request["repeats"]):
            shuffle(order)
            for i in order:
                times[i].append(time_program(self.programs[i].run, single)[0] / self.problem.runs)
        return {"times_s": times}


def _die_with_parent(parent: int) -> None:
    """A candidate may hang in machine code: only the system can end this process when nobody waits for it any more."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def main() -> None:
    """Answer requests until standard input ends."""
    setup = json.loads(sys.argv[1])
    _die_with_parent(setup["parent"])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module, _, name = setup["problem"].partition(":")
    worker = _Worker(getattr(importlib.import_module(module), name)(**setup["arguments"]))
    gc.disable()
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps({"id": request["id"], **worker.answer(request)}) + "\n")
        answers.flush()
        gc.collect()


if __name__ == "__main__":
    main()
