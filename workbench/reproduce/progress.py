"""Shows how a run goes: live bars on a terminal, a line at each change elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["RunView"]


class RunView:
    """A view for `workbench.reproduce.run.reproduce`; a context manager, so that the bars end with the run."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars = (
            Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console) if console.is_terminal else None
        )
        self._ids: dict[str, Any] = {}
        self._width = 0
        self._begun: set[str] = set()

    def __enter__(self) -> RunView:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars:
            self._bars.stop()

    def begin(self, tasks: Sequence[str]) -> None:
        """All tasks of the run."""
        self._width = max((len(task) for task in tasks), default=0)
        if self._bars:
            self._ids = {task: self._bars.add_task(task.ljust(self._width) + " waiting", start=False, total=None) for task in tasks}

    def cell(self, task: str, done: int, of: int) -> None:
        """A cell of a task starts; `done` cells are behind it."""
        if self._bars:
            if task not in self._begun:
                self._bars.start_task(self._ids[task])
            self._bars.update(self._ids[task], description=task.ljust(self._width) + " running", completed=done, total=of)
        elif task not in self._begun:
            self._line(task, f"running ({of} cells)")
        self._begun.add(task)

    def end(self, task: str, record: Mapping[str, Any]) -> None:
        """A task ended: its record, whose status is ok, cached, failed or interrupted."""
        text, style = str(record["status"]), {"ok": "green", "failed": "red"}.get(record["status"], "yellow")
        if record["status"] == "ok":
            text += f" in {record['wall_s']:.1f} s" + (f", {record['peak_mb']:.0f} MB" if record.get("peak_mb") else "")
        missing = record.get("missing") or {}
        if missing:
            text += f"; {len(missing)} inputs out of reach"
        if self._bars:
            bar = next(bar for bar in self._bars.tasks if bar.id == self._ids[task])
            self._bars.start_task(bar.id)
            self._bars.update(bar.id, description=f"{task.ljust(self._width)} [{style}]{text}", completed=bar.total or 1, total=bar.total or 1)
            self._bars.stop_task(bar.id)
        else:
            self._line(task, text, style)
        if record["status"] == "failed":
            self.console.print(Text(f"  {record['error']['text']}", style="red"), soft_wrap=True)

    def _line(self, task: str, text: str, style: str = "") -> None:
        self.console.print(Text(f"{task.ljust(self._width)} {text}", style=style), soft_wrap=True)
