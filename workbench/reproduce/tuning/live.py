"""Live comparison: every framework tunes some layers of a network, each proposal is measured, and all sessions share one store of measurements.

A session is a file that is written when it is whole, so that a run that was killed goes on where it was: the session that was cut short begins anew, and what
it had asked for is answered from the store. Several processes may work on one folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.data import local
from workbench.data.store import Store
from workbench.errors import DataError, StoreError, UsageError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.kernels import kernel, networks
from workbench.kernels.conv import CPU
from workbench.kernels.conv import KERNELS as CONVOLUTIONS
from workbench.locks import locked
from workbench.measure.replay import Cached
from workbench.measure.runner import Runner
from workbench.models.files import read_json, write_json
from workbench.models.surrogate import Surrogate
from workbench.paths import slug
from workbench.reproduce import own
from workbench.reproduce.tuning.work import Work, tables
from workbench.schema import Device, Measurement
from workbench.tune.code import code_digest
from workbench.tune.frameworks import FRAMEWORKS, Framework, framework
from workbench.tune.loop import Budget
from workbench.tune.results import Result, load_result, save_result

__all__ = [
    "LAYERS",
    "PHASES",
    "STORE",
    "Comparison",
    "Report",
    "learnt_from",
    "plan_of",
    "results_of",
    "run",
    "session_path",
    "training_sets",
    "tuned_device",
    "tuned_task",
]

# Of ResNet-18, one of each kind: the first layer (7 x 7, three channels), 3 x 3 with stride 1 on a large image, a shortcut (1 x 1), and 3 x 3 with stride 2
# on a small image with many channels. Every other layer is of one of the three last kinds, on another image.
LAYERS = (1, 2, 4, 9)
STORE = "measurements.db"
PHASES = ("search_s", "model_s", "build_s", "run_s")  # seconds of a round

_PLAN, _VERSION = "plan.json", 1
_SHOWS = "which sessions are at hand"  # what locks are for
_TRAINING = "conv-*-training-*"


@dataclass(frozen=True)
class Comparison:
    """Who tunes what, and how.

    Attributes:
        network, layers: whose convolutions, by number from 1.
        frameworks: names.
        seeds: of the sessions.
        trials, batch: measurements of a session, and of a round. AutoTVM measures 64 a round: of 192 trials that leaves two updates of the cost model that
            anything is chosen by; 16, as in the experiments on recorded tables, leave eleven.
        threads: of measured programs.
        history: data sets that cost models learn from.
    """

    network: str
    layers: tuple[int, ...]
    history: tuple[str, ...]
    frameworks: tuple[str, ...] = tuple(FRAMEWORKS)
    seeds: tuple[int, ...] = (0, 1, 2)
    trials: int = 192
    batch: int = 16
    threads: int = 1

    def __post_init__(self) -> None:
        for number in self.layers:
            networks.layer(self.network, number)
        for name, given in {"layers": self.layers, "frameworks": self.frameworks, "seeds": self.seeds, "history": self.history}.items():
            if not given or len(set(given)) < len(given):
                raise UsageError(f"a comparison with {name} {', '.join(map(str, given)) or 'none'}; give one or more, each once")


@dataclass(frozen=True)
class Report:
    """A session that is whole.

    Attributes:
        path: its file.
        result: what came of it.
        measured: how many of its trials were measured for it, the others being known.
        seconds: that it took.
        done, of: sessions that are whole, of all.
    """

    path: Path
    result: Result
    measured: int
    seconds: float
    done: int
    of: int


def training_sets(device: Device, processor: str) -> tuple[str, ...]:
    """Names of the data sets of training kernels that were measured on CPUs like this machine's.

    Args:
        device, processor: of `workbench.measure.host`.

    Raises:
        UsageError: there are none.
    """
    model = tuned_device(device, processor, 1).model
    headers = {name: local.read_header(folder) for name, folder in local.folders().items()}
    found = tuple(
        name
        for name in own.measured_sets(CONVOLUTIONS, [_TRAINING], "cpu")
        if (headers[name]["device"].name, headers[name]["device"].model) == (device.name, model)
    )
    if not found:
        raise UsageError(f"no data set {_TRAINING} under data/raw was measured on {model}; name those to learn from with --history")
    return found


def tuned_device(device: Device, processor: str, threads: int) -> Device:
    """The device that a cost model is told of: its model as data sets have it, and the threads that a program may use, however many CPUs the runner may use."""
    return replace(device, model=", ".join(filter(None, (device.model, processor))), max_threads=threads)


def tuned_task(network: str, number: int, device: Device) -> TuningTask:
    """A layer on a device that `tuned_device` gave."""
    workload = networks.layer(network, number).workload
    return TuningTask(f"{network} {number}", kernel(workload.kernel), workload, device, CPU)


def learnt_from(comparison: Comparison) -> tuple[tuple[str, MeasuredTask], ...]:
    """Name and table of what cost models learn from: the tasks of the data sets, without any layer of the network.

    Raises:
        UsageError: no such data set, or nothing is left to learn from.
        MissingData: the data set's files are out of reach.
    """
    of_network = {layer.workload for layer in networks.network(comparison.network)}
    known = [(f"{source}: {name}", table) for source in comparison.history for name, _, table in tables(source) if table.task.workload not in of_network]
    found = tuple((name, table) for name, table in known if table.task.space_name == CPU)
    if not found:
        raise UsageError(
            f"{', '.join(comparison.history)}: no measurements of the space {CPU!r} beside those of {comparison.network}; name others with --history"
        )
    return found


def session_path(folder: Path, task: str, framework: str, seed: int) -> Path:
    """File of a session."""
    return folder / "sessions" / f"{slug(f'{task} {framework} {seed}')}.json"


def plan_of(folder: Path) -> Mapping[str, Any]:
    """How the sessions of a folder are made: network, trials, batch, threads, history (data set -> checksums). Raises UsageError, DataError as `read_json`."""
    return read_json(folder / _PLAN, "it says how the sessions beside it are made: restore it, or use another folder")


def results_of(folder: Path) -> list[Result]:
    """The sessions of a folder that are whole. Raises DataError for a damaged one."""
    return [load_result(path) for path in sorted((folder / "sessions").glob("*.json"))]


def run(
    comparison: Comparison,
    folder: Path,
    open_runner: Callable[[networks.Layer], Runner[int]],
    *,
    processor: str = "",
    pin: Sequence[int] = (),
    on_session: Callable[[Report], None] | None = None,
    on_measurement: Callable[[Measurement], None] | None = None,
    lookup: Callable[[str], Framework] = framework,
    renew: bool = False,
) -> int:
    """Run the sessions that the folder does not have: all of the first seed, then all of the second, so that a run cut short compares everyone with everyone.

    A cost model is fitted once for a seed, and tunes all layers with each search that frameworks combine it with.

    Args:
        comparison: what is compared.
        folder: the store, the sessions and their locks are in it.
        open_runner: measures a layer; one is open at a time.
        processor: see `tuned_device`.
        pin: CPUs that are timed on. This process keeps off them but for measuring, where it may use others.
        on_session: called with each session once its file is written.
        on_measurement: called with each new measurement once it is on the disk.
        lookup: framework of a name.
        renew: whether sessions of other code than this are run again, since they may not come out the same; the store answers what they ask for as before.

    Returns:
        How many sessions of other code were kept.

    Raises:
        UsageError: the folder's sessions were made otherwise, or another process is at them and has no CPUs of its own to search on.
        StoreError: the folder cannot be used.
        WorkbenchError: measuring does not work, or a cost model cannot learn.
        KeyboardInterrupt: Ctrl-C; the session at hand is left out, its measurements are kept.
    """
    learnt = learnt_from(comparison)
    everywhere = os.sched_getaffinity(0) if pin else set()
    others = everywhere - set(pin)
    try:
        (folder / "sessions").mkdir(parents=True, exist_ok=True)
        (folder / "locks").mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made ({error.strerror or error}); choose another folder") from error
    with locked(folder / "locks" / "run.lock", _SHOWS, shared=bool(others), wait=False) as alone:
        if not alone:
            raise UsageError(
                f"{folder}: another process runs its sessions. Two at once need CPUs to search on that nothing is timed on: "
                "give both --pin, and more CPUs than that"
            )
        _claim(comparison, folder)
        jobs = _jobs(comparison, lookup)
        state = _State(comparison, folder, learnt, processor, others, everywhere, open_runner, on_session, on_measurement, lookup, renew)
        try:
            for patient in (False, True):  # what another process has at hand comes last: by then it is likely done
                left = []
                for job in jobs:
                    with locked(folder / "locks" / f"{job.lock}.lock", _SHOWS, wait=patient) as mine:
                        if mine:
                            state.work_off(job)
                        else:
                            left.append(job)
                jobs = left
        finally:
            if others:
                os.sched_setaffinity(0, everywhere)
        kept = [state.result(number, name, seed) for seed in comparison.seeds for name in comparison.frameworks for number in comparison.layers]
        return sum(one is not None and one.code != code_digest() for one in kept)


@dataclass(frozen=True)
class _Job:
    # Sessions of one fitted cost model.
    seed: int
    frameworks: tuple[str, ...]

    @property
    def lock(self) -> str:
        return hashlib.sha256(json.dumps([self.seed, self.frameworks]).encode()).hexdigest()[:24]


def _jobs(comparison: Comparison, lookup: Callable[[str], Framework]) -> list[_Job]:
    by_model: dict[str, list[str]] = {}
    for name in comparison.frameworks:
        one = lookup(name)
        by_model.setdefault(repr(one.surrogate()) if one.transfers else f"without history: {name}", []).append(name)
    return [_Job(seed, tuple(names)) for seed in comparison.seeds for names in by_model.values()]


@dataclass
class _State:
    comparison: Comparison
    folder: Path
    learnt: tuple[tuple[str, MeasuredTask], ...]
    processor: str
    others: set[int]
    everywhere: set[int]
    open_runner: Callable[[networks.Layer], Runner[int]]
    on_session: Callable[[Report], None] | None
    on_measurement: Callable[[Measurement], None] | None
    lookup: Callable[[str], Framework]
    renew: bool
    measured: int = 0

    def work_off(self, job: _Job) -> None:
        fitted: tuple[Surrogate, float] | None = None
        for number in self.comparison.layers:
            missing = [name for name in job.frameworks if self._wanted(number, name, job.seed)]
            if not missing:
                continue
            if fitted is None:
                fitted = self._fit(self.lookup(missing[0]), job.seed)
            with self._runner(number) as runner, Store(self.folder / STORE) as store:
                device = tuned_device(runner.device, self.processor, self.comparison.threads)
                task = tuned_task(self.comparison.network, number, device)
                work = Work(task.name, "llvm", task, Cached(store, runner, self._count), runner.space, self.learnt)
                for name in missing:
                    self._session(work, self.lookup(name), job.seed, fitted)

    def _session(self, work: Work, one: Framework, seed: int, fitted: tuple[Surrogate, float]) -> None:
        began, before, how = time.monotonic(), self.measured, self.comparison
        result = work.run(one, Budget(trials=how.trials), batch=how.batch, seed=seed, threads=how.threads, learnt=fitted)
        if result.outcome.why == "interrupted":  # half a session is none
            raise KeyboardInterrupt
        path = session_path(self.folder, work.name, one.name, seed)
        save_result(result, path)
        if self.on_session is not None:
            every = [session_path(self.folder, f"{how.network} {layer}", name, seed) for seed in how.seeds for name in how.frameworks for layer in how.layers]
            done = sum(path.exists() for path in every)
            self.on_session(Report(path, result, self.measured - before, time.monotonic() - began, done, len(every)))

    def _fit(self, one: Framework, seed: int) -> tuple[Surrogate, float]:
        if self.others:
            os.sched_setaffinity(0, self.others)
        began = time.perf_counter()
        return one.fit([table for _, table in self.learnt] if one.transfers else [], seed), time.perf_counter() - began

    @contextmanager
    def _runner(self, number: int) -> Iterator[Runner[int]]:
        if self.others:  # a runner builds on the CPUs that this process may use
            os.sched_setaffinity(0, self.everywhere)
        with self.open_runner(networks.layer(self.comparison.network, number)) as runner:
            if self.others:
                os.sched_setaffinity(0, self.others)
            yield runner

    def _wanted(self, number: int, name: str, seed: int) -> bool:
        found = self.result(number, name, seed)
        return found is None or (self.renew and found.code != code_digest())

    def result(self, number: int, name: str, seed: int) -> Result | None:
        path = session_path(self.folder, f"{self.comparison.network} {number}", name, seed)
        if not path.exists():
            return None
        try:
            return load_result(path)
        except DataError:
            path.unlink()  # damaged from outside: our own writing leaves a whole file or none, and the store answers all of it again
            return None

    def _count(self, measurement: Measurement) -> None:
        self.measured += 1
        if self.on_measurement is not None:
            self.on_measurement(measurement)


def _claim(comparison: Comparison, folder: Path) -> None:
    """Keep how the folder's sessions are made, or compare it with what is kept. Layers, frameworks and seeds may be added later."""
    known = local.folders()
    data = {name: sorted(local.read_header(known[name])["sha256"].values()) for name in sorted(comparison.history) if name in known}
    wanted = {
        "version": _VERSION,
        "network": comparison.network,
        "trials": comparison.trials,
        "batch": comparison.batch,
        "threads": comparison.threads,
        "history": data | {name: [] for name in comparison.history if name not in known},
    }
    path = folder / _PLAN
    with locked(folder / "locks" / "plan.lock", _SHOWS):
        if not path.exists():
            write_json(path, wanted, "the plan of the sessions")
        kept = plan_of(folder)
    for key, value in wanted.items():
        if kept.get(key) != value:
            raise UsageError(f"{path}: the folder's sessions have {key} {json.dumps(kept.get(key))}, these would have {json.dumps(value)}; use another folder")
