"""The layers of the design hold, and the contract that says so does notice an import that goes backwards."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sysconfig.get_path("scripts")) / "lint-imports", "--no-cache", "--config", "pyproject.toml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_no_module_imports_from_a_layer_above_it():
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout
    assert "1 kept, 0 broken" in done.stdout


@pytest.fixture
def copy(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "workbench", tmp_path / "workbench", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    ("file", "line"),
    [("space.py", "from workbench.data import datasets"), ("metrics/search.py", "def late():\n    import workbench.models.base")],
    ids=["at the top", "inside a function"],
)
def test_an_arrow_backwards_breaks_the_contract(copy, file, line):
    with (copy / "workbench" / file).open("a") as module:
        module.write(f"\n\n{line}\n")
    done = lint(copy)
    assert done.returncode != 0
    assert "0 kept, 1 broken" in done.stdout
    assert "is not allowed to import" in done.stdout


def test_a_module_without_a_layer_is_noticed(copy):
    (copy / "workbench" / "helpers.py").write_text("")
    done = lint(copy)
    assert done.returncode != 0
    assert "helpers" in done.stdout
