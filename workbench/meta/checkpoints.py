"""Training that can be taken up again: a file that is written whole or not at all, read without running anything in it (torch's weights_only)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from workbench.errors import DataError, UsageError

__all__ = ["read_checkpoint", "write_checkpoint"]

_SCHEMA = 1


def write_checkpoint(path: Path, kind: str, settings: dict[str, object], state: dict[str, Any]) -> None:
    """Write tensors, numbers, texts, lists and dictionaries of these.

    Args:
        path: file, replaced at once.
        kind: of training.
        settings: what must be the same for training to go on.
        state: what training goes on from.
    Raises:
        UsageError: a path that cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            torch.save({"schema": _SCHEMA, "kind": kind, "settings": settings, "state": state}, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: a checkpoint cannot be written there: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def read_checkpoint(path: Path, kind: str, settings: dict[str, object]) -> dict[str, Any]:
    """What `write_checkpoint` was given as `state`.

    Raises:
        UsageError: no such file, or a checkpoint of another kind of training or of other settings (names the first that differs).
        DataError: not a whole checkpoint (cut off, say), or one of another schema.
    """
    try:
        record = torch.load(path, weights_only=True)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such checkpoint") from None
    except Exception as error:  # torch's reader has many kinds for a file that is no checkpoint
        said = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"{path}: not a whole checkpoint ({said[:120]}); take an earlier one, or train again") from error
    if not isinstance(record, dict) or record.get("schema") != _SCHEMA or not isinstance(record.get("state"), dict):
        raise DataError(f"{path}: not a checkpoint of this workbench, which reads schema {_SCHEMA}; train again")
    if record.get("kind") != kind:
        raise UsageError(f"{path}: a checkpoint of {record.get('kind')!r}, not of {kind!r}")
    saved = record.get("settings")
    for name, value in settings.items():
        there = saved.get(name) if isinstance(saved, dict) else None
        if there != value:
            raise UsageError(f"{path}: its training has {name} = {there}, this one {value}; go on with the same, or begin anew")
    return record["state"]
