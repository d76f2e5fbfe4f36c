"""From data sets to a selector: 250 rows of each train a compact model, the other rows say how well it predicts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from workbench import __version__
from workbench.data.datasets import Dataset
from workbench.errors import DataError, UsageError
from workbench.features.inputs import with_complexity
from workbench.kernels.base import Kernel
from workbench.kernels.matrix import KERNELS, LIBRARIES
from workbench.kernels.matrix.cuda import VARIANTS
from workbench.metrics import mape
from workbench.models.base import CostModel, Recipe, Rows
from workbench.models.compact import CompactMatrix, CompactSchedule
from workbench.tune.selector import Selector, index_in
from workbench.tune.variants import Number, Source

__all__ = ["LEAST", "TRAIN", "recipe_of", "space_of", "train_selector"]

TRAIN = 250
# Fewer rows than this say nothing of a kernel; the models have up to 74 weights.
LEAST = 20
# Rows of a series of schedules that a selector keeps for who tries a few of them, at most.
KEPT = 2000
# What a matrix kernel is written in: a library, or CUDA in one of two ways.
_LIBRARIES = (*LIBRARIES, *VARIANTS)


def recipe_of(kernel: Kernel) -> Recipe:
    """The recipe that the models of a kernel are made by. Raises UsageError for a kernel that has none."""
    if kernel.name in KERNELS:
        return CompactMatrix()
    if kernel.complexity is not None and kernel.parameters == ("n",) and kernel.spaces:
        return CompactSchedule()
    raise UsageError(f"no variants of kernel {kernel.name!r} can be selected; it works for the matrix kernels {', '.join(KERNELS)}, and for blur and fft")


def space_of(kernel: Kernel, knobs: Sequence[str], named: str = "") -> str:
    """The space whose schedules a data set with these knobs holds: the one that its rows name, else the first with such knobs; "" for a kernel without.

    Raises UsageError if no space of the kernel has these knobs.
    """
    if not kernel.spaces:
        return ""
    # The knobs' names are the same for all sizes; 16 is a size of every Halide kernel.
    workload = kernel.workload(dict.fromkeys(kernel.parameters, 16))
    fitting = [name for name in kernel.spaces if set(kernel.space(workload, name).names) == set(knobs)]
    if not fitting:
        raise UsageError(f"no space of kernel {kernel.name!r} has the knobs {', '.join(knobs) or '(none)'}; its spaces are {', '.join(kernel.spaces)}")
    return named if named in fitting else fitting[0]


def train_selector(datasets: Sequence[Dataset], *, train: int = TRAIN, seed: int = 0) -> Selector:
    """Train a model on each data set and join them.

    A variant that several data sets of one device hold is answered by the one with most training rows of it (then the one whose rows were measured
    more often, then the first); data sets that are left with no variant train nothing. Rows that failed are left out. A source's own operation count is not
    used: inputs that are asked for have none.

    Args:
        datasets: of one kernel: matrix kernels, or Halide's blur and FFT.
        train: training rows of each data set; all rows where it has no more.
        seed: of the draw of the training rows and of the fit.

    Raises:
        UsageError: no data sets, several kernels, one without a recipe, or fewer training rows than LEAST asked for.
        DataError: too few valid rows, a knob that is not a number, or a parameter that the data do not have.
    """
    start = time.perf_counter()
    if not datasets:
        raise UsageError("no data sets to train on; `workbench data list` shows what there is")
    kernel = datasets[0].kernel
    if other := next((d for d in datasets if d.kernel.name != kernel.name), None):
        raise UsageError(f"data sets of two kernels, {kernel.name!r} ({datasets[0].name}) and {other.kernel.name!r} ({other.name}); a selector has one")
    if train < LEAST:
        raise UsageError(f"{train} training rows; use at least {LEAST}")
    recipe = recipe_of(kernel)
    parts, notes = _shared([_part(dataset, train, seed) for dataset in datasets])
    models = recipe.fit([(part.dataset, part.rows) for part in parts], seed)
    inputs = pd.concat([part.training[list(kernel.parameters)] for part in parts], ignore_index=True).drop_duplicates(ignore_index=True)
    sources = tuple(_source(part, model, inputs, type(recipe).__name__, seed) for part, model in zip(parts, models, strict=True))
    notes += [f"{s.data_set} has {s.rows} valid rows, fewer than the {train} asked for: all of them train." for s in sources if s.rows < train]
    if {source.device.kind for source in sources} > {"gpu"}:
        notes.append("Times of a GPU are of the kernel alone: what its inputs and its result take to be copied comes on top.")
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Selector(kernel, sources, created, __version__, time.perf_counter() - start, tuple(notes))


@dataclass(frozen=True)
class _Part:
    """A data set as it is trained on.

    Attributes:
        dataset: its valid rows, without an operation count of their own.
        rows: those that train.
        library, threads, space: as in `Source`.
        configs: the different knob values of the training rows, with the number of rows of each.
    """

    dataset: Dataset
    rows: Rows
    library: str
    threads: int | None
    space: str
    configs: tuple[tuple[Mapping[str, Number], int], ...]

    @property
    def training(self) -> pd.DataFrame:
        return self.dataset.frame.iloc[self.rows]

    @property
    def variants(self) -> dict[tuple[object, ...], int]:
        """What tells the variants apart -> their training rows. The schedules of a space are one."""
        where = (self.dataset.device.name, self.library, self.threads)
        if self.space:
            return {(*where, self.space): len(self.rows)}
        return {(*where[:2], config.get("threads", self.threads), *sorted(config.items())): count for config, count in self.configs}

    @property
    def attempts(self) -> float:
        """Mean number of measurements behind a row's time."""
        return float(self.training["attempts"].mean()) if "attempts" in self.training else 1.0


def _part(dataset: Dataset, train: int, seed: int) -> _Part:
    frame = dataset.valid.drop(columns="c", errors="ignore")
    missing = [name for name in (*dataset.kernel.parameters, *dataset.knobs) if name not in frame]
    if missing:
        raise DataError(f"data set {dataset.name}: no column {missing[0]!r}, which kernel {dataset.kernel.name!r} needs")
    if text := [name for name in dataset.knobs if not pd.api.types.is_numeric_dtype(frame[name])]:
        raise DataError(
            f"data set {dataset.name}: the knob {text[0]!r} is no number (such as {frame[text[0]].iloc[0]!r}), so no model can learn it; leave it out"
        )
    if len(frame) < LEAST:
        failed = len(dataset.frame) - len(frame)
        raise DataError(f"data set {dataset.name}: {len(frame)} valid rows ({failed} failed); a model needs at least {LEAST}: measure more")
    rows = np.random.default_rng([seed, 0]).permutation(len(frame))[:train]
    named, threads = _only(frame, "space"), _only(frame, "threads")
    library = str(named) if named in _LIBRARIES else next((name for name in _LIBRARIES if dataset.name.endswith(f"-{name}")), "")
    space = space_of(dataset.kernel, dataset.knobs, str(named))
    threads = None if threads is None or "threads" in dataset.knobs else int(threads)
    return _Part(replace(dataset, frame=frame), rows, library, threads, space, _configs(frame.iloc[rows], list(dataset.knobs)))


def _only(frame: pd.DataFrame, column: str) -> Any:
    """The one value that a column has in all rows, None if it has several or there is no such column."""
    values: Sequence[Any] = list(frame[column].unique()) if column in frame else []
    return values[0] if len(values) == 1 else None


def _configs(frame: pd.DataFrame, knobs: list[str]) -> tuple[tuple[Mapping[str, Number], int], ...]:
    if not knobs:
        return (({}, len(frame)),)
    counts = frame[knobs].value_counts(sort=False).sort_index()
    table = counts.index.to_frame(index=False)
    return tuple(({str(k): _number(v) for k, v in row.items()}, int(count)) for row, count in zip(table.to_dict("records"), counts, strict=True))


def _number(value: Any) -> Number:
    return int(value) if value == int(value) else float(value)


def _shared(parts: Sequence[_Part]) -> tuple[list[_Part], list[str]]:
    """Each part with the variants that it answers, and a note of those that are left with none."""
    owner: dict[tuple[object, ...], tuple[tuple[float, float, int], int]] = {}
    for i, part in enumerate(parts):
        for key, count in part.variants.items():
            rank = (count, part.attempts, -i)
            if key not in owner or rank > owner[key][0]:
                owner[key] = rank, i
    kept, unused = [], []
    for i, part in enumerate(parts):
        mine = [owner[key][1] == i for key in part.variants]
        if not any(mine):
            unused.append(part.dataset.name)
        elif part.space:
            kept.append(part)
        else:
            kept.append(replace(part, configs=tuple(config for config, own in zip(part.configs, mine, strict=True) if own)))
    verb = "is" if len(unused) == 1 else "are"
    return kept, [f"{', '.join(unused)} {verb} not used: other data sets have as many rows of the same variants."] if unused else []


def _source(part: _Part, model: CostModel, inputs: pd.DataFrame, recipe: str, seed: int) -> Source:
    """The trained part: its error on the other rows, and the averages of its variants over `inputs`, the parameters of all training rows."""
    full = with_complexity(part.dataset)
    rest = full.frame.drop(index=full.frame.index[part.rows])
    error = mape(rest["time_s"], model.predict_time_s(rest)) if len(rest) >= LEAST // 2 else None
    kernel, training = part.dataset.kernel, part.training
    configs = [config for config, _ in part.configs]
    if part.space:
        configs = [_best_schedule(part, model, configs, inputs)]
    averages = [_average(kernel, model, inputs.assign(**config)) for config in configs]
    compile_s = training["compile_s"].median() if "compile_s" in training else float("nan")
    return Source(
        data_set=part.dataset.name,
        sha256=dict(part.dataset.sha256),
        device=part.dataset.device,
        library=part.library,
        threads=part.threads,
        knobs=part.dataset.knobs,
        space=part.space,
        configs=tuple(configs),
        averages=tuple(averages),
        ranges={name: (float(training[name].min()), float(training[name].max())) for name in kernel.parameters},
        rows=len(full.frame),
        trained=len(part.rows),
        seed=seed,
        recipe=recipe,
        mape=error,
        compile_s=None if np.isnan(compile_s) else float(compile_s),
        model=model,
        measured=_measured(part) if part.space else {},
    )


def _measured(part: _Part) -> dict[str, tuple[float, ...]]:
    """Parameters, knobs and seconds of all valid rows, or of as many by chance as are kept."""
    frame = part.dataset.frame[[*part.dataset.kernel.parameters, *part.dataset.knobs, "time_s"]]
    if len(frame) > KEPT:
        frame = frame.iloc[np.sort(np.random.default_rng(0).permutation(len(frame))[:KEPT])]
    return {str(name): tuple(map(_number, frame[name])) for name in frame.columns}


def _average(kernel: Kernel, model: CostModel, frame: pd.DataFrame) -> float:
    """Geometric mean of the predicted seconds of some rows."""
    parameters: dict[str, Any] = {name: frame[name].to_numpy(dtype=float) for name in kernel.parameters}
    time = model.predict_time_s(frame.assign(c=kernel.complexity(parameters)))  # type: ignore[misc]
    return float(np.exp(np.log(time).mean()))


def _best_schedule(part: _Part, model: CostModel, configs: Sequence[Mapping[str, Number]], inputs: pd.DataFrame) -> Mapping[str, Number]:
    """Of the schedules that were trained on, the one of the least average among those that can run the most of the inputs."""
    kernel = part.dataset.kernel
    spaces = [kernel.space(kernel.workload({str(k): _number(v) for k, v in row.items()}), part.space) for row in inputs.to_dict("records")]
    runs = [sum(index_in(space, config) is not None for space in spaces) for config in configs]
    able = [config for config, count in zip(configs, runs, strict=True) if count == max(runs)]
    return min(able, key=lambda config: _average(kernel, model, inputs.assign(**config)))
