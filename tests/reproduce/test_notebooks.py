"""The project's own notebooks: no outputs in the sources, and every one runs in profile smoke, with or without the data."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from own_sets import write_laptop, write_matrix, write_server

from workbench.reproduce import run
from workbench.reproduce.claims import load_claims
from workbench.reproduce.execute import check_parameters, read_notebook
from workbench.reproduce.manifest import load_manifest
from workbench.reproduce.report import write_html, write_results
from workbench.reproduce.scorecard import build_scorecard

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "notebooks").rglob("*.ipynb"))
SOURCES = [path for path in SOURCES if ".ipynb_checkpoints" not in path.parts]


class Quiet:
    def begin(self, tasks: Sequence[str]) -> None: ...

    def cell(self, task: str, done: int, of: int) -> None: ...

    def end(self, task: str, record: Mapping[str, Any]) -> None: ...


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_sources_carry_no_outputs(path: Path) -> None:
    node = nbformat.read(path, as_version=4)
    for number, cell in enumerate(node.cells, 1):
        assert not cell.get("outputs"), f"cell {number} has outputs: clear them"
        assert cell.get("execution_count") is None, f"cell {number} has an execution count: clear it"
        assert "injected-parameters" not in cell.metadata.get("tags", []), f"cell {number} was injected by a run"


@pytest.mark.parametrize("task", load_manifest().tasks.values(), ids=lambda task: task.name)
def test_notebooks_know_the_parameters_that_every_profile_passes(task: Any) -> None:
    node = read_notebook(ROOT, task.notebook)
    for profile in load_manifest().profiles:
        assert isinstance(check_parameters(node, task.notebook, task.parameters_for(profile)), int)


def test_every_source_is_in_the_manifest_or_is_for_people() -> None:
    listed = {ROOT / task.notebook for task in load_manifest().tasks.values()}
    assert [path.stem for path in SOURCES if path not in listed and path.parent.name != "explore"] == []


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources under another folder, so that runs/ of this checkout stays as it is."""
    for name in ("notebooks", "data", "requirements.lock"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def check(checkout: Path, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    manifest = load_manifest()
    tasks = manifest.select(list(names))
    records = run.reproduce(checkout, manifest, "smoke", tasks, Quiet())
    assert [record["error"]["text"] for record in records if record["status"] != "ok"] == []
    rows = {row["claim"] for record in records for row in record["rows"]}
    ran = {task.name for task in tasks}
    assert [name for name, claim in load_claims().items() if claim.task in ran and name not in rows] == []
    for record in records:
        assert record["wall_s"] < 170, record["task"]
        for item in record["items"].values():
            assert all((checkout / "runs" / "smoke" / record["task"] / name).stat().st_size > 0 for name in item["files"])
    return records


@pytest.mark.timeout(600)  # those that time the machine run one after the other
def test_smoke(checkout: Path) -> None:
    """Every notebook ends well and every claim gets a row: numbers, or the reason why not."""
    records = check(checkout)
    write_html(checkout, load_manifest(), build_scorecard(checkout))
    write_results(checkout, load_manifest())
    if os.environ.get("WORKBENCH_MIRROR"):
        assert {record["task"]: record["missing"] for record in records if record["missing"]} == {}


# What times the machine needs no files of others: `test_smoke` runs it.
OF_METATUNE = ("metatune-model-error", "metatune-output-performance", "metatune-cross-platform", "metatune-ablation")
OF_PAPER = ("nnc-mape", "nnc-unconstrained", "nnc-variant-selection", "nnc-compact", *OF_METATUNE)


@pytest.mark.timeout(600)
def test_smoke_on_our_own_data_alone(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No mirror, no cache, no network: what stands under data/raw is used, nothing fails, and the scorecard says how to get what is missing."""
    monkeypatch.setenv("WORKBENCH_OFFLINE", "1")
    monkeypatch.setenv("WORKBENCH_CACHE", str(checkout / "cache"))
    monkeypatch.delenv("WORKBENCH_MIRROR", raising=False)
    rows = {(row["claim"], row["label"]) for record in check(checkout, OF_PAPER) for row in record["rows"]}
    assert {("nnc.table09", "clean protocol, Emerald Rapids"), ("own.measured.mp", "Boost Emerald Rapids")} <= rows
    assert {("nnc.table11", "Emerald Rapids"), ("nnc.claim.mullapudi", "Emerald Rapids, chosen by NN+C")} <= rows
    assert ("metatune.figure05", "ResNet-18 on one thread of AMD EPYC") in rows
    scorecard = build_scorecard(checkout)
    assert {"nnc-mm-i5-500", "titanxp-conv2d", "kt-convolution-milo-a100"} <= set(scorecard.out_of_reach)
    assert all("WORKBENCH_MIRROR" in how for how in scorecard.out_of_reach.values())


SERIES = {
    "nnc-mape": {"here": "matrix-cpu-laptop"},
    "nnc-unconstrained": {"here": "matrix-cpu-laptop"},
    "nnc-inference-time": {"here": "matrix-cpu-laptop"},
    "nnc-variant-selection": {"here": "halide-cpu-laptop"},
    "nnc-models": {"here": "matrix-cpu-laptop", "here_halide": "halide-cpu-laptop"},
    "nnc-compact": {"here": "matrix-cpu-laptop", "here_halide": "halide-cpu-laptop"},
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_another_machine_s_series_by_the_parameter_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without others' files every notebook of the paper runs on synthetic sets of series that it never heard of; a development set shows nowhere."""
    for name, value in {"WORKBENCH_ROOT": str(tmp_path), "OMP_NUM_THREADS": "1", "WORKBENCH_OFFLINE": "1", "WORKBENCH_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WORKBENCH_MIRROR", raising=False)
    for name in ("notebooks", "requirements.lock"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "external.toml").symlink_to(ROOT / "data" / "external.toml")
    write_laptop(tmp_path)
    write_server(tmp_path)
    write_matrix(tmp_path, "matrix-cpu-laptop-5000-mc-eigen", "mc", rows=2600)
    write_matrix(tmp_path, "matrix-cpu-laptop-5000-mc-boost", "mc", rows=2600, seed=1)
    tasks = [replace(task, parameters=SERIES[task.name], inputs=("*-cpu-laptop-*",)) for task in load_manifest().select(list(SERIES))]
    records = run.reproduce(tmp_path, load_manifest(), "smoke", tasks, Quiet())
    assert [record["error"]["text"] for record in records if record["status"] != "ok"] == []
    rows = [(record["task"], row["claim"], row["label"]) for record in records for row in record["rows"]]
    assert {("nnc-mape", "nnc.table09", "clean protocol, laptop"), ("nnc-mape", "nnc.table10", "paper protocol, laptop")} <= set(rows)
    assert {("nnc-compact", "own.measured.mp", "Boost laptop"), ("nnc-unconstrained", "nnc.table11", "laptop")} <= set(rows)
    assert {
        ("nnc-variant-selection", "nnc.claim.mullapudi", "laptop, chosen by compact choice"),
        ("nnc-inference-time", "nnc.figure05", "both as libraries"),
    } <= set(rows)
    assert all("-dev-" not in name for record in records for name in record["data"])
    assert all("nnc-mm-i5-500" in record["missing"] for record in records if record["task"] in ("nnc-mape", "nnc-compact"))
    # A GPU's series needs no parameter.
    assert {("nnc-mape", "nnc.table09", "clean protocol, server"), ("nnc-mape", "nnc.claim.gpu_average", "paper protocol, server")} <= set(rows)
    assert {("nnc-variant-selection", f"nnc.claim.blur_gpu_random{which}", "server") for which in ("", "_least")} <= set(rows)
    tables = {name: (tmp_path / "runs" / "smoke" / name).read_text().splitlines() for name in ("nnc-mape/table09.csv", "nnc-mape/table10.csv")}
    columns = [f"CUDA {variant} server{copy}" for variant in ("global", "shared") for copy in ("", " with copy")]
    assert ",".join(["Eigen laptop", "Boost laptop", *columns]) in tables["nnc-mape/table09.csv"][0]
    assert any("ours, server, clean protocol" in line for line in tables["nnc-mape/table10.csv"])
    for name in ("nnc-models/table03.csv", "nnc-models/table05.csv", "nnc-variant-selection/table12.csv", "nnc-compact/compact_schedules.csv"):
        assert "server" in (tmp_path / "runs" / "smoke" / name).read_text(), name
    unmeasured = json.loads((tmp_path / "runs" / "smoke" / "nnc-mape" / "run.json").read_text())
    assert "nnc.table06" in {row["claim"] for row in unmeasured["rows"] if row["reason"]}


def test_without_a_compiler_the_matrix_kernels_say_so(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    manifest = load_manifest()
    (record,) = run.reproduce(checkout, manifest, "smoke", manifest.select(["measure-matrix-kernels"]), Quiet())
    assert record["status"] == "ok"
    assert {row["claim"] for row in record["rows"]} == {"here.training", "here.selection"}
    assert all("no C++ compiler: CXX names 'no-such-compiler', which is not there; install one" in row["reason"] for row in record["rows"])
