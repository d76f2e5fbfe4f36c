"""The child process of `workbench.measure.halide`: builds, checks and times candidates.

It runs as `python -m workbench.measure.halide_worker JSON`, where the JSON names the problem. Requests:

    build  a candidate, by `config` or by `autoscheduler` and `parallelism`; those built before are dropped, unless `keep`
    check  the last one built: the relative error of its result, and whether it is within the tolerance
    time   the last one built, by `policy`, with fewer repeats where it is slower than `slowest_s`
    race   all that are kept, `repeats` times in turns, so that what else the machine does meets all of them alike
"""

from __future__ import annotations

import importlib
import math
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.measure.serving import Commands, serve
from workbench.measure.timing import Policy, time_program

if TYPE_CHECKING:
    from workbench.kernels.halide.base import Problem, Program


class _Worker:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.programs: list[Program] = []

    def commands(self) -> Commands:
        """What requests may name."""
        return {"build": self._build, "check": self._check, "time": self._time, "race": self._race}

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


def _prepare(setup: dict[str, Any]) -> Commands:
    module, _, name = setup["problem"].partition(":")
    return _Worker(getattr(importlib.import_module(module), name)(**setup["arguments"])).commands()


if __name__ == "__main__":
    serve(_prepare)
