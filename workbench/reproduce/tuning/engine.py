"""Many sessions on a cache: each is a file that is written whole, so that a run that was killed goes on where it was, and several runs share what they find.

What a report once computed may be kept for good (`archive`), and is not computed again while the code of its framework and its data stay what they were.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import workbench
from workbench.errors import DataError, UsageError
from workbench.locks import locked
from workbench.models.surrogate import Surrogate
from workbench.paths import project_root
from workbench.reproduce.outputs import write_json
from workbench.reproduce.tuning import archive
from workbench.reproduce.tuning.contenders import contender
from workbench.reproduce.tuning.experiments import Experiment, Split
from workbench.reproduce.tuning.sessions import SAMPLES, Session, Settings, run_session
from workbench.tune.code import code_digest
from workbench.tune.frameworks import Framework
from workbench.tune.portfolio import Portfolio

__all__ = ["Cell", "Lookup", "kept_sessions", "run_experiment"]

_VERSION = 1
# What can change a session's numbers beside what proposes: these, and importers, which are imported by name. Who learns from whom is in a session's record.
_CODE = (
    *(Path(__file__).with_name(f"{name}.py") for name in ("sessions", "pools", "contenders")),
    *sorted(Path(workbench.__file__).parent.joinpath("data").glob("*.py")),
)

Lookup = Callable[[str], Framework]


@dataclass(frozen=True)
class Cell:
    """A session in an experiment.

    Attributes:
        experiment, framework, task, seed: which.
        development: whether choices may be made on the task.
        budget: trials that the session could have.
        session: what came of it.
    """

    experiment: str
    framework: str
    task: str
    seed: int
    development: bool
    budget: int
    session: Session


@dataclass(frozen=True)
class _Job:
    # Sessions whose surrogate learns from the same history with the same seed, so that it is fitted once.
    source: Callable[[], Experiment]
    lookup: Lookup
    folder: Path
    frameworks: tuple[str, ...]
    history: tuple[str, ...]
    tasks: tuple[str, ...]
    seed: int
    settings: Settings

    @property
    def lock(self) -> Path:
        text = json.dumps([self.frameworks, self.history, self.seed, asdict(self.settings)])
        return self.folder / f".{hashlib.sha256(text.encode()).hexdigest()[:24]}.lock"


def run_experiment(
    experiment: Experiment,
    frameworks: Sequence[str],
    seeds: Sequence[int],
    *,
    tasks: Sequence[str] | None = None,
    trials: int | None = None,
    batch: int | None = None,
    samples: Sequence[int] = SAMPLES,
    workers: int = 2,
    cache: Path | None = None,
    lookup: Lookup = contender,
) -> list[Cell]:
    """Every framework tunes every task with every seed; what the cache has is not run again.

    Args:
        experiment: with its data within reach.
        frameworks: names.
        seeds: of the sessions.
        tasks: names of those to tune; None is all.
        trials: at most, of a session; None is the experiment's.
        batch: trials a round; None is the experiment's.
        samples: see `Settings`.
        workers: processes; 1 runs everything in this one.
        cache: folder of the cache; None is runs/cache/tuning in the checkout, and what the archive has counts too.
        lookup: framework of a name.

    Returns:
        Cells by framework, task and seed, in the orders given.

    Raises:
        UsageError: no such task or framework, or an experiment without data, or one whose sessions were recorded.
    """
    if experiment.reason:
        raise UsageError(f"experiment {experiment.name}: {experiment.reason}")
    if experiment.recorded:
        raise UsageError(f"experiment {experiment.name}: its sessions were recorded, and only what they asked for is known: take them as they are")
    splits = {split.target.name: split for split in experiment.splits}
    chosen = list(splits) if tasks is None else list(tasks)
    for name in chosen:
        if name not in splits:
            raise UsageError(f"experiment {experiment.name} has no task {name!r}; there are {', '.join(splits)}")
    folder = (cache or _cache()) / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    known = archive.read(experiment.name) if cache is None else {}
    of_task = {task: Settings(_at_most(experiment.budget(splits[task].target), trials), batch or experiment.batch, tuple(samples)) for task in chosen}
    jobs: dict[tuple[str, ...], _Job] = {}
    found: dict[tuple[str, str, int], Session] = {}
    for name in frameworks:
        one = lookup(name)
        for task in chosen:
            settings = of_task[task]
            for seed in seeds:
                path = _path(folder, experiment, one, splits[task], seed, settings)
                cached = _read(path) or known.get(path.stem)
                if cached is not None:
                    found[name, task, seed] = cached
                    continue
                history = tuple(pool.name for pool in splits[task].history) if one.transfers else ()
                key = (repr(one.surrogate()), *history, str(seed), repr(settings))
                job = jobs.get(key) or _Job(experiment.source, lookup, folder, (), history, (), seed, settings)
                jobs[key] = _with(job, name, task)
    for done in _work_off(list(jobs.values()), workers):
        found.update(done)
    return [
        Cell(experiment.name, name, task, seed, splits[task].target.development, of_task[task].trials, found[name, task, seed])
        for name in frameworks
        for task in chosen
        for seed in seeds
    ]


def kept_sessions(
    experiment: Experiment, frameworks: Sequence[str], seeds: Sequence[int] = range(3), lookup: Lookup = contender
) -> dict[str, tuple[str, str, int, Session]]:
    """The sessions of a report that the cache or the archive has and that today's code would run: key -> framework, task, seed, session."""
    folder, known = _cache() / experiment.name, archive.read(experiment.name)
    found = {}
    for one in map(lookup, frameworks):
        for split in experiment.splits:
            task = split.target.name
            settings = Settings(experiment.budget(split.target), experiment.batch)
            for seed in seeds:
                path = _path(folder, experiment, one, split, seed, settings)
                session = _read(path) or known.get(path.stem)
                if session is not None:
                    found[path.stem] = one.name, task, seed, session
    return found


def _cache() -> Path:
    return project_root() / "runs" / "cache" / "tuning"


def _at_most(budget: int, trials: int | None) -> int:
    return budget if trials is None else min(budget, trials)


def _with(job: _Job, framework: str, task: str) -> _Job:
    return _Job(
        job.source,
        job.lookup,
        job.folder,
        tuple(dict.fromkeys((*job.frameworks, framework))),
        job.history,
        tuple(dict.fromkeys((*job.tasks, task))),
        job.seed,
        job.settings,
    )


def _work_off(jobs: Sequence[_Job], workers: int) -> Iterator[dict[tuple[str, str, int], Session]]:
    from tqdm.auto import tqdm

    if not jobs:
        return
    bar = tqdm(total=sum(len(job.frameworks) * len(job.tasks) for job in jobs), desc=jobs[0].folder.name, unit="session", disable=None)
    with contextlib.closing(bar):
        for done in _one_by_one(jobs) if workers <= 1 else _in_processes(jobs, workers):
            bar.update(len(done))
            yield done


# What another run has at hand comes last: by then it is likely done.


def _one_by_one(jobs: Sequence[_Job]) -> Iterator[dict[tuple[str, str, int], Session]]:
    left = []
    for job in jobs:
        done = _run_job(job, patient=False)
        if done is None:
            left.append(job)
        else:
            yield done
    for job in left:
        done = _run_job(job, patient=True)
        assert done is not None
        yield done


def _in_processes(jobs: Sequence[_Job], workers: int) -> Iterator[dict[tuple[str, str, int], Session]]:
    # A fork would take over locks of threads that XGBoost and PyTorch keep.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent) as pool:
        try:
            at_hand: dict[Future[dict[tuple[str, str, int], Session] | None], _Job] = {pool.submit(_run_job, job, False): job for job in jobs}
            while at_hand:
                for future in wait(at_hand, return_when=FIRST_COMPLETED).done:
                    job, done = at_hand.pop(future), future.result()
                    if done is None:
                        at_hand[pool.submit(_run_job, job, True)] = job
                    else:
                        yield done
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_with_parent() -> None:
    # A worker whose parent was killed would wait for work for ever.
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_job(job: _Job, patient: bool) -> dict[tuple[str, str, int], Session] | None:
    """Sessions of a job, None where another process is at it and this one is not to wait."""
    experiment = _made(job.source)
    splits = {split.target.name: split for split in experiment.splits}
    found: dict[tuple[str, str, int], Session] = {}
    with locked(job.lock, "which sessions are being computed", wait=patient) as mine:
        if not mine:
            return None
        fitted: Surrogate | None = None
        fit_s, failed = None, ""
        for name in job.frameworks:
            one = job.lookup(name)
            for task in job.tasks:
                split = splits[task]
                path = _path(job.folder, experiment, one, split, job.seed, job.settings)
                session = _read(path)
                if session is None:
                    if fitted is None and not failed:
                        began = time.perf_counter()
                        try:
                            fitted = one.fit([pool.measured for pool in split.history] if one.transfers else [], job.seed)
                        except (UsageError, DataError) as error:
                            failed = str(error)
                        fit_s = time.perf_counter() - began if one.transfers else None
                    session = Session.none(failed) if fitted is None else _tuned(one, fitted, fit_s, split, job, experiment)
                    write_json(path, session.to_json())
                found[name, task, job.seed] = session
    return found


def _tuned(one: Framework, fitted: Surrogate, fit_s: float | None, split: Split, job: _Job, experiment: Experiment) -> Session:
    target = split.target
    try:
        return run_session(one, fitted, fit_s, target.measured, target.name, job.seed, job.settings, ranking_only=not experiment.exhaustive)
    except UsageError as error:
        return Session.none(str(error))


def _path(folder: Path, experiment: Experiment, framework: Framework, split: Split, seed: int, settings: Settings) -> Path:
    target = split.target
    # Where all rank one pool, a model's own search is Portfolio.
    parts = type(framework.surrogate()), type(framework.search()), Portfolio
    record = {
        "version": _VERSION,
        "code": code_digest(*_CODE, parts=parts),
        "framework": framework.name,
        "task": target.name,
        "seed": seed,
        "settings": asdict(settings),
        "exhaustive": experiment.exhaustive,
        "history": [pool.name for pool in split.history],
        "data": {pool.data_set: list(pool.sha256) for pool in (target, *split.history)},
    }
    return folder / f"{hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:32]}.json"


def _read(path: Path) -> Session | None:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Session.from_json(record)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        path.unlink(missing_ok=True)  # damaged from outside: our own writing leaves a whole file or none
        return None


@functools.cache
def _made(source: Callable[[], Experiment]) -> Experiment:
    return source()
