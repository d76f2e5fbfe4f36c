"""Trying a few: schedules that promise to be fast are built, checked and timed on this machine one after another, and the fastest of them is taken.

The least of many predictions finds the errors of a model: its first choice may be slower than its second. A measurement of each of a few costs seconds, once,
and this says after how many runs of the kernel they are paid for. The first is the selector's choice; which comes next also follows from what those before it
took (`tries`). The least of many single measurements finds the lucky ones, so the fastest three then take turns, and the turns decide.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.errors import UsageError, WorkbenchError
from workbench.kernels.halide import PROBLEMS
from workbench.measure.halide import SPACE, Runner, halide_workload, open_series
from workbench.measure.host import cpu, last_cpus, usable_cpus
from workbench.models.process import fit_process
from workbench.schema import Measurement, Status
from workbench.space import Space
from workbench.tune.selector import ENUMERATED, Selector, index_in
from workbench.tune.tries import TURNS, Group, Tries, finalists
from workbench.tune.variants import Choice, Number, Variant

__all__ = ["Attempt", "Trial", "check_tryable", "try_variants"]

# Schedules that a process is asked of: of more than these some are drawn, and what was measured or is ranked first is always among them. With 2,000 rows
# measured they take about 0.2 GB and 3 s.
_LOOKED_AT = 5_000


@dataclass(frozen=True)
class Attempt:
    """A schedule that was tried.

    Attributes:
        variant: what was tried, on this machine's device; its data set is the one whose model predicts.
        predicted_s: seconds that were predicted of it when it was chosen.
        by: who chose it, "network" or "process" (see `tries`).
        status: how it ended.
        measured_s: seconds that it took here when it was tried, None for a failure.
        compile_s: seconds to compile it, None where it does not compile.
        error: why it failed, "" for a success.
        turns_s: seconds of each of its turns; none where it was not among the fastest, or nothing else was.
    """

    variant: Variant
    predicted_s: float
    by: str
    status: Status
    measured_s: float | None
    compile_s: float | None
    error: str = ""
    turns_s: tuple[float, ...] = ()

    @property
    def least_s(self) -> float | None:
        """The least seconds of its turns, or what it took when it was tried; None for a failure."""
        return min(self.turns_s, default=self.measured_s)


@dataclass(frozen=True)
class Trial:
    """What came of trying a few, beside taking the first blindly.

    Attributes:
        attempts: in the order in which they were tried, the selector's choice first.
        chosen: the fastest of them by its turns, the one to run.
        asked: the selector's answer among the variants that could be tried here; its schedule is the first attempt's.
        gain_s: seconds that a run of the chosen one saves over one of the first choice (`least_s` of both), 0 or more; None where the first choice failed.
            Where the first choice took no turns it was measured once.
        cost_s: wall seconds of the trial: learning from what was measured of other schedules, starting the child process, building, checking and timing
            each, and the turns. What asking costs is `asked.cost_s`.
        runs_to_pay: runs after which the gain has paid for the trial; None where nothing is gained, or where the first choice failed.
        notes: what the reader must know of what was tried, a sentence each.
    """

    attempts: tuple[Attempt, ...]
    chosen: Attempt
    asked: Choice
    gain_s: float | None
    cost_s: float
    runs_to_pay: int | None
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> Attempt:
        """The one that the models predict to be the fastest."""
        return self.attempts[0]


def check_tryable(kernel: str) -> None:
    """Raise UsageError for a kernel that has no schedules to build and run: a matrix kernel's variants are libraries."""
    if kernel not in PROBLEMS:
        raise UsageError(
            f"trying is for Halide's schedules ({', '.join(PROBLEMS)}), and kernel {kernel!r} has none; "
            "a matrix kernel's libraries are timed by: workbench measure matrix"
        )


def try_variants(selector: Selector, inputs: Mapping[str, Number], count: int = 5, *, pin: Sequence[int] | None = None, seed: int = 0) -> Trial:
    """Build, check and time some schedules on this machine's CPU, chosen one after another (`tries`), let the fastest take turns, and take the fastest.

    They are timed by the policy of `workbench measure halide`, in a child process that is started again after a crash or a hang, and the output of every one
    is compared with numpy's. One that fails is an attempt with its status, and is never chosen. Models of another machine's CPU are asked only where there are
    none of this one's, and a note says so; models of a GPU never.

    Args:
        selector: of blur or fft.
        inputs: the kernel's parameters.
        count: how many to try; all where there are fewer.
        pin: CPUs to run on, () for all of them. None is the last ones that this process may use, one for each thread of a schedule. Variants of more threads
            than there are CPUs to run on are left out.
        seed: of the image's numbers.

    Raises:
        UsageError: another kernel, a parameter or CPU that cannot be used, a count below 1, or no model of a schedule that can run here.
        MissingPackage: Halide is not installed.
        WorkbenchError: none of them runs here (the message says how they failed), or the child process does not start.
    """
    kernel = selector.kernel.name
    check_tryable(kernel)
    if count < 1:
        raise UsageError(f"{count} schedules to try; 1 is the least")
    here, notes = _here(selector, len(set(pin)) if pin else usable_cpus())
    asked = here.select(inputs)
    start = time.perf_counter()
    with _Series(kernel, int(inputs["n"]), pin, seed) as series:
        attempts = list(_tried(here, inputs, count, seed, series))
        last = finalists([attempt.measured_s for attempt in attempts])
        for place, turns_s in zip(last, series.turns([attempts[place].variant for place in last]), strict=True):
            attempts[place] = replace(attempts[place], turns_s=turns_s)
    cost_s = time.perf_counter() - start
    if not last:
        failed = ", ".join(f"{number} {status}" for status, number in Counter(str(attempt.status) for attempt in attempts).most_common())
        raise WorkbenchError(
            f"{kernel} n={inputs['n']}: none of the {len(attempts)} schedules that were tried runs here ({failed}; the first: "
            f"{attempts[0].error}), so none is chosen; try more of them, or measure some with: workbench measure halide --kernel {kernel} --n {inputs['n']}"
        )
    chosen = min((attempts[place] for place in last), key=lambda attempt: attempt.least_s or math.inf)
    first, least = attempts[0].least_s, chosen.least_s
    # The first choice may have been measured once, by luck below the chosen one's turns.
    gain = None if first is None or least is None else max(0.0, first - least)
    return Trial(tuple(attempts), chosen, asked, gain, cost_s, math.ceil(cost_s / gain) if gain else None, (*notes, *series.notes))


def _here(selector: Selector, most: int) -> tuple[Selector, list[str]]:
    """The selector with what can run on `most` CPUs of this machine, and notes: on whose measurements it was trained, and what was left out."""
    device = cpu().name
    runnable = [source for source in selector.sources if source.device.kind == "cpu" and source.space == SPACE]
    if not runnable:
        names = ", ".join(source.data_set for source in selector.sources)
        raise UsageError(f"none of the models is of schedules on a CPU ({names}); trying needs such a one")
    own = [source for source in runnable if source.device.name == device]
    notes = []
    if not own:
        trained = ", ".join(sorted({source.device.name for source in runnable}))
        notes.append(
            f"The models were trained elsewhere, on measurements of {trained}, and this machine is {device}: their order is a guess here, so try more."
        )
    kept = replace(selector, sources=tuple(own or runnable))
    restricted = kept.at_most(most)
    if gone := [source.data_set for source in kept.sources if source.data_set not in {left.data_set for left in restricted.sources}]:
        notes.append(f"Schedules of more threads than the {most} CPU{'s' if most != 1 else ''} to run on were left out: {', '.join(gone)}.")
    return restricted, notes


class _Series:
    """The child processes of a trial, one a number of threads, which stay until its end.

    Args:
        kernel: blur or fft.
        n: its size.
        pin: CPUs to run on, None for the last ones.
        seed: of the image's numbers.
    """

    def __init__(self, kernel: str, n: int, pin: Sequence[int] | None, seed: int) -> None:
        self.notes: list[str] = []
        self._opening = kernel, n, pin, seed
        self._runners: dict[int, Runner] = {}
        self._stack = ExitStack()
        self._best_s: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def measure(self, variant: Variant) -> Measurement:
        """Build it, compare its output with numpy's, and time it."""
        runner, index = self._ask(variant)
        runner.best_s = self._best_s  # what is hopeless is so beside the best of all
        (found,) = runner.measure([index])
        self._best_s = runner.best_s
        return found

    def turns(self, variants: Sequence[Variant]) -> list[tuple[float, ...]]:
        """Seconds of each one's turns. Those of one number of threads take turns; none are taken, and a note says why, where one of them fails now."""
        if len(variants) < 2:  # nothing to decide
            return [()] * len(variants)
        found: dict[int, tuple[float, ...]] = {}
        asked = [self._ask(variant) for variant in variants]
        for runner in dict.fromkeys(runner for runner, _ in asked):
            places = [place for place, (own, _) in enumerate(asked) if own is runner]
            try:
                found |= zip(places, map(tuple, runner.race([asked[place][1] for place in places], TURNS)), strict=True)
            except WorkbenchError as failure:
                self.notes.append(f"The fastest were measured once: {failure}")
                return [()] * len(variants)
        return [found[place] for place in range(len(variants))]

    def _ask(self, variant: Variant) -> tuple[Runner, int]:
        threads = variant.threads or 1
        if threads not in self._runners:
            kernel, n, pin, seed = self._opening
            cpus = last_cpus(threads) if pin is None else pin
            self._runners[threads] = self._stack.enter_context(open_series(halide_workload(kernel, n, threads), seed=seed, pin=cpus, check_share=1.0))
        runner = self._runners[threads]
        return runner, runner.space.index(variant.schedule)


def _tried(selector: Selector, inputs: Mapping[str, Number], count: int, seed: int, series: _Series) -> Iterator[Attempt]:
    """An attempt at each schedule, as they are chosen."""
    device = cpu().name
    tries = _tries(selector, inputs, count, seed)
    while len(tries) < count and (pick := tries.next()) is not None:
        variant = _variant(selector, pick.key)
        found = series.measure(variant)
        tries.tell(pick.key, found.time_s)
        yield Attempt(replace(variant, device=device), pick.predicted_s, pick.by, found.status, found.time_s, found.compile_s, found.error)


# A source by its place, and the values of its knobs.
_Schedule = tuple[int, tuple[Number, ...]]


def _variant(selector: Selector, key: _Schedule) -> Variant:
    source = selector.sources[key[0]]
    return source.variant(dict(zip(source.knobs, key[1], strict=True)))


def _tries(selector: Selector, inputs: Mapping[str, Number], count: int, seed: int) -> Tries[_Schedule]:
    """The selector's ranking, and a process for each source that keeps what was measured."""
    places = {source.data_set: place for place, source in enumerate(selector.sources)}

    def key(variant: Variant) -> _Schedule:
        place = places[variant.data_set]
        return place, tuple(variant.schedule.get(name, variant.threads or 1) for name in selector.sources[place].knobs)

    ranked = [(key(variant), seconds) for variant, seconds in selector.ranking(inputs, count)]
    groups = []
    for place, source in enumerate(selector.sources):
        if count > 1 and (data := source.measurements(selector.kernel)) is not None:
            workload = selector.kernel.workload(inputs)
            space = selector.kernel.space(workload, source.space)
            known = [dict(zip(source.knobs, values, strict=True)) for (at, values), _ in ranked if at == place]
            known += [{str(name): value for name, value in row.items()} for row in data.frame[list(source.knobs)].to_dict("records")]
            indices = {index: None for config in known if (index := index_in(space, config)) is not None}
            indices |= dict.fromkeys(_some(space, seed).tolist())
            frame = pd.DataFrame(space.decode(np.array(list(indices)))).assign(**inputs)
            keys = [(place, values) for values in zip(*(frame[name].tolist() for name in source.knobs), strict=True)]
            groups.append(Group(keys, fit_process((data, np.arange(len(data.frame))), seed).ask(frame)))
    return Tries(ranked, groups)


def _some(space: Space, seed: int) -> NDArray[Any]:
    """Indices of all schedules of a space, or of as many by chance as a process is asked of."""
    if space.size > ENUMERATED:
        return space.sample(_LOOKED_AT, seed)
    members = space.members(ENUMERATED)
    return members if len(members) <= _LOOKED_AT else np.random.default_rng(seed).choice(members, _LOOKED_AT, replace=False)
