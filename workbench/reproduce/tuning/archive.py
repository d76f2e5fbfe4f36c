"""Sessions that a report computed, kept with the project: what took hours is some hundred kilobytes, and a report is made again, or gone on with, from it.

A session is found by the key of the engine's cache, a digest of its framework's code, its data and its settings. So what is kept of older code is never taken
for a session of today's, and to compute everything anew is to delete the folder.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from workbench.errors import DataError
from workbench.paths import project_root
from workbench.reproduce.tuning.sessions import Session

__all__ = ["read", "write"]

_COLUMNS = ("key", "framework", "task", "seed", "session")


def read(experiment: str) -> Mapping[str, Session]:
    """The sessions of an experiment by key; none where no file is. Raises DataError for a file that is damaged."""
    path = _path(experiment)
    try:
        written = path.stat().st_mtime_ns
    except FileNotFoundError:
        return {}
    return _read(path, written)


def write(experiment: str, sessions: Mapping[str, tuple[str, str, int, Session]]) -> Path:
    """Write the file of an experiment whole, in place of what was there: key -> framework, task, seed, session."""
    rows = [(key, framework, task, seed, json.dumps(session.to_json())) for key, (framework, task, seed, session) in sessions.items()]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS)).sort_values(["framework", "task", "seed"], ignore_index=True)
    path = _path(experiment)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    frame.to_parquet(part, index=False, compression="zstd", compression_level=19)
    part.replace(path)
    return path


@functools.lru_cache(maxsize=16)
def _read(path: Path, written: int) -> Mapping[str, Session]:
    try:
        frame = pd.read_parquet(path, columns=list(_COLUMNS))
        return {str(key): Session.from_json(json.loads(text)) for key, text in zip(frame["key"], frame["session"], strict=True)}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: no archive of sessions ({error}); delete it, and they are computed again") from error


def _path(experiment: str) -> Path:
    return project_root() / "data" / "sessions" / f"{experiment}.parquet"
