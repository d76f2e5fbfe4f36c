"""What a run depended on, so that it is not repeated: one checksum of notebook, parameters, inputs, package and lock; and the git state."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from workbench.data import datasets, registry
from workbench.errors import DataError, MissingData, UsageError
from workbench.reproduce.record import RUN_VERSION, read_run

__all__ = ["git_state", "is_current", "run_key"]

_PACKAGE = Path(__file__).resolve().parents[1]
_SUFFIXES = {".py", ".toml"}
# What only runs, judges or reports cannot change what a notebook finds.
_BESIDE = {
    f"reproduce/{name}"
    for name in (
        *("cache.py", "claims.py", "claims.toml", "execute.py", "manifest.py", "manifest.toml", "progress.py"),
        *("record.py", "report.py", "run.py", "scorecard.py", "whereabouts.py"),
    )
}


def run_key(root: Path, notebook: str, parameters: Mapping[str, Any], data_sets: Iterable[str], cpu: str = "") -> str:
    """sha256 over everything that a run's results may depend on. A notebook that cannot be read gives a key too: its run then says what is wrong.

    `cpu` is what tells this machine's CPU from others, for a notebook that times it; "" for one whose results are the same anywhere.
    """
    lock = root / "requirements.lock"
    parts = {
        "version": RUN_VERSION,
        "notebook": _source(root / notebook),
        "parameters": dict(parameters),
        "inputs": {name: _checksums(name) for name in data_sets},
        "package": _package_digest(),
        "lock": hashlib.sha256(lock.read_bytes()).hexdigest() if lock.is_file() else None,
    }
    if cpu:
        parts["cpu"] = cpu
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8")).hexdigest()


def is_current(folder: Path, key: str) -> bool:
    """Whether a folder holds a finished run with this key whose files are there, and nothing that it missed has come within reach since."""
    try:
        record = read_run(folder)
    except DataError:
        return False
    if record is None or record.get("status") != "ok" or record.get("key") != key:
        return False
    files = ["notebook.ipynb", *(name for item in record["items"].values() for name in item["files"])]
    return all((folder / name).is_file() for name in files) and not any(_reachable(name) for name in record["missing"])


def git_state(root: Path) -> dict[str, Any]:
    """Commit, nearest tag and whether tracked files differ from the commit (reference outputs aside); sha is None outside a repository."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    sha = git("rev-parse", "HEAD")
    if sha is None:
        return {"sha": None, "tag": None, "dirty": None}
    changes = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)figures", ":(exclude)RESULTS.md")
    return {"sha": sha, "tag": git("describe", "--tags", "--abbrev=0"), "dirty": bool(changes)}


def _checksums(name: str) -> list[str]:
    try:
        return datasets.checksums(name)
    except DataError as error:
        return [str(error)]  # the run says what is wrong with it; until it is mended, that stays so


def _source(path: Path) -> Any:
    # Cells, their kinds and tags; not outputs, execution counts and ids, which JupyterLab changes without changing what runs.
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    try:
        cells = json.loads(text)["cells"]
        return [[cell["cell_type"], "".join(cell["source"]), sorted(cell["metadata"].get("tags", []))] for cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError):
        return text


@cache
def _package_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*")):
        place = path.relative_to(_PACKAGE).as_posix()
        if path.suffix in _SUFFIXES and not place.startswith("cli/") and place not in _BESIDE:
            digest.update(f"{place}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _reachable(name: str) -> bool:
    try:
        for file in datasets.files_of(name):
            registry.fetch(file, dataset=name, progress=False)
    except (MissingData, UsageError):
        return False
    except DataError:
        return True  # damaged: the run should say so
    return True
