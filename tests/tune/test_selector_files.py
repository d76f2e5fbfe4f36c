"""A selector comes back from its file as it was, or the file is refused with one line that names it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.errors import DataError, UsageError
from workbench.tune.select import Selector, load_selector, save_selector


@pytest.mark.parametrize("which", ["mm", "blurred"])
def test_a_loaded_selector_answers_bit_for_bit(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    selector: Selector = request.getfixturevalue(which)
    path = tmp_path / "selector.json"
    save_selector(selector, path)
    loaded = load_selector(str(path))
    asked = [{"m": m, "n": n, "k": 7} for m in (3, 80, 1000) for n in (5, 500)] if which == "mm" else [{"n": n} for n in (32, 64, 256)]
    for inputs in asked:
        assert loaded.ranking(inputs, count=9) == selector.ranking(inputs, count=9)
        assert loaded.select(inputs).default_s == selector.select(inputs).default_s
    plain = [replace(s, model=None, averages=()) for s in selector.sources]
    assert [replace(s, model=None, averages=()) for s in loaded.sources] == plain
    assert (loaded.created, loaded.workbench, loaded.train_s, loaded.notes) == (selector.created, selector.workbench, selector.train_s, selector.notes)
    for before, after in zip(selector.sources, loaded.sources, strict=True):
        np.testing.assert_array_equal(after.averages, before.averages)
        np.testing.assert_array_equal(after.model.weights, before.model.weights)
    save_selector(loaded, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["again.json", "selector.json"]


def test_the_file_says_where_its_models_come_from(mm: Selector, tmp_path: Path) -> None:
    save_selector(mm, tmp_path / "mm.json")
    record = json.loads((tmp_path / "mm.json").read_text())
    assert (record["format"], record["version"], record["kernel"]) == ("workbench selector", 2, "mm")
    source = record["sources"][0]
    assert (source["data_set"], source["rows"], source["trained"], source["seed"], source["recipe"]) == ("invented-mm-eigen", 240, 200, 0, "CompactMatrix")
    assert source["sha256"] == {"rows.parquet": "0" * 64}
    assert source["device"]["name"] == "invented-cpu"
    assert source["model"]["kind"] == "compact"


Edit = Callable[[dict[str, Any]], object]


def first(edit: Edit) -> Edit:
    return lambda record: edit(record["sources"][0])


def measured(edit: Edit) -> Edit:
    return first(lambda source: edit(source["measured"]))


FAULTS: dict[str, tuple[Edit, str]] = {
    "format": (lambda r: r.update(format="model"), "format is 'model'; it must be 'workbench selector'"),
    "no format": (lambda r: r.pop("format"), "the field 'format' is missing"),
    "version": (lambda r: r.update(version=1), "version 1 of the format; this workbench reads version 2: train again"),
    "version true": (lambda r: r.update(version=True), "version True of the format"),
    "kernel": (lambda r: r.update(kernel="mmm"), "there is no kernel 'mmm'"),
    "other kernel": (lambda r: r.update(kernel="mv"), r"its model reads 'k', which is no parameter of kernel 'mv' and no knob \(threads\)"),
    "unknown": (lambda r: r.update(more=1), "unknown field 'more' in a selector"),
    "no sources": (lambda r: r.update(sources=[]), r"sources is \[\]; it must be a list of at least one source"),
    "source": (lambda r: r.update(sources=[3]), r"sources\[0\] is 3; it must be an object"),
    "notes": (lambda r: r.update(notes=[1]), r"notes is \[1\]; it must be a list of texts"),
    "time": (lambda r: r.update(train_s="long"), "train_s is 'long'; it must be a finite number"),
    "nan": (first(lambda s: s["model"]["weights"].__setitem__(3, float("nan"))), r"sources\[0\]: model: weights\[3\] is nan; it must be a finite number"),
    "operation": (first(lambda s: s["model"]["terms"].__setitem__(0, ["root", "m"])), r"model: terms\[0\]: no operation 'root'"),
    "column": (first(lambda s: s["model"]["terms"].__setitem__(0, ["log2", "q"])), r"sources\[0\]: its model reads 'q', which is no parameter of kernel 'mm'"),
    "knob": (first(lambda s: s.update(knobs=["tile"])), r"reads 'threads', which is no parameter of kernel 'mm' and no knob \(tile\)"),
    "no model": (first(lambda s: s.update(model=None)), "model is None; it must be an object"),
    "space": (first(lambda s: s.update(space="halide")), "space is 'halide'; it must be one of kernel 'mm': none"),
    "configs": (first(lambda s: s.update(configs=[])), r"configs is \[\]; it must be a list of at least one variant"),
    "config": (first(lambda s: s["configs"].__setitem__(1, {"threads": "two"})), r"configs\[1\]: threads is 'two'; it must be a finite number"),
    "config threads": (first(lambda s: s["configs"].__setitem__(1, {"threads": 1.5})), r"configs\[1\]: threads is 1.5; it must be a whole number, 1 or more"),
    "no threads": (first(lambda s: s["configs"].__setitem__(1, {"threads": -1})), r"configs\[1\]: threads is -1.*; it must be a whole number"),
    "config knob": (first(lambda s: s["configs"].__setitem__(1, {})), r"configs\[1\]: the field 'threads' is missing"),
    "config more": (first(lambda s: s["configs"].__setitem__(1, {"threads": 1, "s1": 2})), "unknown field 's1' in a variant"),
    "averages": (first(lambda s: s["averages"].pop()), "averages is '2 numbers'; it must be a list of 3 numbers"),
    "average": (first(lambda s: s["averages"].__setitem__(0, 0)), r"averages\[0\] is 0; it must be a positive, finite number"),
    "ranges": (first(lambda s: s["ranges"].pop("k")), "ranges: the field 'k' is missing"),
    "device": (first(lambda s: s.update(device={"name": "x", "kind": "tpu"})), "device is not one: device 'x': kind is 'tpu'"),
    "device list": (first(lambda s: s.update(device=[])), "device is not one"),
    "checksum": (first(lambda s: s["sha256"].update(rows=3)), r"sha256\['rows'\] is 3; it must be a checksum"),
    "threads": (first(lambda s: s.update(threads=1.5)), "threads is 1.5; it must be a whole number"),
    "error": (first(lambda s: s.update(mape=float("inf"))), "mape is inf; it must be a finite number"),
    "missing": (first(lambda s: s.pop("recipe")), r"sources\[0\]: the field 'recipe' is missing"),
}


MEASURED: dict[str, tuple[Edit, str]] = {
    "cut": (measured(lambda m: m["s2"].pop()), r"sources\[0\]: measured: s2 is '149 numbers'; it must be a list of 150 numbers"),
    "nan": (measured(lambda m: m["s2"].__setitem__(7, float("nan"))), r"measured: s2\[7\] is nan; it must be a finite number"),
    "missing": (measured(lambda m: m.pop("n")), "measured: the field 'n' is missing"),
    "no time": (measured(lambda m: m.pop("time_s")), "measured: "),
    "more": (measured(lambda m: m.update(s9=[])), "unknown field 's9' in measurements"),
    "negative": (measured(lambda m: m["time_s"].__setitem__(3, -1e-3)), r"measured: time_s\[3\] is -0.001; it must be a positive, finite number"),
    "empty": (measured(lambda m: m.update({name: [] for name in m})), r"measured: time_s is \[\]; it must be a list of at least one time"),
    "list": (first(lambda s: s.update(measured=[])), r"measured is \[\]; it must be an object"),
    "none": (first(lambda s: s.pop("measured")), "the field 'measured' is missing"),
}


@pytest.mark.parametrize("fault", MEASURED)
def test_a_fault_in_what_was_measured_is_named_too(fault: str, blurred: Selector, tmp_path: Path) -> None:
    refused(blurred, *MEASURED[fault], tmp_path / "blur.json")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_file(fault: str, mm: Selector, tmp_path: Path) -> None:
    refused(mm, *FAULTS[fault], tmp_path / "mm.json")


def refused(selector: Selector, edit: Edit, message: str, path: Path) -> None:
    save_selector(selector, path)
    record = json.loads(path.read_text())
    edit(record)
    path.write_text(json.dumps(record))
    with pytest.raises(DataError, match=message) as caught:
        load_selector(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_cut_anywhere_is_refused(mm: Selector, tmp_path: Path) -> None:
    path = tmp_path / "mm.json"
    save_selector(mm, path)
    whole = path.read_bytes().rstrip()
    for size in range(0, len(whole), len(whole) // 40):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match="not whole JSON"):
            load_selector(path)
    path.write_text("[]")
    with pytest.raises(DataError, match="a list, not an object; `workbench train` writes one"):
        load_selector(path)
    with pytest.raises(UsageError, match=r"none\.json: no such file; `workbench train` writes one"):
        load_selector(tmp_path / "none.json")


def test_a_selector_that_cannot_be_written_leaves_the_old_file(mm: Selector, tmp_path: Path) -> None:
    path = tmp_path / "mm.json"
    save_selector(mm, path)
    before = path.read_bytes()
    source = replace(mm.sources[0], averages=(float("nan"), 1.0, 1.0))
    with pytest.raises(UsageError, match="the selector of 'mm' has a number that is not finite"):
        save_selector(replace(mm, sources=(source,)), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["mm.json"]
    with pytest.raises(UsageError, match="cannot be written there"):
        save_selector(mm, tmp_path / "missing" / "mm.json")
