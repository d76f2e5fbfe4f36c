"""Scorecard rows of MetaTune's claims and of our own targets, from the sessions of several experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from workbench.metrics import Interval
from workbench.reproduce import nnc
from workbench.reproduce.outputs import Outputs
from workbench.reproduce.tuning import comparisons
from workbench.reproduce.tuning.measures import curve
from workbench.reproduce.tuning.studies import Study

__all__ = [
    "META",
    "OURS",
    "View",
    "accuracy_rows",
    "amd_rows",
    "area_rows",
    "cross_rows",
    "error_rows",
    "gpu_rows",
    "merged",
    "performance_rows",
    "time_rows",
    "views",
]

OURS = "workbench"
META = ("meta-BO", "meta-BO-T", "meta-RL", "meta-RL-T")
_PERFORMANCE = {
    "metatune.figure06": ("meta-BO-T", "xgb"),
    "metatune.claim.over_xgb": ("meta-BO-T", "xgb"),
    "metatune.claim.over_rl": ("meta-BO-T", "RL"),
    "metatune.claim.meta_bo_over_xgb": ("meta-BO", "xgb"),
    "metatune.claim.meta_bo_over_rl": ("meta-BO", "RL"),
    "metatune.claim.supergraph": ("meta-BO-T", "meta-BO"),
    "metatune.claim.meta_rl_over_rl": ("meta-RL", "RL"),
    "metatune.claim.meta_rl_over_t": ("meta-RL", "meta-RL-T"),
}
_CROSS = {
    "metatune.figure07": ("meta-BO-T", "xgb"),
    "metatune.claim.titanxp_xgb": ("meta-BO-T", "xgb"),
    "metatune.claim.titanxp_xfer": ("meta-BO-T", "xgb-Xfer"),
    "metatune.claim.cross_platform": ("meta-BO-T", "xgb-Xfer"),
}
# What makes these is their search: where all frameworks rank one pool they are the framework of the same cost model under another name.
_SEARCHES = {"RL", "meta-RL", "meta-RL-T"}
_OTHERS = ("xgb", "RL", "meta-BO-T")  # in the paper's Table 3, beside meta-BO
_AMD = ("metatune.figure08", "metatune.claim.vega_alexnet", "metatune.claim.vega_resnet")


@dataclass(frozen=True, eq=False)
class View:
    """What rows are about: one experiment, or several that stand for one.

    Attributes:
        label: of the rows.
        studies: with data.
        reason: why there are no numbers, "" where there are.
        note: what is different from the paper's experiment.
    """

    label: str
    studies: tuple[Study, ...]
    reason: str = ""
    note: str = ""

    @property
    def title(self) -> str:
        """The label, and that frameworks rank one pool where they do."""
        return self.label if self.searched else f"{self.label} (ranking only)"

    @property
    def searched(self) -> bool:
        """Whether each proposal was answered, so that searches went where they liked."""
        return all(study.experiment.exhaustive for study in self.studies)

    @property
    def frame(self) -> pd.DataFrame:
        """Measures of all its sessions."""
        return pd.concat([study.measures for study in self.studies], ignore_index=True)

    @property
    def accuracies(self) -> pd.DataFrame:
        """Accuracies of all its sessions."""
        return pd.concat([study.accuracies for study in self.studies], ignore_index=True)

    def lacks(self, frameworks: Iterable[str]) -> str:
        """Why frameworks cannot be compared here, "" where they can."""
        if self.reason:
            return self.reason
        wanted = list(dict.fromkeys(frameworks))
        failed = {name: why for study in self.studies for name, why in study.failed.items() if name in wanted}
        if failed:
            name, why = next(iter(failed.items()))
            return f"{name} cannot tune here: {why}"
        absent = [name for name in wanted if not any(name in study.frameworks for study in self.studies)]
        return f"{' and '.join(absent)} did not run (profile or parameter)" if absent else ""

    def fields(self) -> dict[str, object]:
        """Fields of a row that do not depend on the claim."""
        tasks = sum(len(study.tasks) for study in self.studies)
        data_sets = list(dict.fromkeys(name for study in self.studies for name in study.experiment.data_sets))
        devices = list(dict.fromkeys(name for study in self.studies for name in study.devices))
        return {"label": self.label, "n_tasks": tasks, "data_sets": data_sets, "devices": devices, "note": self.note}


def views(studies: Mapping[str, Study], names: Sequence[str]) -> list[View]:
    """A view of each experiment named."""
    return [merged(studies, [name], studies[name].experiment.title) for name in names]


def merged(studies: Mapping[str, Study], names: Sequence[str], label: str) -> View:
    """One view of several experiments; those without data or sessions take no part."""
    chosen = [studies[name] for name in names]
    found = tuple(one for one in chosen if len(one.measures))
    reasons = [one.experiment.reason or f"none of the tasks of {one.experiment.title} was asked for" for one in chosen]
    return View(label, found, "" if found else "; ".join(dict.fromkeys(reasons)), chosen[0].experiment.note)


def performance_rows(out: Outputs, of: Sequence[View]) -> None:
    """Rows about what was found at the end of a session, and when xgb's best was reached."""
    _gains(out, of, _PERFORMANCE)
    for view in _with_data(of):
        _row(out, "metatune.claim.over_xfer", view, (*META, "xgb-Xfer"), _mean_of_meta)
        _row(out, "metatune.claim.xgb_best_reached", view, ("meta-BO-T", "xgb"), lambda view: _reached(view, "meta-BO-T", "xgb"), effect=False)


def area_rows(out: Outputs, of: Sequence[View]) -> None:
    """Rows about how early our framework finds fast code."""
    for view in of:
        for claim, rival in {"xgb": "xgb", "xfer": "xgb-Xfer", "shrunk": "xgb-Xfer-shrunk"}.items():
            _row(out, f"own.metatune.area_{claim}", view, (OURS, rival), partial(_area, rival=rival))
        _row(out, "own.metatune.trials90", view, (OURS, "xgb"), lambda view: comparisons.ratio(view.frame, OURS, "xgb", "trials90"), effect=False)


def cross_rows(out: Outputs, of: Sequence[View]) -> None:
    """Rows about tuning on a device that was not learnt from."""
    _gains(out, of, _CROSS)


def amd_rows(out: Outputs, reason: str, note: str) -> None:
    """Rows about AMD GPUs, on which no network was measured."""
    for claim in _AMD:
        out.row(claim, reason=reason, note=note)


def gpu_rows(out: Outputs, view: View) -> None:
    """Rows about Kernel Tuner's convolution on GPUs never trained on."""
    reason = view.lacks([OURS])
    for claim, column in {"own.metatune.gpus20": "best20", "own.metatune.gpus50": "best50"}.items():
        if not reason and view.frame[column].isna().all():
            reason = f"sessions of fewer than {column.removeprefix('best')} trials"
        if reason:
            out.row(claim, reason=reason, label=view.label)
            continue
        mine = view.frame[view.frame["framework"] == OURS].groupby("task", sort=False)[column].mean()
        note = ", ".join(f"{gpu} {value:.2f}" for gpu, value in mine.items())
        fields = {**view.fields(), "note": f"{note}; {view.note}"}
        if column == "best20":
            low, high = nnc.ends(level := comparisons.level(view.frame, OURS, column))
            out.row(claim, level.estimate, low, high, **fields)  # type: ignore[arg-type]
        else:
            out.row(claim, float(mine.min()), **fields)  # type: ignore[arg-type]


def error_rows(out: Outputs, of: Sequence[View], early: Callable[[View], pd.DataFrame]) -> None:
    """Rows about the error of cost models while they tune.

    Args:
        out: gets the rows.
        of: the experiments.
        early: frame with the columns experiment, framework, task, seed, mse of the first trials.
    """
    pair = ("meta-BO-T", "xgb")
    for view in of:
        _row(out, "metatune.table04", view, pair, lambda view: comparisons.difference(view.frame, "xgb", "meta-BO-T", "mse"))
    for view in _with_data(of):
        _row(out, "metatune.claim.mse_top", view, pair, lambda view: comparisons.difference(view.frame, "xgb", "meta-BO-T", "mse_top"))
        _row(out, "metatune.figure09", view, pair, lambda view: comparisons.difference(early(view), "xgb", "meta-BO-T", "mse"))


def accuracy_rows(out: Outputs, of: Sequence[View], aim: View) -> None:
    """Rows about our cost model after random samples.

    Args:
        out: gets the rows.
        of: the experiments for the comparisons.
        aim: the one of the aim.
    """
    rival = "xgb-Xfer-shrunk"
    for samples in (16, 64, 256):
        for view in _with_data(of):
            ranks = partial(_after, samples=samples, first=OURS, second=rival, column="spearman")
            errors = partial(_after, samples=samples, first=rival, second=OURS, column="mse")
            _row(out, f"own.metatune.rank{samples}", view, (OURS, rival), ranks)
            _row(out, f"own.metatune.mse{samples}", view, (OURS, rival), errors)
    _row(out, "own.metatune.rank_aim", aim, (OURS,), lambda view: comparisons.level(_at(view.accuracies, 64), OURS, "spearman"), effect=False)


def time_rows(out: Outputs, of: Sequence[View], minutes: Callable[[View], pd.DataFrame]) -> None:
    """Rows about the time that tuning takes.

    Args:
        out: gets the rows.
        of: the experiments.
        minutes: frame with the columns experiment, framework, task, seed and total.
    """
    for view in of:
        _row(out, "metatune.table03", view, ("meta-BO-T", "xgb"), lambda view: comparisons.ratio(minutes(view), "meta-BO-T", "xgb", "total"))
    for view in _with_data(of):
        _row(out, "metatune.claim.meta_bo_fastest", view, ("meta-BO", *_OTHERS), lambda view: _over_fastest(minutes(view)))


def _over_fastest(frame: pd.DataFrame) -> Interval:
    means = {name: float(frame.loc[frame["framework"] == name, "total"].mean()) for name in _OTHERS}
    return comparisons.ratio(frame, "meta-BO", min(means, key=lambda name: means[name]), "total")


def _after(view: View, samples: int, first: str, second: str, column: str) -> Interval:
    return comparisons.difference(_at(view.accuracies, samples), first, second, column)


def _with_data(of: Sequence[View]) -> Sequence[View]:
    # What is missing is said once, beside a table or figure, and not again beside every claim that has numbers from elsewhere.
    return [view for view in of if not view.reason] or of


def _gains(out: Outputs, of: Sequence[View], pairs: Mapping[str, tuple[str, str]]) -> None:
    for claim, (first, second) in pairs.items():
        for view in of if ".figure" in claim else _with_data(of):
            if not view.reason and not view.searched and {first, second} & _SEARCHES:
                out.row(claim, reason="ranking only: no search goes its way here, and RL ranks as xgb does", label=view.label)
            else:
                _row(out, claim, view, (first, second), partial(_gain, first=first, second=second))


def _gain(view: View, first: str, second: str) -> Interval:
    return comparisons.gain(view.frame, first, second)


def _area(view: View, rival: str) -> Interval:
    return comparisons.difference(view.frame, OURS, rival, "area")


def _row(out: Outputs, claim: str, view: View, needs: Sequence[str], compute: Callable[[View], Interval], effect: bool = True) -> None:
    reason = view.lacks(needs)
    found = None if reason else compute(view)
    if found is None or not np.isfinite(found.estimate):
        out.row(claim, reason=reason or "no session was long enough", label=view.label)
        return
    low, high = nnc.ends(found)
    if effect:
        out.row(claim, found.estimate, low, high, effect=found.estimate, effect_low=low, effect_high=high, **view.fields())  # type: ignore[arg-type]
    else:
        out.row(claim, found.estimate, low, high, **view.fields())  # type: ignore[arg-type]


def _mean_of_meta(view: View) -> Interval:
    keys = ["experiment", "task", "seed"]
    frame = view.frame
    mine = frame[frame["framework"].isin(META)]
    mean = np.exp(np.log(mine["final"].where(mine["final"] > 0)).groupby([mine[key] for key in keys]).mean()).reset_index()
    return comparisons.gain(pd.concat([frame, mean.assign(framework="all of them")], ignore_index=True), "all of them", "xgb-Xfer")


def _reached(view: View, framework: str, rival: str) -> Interval:
    # Percent of the budget after which a framework has what the rival has at the end, task by task and seed by seed.
    rows = []
    for study in view.studies:
        ends = {(cell.task, cell.seed): curve(cell.session, cell.budget)[-1] for cell in study.cells if cell.framework == rival}
        for cell in study.cells:
            if cell.framework == framework and (cell.task, cell.seed) in ends:
                reached = curve(cell.session, cell.budget) >= ends[cell.task, cell.seed]
                share = 100 * (int(reached.argmax()) + 1 if reached.any() else cell.budget) / cell.budget
                rows.append({"framework": framework, "task": f"{study.experiment.name} {cell.task}", "share": share})
    return comparisons.level(pd.DataFrame(rows), framework, "share")


def _at(accuracies: pd.DataFrame, samples: int) -> pd.DataFrame:
    return accuracies[accuracies["samples"] == samples]
