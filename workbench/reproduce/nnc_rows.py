"""Scorecard rows of NN+C's claims about errors and chosen schedules: the same rows from the authors' measurements and from our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from workbench.data.datasets import Dataset
from workbench.metrics import Interval, bootstrap_tasks, mape
from workbench.models.base import CostModel
from workbench.reproduce import nnc, own, schedules
from workbench.reproduce.outputs import Outputs

__all__ = [
    "ERROR_CLAIMS",
    "RANK_CLAIMS",
    "THIRTY_CLAIMS",
    "error_rows",
    "fastest_rows",
    "measured_rows",
    "rank_rows",
    "size_rows",
    "speed_up_row",
    "thirty_percent_rows",
]

_NUMBERS = {"mm": "06", "mv": "07", "mc": "08", "mp": "09"}

# Claims that `error_rows` and `thirty_percent_rows` give rows for, so that a run without the authors' files can say of each that it could not be tested.
ERROR_CLAIMS = (
    *("nnc.table06", "nnc.table07", "nnc.table08", "nnc.table10"),
    *("nnc.claim.nn_margin", "nnc.claim.nlrc_margin", "nnc.claim.mm_half", "nnc.claim.gpu_average", "nnc.claim.cpu_average"),
    *("nnc.claim.lowest_everywhere", "nnc.claim.beats_nn_everywhere", "nnc.claim.ranking", "nnc.claim.abstract_mape"),
)
RANK_CLAIMS = ("nnc.table12", "nnc.claim.rank_majority", "nnc.figure04")
_GPU_PARTS = ("lowest30", "highest70", "overall")
THIRTY_CLAIMS = ("nnc.claim.low30_runtime", "nnc.claim.low30_mape", *(f"nnc.claim.mc_gpu_{part}" for part in _GPU_PARTS))


def error_rows(out: Outputs, scores: pd.DataFrame, label: str, of_tables: str, of_means: str) -> None:
    """Rows for the tables of errors and the claims about them.

    Args:
        out: gets the rows.
        scores: of the paper's five models, as `fit_and_score` gives them; all from the authors' sets, or all from our own.
        label: of the rows, such as "clean protocol".
        of_tables, of_means: what is different from the paper's sets, for the notes on its tables and on means over them.
    """

    def shared(part: pd.DataFrame) -> dict[str, object]:
        sets = list(dict.fromkeys(part["data_set"]))
        devices = sorted(part["device"].unique())
        return {"label": label, "n_tasks": len({nnc.task_of(name) for name in sets}), "data_sets": sets, "devices": devices}

    for kernel, number in _NUMBERS.items():
        part = scores[scores["kernel"] == kernel]
        if len(part):
            note = f"NN+C {nnc.level(part, 'NN+C').estimate:.1f}%; {of_tables}"
            _effect(out, f"nnc.table{number}", nnc.difference(part, "NN", "NN+C"), note=note, unit="points", **shared(part))
    for claim, worse in {"nnc.table10": "NN", "nnc.claim.nn_margin": "NN", "nnc.claim.nlrc_margin": "NLR+C"}.items():
        _effect(out, claim, nnc.difference(scores, worse, "NN+C"), note=of_means, **shared(scores))
    if len(mm := scores[scores["kernel"] == "mm"]):
        _effect(out, "nnc.claim.mm_half", nnc.ratio(mm, "NN", "NN+C"), **shared(mm))
    for kind in ("gpu", "cpu"):
        if len(part := scores[scores["kind"] == kind]):
            _level(out, f"nnc.claim.{kind}_average", nnc.level(part, "NN+C"), **shared(part))
    means = scores[scores["model"].isin(nnc.PAPER_MODELS)].groupby(["data_set", "model"])["mape"].mean().unstack()
    wins = {"nnc.claim.lowest_everywhere": means["NN+C"] <= means.min(axis=1) + 1e-9, "nnc.claim.beats_nn_everywhere": means["NN+C"] < means["NN"]}
    for claim, won in wins.items():
        shares = pd.DataFrame({"data_set": won.index, "model": "share", "repeat": 0, "mape": 100.0 * won.to_numpy()})
        note = f"{int(won.sum())} of {len(won)} sets; 48 combinations in the paper"
        _level(out, claim, nnc.level(shares, "share"), note=note, **shared(scores))
    averages = {model: nnc.level(scores, model).estimate for model in nnc.PAPER_MODELS}
    order = sorted(averages, key=lambda model: averages[model])
    note = "mean MAPE: " + ", ".join(f"{model} {averages[model]:.1f}" for model in order)
    out.row("nnc.claim.ranking", numbers={model: order.index(model) + 1 for model in order}, note=note, **shared(scores))  # type: ignore[arg-type]
    note = "the paper's NN+C; our own model stands in notebook nnc/compact"
    _level(out, "nnc.claim.abstract_mape", nnc.level(scores, "NN+C"), note=note, **shared(scores))


def fastest_rows(datasets: Sequence[Dataset], models: Sequence[CostModel], repeats: int) -> pd.DataFrame:
    """What the fastest 30% of the test rows have of time and error under the paper's protocol (NN+C, section IV-E).

    Args:
        datasets: with c.
        models: `repeats` of each data set, trained on its first 250 rows.

    Returns:
        A row a data set and repeat, in percent: time_share (average time over that of all), error_share (of the summed relative error), and the MAPE of the
        fastest 30% (lowest30), of the others (highest70) and of all (overall).
    """
    records = []
    for i, dataset in enumerate(datasets):
        frame = dataset.valid.iloc[250:].reset_index(drop=True)
        time = frame["time_s"].to_numpy(dtype=float)
        fast = time <= np.sort(time)[int(0.3 * len(time)) - 1]
        for repeat in range(repeats):
            predicted = models[i * repeats + repeat].predict_time_s(frame)
            relative = np.abs(time - predicted) / time
            records.append(
                {
                    "data_set": dataset.name,
                    "kernel": dataset.kernel.name,
                    "kind": dataset.device.kind,
                    "model": "NN+C",
                    "repeat": repeat,
                    "time_share": 100 * time[fast].mean() / time.mean(),
                    "error_share": 100 * relative[fast].sum() / relative.sum(),
                    "lowest30": 100 * relative[fast].mean(),
                    "highest70": mape(time, predicted),
                    "overall": 100 * relative.mean(),
                }
            )
    return pd.DataFrame(records)


def thirty_percent_rows(out: Outputs, fastest: pd.DataFrame, label: str) -> None:
    """Rows for the paper's 30% rule.

    Args:
        out: gets the rows.
        fastest: as `fastest_rows` gives it.
        label: of the rows.
    """
    sets = list(dict.fromkeys(fastest["data_set"]))
    tasks = len({nnc.task_of(name) for name in sets})
    for claim, column in {"nnc.claim.low30_runtime": "time_share", "nnc.claim.low30_mape": "error_share"}.items():
        _level(out, claim, nnc.level(fastest, "NN+C", column), label=label, n_tasks=tasks, data_sets=sets)
    convolutions = fastest[(fastest["kernel"] == "mc") & (fastest["kind"] == "gpu")]
    if len(convolutions):
        sets = sorted(convolutions["data_set"].unique())
        tasks = len({nnc.task_of(name) for name in sets})
        note = "range over repeats: the two GPU files count as one task" if tasks == 1 else "range over repeats and sets"
        for part in _GPU_PARTS:
            low, high = np.quantile(convolutions[part], [0.025, 0.975])
            found = Interval(float(convolutions[part].mean()), float(low), float(high))
            _level(out, f"nnc.claim.mc_gpu_{part}", found, label=label, n_tasks=tasks, data_sets=sets, note=note)


def rank_rows(out: Outputs, scores: pd.DataFrame, chosen: Mapping[str, pd.DataFrame], suffix: str) -> None:
    """Rows about how well schedules are ranked and chosen; tasks are data sets.

    Args:
        out: gets the rows.
        scores: of the paper's five models on at least two sets, under both protocols, with rank correlations.
        chosen: model -> `schedules.choices` of its clean runs, of all the sets.
        suffix: is added to the labels, such as ", laptop".
    """
    sets = list(dict.fromkeys(scores["data_set"]))
    common = {"n_tasks": len(sets), "data_sets": sets}
    for protocol in ("paper", "clean"):
        part = scores[(scores["protocol"] == protocol) & scores["model"].isin(nnc.PAPER_MODELS)]
        label = f"{protocol} protocol{suffix}"
        wide = part.pivot(index=["data_set", "repeat"], columns="model", values="spearman").reset_index()
        found = bootstrap_tasks([(group["NN+C"] - group["NN"]).to_numpy() for _, group in wide.groupby("data_set")])
        _effect(out, "nnc.table12", found, label=label, **common)
        best = part.groupby(["data_set", "model"])["spearman"].mean().unstack()
        highest = 100.0 * (best["NN+C"] >= best.max(axis=1).round(2) - 0.005)
        found = bootstrap_tasks(highest.to_numpy()[:, None])
        _level(out, "nnc.claim.rank_majority", found, label=label, note="ties to two decimals included", **common)
    for model, frame in chosen.items():
        close = schedules.gain(frame, "chosen", "best")
        note = f"chosen over best {close.estimate:.2f}"
        _effect(out, "nnc.figure04", schedules.gain(frame, "average", "chosen"), label=f"clean protocol, {model}{suffix}", note=note, **common)


def speed_up_row(out: Outputs, claim: str, chosen: pd.DataFrame, largest: bool, rows: int, note: str, *, above: str = "average", label: str = "") -> None:
    """A row about how many times as fast the chosen schedule is, at the size where it gains most or least, on one data set.

    Args:
        out: gets the row.
        claim: its claim.
        chosen: as `schedules.choices` gives it, of one data set.
        largest: the largest ratio over sizes, else the least.
        rows: of the data set; 250 of them train.
        note: for the reader; the ratio of each size is added to it.
        above: column of the schedule that is compared with.
        label: of the row.
    """
    found = schedules.extreme_gain(chosen, largest, 250, rows - 250, above)
    by_size = np.exp(np.log(chosen[above] / chosen["chosen"]).groupby(chosen["size"]).mean())
    note = f"{note}; by n: " + ", ".join(f"{n} {ratio:.2f}x" for n, ratio in by_size.dropna().items())
    _effect(out, claim, found, n_tasks=1, data_sets=list(dict.fromkeys(chosen["data_set"])), note=note, label=label)


def size_rows(out: Outputs, scores: pd.DataFrame, small: str, large: str, label: str, note: str) -> None:
    """Rows about lightweight and unconstrained models.

    Args:
        out: gets the rows.
        scores: of both models on the same test rows; all from the authors' sets, or all from our own.
        small, large: names of the lightweight and of the unconstrained model.
        label: of the rows.
        note: what is different from the paper's sets, for the means over all of them.
    """
    sets = list(dict.fromkeys(scores["data_set"]))
    common = {"label": label, "data_sets": sets, "n_tasks": len({nnc.task_of(name) for name in sets})}
    _effect(out, "nnc.figure03", nnc.difference(scores, small, large), **common)
    for claim, model in {"nnc.claim.light_average": small, "nnc.claim.unconstrained_average": large}.items():
        _level(out, claim, nnc.level(scores, model), note=note, **common)
    for (kernel, kind), part in scores.groupby(["kernel", "kind"], sort=False):
        effect = nnc.difference(part, small, large)
        of_part = sorted(part["data_set"].unique())
        alone = "" if nnc.ends(effect)[0] is not None else "one task (Tesla and Quadro files count as one): no interval over tasks"
        tasks = len({nnc.task_of(name) for name in of_part})
        _effect(out, f"nnc.claim.unconstrained_{kernel}_{kind}", effect, label=label, data_sets=of_part, n_tasks=tasks, note=alone)


def measured_rows(out: Outputs, scores: pd.DataFrame, datasets: Sequence[Dataset]) -> None:
    """Rows about our own model on kernels measured with this package: one a library, and their mean, with the noise floor in the note.

    One set is one task, so its row has no interval.

    Args:
        out: gets the rows; a kernel that did not run gets one that says so.
        scores: of our model on random splits of 250 training rows.
        datasets: the sets.
    """
    for kernel, title in own.TITLES.items():
        members = [dataset for dataset in datasets if dataset.kernel.name == kernel]
        if not members:
            out.row(f"own.measured.{kernel}", reason=f"no set of {title} measured with this package ran (parameter here, or profile smoke)")
            continue
        floors = {dataset.name: nnc.noise_floor(dataset) for dataset in members}
        for dataset in members:
            errors = scores.loc[scores["data_set"] == dataset.name, "mape"].to_numpy(dtype=float)
            note = f"noise floor [%]: {floors[dataset.name][1]}; splits {errors.min():.1f} to {errors.max():.1f}"
            out.row(f"own.measured.{kernel}", errors.mean(), label=own.title(dataset.name), data_sets=[dataset.name], n_tasks=1, note=note)
        if len(members) > 1:
            sets = [dataset.name for dataset in members]
            known = [floor for floor, _ in floors.values()]
            note = f"noise floor [%], mean: {np.mean(known):.1f}" if np.isfinite(known).all() else "noise floor: not known of all"
            label = f"mean, {own.machine(own.parts(sets[0])[0])}"
            part = scores[scores["data_set"].isin(sets)]
            _level(out, f"own.measured.{kernel}", nnc.level(part, "compact"), label=label, data_sets=sets, n_tasks=len(sets), note=note)


def _effect(out: Outputs, claim: str, found: Interval, **fields: object) -> None:
    low, high = nnc.ends(found)
    out.row(claim, found.estimate, low, high, effect=found.estimate, effect_low=low, effect_high=high, **fields)  # type: ignore[arg-type]


def _level(out: Outputs, claim: str, found: Interval, **fields: object) -> None:
    low, high = nnc.ends(found)
    out.row(claim, found.estimate, low, high, **fields)  # type: ignore[arg-type]
