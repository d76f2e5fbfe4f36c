"""What the NN+C notebooks share: which data sets stand for which cell of the paper, how much each profile runs, and the statistics over tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from workbench.data.datasets import Dataset, load_dataset
from workbench.errors import DataError, MissingData, UsageError
from workbench.metrics import Interval, bootstrap_tasks
from workbench.models.base import CostModel, Recipe
from workbench.models.evaluate import fit_and_score, pass_floor, repeat_floor
from workbench.models.linear import Constant, LinearRegressionC
from workbench.models.nnc import LogNetwork, PaperNetwork
from workbench.models.trees import NonlinearRegressionC
from workbench.reproduce import own
from workbench.reproduce.claims import paper_table
from workbench.reproduce.outputs import Outputs

__all__ = [
    "COLUMNS",
    "DEVICES",
    "KERNELS",
    "PAPER_MODELS",
    "Counts",
    "aggregate_table",
    "compared",
    "counts",
    "difference",
    "ends",
    "error_table",
    "level",
    "load",
    "matrix_sets",
    "noise_floor",
    "ours_and_paper",
    "paper_recipes",
    "published",
    "ratio",
    "run",
    "task_of",
]

KERNELS = {"mm": "MM", "mv": "MV", "mc": "MC"}  # of which the authors published measurements
DEVICES = {"xeon": "Xeon", "i7": "I7", "i5": "I5", "tesla": "Tesla", "quadro": "Quadro"}
PAPER_MODELS = ("NN+C", "NN", "C", "LR+C", "NLR+C")
TABLES = {"mm": "VI", "mv": "VII", "mc": "VIII", "mp": "IX"}

# Columns of Tables VI to IX, and the device whose file stands for each. The authors published Eigen on the CPUs and one CUDA variant without saying which.
UNSTATED = "CUDA, variant not stated"
COLUMNS: Mapping[str, str | None] = {
    "Eigen Xeon": "xeon",
    "Eigen I7": "i7",
    "Eigen I5": "i5",
    "Boost Xeon": None,
    "Boost I7": None,
    "Boost I5": None,
    "CUDA global Tesla": None,
    "CUDA global Quadro": None,
    "CUDA shared Tesla": None,
    "CUDA shared Quadro": None,
    f"{UNSTATED}, Tesla": "tesla",
    f"{UNSTATED}, Quadro": "quadro",
}


@dataclass(frozen=True)
class Counts:
    """How much a profile runs: repeats under each protocol, and the share of the paper's epochs."""

    paper: int
    clean: int
    epochs: float


def counts(profile: str) -> Counts:
    """Counts of a profile. Raises UsageError for an unknown one."""
    try:
        return {"smoke": Counts(1, 1, 0.01), "standard": Counts(3, 5, 1.0), "paper": Counts(10, 10, 1.0)}[profile]
    except KeyError:
        raise UsageError(f"no profile {profile!r}; use smoke, standard or paper") from None


def matrix_sets(size: int = 500) -> list[str]:
    """Names of the fifteen matrix sets of one size."""
    return [f"nnc-{kernel}-{device}-{size}" for kernel in KERNELS for device in DEVICES]


def load(names: Iterable[str], out: Outputs) -> list[Dataset]:
    """The data sets that are within reach; the others are recorded in `out` with the way to get them."""
    found = []
    for name in names:
        try:
            found.append(out.uses(load_dataset(name)))
        except MissingData as error:
            out.missing(name, error)
    return found


def paper_recipes(epochs: float = 1.0) -> list[Recipe]:
    """The paper's five models as published."""
    return [PaperNetwork(True, epochs_scale=epochs), PaperNetwork(False, epochs_scale=epochs), Constant(), LinearRegressionC(), NonlinearRegressionC()]


def clean_recipes(epochs: float = 1.0) -> list[Recipe]:
    """The paper's five models, and NN+C and NN on logarithms."""
    return [*paper_recipes(epochs), LogNetwork(True), LogNetwork(False)]


def run(datasets: Sequence[Dataset], recipes: Sequence[Recipe], **options: Any) -> tuple[pd.DataFrame, dict[str, list[CostModel]]]:
    """`fit_and_score` of several recipes in one frame, and the models by recipe name."""
    frames, models = [], {}
    for recipe in recipes:
        frame, models[recipe.name] = fit_and_score(datasets, recipe, **options)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True), models


def published(data_set: str) -> bool:
    """Whether a matrix set is of the authors, not measured with this package."""
    return data_set.startswith("nnc-")


def short(data_set: str) -> str:
    """Device of a matrix set of the authors ("nnc-mm-i5-500" is of the "i5"), library and machine of one of our own ("Eigen Emerald Rapids")."""
    return data_set.split("-")[2] if published(data_set) else own.title(data_set)


def task_of(data_set: str) -> str:
    """Task that a matrix set counts for: kernel and device of the authors', kernel and library of our own.

    Tesla and Quadro are one: their files hold the same inputs and nearly the same times.
    """
    if not published(data_set):
        _, kernel, library = own.parts(data_set)
        return f"{kernel} {library}"
    kernel, device = data_set.split("-")[1:3]
    return f"{kernel} {'gpu' if device in ('tesla', 'quadro') else device}"


def _nested(scores: pd.DataFrame, column: str) -> list[np.ndarray]:
    return [group[column].to_numpy(dtype=float) for _, group in scores.groupby(scores["data_set"].map(task_of), sort=True)]


def _interval(values: list[np.ndarray]) -> Interval:
    if len(values) >= 2:
        return bootstrap_tasks(values)
    estimate = float(np.mean(values[0])) if values else float("nan")
    return Interval(estimate, float("nan"), float("nan"))


def level(scores: pd.DataFrame, model: str, column: str = "mape") -> Interval:
    """Mean over tasks of a model's score with its 95% interval (NaN ends for a single task); tasks are drawn, repeats are nested in them."""
    return _interval(_nested(scores[scores["model"] == model], column))


def _paired(scores: pd.DataFrame, first: str, second: str, column: str) -> pd.DataFrame:
    wide = scores[scores["model"].isin([first, second])].pivot(index=["data_set", "repeat"], columns="model", values=column).dropna()
    return wide.reset_index()


def difference(scores: pd.DataFrame, worse: str, better: str, column: str = "mape") -> Interval:
    """Mean over tasks of score(worse) - score(better), paired by data set and repeat, with its 95% interval."""
    wide = _paired(scores, worse, better, column)
    return _interval(_nested(wide.assign(effect=wide[worse] - wide[better]), "effect"))


def ratio(scores: pd.DataFrame, above: str, below: str, column: str = "mape") -> Interval:
    """Geometric mean over tasks of score(above) / score(below), paired, with its 95% interval."""
    wide = _paired(scores, above, below, column)
    found = _interval(_nested(wide.assign(effect=np.log(wide[above] / wide[below])), "effect"))
    return Interval(float(np.exp(found.estimate)), float(np.exp(found.low)), float(np.exp(found.high)))


def ends(interval: Interval) -> tuple[float | None, float | None]:
    """Ends of an interval for the scorecard, None where it has none."""
    return (interval.low, interval.high) if np.isfinite([interval.low, interval.high]).all() else (None, None)


def error_table(kernel: str, by_protocol: Mapping[str, pd.DataFrame], models: Sequence[str], own_sets: Sequence[str] = ()) -> pd.DataFrame:
    """A table like the paper's VI to IX: a row a model and source, a column an implementation and device.

    Args:
        kernel: "mm", "mv", "mc" or "mp".
        by_protocol: source -> scores, such as "ours, paper protocol" -> frame of `fit_and_score`.
        models: names in the order of the rows.
        own_sets: names of the sets measured with this package, which get columns of their own.

    Returns:
        Text cells: the mean of the repeats in percent, the paper's number, or why a cell is empty.
    """
    paper = paper_table(TABLES[kernel])
    ours = list(dict.fromkeys(own.title(name) for name in own_sets))
    # A column -> what `short` makes of its sets' names, and what stands there without any.
    columns: dict[str, tuple[str | None, str]] = {
        c: (d, "never published" if d is None or kernel not in KERNELS else "out of reach") for c, d in COLUMNS.items()
    }
    columns |= {column: (column, "not measured") for column in ours}
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for model in models:
        if model in paper.index:
            cells = paper.loc[model]
            rows[model, "paper"] = {c: ("not in the paper" if c not in cells else "not legible" if np.isnan(cells[c]) else f"{cells[c]:g}") for c in columns}
        for source, scores in by_protocol.items():
            part = scores[(scores["kernel"] == kernel) & (scores["model"] == model)]
            means = part.groupby(part["data_set"].map(short))["mape"].mean() if len(part) else pd.Series(dtype=float)
            if len(means):
                rows[model, source] = {c: f"{means[d]:.1f}" if d in means else empty for c, (d, empty) in columns.items()}
    for source, scores in by_protocol.items():
        if not (scores["kernel"] == kernel).any():
            rows["all models", source] = {c: empty for c, (_, empty) in columns.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(columns))
    table.index = pd.MultiIndex.from_tuples(rows, names=["model", "MAPE [%]"])
    return table


def ours_and_paper(kernel: str, scores: pd.DataFrame) -> pd.DataFrame:
    """Mean, least and largest error over repeats by device and model, with the paper's numbers of the same library, for `plots.error_bars`."""
    paper = paper_table(TABLES[kernel])
    part = scores[scores["kernel"] == kernel]
    places = part["data_set"].map(short)
    records = []
    for place in [*DEVICES, *dict.fromkeys(p for p in places if p not in DEVICES)]:
        label = DEVICES.get(place, place.replace(" ", "\n"))
        # Which CUDA variant the authors' GPU files are of is not known: the mean of the two is the mark.
        columns = [f"Eigen {label}"] if f"Eigen {label}" in paper.columns else [f"CUDA global {label}", f"CUDA shared {label}"]
        for model in dict.fromkeys(scores["model"]):
            errors = part[(part["model"] == model) & (places == place)]["mape"]
            if errors.empty:
                continue
            marked = place in DEVICES and model in paper.index
            mark = float(paper.loc[model, columns].mean(skipna=False)) if marked else float("nan")
            records.append({"group": label, "model": model, "value": errors.mean(), "low": errors.min(), "high": errors.max(), "paper": mark})
    return pd.DataFrame(records, columns=["group", "model", "value", "low", "high", "paper"])


def aggregate_table(by_source: Mapping[str, pd.DataFrame], models: Sequence[str] = ("NN+C", "NN")) -> pd.DataFrame:
    """A table like the paper's X: mean error by kernel and by kind of device, a mean over tasks; a row a model and source.

    Args:
        by_source: source -> scores, all from the authors' sets or all from our own.
        models: names in the order of the rows.
    """
    groups = {**{title: ("kernel", kernel) for kernel, title in own.TITLES.items()}, "CPU": ("kind", "cpu"), "GPU": ("kind", "gpu")}
    printed = paper_table("X")
    rows = []
    for model in models:
        rows.append({"model": model, "source": "paper", **{group: f"{value:g}" for group, value in printed.loc[model].items()}})
        for source, scores in by_source.items():
            theirs = scores["data_set"].map(published).all()
            cells = {}
            for group, (column, value) in groups.items():
                part = scores[scores[column] == value]
                empty = "not measured" if not theirs else "never published" if group not in [*KERNELS.values(), "CPU", "GPU"] else "out of reach"
                cells[group] = f"{level(part, model).estimate:.1f}" if len(part) else empty
            rows.append({"model": model, "source": source, **cells})
    return pd.DataFrame(rows).set_index(["model", "source"])


def compared(dataset: Dataset, model: CostModel) -> pd.DataFrame:
    """Measured and predicted seconds of the test rows of the paper's protocol, for `plots.prediction_panels`; `size` is the side of A, the root of mn.

    A logarithmic axis shows no time at or below zero: such a prediction counts as a tenth of the least time.
    """
    frame = dataset.valid.iloc[250:]
    predicted = np.maximum(model.predict_time_s(frame), frame["time_s"].min() / 10)
    return pd.DataFrame({"size": np.sqrt(frame["m"] * frame["n"]), "measured": frame["time_s"], "predicted": predicted})


def noise_floor(dataset: Dataset) -> tuple[float, str]:
    """MAPE in percent that noise alone costs on a matrix set of 500 rows (NaN where it cannot be told), and that in words, or why not.

    The authors measured many inputs again in their 5,000-row files; ours are measured in several passes.
    """
    try:
        if published(dataset.name):
            kernel, device = dataset.name.split("-")[1:3]
            if kernel == "mm" and device in ("i5", "i7", "xeon"):
                return float("nan"), "the two files are of different builds"
            value, count = repeat_floor(dataset, load_dataset(dataset.name.replace("-500", "-5000")))
        else:
            value, count = pass_floor(dataset)
    except MissingData:
        return float("nan"), "out of reach"
    except DataError:
        return float("nan"), "no repeats"
    return value, f"{value:.1f} ({count} pairs)"
