"""What a notebook runs: how much a profile asks for, the experiments within reach, and their sessions as frames."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from workbench.data.datasets import load_dataset
from workbench.errors import UsageError
from workbench.measure.host import cpu_identity
from workbench.paths import project_root
from workbench.reproduce.outputs import Outputs
from workbench.reproduce.tuning.contenders import contender, contenders
from workbench.reproduce.tuning.engine import Cell, Lookup, run_experiment
from workbench.reproduce.tuning.experiments import EXPERIMENTS, Experiment
from workbench.reproduce.tuning.measures import AREA_TRIALS, accuracies, failures, measures, of_tasks
from workbench.reproduce.tuning.sessions import SAMPLES

__all__ = ["Plan", "Study", "plan", "run_studies", "timed_cache", "timed_plan"]


@dataclass(frozen=True)
class Plan:
    """How much is run.

    Attributes:
        frameworks: names.
        seeds: of the sessions.
        tasks: of each experiment at most; None is all.
        trials: of a session at most; None is the experiment's.
        samples: see `Settings`.
        workers: processes.
    """

    frameworks: tuple[str, ...]
    seeds: tuple[int, ...]
    tasks: int | None
    trials: int | None
    samples: tuple[int, ...]
    workers: int


@dataclass(frozen=True, eq=False)
class Study:
    """An experiment and its sessions; without any where its data are out of reach.

    Attributes:
        experiment: see `Experiment`.
        cells: the sessions.
        measures: of `measures`.
        accuracies: of `accuracies`.
        failed: framework -> why it could not tune the tasks.
    """

    experiment: Experiment
    cells: tuple[Cell, ...]
    measures: pd.DataFrame
    accuracies: pd.DataFrame
    failed: Mapping[str, str]

    @property
    def frameworks(self) -> list[str]:
        """Those with sessions, in the order of the plan."""
        return [] if self.measures.empty else list(dict.fromkeys(self.measures["framework"]))

    @property
    def tasks(self) -> list[str]:
        """Those tuned."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    @property
    def devices(self) -> list[str]:
        """Devices of the tasks tuned."""
        tuned = set(self.tasks)
        return list(dict.fromkeys(split.target.device for split in self.experiment.splits if split.target.name in tuned))


def plan(profile: str, seed: int = 0, frameworks: Sequence[str] = (), workers: int = 0, seeds: int = 0) -> Plan:
    """What a profile runs: "smoke" two frameworks on two tasks an experiment, "standard" every framework on two, once, "paper" on all tasks with three seeds.

    Args:
        profile: name.
        seed: the first of the seeds.
        frameworks: names; none are the profile's.
        workers: processes; 0 is the profile's.
        seeds: how many; 0 is the profile's.

    Raises:
        UsageError: an unknown profile or framework.
    """
    every = tuple(contenders())
    known = {
        "smoke": Plan(tuple(name for name in ("random", "xgb") if name in every), (seed,), 2, 48, SAMPLES[:2], 1),
        "standard": Plan(every, (seed,), 2, AREA_TRIALS, SAMPLES, 2),
        "paper": Plan(every, tuple(range(seed, seed + 3)), None, None, SAMPLES, 2),
    }
    if profile not in known:
        raise UsageError(f"no profile {profile!r}; use one of {', '.join(known)}")
    chosen, named = known[profile], tuple(contender(name).name for name in frameworks)
    many = tuple(range(seed, seed + seeds)) or chosen.seeds
    return replace(chosen, frameworks=named or chosen.frameworks, seeds=many, workers=workers or chosen.workers)


def timed_plan(profile: str, seed: int = 0, frameworks: Sequence[str] = (), seeds: int = 0) -> Plan:
    """`plan` for sessions whose times count: one process, nothing but the sessions, and two seeds at most."""
    found = plan(profile, seed, frameworks, workers=1, seeds=seeds)
    return replace(found, seeds=found.seeds[:2], samples=())


def timed_cache() -> Path:
    """Cache of sessions whose times count: they hold for one CPU."""
    cpu = hashlib.sha256(cpu_identity().encode()).hexdigest()[:12]
    return project_root() / "runs" / "cache" / f"tuning-timed-{cpu}"


def run_studies(names: Sequence[str], how: Plan, which: str, out: Outputs, cache: Path | None = None, lookup: Lookup = contender) -> dict[str, Study]:
    """Sessions of several experiments by name.

    Args:
        names: of the experiments.
        how: how much.
        which: "report", "development" or "all" tasks. An experiment without any of them takes part with none; in a plan of few tasks it takes others instead,
            since such a plan only shows that everything runs. One that was recorded takes part with all tasks and seeds that it has.
        out: records data sets, what is missing, and seeds.
        cache, lookup: see `run_experiment`.
    """
    found = {}
    out.seeds(how.seeds)
    for name in names:
        experiment = EXPERIMENTS[name]()
        for data_set, reason in experiment.missing.items():
            out.missing(data_set, reason)
        if experiment.reason:
            found[name] = Study(experiment, (), pd.DataFrame(), accuracies(experiment, []), {})
            continue
        for data_set in experiment.data_sets:
            out.uses(load_dataset(data_set))
        tasks = of_tasks(experiment, which)
        if experiment.recorded:  # run long ago, so that a plan has nothing to save
            cells = [
                Cell(name, framework, task, seed, False, experiment.trials, session)
                for framework in how.frameworks
                for (tuner, task, seed), session in experiment.recorded.items()
                if tuner == framework and task in tasks
            ]
            found[name] = Study(experiment, tuple(cells), measures(experiment, cells), accuracies(experiment, cells), failures(cells))
            continue
        if how.tasks is not None:
            tasks = (tasks or of_tasks(experiment, "all"))[: how.tasks]
        frameworks = [one for one in how.frameworks if one != "averages" or experiment.exhaustive]
        cells = run_experiment(
            experiment, frameworks, how.seeds, tasks=tasks, trials=how.trials, samples=how.samples, workers=how.workers, cache=cache, lookup=lookup
        )
        found[name] = Study(experiment, tuple(cells), measures(experiment, cells), accuracies(experiment, cells), failures(cells))
    return found
