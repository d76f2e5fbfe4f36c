"""The manifest: which notebook makes which items of the papers, with which parameters, from which data sets."""

from __future__ import annotations

import difflib
import fnmatch
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import DataError, UsageError

__all__ = ["Manifest", "Profile", "Task", "load_manifest"]


@dataclass(frozen=True)
class Profile:
    """How much is computed, and how long a cell and a whole notebook may take, in seconds."""

    name: str
    cell_limit_s: float
    task_limit_s: float
    text: str = ""


@dataclass(frozen=True)
class Task:
    """One notebook run: `items` are the papers' tables and figures that it makes, `inputs` names or patterns of data sets, each of which matches some.

    `if_there` are patterns of data sets that it uses too once there are any, such as those of a GPU.
    A `timed` task measures the machine that it runs on: it runs with no other beside it, and what it found holds for that CPU only.
    """

    name: str
    notebook: str
    title: str = ""
    items: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    if_there: tuple[str, ...] = ()
    timed: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    by_profile: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def parameters_for(self, profile: str) -> dict[str, Any]:
        """Parameters of a profile: the common ones, then the profile's own, then its name."""
        return {**self.parameters, **self.by_profile.get(profile, {}), "profile": profile}

    def data_sets(self, known: Iterable[str]) -> list[str]:
        """Names in `known` that `inputs` or `if_there` name or match, in the order of `known`. Raises UsageError for an input that matches none."""
        known = list(known)
        for pattern in self.inputs:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in known):
                close = difflib.get_close_matches(pattern, known, n=3)
                hint = f"close: {', '.join(close)}" if close else "`workbench data list` shows the names"
                raise UsageError(f"manifest: task {self.name!r} has the input {pattern!r}, which matches no data set; {hint}")
        return [name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in (*self.inputs, *self.if_there))]


@dataclass(frozen=True)
class Manifest:
    """All tasks and profiles, in the order of the file."""

    tasks: Mapping[str, Task]
    profiles: Mapping[str, Profile]

    def profile(self, name: str) -> Profile:
        """The profile of this name. Raises UsageError that lists what there is."""
        if name not in self.profiles:
            raise UsageError(f"no profile {name!r}; use one of {', '.join(self.profiles)}")
        return self.profiles[name]

    def select(self, names: Iterable[str] = ()) -> list[Task]:
        """Tasks by name, or by a pattern such as "nnc-*"; all when none is named. Raises UsageError for a name without a task."""
        patterns = list(names)
        for pattern in patterns:
            if not fnmatch.filter(self.tasks, pattern):
                close = difflib.get_close_matches(pattern, self.tasks, n=3, cutoff=0.4)
                raise UsageError(f"no task {pattern!r} in the manifest; " + (f"close: {', '.join(close)}" if close else f"there are {', '.join(self.tasks)}"))
        return [task for name, task in self.tasks.items() if not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def load_manifest(path: Path | None = None) -> Manifest:
    """Read a manifest; without a path the project's own. Raises DataError that names file, task and fault."""
    path = path or Path(__file__).with_name("manifest.toml")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as a manifest: {error}") from error
    profiles = {name: _build(path, f"profile {name!r}", Profile, {"name": name, **entry}) for name, entry in document.get("profiles", {}).items()}
    if not profiles:
        raise DataError(f"{path}: no [profiles.NAME]; a profile has cell_limit_s and task_limit_s")
    return Manifest({name: _task(path, name, entry, profiles) for name, entry in document.get("tasks", {}).items()}, profiles)


def _task(path: Path, name: str, entry: Mapping[str, Any], profiles: Mapping[str, Profile]) -> Task:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise DataError(f"{path}: task {name!r}: a name is a folder's name: small letters, digits and -")
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items() if key not in profiles}
    by_profile = {key: value for key, value in entry.items() if key in profiles}
    task = _build(path, f"task {name!r}", Task, {"name": name, "by_profile": by_profile, **fields})
    if not isinstance(task.timed, bool):
        raise DataError(f"{path}: task {name!r}: timed = {task.timed!r}; it is true or false")
    for parameters in (task.parameters, *by_profile.values()):
        if taken := {"profile", "output_dir"} & set(parameters):
            raise DataError(f"{path}: task {name!r}: {min(taken)!r} is passed by the runner; take it out of the parameters")
    notebook = Path(task.notebook)
    if notebook.is_absolute() or ".." in notebook.parts:
        raise DataError(f"{path}: task {name!r}: notebook {task.notebook!r} must be a path inside the project")
    return task


def _build(path: Path, what: str, kind: type, fields: Mapping[str, Any]) -> Any:
    try:
        return kind(**fields)
    except TypeError as error:
        raise DataError(f"{path}: {what}: {str(error).replace('__init__() ', '')}") from error
