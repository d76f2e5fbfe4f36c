"""Is the schedule that a model chooses as fast as the best? Held out in two ways, and timed again in turns: the best of a long series may have been lucky.

- within a size: some schedules of a size train, and the model chooses among the others of that size;
- size left out: the schedules of the other sizes train, and the model chooses among all of the size that it has not seen.

What is chosen comes of a few that are tried one after another, each measured once, of which the fastest three then take turns, as `tune.trial` does; the
model's first choice, taken blindly, stands beside it. Chosen, best, random and the autoschedulers' schedules of a size then take turns of their own in one
process, so that what else the machine does meets all of them alike, and no turn that chose is one that judges.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
import pandas as pd

from workbench.data.datasets import Dataset
from workbench.errors import DataError
from workbench.features.inputs import with_complexity
from workbench.measure.halide import Candidate
from workbench.metrics import Interval, bootstrap_tasks
from workbench.metrics.checks import Floats
from workbench.models.base import CostModel, Recipe, Rows
from workbench.models.compact import CompactModel
from workbench.models.compiled import CompiledModel, compile_model
from workbench.models.process import Asked, fit_process
from workbench.tune.tries import TURNS, Group, Tries, finalists

__all__ = [
    "LEFT_OUT",
    "TRIED",
    "WAYS",
    "WITHIN",
    "Case",
    "Racer",
    "bars",
    "cases",
    "choose",
    "over_best",
    "ratio",
    "retime",
    "settle",
    "time_ratios",
    "trying_s",
]

WITHIN, LEFT_OUT = "within a size", "size left out"
WAYS = (WITHIN, LEFT_OUT)

# A time is the least of a third of the turns: as robust as the label of a series, and three of them show how far it can be trusted.
_PARTS = 3

# How many are tried. On series that the report does not judge (data/raw/halide-cpu-genoa-dev*, halide-cpu-emr*; 60% of the schedules, two draws) the chosen
# one's time over the best's, with a size left out, was 1.08 for Blur and 1.04 for FFT after 5 tries, 1.06 and 1.01 after 8, 1.04 and 1.01 after 12.
TRIED = 12


@dataclass(frozen=True)
class Case:
    """One choice that a model has to make: the rows that it learns from, and the rows, all of size n, that it chooses among."""

    way: str
    size: int
    split: int
    train: Rows
    candidates: Rows


class Racer(Protocol):
    """What times candidates in turns, such as a Runner of `measure.halide`."""

    def race(self, wanted: Sequence[Candidate], repeats: int = 15) -> list[list[float]]:
        """Seconds [candidates][repeats]."""


def cases(dataset: Dataset, *, train: int = 250, splits: int = 3, seed: int = 0) -> list[Case]:
    """The choices to make on a data set of schedules, by size.

    Args:
        dataset: schedules with times as rows, the size in column n.
        train: training rows within a size; at most 60% of the size's rows train.
        splits: random splits within a size. A size is left out once: nothing is drawn there.
        seed: of the splits.

    Raises:
        DataError: a size with fewer than four schedules.
    """
    sizes = dataset.frame["n"].to_numpy()
    found = []
    for n in map(int, np.unique(sizes)):
        rows, others = np.flatnonzero(sizes == n), np.flatnonzero(sizes != n)
        if len(rows) < 4:
            raise DataError(f"data set {dataset.name}: {len(rows)} schedules of n = {n} have a time; to train on some and choose among others takes four")
        count = min(train, int(0.6 * len(rows)))
        for split in range(splits):
            order = np.random.default_rng([seed, n, split]).permutation(rows)
            found.append(Case(WITHIN, n, split, order[:count], order[count:]))
        if len(others):
            found.append(Case(LEFT_OUT, n, 0, others, rows))
    return found


def choose(
    dataset: Dataset, recipes: Mapping[str, Recipe], wanted: Sequence[Case], seed: int = 0, *, tried: Mapping[str, tuple[str, int]] = MappingProxyType({})
) -> pd.DataFrame:
    """What the models of each case choose, beside the fastest candidate by its label and one drawn at random.

    A choice in `tried` is what trying some gives: of so many candidates that `tune.tries` chooses one after another, the first being the recipe's choice, those
    that took the least time when they were first measured (the first of `pass_s`; the label is the least of several passes, which who tries does not have), up
    to three (`finalists`), between which `settle` decides. A candidate whose first attempt failed is not chosen.

    Args:
        dataset: with the space's `index` of each schedule as a column.
        recipes: name of a choice -> recipe, fitted for each case by itself.
        wanted: from `cases`.
        seed: of the fits and of the random candidate.
        tried: name of a choice that tries some -> name of its recipe, and how many.

    Returns:
        A row a case and choice (the names of `recipes` and `tried`, "best", "random"), several of a choice that tries some, fastest first: way, size, split,
        choice, index, predicted_s (by the choice's own model, else by the first), measured_s (the label), candidates (how many), train_rows, training_s (from
        the training rows to the model, compiled where it is a single one).
    """
    full = with_complexity(dataset).frame
    measured, index = full["time_s"].to_numpy(dtype=float), full["index"].to_numpy()
    once = np.array([passes[0] for passes in full["pass_s"]]) if "pass_s" in full else measured
    once = np.where(np.isnan(once), np.inf, once)
    records = []
    for case in wanted:
        rows, labels, first = full.iloc[case.candidates], measured[case.candidates], once[case.candidates]
        fits = {name: _trained(recipe, dataset, case.train, seed) for name, recipe in recipes.items()}
        predicted = {name: model.predict_time_s(rows) for name, (model, _) in fits.items()}
        leading = next(iter(recipes))
        process = fit_process((dataset, case.train), seed) if tried else None
        orders = {
            recipe: _tried(predicted[recipe], process.ask(rows), first, max(count for by, count in tried.values() if by == recipe))
            for recipe in {by for by, _ in tried.values()}
            if process is not None
        }
        lasting = {name: _lasting(orders[recipe][:count], first) for name, (recipe, count) in tried.items()}
        picked = [(name, int(seconds.argmin())) for name, seconds in predicted.items()]
        picked += [(name, place) for name, places in lasting.items() for place in places]
        picked += [("best", int(labels.argmin())), ("random", int(np.random.default_rng([seed, case.size, case.split]).integers(len(case.candidates))))]
        for choice, place in picked:
            by = choice if choice in fits else tried.get(choice, (leading, 0))[0]
            row = case.candidates[place]
            records.append(
                {
                    "way": case.way,
                    "size": case.size,
                    "split": case.split,
                    "choice": choice,
                    "index": int(index[row]),
                    "predicted_s": float(predicted[by][place]),
                    "measured_s": float(measured[row]),
                    "candidates": len(case.candidates),
                    "train_rows": len(case.train),
                    "training_s": fits[by][1],
                }
            )
    return pd.DataFrame(records)


def _tried(predicted: Floats, asked: Asked, seconds: Floats, count: int) -> list[int]:
    """The places of `count` candidates in the order in which they are tried, fewer where there are no more."""
    order = np.argsort(predicted, kind="stable")[:count].tolist()
    tries: Tries[int] = Tries([(place, float(predicted[place])) for place in order], [Group(range(len(seconds)), asked)])
    found: list[int] = []
    while len(found) < count and (pick := tries.next()) is not None:
        found.append(pick.key)
        tries.tell(pick.key, float(seconds[pick.key]) if np.isfinite(seconds[pick.key]) else None)
    return found


def _lasting(order: list[int], seconds: Floats) -> list[int]:
    """The candidates between which turns decide; where all fail the first is left."""
    places = finalists([float(seconds[place]) if np.isfinite(seconds[place]) else None for place in order])
    return [order[place] for place in places] or order[:1]


def _trained(recipe: Recipe, dataset: Dataset, rows: Rows, seed: int) -> tuple[CostModel | CompiledModel, float]:
    start = time.perf_counter()
    model = recipe.fit([(dataset, rows)], seed)[0]
    ready = compile_model(model) if isinstance(model, CompactModel) else model
    return ready, time.perf_counter() - start


def settle(picks: pd.DataFrame, racer: Racer, repeats: int = TURNS) -> pd.DataFrame:
    """Where a choice has several schedules, let them take turns and keep the one with the least time.

    Choices between the same schedules share their turns.

    Args:
        picks: rows of `choose`, all of one size.
        racer: of that size.
        repeats: turns of each.

    Returns:
        A row a case and choice, with `settling_s`: wall seconds of the turns and of building what takes them, 0 where there was nothing to decide.

    Raises:
        WorkbenchError: a schedule that ran before does not run now.
    """
    settled: dict[frozenset[int], tuple[int, float]] = {}
    kept = []
    for _, rows in picks.groupby(["way", "size", "split", "choice"], sort=False):
        indices = list(map(int, rows["index"]))
        between = frozenset(indices)
        if len(indices) == 1:
            settled[between] = indices[0], 0.0
        elif between not in settled:
            start = time.perf_counter()
            least = [min(times) for times in racer.race(indices, repeats)]
            settled[between] = indices[least.index(min(least))], time.perf_counter() - start
        index, seconds = settled[between]
        kept.append(rows[rows["index"] == index].assign(settling_s=seconds))
    return pd.concat(kept, ignore_index=True)


def trying_s(dataset: Dataset, n: int) -> float:
    """Wall seconds to build, check and time `TRIED` schedules of size n: so many times the median from the start of one to that of the next; NaN for one.

    `timestamp` is the start of each one's first attempt, and in a series these follow each other.
    """
    starts = np.sort(dataset.frame.loc[dataset.frame["n"] == n, "timestamp"].to_numpy(dtype=float))
    return float(TRIED * np.median(np.diff(starts))) if len(starts) > 1 else float("nan")


def retime(picks: pd.DataFrame, racer: Racer, baselines: Sequence[str] = (), repeats: int = 15) -> pd.DataFrame:
    """Time the choices of one size again, each schedule once a turn, with the autoschedulers' beside them.

    Args:
        picks: rows of `settle`, all of one size.
        racer: of that size.
        baselines: autoschedulers that have a schedule for that size.
        repeats: turns.

    Returns:
        `picks` and a row a case and baseline, with `turns_s`: seconds [repeats] of the row's schedule. Rows of one schedule share its times.

    Raises:
        WorkbenchError: a schedule that ran before does not run now.
    """
    wanted: list[Candidate] = [*baselines, *dict.fromkeys(map(int, picks["index"]))]
    turns = {candidate: np.asarray(times) for candidate, times in zip(wanted, racer.race(wanted, repeats), strict=True)}
    own = picks.assign(turns_s=[turns[int(index)] for index in picks["index"]])
    cases = picks[["way", "size", "split"]].drop_duplicates()
    frames = [own.astype({"index": "Int64"})]
    frames += [cases.assign(choice=name, turns_s=[turns[name]] * len(cases)) for name in baselines]
    return pd.concat(frames, ignore_index=True).sort_values(["way", "size", "split"], kind="stable", ignore_index=True)


def time_ratios(retimed: pd.DataFrame, above: str, below: str) -> pd.DataFrame:
    """One choice's time over another's of the same case.

    Returns:
        A row a case that has both: way, size, split, and `ratios`: one of each third of the turns, of which the least time counts.
    """
    case = ["way", "size", "split"]
    first, second = (retimed.loc[retimed["choice"] == name, [*case, "turns_s"]] for name in (above, below))
    pairs = first.merge(second, on=case, suffixes=("", "_below"))
    return pairs[case].assign(ratios=[_least(a) / _least(b) for a, b in zip(pairs["turns_s"], pairs["turns_s_below"], strict=True)])


def over_best(retimed: pd.DataFrame) -> pd.Series:
    """Each row's least time over that of the best candidate of its case."""
    least = retimed["turns_s"].map(np.min)
    case = [retimed[name] for name in ("kernel", "way", "size", "split") if name in retimed.columns]
    return least / least.where(retimed["choice"] == "best").groupby(case).transform("max")


def ratio(retimed: pd.DataFrame, above: str, below: str) -> Interval:
    """Geometric mean of one choice's time over another's, with its 95% interval: sizes are drawn again, and splits and turns within them.

    Of a single size the interval says only how its splits and turns vary. Raises DataError where no case has both.
    """
    found = time_ratios(retimed, above, below)
    if found.empty:
        raise DataError(f"no size has both a schedule {above!r} and a schedule {below!r}")
    logs = [np.log(np.concatenate(list(group))) for _, group in found.groupby("size")["ratios"]]
    drawn = bootstrap_tasks(logs if len(logs) > 1 else [np.atleast_1d(value) for value in logs[0]])
    return Interval(*(float(np.exp(value)) for value in (drawn.estimate, drawn.low, drawn.high)))


def bars(retimed: pd.DataFrame, choices: Sequence[str], below: str = "best") -> pd.DataFrame:
    """Times over the best schedule's for `plots.schedule_bars`: size, choice, ratio (geometric mean over splits and turns), low and high (extremes)."""
    records = []
    for choice in choices:
        for size, group in time_ratios(retimed, choice, below).groupby("size")["ratios"]:
            found = np.concatenate(list(group))
            records.append((size, choice, float(np.exp(np.log(found).mean())), found.min(), found.max()))
    return pd.DataFrame(records, columns=["size", "choice", "ratio", "low", "high"])


def _least(turns: Floats) -> Floats:
    return np.array([part.min() for part in np.array_split(turns, min(_PARTS, len(turns)))])
