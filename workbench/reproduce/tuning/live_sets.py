"""Live comparisons as data sets: their measurements, with the sessions that asked for them beside, and those sessions once more with the data set answering."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.data import local
from workbench.data.datasets import Dataset, checksums, load_dataset
from workbench.data.store import Store
from workbench.errors import DataError, UsageError
from workbench.features.tasks import MeasuredTask, tasks_of
from workbench.measure.export import SESSIONS, check_name, write_sets
from workbench.measure.replay import Replay
from workbench.measure.series import Series, series_of
from workbench.models.surrogate import Surrogate
from workbench.reproduce.convolutions import name_of
from workbench.reproduce.tuning.live import PHASES, STORE, Comparison, learnt_from, plan_of, results_of, tuned_device, tuned_task
from workbench.reproduce.tuning.sessions import Session
from workbench.reproduce.tuning.work import Work
from workbench.tune.code import code_digest
from workbench.tune.frameworks import Framework, framework
from workbench.tune.loop import Budget
from workbench.tune.results import Result

__all__ = ["PREFIX", "Live", "Replayed", "export", "load_live", "replay", "session_of"]

PREFIX = "tuning-"

_NOTES = (
    "Configurations are those that tuners asked for, no random sample of the space: nothing is to be learnt from them as from one, and an audit of them says "
    "nothing. The output of each was compared with numpy's.",
    f"{SESSIONS} has a row a tuning, in the order of seed, framework and layer: `index` are its trials in order, `round` and `predicted` belong to them, and "
    "`search_s` ... `run_s` to its rounds. `data` are the data sets that cost models learnt from, with the checksums of their files.",
)


@dataclass(frozen=True, eq=False)
class Live:
    """A live comparison as it was recorded.

    Attributes:
        dataset: the measurements.
        tables: of each layer, by its name such as "resnet-18 2".
        sessions: a row a session: framework, network, layer, task, seed, trials, batch, threads, history, data, fit_s, why, created, code, index,
            predicted, round, search_s, model_s, build_s, run_s.
    """

    dataset: Dataset
    tables: dict[str, MeasuredTask]
    sessions: pd.DataFrame

    @property
    def network(self) -> str:
        """Whose layers were tuned."""
        return str(self.sessions["network"].iloc[0])

    @property
    def complete_seeds(self) -> list[int]:
        """Seeds with which every framework has tuned every layer: what a comparison rests on where the recording was cut short."""
        wanted = self.sessions["framework"].nunique() * self.sessions["task"].nunique()
        count = self.sessions.groupby("seed").size()
        return [int(seed) for seed in count.index[count == wanted]]

    @property
    def data(self) -> dict[str, list[str]]:
        """Data set that was learnt from -> checksums of its files."""
        found: dict[str, list[str]] = {}
        for entry in self.sessions["data"].iloc[0]:
            name, *sums = str(entry).split()
            found[name] = sums
        return found


@dataclass(frozen=True)
class Replayed:
    """A session once more, with the data set answering.

    Attributes:
        task, framework, seed: which.
        fault: what was different, "" where every trial, in order, and what the cost model said of it are the same to the last bit.
        seconds: that it took.
    """

    task: str
    framework: str
    seed: int
    fault: str
    seconds: float


def export(folder: Path, name: str, root: Path, *, notes: Sequence[str] = (), replace: bool = False) -> dict[str, int]:
    """Write what `live.run` left in a folder as the data set `root/tuning-<name>-<network>-<kernel>`.

    Args:
        folder: with store and sessions, of which some may be missing.
        name: of the machine, such as "genoa".
        root, notes, replace: see `workbench.measure.export.export`.

    Returns:
        Name of the data set -> its number of rows.

    Raises:
        UsageError: nothing to export, or a name that cannot be used.
        DataError: a session that cannot be read, or trials of one that the store does not have.
        StoreError: the store cannot be read, or the folder cannot be written.
    """
    plan, results = plan_of(folder), results_of(folder)
    if not results:
        raise UsageError(f"{folder}: it has no whole session; `workbench measure tuning` makes them")
    network = str(plan["network"])
    check_name(f"{PREFIX}{name}-{network}")
    with Store(folder / STORE) as store:
        series = series_of(store)
        known = {(row.workload.key, row.index) for row in store.rows()}
    for result in results:
        if missing := [index for index in result.outcome.trials.indices.tolist() if (result.workload, index) not in known]:
            raise DataError(
                f"{folder}: {result.task}, {result.framework}, seed {result.settings['seed']} has {len(missing)} trials that the store lacks, the first one "
                f"{missing[0]}: remove its file, and run `workbench measure tuning` again"
            )
    sessions = pd.DataFrame([_row(plan, result) for result in results])
    sessions = sessions.sort_values(["seed", "framework", "layer"], ignore_index=True)
    sets = {f"{PREFIX}{name}-{network}-{one.kernel}": _proposed(one, plan, sessions) for one in series}
    return write_sets(sets, root, notes=notes, replace=replace, sessions=sessions)


def load_live(name: str) -> Live:
    """A live comparison of a data set under data/raw.

    Raises:
        UsageError: no such data set, or one without sessions.
        DataError: damaged files, or a session with trials that were not measured.
    """
    dataset = load_dataset(name)
    folder = local.folders().get(name)
    header = None if folder is None else local.read_header(folder)
    if folder is None or header is None or not header["sessions"]:
        raise UsageError(f"data set {name!r} has no records of tunings; `workbench measure export-tuning` writes them")
    sessions = pd.concat([pd.read_parquet(folder / file) for file in header["sessions"]], ignore_index=True)
    tables = {name_of(table.task.workload): table for table in tasks_of(dataset)}
    for _, row in sessions.iterrows():
        known = tables.get(str(row["task"]))
        if known is None or not np.isin(np.asarray(row["index"]), known.indices).all():
            raise DataError(f"data set {name}: trials of {row['task']}, {row['framework']}, seed {row['seed']} are not among its rows; export it again")
    return Live(dataset, tables, sessions)


def replay(live: Live, frameworks: Sequence[str] = (), seeds: Sequence[int] = (), lookup: Callable[[str], Framework] = framework) -> Iterator[Replayed]:
    """Run sessions again: cost models learn again, searches go where they like, and the data set answers; nothing is measured.

    Args:
        live: the comparison.
        frameworks, seeds: which sessions; none are all.
        lookup: framework of a name.

    Raises:
        UsageError: a data set that was learnt from is not there, or is not what it was.
    """
    for name, sums in live.data.items():
        if sorted(checksums(name)) != sums:
            raise UsageError(f"data set {name} is not the one that {live.dataset.name} learnt from: restore the version with the files {', '.join(sums)}")
    chosen = live.sessions
    if frameworks:
        chosen = chosen[chosen["framework"].isin(frameworks)]
    if seeds:
        chosen = chosen[chosen["seed"].isin(seeds)]
    if chosen.empty:
        known = f"{', '.join(dict.fromkeys(live.sessions['framework']))} with seeds {', '.join(map(str, sorted(set(live.sessions['seed']))))}"
        raise UsageError(f"{live.dataset.name}: no such session; it has {known}")
    first = chosen.iloc[0]
    learnt = learnt_from(Comparison(str(first["network"]), tuple(int(layer) for layer in dict.fromkeys(chosen["layer"])), tuple(live.data)))
    fitted: dict[tuple[str, int], tuple[Surrogate, float]] = {}
    for row in chosen.sort_values(["seed", "framework", "layer"]).to_dict("records"):
        began, one, seed = time.perf_counter(), lookup(str(row["framework"])), int(row["seed"])
        fitted = {known: model for known, model in fitted.items() if known[1] == seed}  # those of a seed are done
        key = (repr(one.surrogate()) if one.transfers else one.name, seed)
        if key not in fitted:
            fitted[key] = one.fit([table for _, table in learnt] if one.transfers else [], seed), 0.0
        fault = _differs(live, row, one, fitted[key], learnt)
        if fault and row["code"] != code_digest():
            fault += " (spaces, features, models or searches are not of the code that ran it)"
        yield Replayed(str(row["task"]), one.name, seed, fault, time.perf_counter() - began)


def session_of(row: Mapping[str, Any], table: MeasuredTask) -> Session:
    """A recorded session as the experiments have them; nobody has judged its cost model on other rows.

    Args:
        row: of `Live.sessions`.
        table: of its layer. Labels are over the best that any session has measured of it.
    """
    place = {index: at for at, index in enumerate(table.indices.tolist())}
    rows = [place[index] for index in _numbers(row["index"], np.int64).tolist()]
    return Session(
        rows=rows,
        label=[round(float(value), 6) for value in table.label[rows]],
        predicted=[_plain(value) for value in _numbers(row["predicted"], np.float64)],
        round=[int(value) for value in row["round"]],
        seconds=[[_plain(value) for value in seconds] for seconds in np.stack([_numbers(row[phase], np.float64) for phase in PHASES], axis=1)],
        why=str(row["why"]),
        fit_s=float(row["fit_s"]) if len(row["history"]) else None,
        accuracy=[],
    )


def _differs(live: Live, row: Mapping[str, Any], one: Framework, fitted: tuple[Surrogate, float], learnt: tuple[tuple[str, MeasuredTask], ...]) -> str:
    task = tuned_task(str(row["network"]), int(row["layer"]), tuned_device(live.dataset.device, "", int(row["threads"])))
    work = Work(task.name, live.dataset.name, task, Replay(live.tables[task.name]), task.space, learnt)
    try:
        result = work.run(one, Budget(trials=int(row["trials"])), batch=int(row["batch"]), seed=int(row["seed"]), learnt=fitted)
    except DataError as error:
        return str(error)
    found, before = result.outcome.trials.indices, _numbers(row["index"], np.int64)
    if not np.array_equal(found, before):
        place = next((i for i, (a, b) in enumerate(zip(found, before, strict=False)) if a != b), min(len(found), len(before)))
        return f"trial {place + 1} is another one"
    if not np.array_equal(result.outcome.predicted, _numbers(row["predicted"], np.float64), equal_nan=True):
        return "the cost model says something else of the same trials"
    return ""


def _row(plan: Mapping[str, Any], result: Result) -> dict[str, Any]:
    outcome, settings = result.outcome, result.settings
    return {
        "framework": result.framework,
        "network": str(plan["network"]),
        "layer": int(result.task.rsplit(" ", 1)[1]),
        "task": result.task,
        "seed": int(settings["seed"] or 0),
        "trials": int(settings["trials"] or 0),
        "batch": int(settings["batch"] or 0),
        "threads": int(settings["threads"] or 0),
        "history": list(result.history),
        "data": [" ".join((name, *sums)) for name, sums in plan["history"].items()],
        "fit_s": result.fit_s,
        "why": outcome.why,
        "created": result.created,
        "code": result.code,
        "index": outcome.trials.indices,
        "predicted": outcome.predicted,
        "round": outcome.round,
        **dict(zip(PHASES, outcome.seconds.T.copy(), strict=True)),
    }


def _proposed(series: Series, plan: Mapping[str, Any], sessions: pd.DataFrame) -> Series:
    layers = " ".join(f"--layer {layer}" for layer in sorted(set(sessions["layer"])))
    frameworks = " ".join(f"--framework {name}" for name in dict.fromkeys(sessions["framework"]))
    pins = " ".join(series.provenance["command"].partition("--pin ")[1:])
    options = f"--network {plan['network']} {layers} {frameworks} --seeds {sessions['seed'].max() + 1} --trials {plan['trials']} --batch {plan['batch']}"
    command = f"workbench measure tuning {options} --threads {plan['threads']} {pins}".rstrip()
    return replace(series, command=command, notes=_NOTES)


def _plain(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def _numbers(values: Any, kind: type[Any]) -> NDArray[Any]:
    return np.array([np.nan if value is None else value for value in values], dtype=kind)
