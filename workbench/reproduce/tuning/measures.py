"""What sessions achieved: a row of measures a session, curves, and the error of cost models round by round."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.metrics import area_under_curve, best_so_far, mse, mse_top, trials_to_target
from workbench.reproduce.tuning.engine import Cell
from workbench.reproduce.tuning.experiments import Experiment
from workbench.reproduce.tuning.pools import Pool
from workbench.reproduce.tuning.sessions import Session

__all__ = ["AREA_TRIALS", "CHECKPOINTS", "accuracies", "curve", "failures", "measures", "network_curves", "of_tasks", "round_errors"]

AREA_TRIALS = 128
CHECKPOINTS = (10, 20, 50, 100, 200)
_SHARE = 0.9  # of the best, for the trials that it takes
_PERTURBED = 32  # draws of the noise between repeats

Floats = NDArray[np.float64]


def curve(session: Session, budget: int) -> Floats:
    """Best so far over the best of the table after each of `budget` trials [budget]; a session that ended early keeps what it had."""
    found = best_so_far(session.label)[:budget]
    return np.concatenate([found, np.full(budget - len(found), found[-1])])


def failures(cells: Iterable[Cell]) -> dict[str, str]:
    """Framework -> why it could not tune a task."""
    return {cell.framework: cell.session.failed for cell in cells if cell.session.failed}


def measures(experiment: Experiment, cells: Iterable[Cell]) -> pd.DataFrame:
    """A row a session that could be run.

    Returns:
        Columns experiment, framework, task, family, development, seed and

        - area: mean of best so far over the first 128 trials, or over all of a shorter session;
        - trials90: trials to 90% of the best, at most the budget: the mean over draws of all recorded times as they differ between repeats, since which
          configuration was recorded as the best is partly luck;
        - best10 ... best200: best so far after so many trials, NaN beyond the budget;
        - final: at the end of the budget;
        - mse, mse_top: of what the cost model had said of trials, from the second round on, since in the first one without transfer knows nothing. True is
          throughput over the best so far with its round included, 0 for a failure; `mse_top` is over the fastest quarter of the valid trials. NaN without a
          model;
        - fit_s, search_s, model_s, build_s, run_s: seconds of the whole session, NaN where not recorded.
    """
    pools = {split.target.name: split.target for split in experiment.splits}
    noisy: dict[str, tuple[Floats, Floats]] = {}
    rows = []
    for cell in cells:
        session, pool = cell.session, pools[cell.task]
        if session.failed:
            continue
        budget = cell.budget
        reached = curve(session, budget)
        if cell.task not in noisy:
            noisy[cell.task] = _perturbed(pool)
        seconds = np.array([[np.nan if value is None else value for value in row] for row in session.seconds], dtype=np.float64)
        row: dict[str, object] = {"experiment": experiment.name, "framework": cell.framework, "task": cell.task, "family": pool.family}
        row |= {"development": cell.development, "seed": cell.seed}
        row["area"] = float(area_under_curve(reached, 1.0, min(AREA_TRIALS, budget)))
        row["trials90"] = _trials90(session, noisy[cell.task], budget)
        row |= {f"best{count}": float(reached[count - 1]) if count <= budget else np.nan for count in CHECKPOINTS}
        row["final"] = float(reached[-1])
        row["mse"], row["mse_top"] = _prequential(session)
        row["fit_s"] = np.nan if session.fit_s is None else session.fit_s
        row |= dict(zip(("search_s", "model_s", "build_s", "run_s"), (float(part.sum()) for part in seconds.T), strict=True))
        rows.append(row)
    return pd.DataFrame(rows)


def accuracies(experiment: Experiment, cells: Iterable[Cell]) -> pd.DataFrame:
    """A row a session and number of random samples: spearman, mse, mse_top on the held-out rows of the task, and update_s. See `Accuracy`."""
    families = {split.target.name: split.target.family for split in experiment.splits}
    rows = []
    for cell in cells:
        head: dict[str, object] = {"experiment": experiment.name, "framework": cell.framework, "task": cell.task, "family": families[cell.task]}
        head |= {"development": cell.development, "seed": cell.seed}
        for found in cell.session.accuracy:
            ranks = np.nan if found.spearman is None else found.spearman
            rows.append({**head, "samples": found.samples, "spearman": ranks, "mse": found.mse, "mse_top": found.mse_top, "update_s": found.update_s})
    columns = ["experiment", "framework", "task", "family", "development", "seed", "samples", "spearman", "mse", "mse_top", "update_s"]
    return pd.DataFrame(rows, columns=columns)


def round_errors(cells: Iterable[Cell]) -> pd.DataFrame:
    """A row a session and round: framework, task, seed, trials (at its end), and the mean squared error of what the cost model had said of its trials."""
    rows = []
    for cell in cells:
        true, predicted = _true_and_said(cell.session)
        rounds = np.array(cell.session.round)
        for number in np.unique(rounds):
            here = (rounds == number) & np.isfinite(predicted)
            if here.any():
                ends = int((rounds <= number).sum())
                rows.append((cell.framework, cell.task, cell.seed, ends, mse(true[here], predicted[here])))
    return pd.DataFrame(rows, columns=["framework", "task", "seed", "trials", "mse"])


def of_tasks(experiment: Experiment, which: str) -> list[str]:
    """Names of an experiment's tasks: those for reports, those for development, or all."""
    chosen = {"report": (False,), "development": (True,), "all": (False, True)}[which]
    return [split.target.name for split in experiment.splits if split.target.development in chosen]


def network_curves(experiment: Experiment, cells: Sequence[Cell]) -> dict[str, Floats]:
    """Throughput of a network in GFLOP/s over the trials of each of its layers, framework -> [seeds, the least budget].

    The network runs every layer as often as it has it; before each layer has a configuration that runs, its throughput is 0.
    """
    pools: Mapping[str, Pool] = {split.target.name: split.target for split in experiment.splits}
    budget = min((cell.budget for cell in cells), default=0)
    found: dict[str, Floats] = {}
    for framework in dict.fromkeys(cell.framework for cell in cells if not cell.session.failed):
        mine = [cell for cell in cells if cell.framework == framework]
        curves = []
        for seed in dict.fromkeys(cell.seed for cell in mine):
            time_s, work = np.zeros(budget), 0.0
            for cell in mine:
                if cell.seed == seed:
                    pool = pools[cell.task]
                    table = pool.measured
                    flop = table.task.kernel.flop
                    gflop = pool.count * (flop(table.task.workload.params) / 1e9 if flop else 1.0)
                    reached = curve(cell.session, budget) * table.best
                    work += gflop
                    time_s += np.divide(gflop, reached, out=np.full(budget, np.inf), where=reached > 0)
            curves.append(work / time_s)
        found[framework] = np.array(curves)
    return found


def _perturbed(pool: Pool) -> tuple[Floats, Floats]:
    # Throughput of every row of the table under draws of the noise [draws, rows], and the best of each draw [draws].
    label = pool.measured.label[None]
    if len(pool.spread):
        drawn = np.random.default_rng(zlib.crc32(pool.name.encode())).choice(pool.spread, size=(_PERTURBED, len(pool.measured)))
        label = label * np.exp(-drawn)
    return label, label.max(axis=1)


def _trials90(session: Session, noisy: tuple[Floats, Floats], budget: int) -> float:
    label, best = noisy
    reached = best_so_far(label[:, session.rows[:budget]])
    return float(np.minimum(trials_to_target(reached, _SHARE * best), budget).mean())


def _true_and_said(session: Session) -> tuple[Floats, Floats]:
    label, rounds = np.array(session.label), np.array(session.round)
    if not len(label):
        return np.empty(0), np.empty(0)
    # The best so far at the end of each trial's round.
    best = best_so_far(label)[np.searchsorted(rounds, rounds, side="right") - 1]
    true = np.divide(label, best, out=np.zeros_like(label), where=best > 0)
    return true, np.array([np.nan if value is None else value for value in session.predicted], dtype=np.float64)


def _prequential(session: Session) -> tuple[float, float]:
    true, predicted = _true_and_said(session)
    judged = np.isfinite(predicted) & (np.array(session.round) > 0)
    if not judged.any():
        return np.nan, np.nan
    valid = judged & (true > 0)
    return mse(true[judged], predicted[judged]), mse_top(true[valid], predicted[valid]) if valid.any() else np.nan
