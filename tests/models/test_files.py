from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench
from workbench.errors import DataError, UsageError
from workbench.models import files
from workbench.models.base import CostModel
from workbench.models.compact import CompactMatrix, CompactSchedule, Options
from workbench.models.files import SCHEMA, load_model, save_model
from workbench.models.linear import Constant, LinearRegressionC
from workbench.models.nnc import LogNetwork, PaperNetwork
from workbench.models.trees import NonlinearRegressionC

Invent = Callable[..., Any]

ROWS = np.arange(60)
CASES = {
    "linear": ("mm", "cpu", LinearRegressionC()),
    "count": ("mv", "gpu", Constant()),
    "network": ("mm", "cpu", PaperNetwork(epochs_scale=0.002)),
    "log network": ("mc", "gpu", LogNetwork()),
    "compact": ("mm", "gpu", CompactMatrix(Options(restarts=1, steps=10))),
    "schedule": ("blur", "cpu", CompactSchedule(replace(CompactSchedule.candidates[0], restarts=1, steps=10))),
}


@pytest.fixture(scope="module")
def fitted(invent: Invent) -> dict[str, tuple[CostModel, Any]]:
    out = {}
    for name, (kernel, kind, recipe) in CASES.items():
        data = invent(kernel, kind)
        out[name] = (recipe.fit([(data, ROWS)])[0], data.frame)
    return out


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_model_predicts_bit_for_bit(case: str, fitted: dict[str, tuple[CostModel, Any]], tmp_path: Path) -> None:
    model, frame = fitted[case]
    save_model(model, tmp_path / "model.json")
    loaded = load_model(str(tmp_path / "model.json"))
    assert type(loaded) is type(model)
    assert (loaded.name, loaded.n_parameters) == (model.name, model.n_parameters)
    np.testing.assert_array_equal(loaded.predict_time_s(frame), model.predict_time_s(frame))
    first, second = model.predict(frame), loaded.predict(frame)
    np.testing.assert_array_equal(first.mean, second.mean)
    np.testing.assert_array_equal(first.std, second.std)
    # Saved again, it is the same file.
    save_model(loaded, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "model.json").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.json", "model.json"]


def test_the_file_says_what_it_is(fitted: dict[str, tuple[CostModel, Any]], tmp_path: Path) -> None:
    save_model(fitted["network"][0], tmp_path / "m.json")
    record = json.loads((tmp_path / "m.json").read_text())
    assert (record["schema"], record["workbench"], record["kind"], record["layers"]) == (SCHEMA, workbench.__version__, "network", [7, 7, 1])
    assert record["terms"][0] == ["value", "m"]
    assert "checkpoints" not in record


Edit = Callable[[dict[str, Any]], object]
FAULTS: dict[str, tuple[str, Edit, str]] = {
    "schema": ("linear", lambda r: r.update(schema=99), "schema version 99; this workbench reads version 1"),
    "no schema": ("linear", lambda r: r.pop("schema"), "the field 'schema' is missing"),
    "kind": ("linear", lambda r: r.update(kind="forest"), "unknown kind of model 'forest'; this workbench reads linear, network, compact"),
    "kind list": ("linear", lambda r: r.update(kind=["linear"]), r"kind is \['linear'\]; it must be text"),
    "unknown field": ("linear", lambda r: r.update(extra=1), "unknown field 'extra' in a linear model"),
    "intercept": ("linear", lambda r: r.pop("intercept"), "the field 'intercept' is missing"),
    "weights": ("compact", lambda r: r.pop("weights"), "the field 'weights' is missing"),
    "nan": ("compact", lambda r: r["weights"].__setitem__(4, float("nan")), r"weights\[4\] is nan; it must be a finite number"),
    "infinite": ("network", lambda r: r["weights"].__setitem__(0, float("inf")), r"weights\[0\] is inf; it must be a finite number"),
    "text": ("network", lambda r: r["weights"].__setitem__(1, "0.5"), r"weights\[1\] is '0.5'; it must be a finite number"),
    "true": ("linear", lambda r: r["weights"].__setitem__(1, True), r"weights\[1\] is True; it must be a finite number"),
    "huge": ("linear", lambda r: r.update(intercept=10**400), "intercept is 10{59}...; it must be a finite number"),
    "short": ("network", lambda r: r["weights"].pop(), "weights is '63 numbers'; it must be a list of 64 numbers"),
    "short linear": ("linear", lambda r: r["weights"].pop(), "weights is '6 numbers'; it must be a list of 7 numbers"),
    "short compact": ("compact", lambda r: r["weights"].pop(), "it must be a list of "),
    "no list": ("network", lambda r: r.update(centre=3), "centre is 3; it must be a list of 7 numbers"),
    "layers": ("network", lambda r: r.update(layers=[6, 7, 1]), r"layers is \[6, 7, 1\]; it must be sizes from 7, the number of terms, to 1"),
    "layers out": ("network", lambda r: r.update(layers=[7, 7, 2]), r"layers is \[7, 7, 2\]"),
    "layers zero": ("network", lambda r: r.update(layers=[7, 0, 1]), r"layers is \[7, 0, 1\]"),
    "layers real": ("network", lambda r: r.update(layers=[7, 7.0, 1]), "it must be a list of sizes"),
    "net": ("compact", lambda r: r.update(net=[3, 4, 0]), r"net is \[3, 4, 0\]; it must be \[\d+, the number of terms"),
    "net negative": ("compact", lambda r: r["net"].__setitem__(2, -1), "it must be a list of sizes"),
    "scale": ("compact", lambda r: r["scale"].__setitem__(2, 0.0), r"scale\[2\] is 0.0; it must be a positive, finite number"),
    "out scale": ("network", lambda r: r.update(out_scale=-1), "out_scale is -1; it must be a positive, finite number"),
    "log": ("network", lambda r: r.update(log=1), "log is 1; it must be true or false"),
    "operation": ("linear", lambda r: r["terms"].__setitem__(0, ["sqrt", "m"]), r"terms\[0\]: no operation 'sqrt' on columns"),
    "term": ("linear", lambda r: r["terms"].__setitem__(1, ["value"]), r"terms\[1\] is \['value'\]; it must be \[operation, column\]"),
    "no terms": ("linear", lambda r: r.update(terms=[]), r"terms is \[\]"),
    "name": ("linear", lambda r: r.update(name=None), "name is None; it must be text"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_file(fault: str, fitted: dict[str, tuple[CostModel, Any]], tmp_path: Path) -> None:
    case, edit, message = FAULTS[fault]
    path = tmp_path / "model.json"
    save_model(fitted[case][0], path)
    record = json.loads(path.read_text())
    edit(record)
    path.write_text(json.dumps(record))
    with pytest.raises(DataError, match=message) as caught:
        load_model(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"null", b"\xff\xfe{}", b"[" * 99_999, b"text"], ids=["empty", "list", "null", "latin", "deep", "text"])
def test_what_is_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=str(path)):
        load_model(path)


def test_a_file_cut_anywhere_is_refused(fitted: dict[str, tuple[CostModel, Any]], tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    save_model(fitted["linear"][0], path)
    whole = path.read_bytes().rstrip()
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match="not whole JSON"):
            load_model(path)


def test_paths_that_cannot_be_used(fitted: dict[str, tuple[CostModel, Any]], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json: no such file"):
        load_model(tmp_path / "none.json")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_model(tmp_path)
    with pytest.raises(UsageError, match="cannot be written there: No such file or directory"):
        save_model(fitted["linear"][0], tmp_path / "missing" / "model.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot be written there"):
        save_model(fitted["linear"][0], tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_trees_and_models_with_nan_are_not_saved(fitted: dict[str, tuple[CostModel, Any]], invent: Invent, tmp_path: Path) -> None:
    trees = NonlinearRegressionC().fit([(invent("mv", "gpu", rows=20), np.arange(15))])[0]
    with pytest.raises(UsageError, match="made of trees, which are not saved here: fit it again from its data set"):
        save_model(trees, tmp_path / "trees.json")
    model: Any = fitted["compact"][0]
    with pytest.raises(UsageError, match="a number that is not finite"):
        save_model(replace(model, noise=float("nan")), tmp_path / "nan.json")
    assert list(tmp_path.iterdir()) == []


def test_a_crash_while_writing_leaves_the_old_model(fitted: dict[str, tuple[CostModel, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.json"
    save_model(fitted["linear"][0], path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(UsageError, match="No space left on device"):
        save_model(fitted["compact"][0], path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.json"]
