"""What is asked of a notebook run, and the record (run.json) that it leaves."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.errors import DataError
from workbench.reproduce.outputs import write_json

__all__ = ["RUN_VERSION", "Failure", "Job", "read_run", "write_failure", "write_record"]

RUN_VERSION = 1


@dataclass(frozen=True)
class Job:
    """One notebook run, in plain values that travel to a worker.

    Attributes:
        task: name in the manifest.
        notebook: path inside `root`.
        root: the checkout.
        folder: where outputs, the executed notebook and run.json go; emptied first.
        parameters: passed to the notebook besides `output_dir`.
        cell_limit_s, task_limit_s: seconds that a cell and the whole notebook may take.
        stop: file whose presence ends the run.
        facts: what else run.json says (title, items, profile, git, key).
    """

    task: str
    notebook: str
    root: Path
    folder: Path
    parameters: Mapping[str, Any]
    cell_limit_s: float
    task_limit_s: float
    stop: Path
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """Where and why a notebook failed: cell (1-based, in the source notebook) and line (1-based, in the cell) are None where there is none."""

    notebook: str
    ename: str
    evalue: str
    cell: int | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = "".join(f", {what} {number}" for what, number in (("cell", self.cell), ("line", self.line)) if number is not None)
        return f"{self.notebook}{place}: {self.ename}: {' '.join(self.evalue.split())}"


def write_record(job: Job, started: datetime, clock: float, failure: Failure | None, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Write run.json, last and whole, and give what it holds: a folder without it is a run that was cut short."""
    record = {
        "version": RUN_VERSION,
        "task": job.task,
        "notebook": job.notebook,
        **job.facts,
        "parameters": dict(job.parameters),
        "status": "ok" if failure is None else "failed",
        "error": None if failure is None else {**asdict(failure), "text": str(failure)},
        "started": started.isoformat(timespec="seconds"),
        "wall_s": round(time.monotonic() - clock, 3),
        "peak_mb": outputs.get("kernel_peak_mb"),
        **{key: outputs.get(key, empty) for key, empty in (("items", {}), ("rows", []), ("data", {}), ("missing", {}), ("seeds", []))},
        **{key: outputs.get(key, {}) for key in ("versions", "device")},
    }
    write_json(job.folder / "run.json", record)
    return record


def write_failure(job: Job, failure: Failure) -> dict[str, Any]:
    """Record a failure that kept the notebook from running at all (its worker died)."""
    job.folder.mkdir(parents=True, exist_ok=True)
    return write_record(job, datetime.now(UTC), time.monotonic(), failure, {})


def read_run(folder: Path) -> dict[str, Any] | None:
    """run.json of a folder, None if there is none (no run, or one that was cut short). Raises DataError for a damaged file."""
    path = folder / "run.json"
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a record of a run: {error}; delete the folder and run the task again") from error
    if not isinstance(record, dict) or record.get("version") != RUN_VERSION:
        raise DataError(f"{path}: not a record of a run of version {RUN_VERSION}; delete the folder and run the task again")
    return record
