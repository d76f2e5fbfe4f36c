"""Progress on a terminal and elsewhere."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from workbench.reproduce.progress import RunView

OK = {"status": "ok", "wall_s": 12.34, "peak_mb": 301.0, "missing": {"a": "out of reach"}}
FAILED = {"status": "failed", "error": {"text": "notebooks/b.ipynb, cell 3, line 1: ValueError: [red]no[/red]"}}


@pytest.mark.parametrize("terminal", [True, False])
def test_each_task_says_how_it_ended(terminal: bool) -> None:
    text = StringIO()
    with RunView(Console(file=text, force_terminal=terminal, width=160, color_system=None)) as view:
        view.begin(["first", "b"])
        for done in range(4):
            view.cell("first", done, 4)
        view.end("b", FAILED)
        view.end("first", OK)
    shown = text.getvalue()
    assert "first ok in 12.3 s, 301 MB; 1 inputs out of reach" in shown
    assert "b     failed" in shown
    assert "notebooks/b.ipynb, cell 3, line 1: ValueError: [red]no[/red]" in shown
    assert ("4/4" in shown) is terminal
    assert shown.count("running (4 cells)") == (0 if terminal else 1)
