"""`workbench measure`: one command measures, goes on, and adds; another makes data sets of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from workbench.cli import build
from workbench.data.datasets import load_dataset
from workbench.data.store import Store
from workbench.measure.native import Runner

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("measure", "matrix", "--kernel", "mv", "--library", "boost")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build(), list(arguments))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    shutil.copy(ROOT / "data" / "external.toml", tmp_path / "data")
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture
def built(program, program_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program("boost")
    monkeypatch.setenv("WORKBENCH_CACHE", str(program_cache))


def test_measure_go_on_add_and_export(built, project: Path) -> None:
    first = run(*SMALL, "--instances", "12")
    assert first.exit_code == 0, first.output
    store = project / "runs" / "measure" / "matrix.db"
    summary, drift, place = first.stdout.splitlines()
    assert summary.startswith("mv in boost on ")
    assert "12 of 12 instances (12 ok); 13 runs in" in summary
    assert drift.startswith("drift: 1 measured again: ")
    assert place == f"store: {store}"
    with Store(store) as opened:
        assert len(opened) == 13
        assert {record.config["threads"] for record in opened.rows()} == {1}
    assert "nothing was left to measure" in run(*SMALL, "--instances", "12").stdout
    assert "40 of 40 instances (40 ok); 29 runs in" in run(*SMALL, "--instances", "40").stdout
    refused = run(*SMALL, "--instances", "12", "--seed", "1")
    assert refused.exit_code == 2
    assert "use another store" in refused.stderr

    exported = run("measure", "export", str(store), "--name", "matrix-cpu-here")
    assert exported.exit_code == 0, exported.output
    assert "matrix-cpu-here-mv-boost: 40 rows" in exported.stdout
    listed = {entry["name"]: entry for entry in json.loads(run("data", "list", "--json").stdout)}
    assert listed["matrix-cpu-here-mv-boost"]["available"] == "own"
    assert run("measure", "export", str(store), "--name", "matrix-cpu-here").exit_code == 2


def test_more_passes_add_to_a_series_and_the_least_time_is_exported(built, project: Path) -> None:
    command = (*SMALL, "--instances", "6", "--output", str(project / "mine.db"))
    assert "6 of 6 instances (6 ok); 7 runs" in run(*command).stdout
    assert "6 of 6 instances (6 ok); 6 runs" in run(*command, "--passes", "2").stdout
    assert "nothing was left to measure" in run(*command, "--passes", "2").stdout
    exported = run("measure", "export", str(project / "mine.db"), "--name", "here", "--note", "It was warm.", "--note", "It rained.")
    assert exported.exit_code == 0, exported.output
    data = load_dataset("here-mv-boost")
    assert data.frame["attempts"].tolist() == [3, 2, 2, 2, 2, 2]
    assert data.frame["time_s"].tolist() == [min(times) for times in data.frame["pass_s"]]
    assert data.notes[-2:] == ("It was warm.", "It rained.")
    assert "--instances 6 --passes 2`" in data.source


def test_ctrl_c_keeps_what_was_measured(built, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Runner._attempt
    begun: list[object] = []

    def interrupted(self: Runner, instance: object) -> object:
        begun.append(instance)
        if len(begun) == 4:
            raise KeyboardInterrupt
        return attempt(self, instance)

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "_attempt", interrupted)
        stopped = run(*SMALL, "--instances", "9", "--output", str(project / "mine.db"))
    assert stopped.exit_code == 130
    assert "3 of 9 instances (3 ok)" in stopped.stdout
    assert "the same command goes on" in stopped.stdout
    assert "9 of 9 instances (9 ok); 7 runs" in run(*SMALL, "--instances", "9", "--output", str(project / "mine.db")).stdout


def test_a_failure_is_told_with_its_reason(built, project: Path) -> None:
    result = run("measure", "matrix", "--kernel", "mm", "--library", "boost", "--instances", "3", "--run-limit", "0.001", "--seed", "2")
    assert result.exit_code == 0, result.output
    assert "3 of 3 instances (3 timeout)" in result.stdout
    assert "started again 3 times" in result.stdout
    assert "  3 x timeout: no answer in 0.001 s" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kernel", "lu", "--library", "eigen"), "no matrix kernel 'lu'; there are mm, mv, mc, mp"),
        (("--kernel", "mm", "--library", "mkl"), "no library 'mkl'; there are eigen, boost"),
        (("--kernel", "mm"), "Missing option '--library'"),
        (("--kernel", "mm", "--library", "eigen", "--instances", "0"), "greater than or equal to 1"),
        (("--kernel", "mm", "--library", "boost", "--pin", "9999"), "cannot pin to CPU 9999"),
    ],
)
def test_a_mistake_is_one_line(built, project: Path, arguments: tuple[str, ...], said: str) -> None:
    result = run("measure", "matrix", *arguments)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr


def test_no_compiler_is_one_line(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(project))
    monkeypatch.delenv("CXX", raising=False)
    result = run(*SMALL)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "no C++ compiler: neither g++ nor clang++ is on PATH" in result.stderr


def test_help_has_examples() -> None:
    assert "Example: workbench measure matrix --kernel mm" in run("measure", "matrix", "--help").stdout
    assert "Example: workbench measure export" in run("measure", "export", "--help").stdout
