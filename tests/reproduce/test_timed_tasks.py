"""A task that times the machine has it to itself, and what it found holds for that CPU only."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from small_project import CLOSE, OPEN, Project

from workbench.reproduce import run
from workbench.reproduce.manifest import load_manifest
from workbench.reproduce.record import Job


class Quiet:
    def begin(self, tasks: Sequence[str]) -> None: ...

    def cell(self, task: str, done: int, of: int) -> None: ...

    def end(self, task: str, record: Mapping[str, Any]) -> None: ...


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Which notebooks the cluster was given at once: the next ones only when these had ended. None is really run."""
    given: list[list[str]] = []

    def work_off(client: Any, pending: Sequence[Job], view: Any, stop: Any) -> Iterator[dict[str, Any]]:
        given.append([job.task for job in pending])
        for job in pending:
            job.folder.mkdir(parents=True, exist_ok=True)
            (job.folder / "notebook.ipynb").touch()
            record = {"version": 1, "task": job.task, "status": "ok", "key": job.facts["key"], "items": {}, "missing": {}}
            (job.folder / "run.json").write_text(json.dumps(record))
            yield record

    monkeypatch.setattr(run, "_cluster", lambda *arguments: contextlib.nullcontext())
    monkeypatch.setattr(run, "_work_off", work_off)
    return given


def test_timed_tasks_run_last_and_one_at_a_time(project: Callable[..., Project], groups: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    here = project()
    monkeypatch.setenv("WORKBENCH_ROOT", str(here.root))
    for name, entry in {"timed-one": "timed = true", "other-one": "", "timed-two": "timed = true", "other-two": "timed = false"}.items():
        here.add(name, OPEN, CLOSE, entry=entry)
    manifest = load_manifest(here.manifest)

    def statuses() -> list[tuple[str, str]]:
        groups.clear()
        return [(record["task"], record["status"]) for record in run.reproduce(here.root, manifest, "smoke", manifest.select(), Quiet())]

    names = ["timed-one", "other-one", "timed-two", "other-two"]
    assert statuses() == [(name, "ok") for name in names]
    assert groups == [["other-one", "other-two"], ["timed-one"], ["timed-two"]]
    assert statuses() == [(name, "cached") for name in names]
    assert groups == []
    # Times of another CPU are none of ours; the other results are.
    monkeypatch.setattr(run, "cpu_identity", lambda: "another CPU")
    assert statuses() == list(zip(names, ("ok", "cached", "ok", "cached"), strict=True))
    assert groups == [["timed-one"], ["timed-two"]]


def test_what_times_this_machine_is_marked() -> None:
    timed = {task.name for task in load_manifest().tasks.values() if task.timed}
    assert timed == {"nnc-inference-time", "measure-matrix-kernels", "measure-halide", "measure-convolutions", "metatune-tuning-time"}
