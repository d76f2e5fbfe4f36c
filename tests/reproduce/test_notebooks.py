"""The project's own notebooks: no outputs in the sources, and every one runs in profile smoke, with or without the data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest

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


def check(checkout: Path) -> list[dict[str, Any]]:
    manifest = load_manifest()
    records = run.reproduce(checkout, manifest, "smoke", manifest.select(), Quiet())
    assert [record["error"]["text"] for record in records if record["status"] != "ok"] == []
    rows = {row["claim"] for record in records for row in record["rows"]}
    assert [claim for claim in load_claims() if claim not in rows] == []
    for record in records:
        assert record["wall_s"] < 170, record["task"]
        for item in record["items"].values():
            assert all((checkout / "runs" / "smoke" / record["task"] / name).stat().st_size > 0 for name in item["files"])
    return records


@pytest.mark.timeout(400)
def test_smoke(checkout: Path) -> None:
    """Every notebook ends well and every claim gets a row: numbers, or the reason why not."""
    records = check(checkout)
    write_html(checkout, load_manifest(), build_scorecard(checkout))
    write_results(checkout, load_manifest())
    if os.environ.get("WORKBENCH_MIRROR"):
        assert {record["task"]: record["missing"] for record in records if record["missing"]} == {}


@pytest.mark.timeout(400)
def test_smoke_without_any_data(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No mirror, no cache, no network: still no failure, and the scorecard says how to get what is missing."""
    monkeypatch.setenv("WORKBENCH_OFFLINE", "1")
    monkeypatch.setenv("WORKBENCH_CACHE", str(checkout / "cache"))
    monkeypatch.delenv("WORKBENCH_MIRROR", raising=False)
    check(checkout)
    scorecard = build_scorecard(checkout)
    assert "nnc-mm-i5-500" in scorecard.out_of_reach
    assert all("WORKBENCH_MIRROR" in how for how in scorecard.out_of_reach.values())
