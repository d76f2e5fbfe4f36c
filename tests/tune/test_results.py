"""A tuning comes back from its file as it was written, and what is wrong with a file is named. The numbers are invented."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.errors import DataError, UsageError
from workbench.features.tasks import TuningTask
from workbench.kernels import kernel
from workbench.kernels.conv import CPU
from workbench.models.surrogate import Trials
from workbench.schema import Device
from workbench.tune.loop import Outcome
from workbench.tune.results import Result, load_result, save_result

WORKLOAD = kernel("conv2d").workload({"n": 1, "ci": 4, "h": 8, "w": 8, "co": 8, "kh": 3, "kw": 3, "stride": (1, 1), "padding": (1, 1)})
TASK = TuningTask("small", kernel("conv2d"), WORKLOAD, Device("invented-cpu", "cpu"), CPU)


def result(trials: int = 5) -> Result:
    throughput = np.array([0.1 + 0.2, 0.0, 7.25, 1 / 3, 2.0])[:trials]
    valid = throughput > 0
    outcome = Outcome(
        Trials(np.arange(100, 100 + trials), throughput, valid),
        np.array([np.nan, 0.5, 0.25, 1.0, 0.0])[:trials],
        np.array([-1, 0, 0, 0, 1])[:trials],
        np.array([[0.1, 0.2, np.nan, 3.0], [0.1, 0.3, np.nan, np.nan]]) if trials else np.empty((0, 4)),
        "5 trials" if trials else "no candidates are left",
    )
    settings = {"seed": 0, "batch": 3, "trials": 5, "seconds": None, "no_improvement": None}
    plain: dict[str, Any] = {"task": "small", "source": "an invented set", "framework": "random", "history": ("a: b",), "settings": settings}
    return Result.of(TASK, outcome, **plain, ranking_only=True, table_best=8.0, fit_s=0.5)


@pytest.mark.parametrize("trials", [5, 0])
def test_a_result_comes_back_bit_for_bit(tmp_path: Path, trials: int) -> None:
    written = result(trials)
    save_result(written, tmp_path / "new" / "r.json")
    read = load_result(tmp_path / "new" / "r.json")
    for field in dataclasses.fields(Result):
        if field.name != "outcome":
            assert getattr(read, field.name) == getattr(written, field.name), field.name
    assert read.outcome.why == written.outcome.why
    for name in ("predicted", "round", "seconds"):
        np.testing.assert_array_equal(getattr(read.outcome, name), getattr(written.outcome, name))
    for name in ("indices", "throughput", "valid"):
        np.testing.assert_array_equal(getattr(read.outcome.trials, name), getattr(written.outcome.trials, name))
    assert read.best == (TASK.space.config(102) if trials else {})
    assert (read.unit, read.space, read.workload) == ("GFLOP/s", CPU, WORKLOAD.key)


def test_a_label_is_over_the_best_of_the_rounds_before() -> None:
    rows = result().frame()
    assert rows["trial"].tolist() == [1, 2, 3, 4, 5]
    assert rows["best"].tolist() == [0.1 + 0.2, 0.1 + 0.2, 7.25, 7.25, 7.25]
    first, *labels = rows["label"]
    assert np.isnan(first)
    assert labels == pytest.approx([0.0, 7.25 / (0.1 + 0.2), 1 / 3 / (0.1 + 0.2), 2.0 / 7.25])
    np.testing.assert_array_equal(rows["predicted"], result().outcome.predicted)
    assert len(result(0).frame()) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r.update(format="a shopping list"), "format is 'a shopping list'; it must be 'workbench tuning'"),
        (lambda r: r.update(version=2), "version 2 of the format; this workbench reads version 1: tune again"),
        (lambda r: r.pop("unit"), "the field 'unit' is missing"),
        (lambda r: r.update(colour="red"), "unknown field 'colour' in a tuning"),
        (lambda r: r.update(table_best=0), "table_best is 0; it must be a positive number or null"),
        (lambda r: r["settings"].update(seed="one"), "settings['seed'] is 'one'; it must be a number or null"),
        (lambda r: r["trials"].update(predicted=[1.0]), "trials: predicted is [1.0]; it must be a list of 5 numbers or null"),
        (lambda r: r["trials"].update(valid=[1] * 5), "trials: valid is [1, 1, 1, 1, 1]; it must be a list of 5 true or false"),
        (lambda r: r["trials"]["throughput"].__setitem__(1, 3.0), "trial 1, configuration 101: a failure with a throughput of 3.0"),
        (lambda r: r["trials"]["index"].__setitem__(1, -1), "trials: index is [100, -1, 102, 103, 104]; it must be a list of whole numbers, 0 or more"),
        (lambda r: r["trials"]["round"].__setitem__(1, 2), "a trial is of a round that is not among the 2 rounds"),
        (lambda r: r["rounds"].update(model=[0.1]), "rounds: model is [0.1]; it must be a list of 2 numbers or null"),
        (lambda r: r["rounds"].pop("build"), "rounds: the field 'build' is missing"),
        (lambda r: r.update(rounds=3), "rounds is 3; it must be an object"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, change: Any, said: str) -> None:
    path = tmp_path / "r.json"
    save_result(result(), path)
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    with pytest.raises(DataError) as raised:
        load_result(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert said in str(raised.value)


def test_a_file_that_was_cut_off_or_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    with pytest.raises(UsageError, match="no such file; `workbench tune` writes one"):
        load_result(path)
    save_result(result(), path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match="not whole JSON"):
        load_result(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="the folder cannot be made"):
        save_result(result(), tmp_path / "file" / "r.json")
