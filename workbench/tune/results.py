"""A tuning as a file: one JSON object with what was tuned, how, each trial, and the seconds of each round. What is read is checked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench import __version__
from workbench.errors import DataError, UsageError
from workbench.features.tasks import TuningTask
from workbench.models.files import Fields, read_json, write_json
from workbench.models.surrogate import Trials
from workbench.schema import Value
from workbench.tune.loop import Outcome

__all__ = ["FORMAT", "VERSION", "Result", "load_result", "save_result"]

FORMAT, VERSION = "workbench tuning", 1
_PHASES = ("search", "model", "build", "run")


@dataclass(frozen=True, eq=False)
class Result:
    """A tuning.

    Attributes:
        task: what was tuned, in print, such as "yolo8".
        source: the data set that answered, or the target that was measured on.
        kernel, workload, device, space: of the task, the workload as its key.
        framework: what tuned.
        history: what its cost model had learnt from: data sets and tasks, in print.
        settings: seed, batch and budget, by name.
        ranking_only: whether the cost model alone ordered a table.
        table_best: throughput of the fastest that the table has, None where there is no table.
        unit: of throughput.
        fit_s: seconds that learning from the history took.
        outcome: trials, rounds and what ended it; `why` is "" in a file of a tuning that still goes on, or was killed.
        best: knobs of the fastest, none where nothing ran.
        created: when the file was written.
        code: of `workbench.tune.code`, "" where it is not known.
    """

    task: str
    source: str
    kernel: str
    workload: str
    device: str
    space: str
    framework: str
    history: tuple[str, ...]
    settings: Mapping[str, int | float | None]
    ranking_only: bool
    table_best: float | None
    unit: str
    fit_s: float
    outcome: Outcome
    best: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    created: str = ""
    code: str = ""

    @classmethod
    def of(cls, tuned: TuningTask, outcome: Outcome, **plain: Any) -> Result:
        """The result of a task, which says kernel, workload, device, space, unit and the best configuration; the other fields are given."""
        trials = outcome.trials
        return cls(
            kernel=tuned.kernel.name,
            workload=tuned.workload.key,
            device=tuned.device.name,
            space=tuned.space.name,
            unit="GFLOP/s" if tuned.kernel.flop else "runs/s",
            outcome=outcome,
            best=tuned.space.config(int(trials.indices[trials.throughput.argmax()])) if trials.best else {},
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            **plain,
        )

    def frame(self) -> pd.DataFrame:
        """A row a trial, in order.

        Returns:
            trial (from 1), round, index, throughput, valid; best (throughput so far), predicted and label: throughput over the best of the rounds before, which
            is what the cost model predicted (NaN where nothing had run).
        """
        trials = self.outcome.trials
        rows = pd.DataFrame({"round": self.outcome.round, "index": trials.indices, "throughput": trials.throughput, "valid": trials.valid})
        rows.insert(0, "trial", np.arange(1, len(rows) + 1))
        rows["best"] = rows["throughput"].cummax()
        rows["predicted"] = self.outcome.predicted
        before = rows["best"].where(rows["round"].shift(-1) != rows["round"]).shift().ffill()
        rows["label"] = rows["throughput"] / before.where(before > 0)
        return rows


def save_result(result: Result, path: Path | str) -> None:
    """Write a result, or how a tuning stands. The file appears whole or not at all. Raises UsageError for a path that cannot be written."""
    outcome = result.outcome
    plain = {field.name: getattr(result, field.name) for field in dataclasses.fields(result) if field.name != "outcome"}
    record = {
        "format": FORMAT,
        "version": VERSION,
        "workbench": __version__,
        **plain,
        "why": outcome.why,
        "trials": {
            "index": [int(index) for index in outcome.trials.indices],
            "throughput": outcome.trials.throughput.tolist(),
            "valid": outcome.trials.valid.tolist(),
            "predicted": _nullable(outcome.predicted),
            "round": outcome.round.tolist(),
        },
        "rounds": {phase: _nullable(column) for phase, column in zip(_PHASES, outcome.seconds.T, strict=True)},
    }
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path.parent}: the folder cannot be made ({error.strerror or error}); choose another path") from error
    write_json(path, record, f"the tuning of {result.task}")


def load_result(path: Path | str) -> Result:
    """The result of a file that `save_result` wrote.

    Raises:
        UsageError: no such file.
        DataError: names the file and what is wrong with it: not JSON (cut off, say), another format or version, a missing or unknown field, a wrong value.
    """
    path = Path(path)
    fields = Fields(path, read_json(path, "`workbench tune` writes one"))
    if (found := fields.take("format")) != FORMAT:
        raise fields.wrong("format", found, repr(FORMAT))
    if (version := fields.take("version")) != VERSION or isinstance(version, bool):
        raise DataError(f"{path}: version {version!r} of the format; this workbench reads version {VERSION}: tune again")
    fields.text("workbench")
    outcome = _outcome(fields, fields.text("why"))
    texts = {name: fields.text(name) for name in ("task", "source", "kernel", "workload", "device", "space", "framework", "unit", "created")}
    history = _list(fields, "history", lambda value: isinstance(value, str), "texts")
    settings = _object(fields, "settings")
    if wrong := [name for name, value in settings.items() if value is not None and not _number(value)]:
        raise fields.wrong(f"settings[{wrong[0]!r}]", settings[wrong[0]], "a number or null")
    best = {name: tuple(value) if isinstance(value, list) else value for name, value in _object(fields, "best").items()}
    table_best = fields.take("table_best")
    if table_best is not None and not (_number(table_best) and table_best > 0):
        raise fields.wrong("table_best", table_best, "a positive number or null")
    result = Result(
        **texts,
        history=tuple(history),
        settings=settings,
        ranking_only=fields.flag("ranking_only"),
        table_best=table_best,
        fit_s=fields.number("fit_s"),
        outcome=outcome,
        best=best,
        code=fields.text("code") if "code" in fields.record else "",
    )
    fields.done("a tuning")
    return result


def _outcome(fields: Fields, why: str) -> Outcome:
    table = Fields(f"{fields.path}: trials", _object(fields, "trials"))
    index = _list(table, "index", lambda value: _whole(value) and value >= 0, "whole numbers, 0 or more")
    throughput = table.numbers("throughput", len(index))
    valid = _list(table, "valid", lambda value: isinstance(value, bool), "true or false", len(index))
    predicted = _floats(table, "predicted", len(index))
    turn = _list(table, "round", _whole, "whole numbers", len(index))
    table.done("the trials")
    rounds = Fields(f"{fields.path}: rounds", _object(fields, "rounds"))
    first = rounds.record.get(_PHASES[0])
    seconds = [_floats(rounds, phase, len(first) if isinstance(first, list) else 0) for phase in _PHASES]
    rounds.done("the rounds")
    if any(value < -1 or value >= len(seconds[0]) for value in turn):
        raise DataError(f"{fields.path}: a trial is of a round that is not among the {len(seconds[0])} rounds")
    try:
        trials = Trials(np.array(index, dtype=np.int64), throughput, np.array(valid, dtype=bool))
    except (DataError, OverflowError) as error:
        raise DataError(f"{fields.path}: {error}") from None
    return Outcome(trials, np.array(predicted), np.array(turn, dtype=np.int64), np.stack(seconds, axis=1), why)


def _nullable(values: Any) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]


def _floats(fields: Fields, name: str, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    found = _list(fields, name, lambda value: value is None or _number(value), "numbers or null", count)
    return np.array([math.nan if value is None else value for value in found], dtype=np.float64)


def _list(fields: Fields, name: str, good: Any, wanted: str, count: int | None = None) -> Sequence[Any]:
    values = fields.take(name)
    if not isinstance(values, list) or not all(good(value) for value in values) or (count is not None and len(values) != count):
        raise fields.wrong(name, values, f"a list of {'' if count is None else f'{count} '}{wanted}")
    return values


def _object(fields: Fields, name: str) -> dict[str, Any]:
    value = fields.take(name)
    if not isinstance(value, dict):
        raise fields.wrong(name, value, "an object")
    return value


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
