"""The kernel's extension: it notes the line of the statement that runs, and changes nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from workbench.reproduce import whereabouts


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "line"
    monkeypatch.setenv(whereabouts.PLACE_VARIABLE, str(path))
    monkeypatch.setattr(whereabouts, "_die_with_parent", lambda: None)
    yield path
    import builtins

    delattr(builtins, whereabouts._MARK)


def test_the_line_that_runs_is_noted(place: Path) -> None:
    shell = SimpleNamespace(ast_transformers=[])
    whereabouts.load_ipython_extension(shell)
    assert whereabouts.read_line(place) is None
    source = "x = 1\n\n\n@staticmethod\ndef f():\n    pass\nseen = read()\nfor i in range(2):\n    y = i\n1 / 0\n"
    tree = shell.ast_transformers[0].visit(ast.parse(source))
    names = {"read": lambda: whereabouts.read_line(place)}
    with pytest.raises(ZeroDivisionError):
        exec(compile(tree, "cell", "exec"), names)
    assert names["seen"] == 7
    assert whereabouts.read_line(place) == 10


def test_what_is_shown_last_stays_last(place: Path) -> None:
    shell = SimpleNamespace(ast_transformers=[])
    whereabouts.load_ipython_extension(shell)
    tree = shell.ast_transformers[0].visit(ast.parse("x = 1\nx\n"))
    assert isinstance(tree.body[-1], ast.Expr)
    assert isinstance(tree.body[-1].value, ast.Name)


def test_no_file_is_no_line(tmp_path: Path) -> None:
    assert whereabouts.read_line(tmp_path / "none") is None
