"""Kernel Tuner's cache files: JSON, plain or gzip, one entry a configuration, times in milliseconds.

A run that was interrupted leaves the file without its closing brackets, perhaps with a torn last entry. A configuration that failed has a word in its time
field instead of a number; here it becomes a `Status` and its time stays empty.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.data.text import read_text
from workbench.errors import DataError
from workbench.schema import Status

__all__ = ["FAILURES", "read"]

FAILURES: Mapping[str, Status] = {
    "InvalidConfig": Status.INVALID_CONFIG,
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.RUN_ERROR,
    # Versions before 0.4 wrote this number for every kind of failure.
    "1e20": Status.RUN_ERROR,
}
MS_PER_S = 1e3
SLOWEST_MS = 1e7


def read(path: Path | str) -> pd.DataFrame:
    """Read a cache file as a tidy frame, a row a configuration in the order of the file.

    Returns:
        The file's own knobs (`tune_params_keys`) under their names, then `time_s` (the recorded label, the mean of the repeats; NaN unless ok),
        `time_s_median`, `time_s_min`, `time_s_std` (population), `n_rep`, `compile_s`, `status` and `error` (the file's word for a failure, "" for ok).
        `frame.attrs` has `device_name`, `kernel_name` and `problem_size`.

    Raises:
        DataError: names file, entry, field and value, or the byte offset, of what is wrong.

    Warns:
        UserWarning: a torn last entry was left out.
    """
    path = Path(path)
    document = _document(path, read_text(path))
    knobs = document.get("tune_params_keys")
    cache = document.get("cache")
    if not isinstance(knobs, list) or not knobs or not all(isinstance(knob, str) for knob in knobs):
        raise DataError(f"{path}: tune_params_keys is {knobs!r}; a Kernel Tuner cache lists the names of its knobs there")
    if not isinstance(cache, dict) or not cache:
        raise DataError(f"{path}: no entries under 'cache'; the file was cut before its first measurement or is of another format")
    keys, entries = list(cache), list(cache.values())
    for key, entry in cache.items():
        if not isinstance(entry, dict):
            raise DataError(f"{path}: entry {key!r} is {entry!r}; expected a mapping")
    frame = pd.DataFrame({knob: _knob(path, keys, entries, knob) for knob in knobs})
    errors = _errors(path, keys, entries)
    ok = np.array([not error for error in errors])
    frame["time_s"] = _milliseconds(path, keys, entries, "time", ok) / MS_PER_S
    for name, values in _repeats(path, keys, entries, ok).items():
        frame[name] = values
    frame["compile_s"] = _compile_s(path, keys, entries)
    frame["status"] = [str(FAILURES[error] if error else Status.OK) for error in errors]
    frame["error"] = errors
    frame.attrs = {name: document.get(name) for name in ("device_name", "kernel_name", "problem_size")}
    return frame


def _document(path: Path, text: str) -> dict[str, Any]:
    if not text.strip():
        raise DataError(f"{path}: the file is empty; expected a Kernel Tuner cache (JSON)")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        document = _repaired(path, text, error)
    if not isinstance(document, dict):
        raise DataError(f"{path}: the top level is {type(document).__name__}; a Kernel Tuner cache is a mapping with 'cache' and 'tune_params_keys'")
    return document


def _repaired(path: Path, text: str, error: json.JSONDecodeError) -> Any:
    """Close the brackets of a file that ends in the middle; entries are flat mappings, so that the last "}" ends the last whole one."""
    body = text.rstrip()
    end = body.rfind("}") + 1
    # A fault far from the end is damage, not an interrupted run.
    if error.pos >= end - 1 or error.pos >= len(body) - 1:
        for closing in ("}}", "}"):
            try:
                document = json.loads(body[:end] + closing)
            except json.JSONDecodeError:
                continue
            if torn := body[end:].strip(" \t\r\n,"):
                warnings.warn(f"{path}: left out the torn last entry at character {end}: {torn[:60]!r}", UserWarning, stacklevel=4)
            return document
    raise DataError(f"{path}: line {error.lineno}, column {error.colno} (character {error.pos}): not JSON: {error.msg}") from error


def _knob(path: Path, keys: Sequence[str], entries: Sequence[dict[str, Any]], knob: str) -> list[Any]:
    try:
        values = [entry[knob] for entry in entries]
    except KeyError:
        i = next(i for i, entry in enumerate(entries) if knob not in entry)
        raise DataError(f"{path}: entry {keys[i]!r} lacks the knob {knob!r}") from None
    for key, value in zip(keys, values, strict=True):
        if not isinstance(value, int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
            raise DataError(f"{path}: entry {key!r}, knob {knob!r}: {value!r}; expected a number or text")
    return values


def _errors(path: Path, keys: Sequence[str], entries: Sequence[dict[str, Any]]) -> list[str]:
    errors = []
    for key, entry in zip(keys, entries, strict=True):
        time = entry.get("time")
        if time == 1e20:
            time = "1e20"
        if isinstance(time, str) and time not in FAILURES:
            raise DataError(f"{path}: entry {key!r}, time: {time!r} is no failure of Kernel Tuner; known are {', '.join(FAILURES)}")
        errors.append(time if isinstance(time, str) else "")
    return errors


def _milliseconds(path: Path, keys: Sequence[str], entries: Sequence[dict[str, Any]], field: str, ok: np.ndarray) -> np.ndarray:
    values = np.full(len(entries), np.nan)
    for i in np.flatnonzero(ok).tolist():
        values[i] = _positive(path, keys[i], field, entries[i].get(field))
    return values


def _positive(path: Path, key: str, field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise DataError(f"{path}: entry {key!r}, {field}: {value!r} is not a positive, finite number of milliseconds")
    if value > SLOWEST_MS:
        raise DataError(f"{path}: entry {key!r}, {field}: {value!r} ms would be {value / MS_PER_S:g} s; the unit looks wrong")
    return float(value)


def _repeats(path: Path, keys: Sequence[str], entries: Sequence[dict[str, Any]], ok: np.ndarray) -> dict[str, np.ndarray]:
    """Statistics of the repeats in seconds; an entry without repeats has n_rep 0."""
    lists = [entry.get("times") or [] if good else [] for entry, good in zip(entries, ok, strict=True)]
    lengths = np.array([len(times) if isinstance(times, list) else -1 for times in lists])
    if (lengths < 0).any():
        i = int(np.argmin(lengths))
        raise DataError(f"{path}: entry {keys[i]!r}, times: {lists[i]!r}; expected a list")
    result = {name: np.full(len(entries), np.nan) for name in ("time_s_median", "time_s_min", "time_s_std")}
    for length in np.unique(lengths[lengths > 0]):
        rows = np.flatnonzero(lengths == length)
        for i in rows.tolist():
            for value in lists[i]:
                _positive(path, keys[i], "times", value)
        block = np.array([lists[i] for i in rows], dtype=np.float64)
        result["time_s_median"][rows] = np.median(block, axis=1) / MS_PER_S
        result["time_s_min"][rows] = block.min(axis=1) / MS_PER_S
        result["time_s_std"][rows] = block.std(axis=1) / MS_PER_S
    return {**result, "n_rep": lengths}


def _compile_s(path: Path, keys: Sequence[str], entries: Sequence[dict[str, Any]]) -> np.ndarray:
    values = np.full(len(entries), np.nan)
    for i, entry in enumerate(entries):
        value = entry.get("compile_time")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise DataError(f"{path}: entry {keys[i]!r}, compile_time: {value!r} is not a number of milliseconds")
        values[i] = value / MS_PER_S
    return values
