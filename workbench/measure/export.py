"""From a store to data sets under `data/raw`, each a folder with Parquet rows and the `dataset.toml` that says how they came about."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.data.local import read_frame, read_header, verify_files
from workbench.data.parquet import to_frame
from workbench.data.registry import sha256_of
from workbench.data.store import Store
from workbench.errors import StoreError, UsageError
from workbench.measure.drift import drift_of
from workbench.measure.passes import Inputs, label, passes, times_of
from workbench.measure.series import Series, series_of

__all__ = ["SESSIONS", "check_name", "export", "frame_of", "write_sets"]

_ROWS = "rows.parquet"
SESSIONS = "sessions.parquet"


def export(store: Store, name: str, root: Path, *, notes: Sequence[str] = (), replace: bool = False) -> dict[str, int]:
    """Write every series of a store as a data set: `root/<name>-<kernel>-<library>` for a matrix kernel; for a Halide kernel or a kind of
    convolution `root/<name>-<kernel>`, and `root/<name>-<kernel>-autoschedulers` where the autoschedulers' choices were measured.

    A row is an input, a workload and a configuration. Its label `time_s` is the least time of its attempts; without a success it has the first attempt's
    status and no time, and what gave a wrong result once has that status. `times_s`, `median_s` (their median), `load` and `compile_s` are of the attempt
    that stands; `timestamp` is of the first one. `attempts` is their number, `pass_s` lists the time of each in order (NaN for a failure), and `again_s`
    is the last one's, NaN where there was but one.

    Args:
        store: what the runners have filled.
        name: such as "matrix-cpu-laptop": small letters, digits and hyphens.
        root: the folder of data sets, `data/raw` of the project.
        notes: sentences to add to each data set's notes.
        replace: whether data sets of that name may be there already.

    Returns:
        Name of each data set -> its number of rows.

    Raises:
        UsageError: a name that cannot be used, one that is there already, or a store without a series that one data set can hold.
        DataError: the store does not say how a series was measured.
        StoreError: the store cannot be read, or the folder cannot be written; another process may have written it at the same time.
    """
    check_name(name)  # before reading the whole store
    return write_sets({f"{name}-{series.name}": series for series in series_of(store)}, root, notes=notes, replace=replace)


def write_sets(
    sets: Mapping[str, Series], root: Path, *, notes: Sequence[str] = (), replace: bool = False, sessions: pd.DataFrame | None = None
) -> dict[str, int]:
    """Write series as data sets of these names, each with the records of the tunings that asked for its measurements, if any; the other arguments, result and
    errors as of `export`."""
    folders = {root / name: series for name, series in sets.items()}
    for folder in folders:
        if folder.exists() and not replace:
            raise UsageError(f"{folder}: is there already; use another name, or say that it may be replaced")
    return {folder.name: _write(series, notes, folder, sessions) for folder, series in folders.items()}


def check_name(name: str) -> None:
    """Raise UsageError for a name that data sets cannot have."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise UsageError(f"a data set cannot be named {name!r}; use small letters, digits and single hyphens, such as matrix-cpu-laptop")


def _write(series: Series, notes: Sequence[str], folder: Path, sessions: pd.DataFrame | None) -> int:
    frame, header = frame_of(series.inputs), _header(series, notes)
    for column, values in series.columns.items():
        frame[column] = values
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            fresh = Path(scratch) / folder.name
            fresh.mkdir()
            frame.to_parquet(fresh / _ROWS, compression="zstd", index=False)
            header |= {"sha256": {_ROWS: sha256_of(fresh / _ROWS)}}
            if sessions is not None:
                sessions.to_parquet(fresh / SESSIONS, compression="zstd", index=False)
                header |= {"sessions": {SESSIONS: sha256_of(fresh / SESSIONS)}}
            text = "".join(f"{key} = {_toml(value)}\n" for key, value in header.items())
            (fresh / "dataset.toml").write_text(text, encoding="utf-8")
            checked = read_header(fresh)  # what cannot be read again is not kept
            verify_files(fresh, checked)
            read_frame(fresh, checked)
            if folder.exists():
                folder.rename(Path(scratch) / "replaced")
            fresh.rename(folder)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise UsageError(f"{folder}: another process has written it meanwhile; use another name, or say that it may be replaced") from error
        raise StoreError(f"{folder}: cannot be written ({error.strerror or error}); choose a place that can be written, with free space") from error
    return len(frame)


def frame_of(inputs: Inputs) -> pd.DataFrame:
    """The rows of a data set: an input each, with the columns that `export` describes."""
    # When an input was first measured tells how long the series took to make; the moment of a later pass would not.
    frame = to_frame(dataclasses.replace(label(attempts), timestamp=attempts[0].timestamp) for attempts in inputs)
    # What no row has: an index where the space is not enumerated, a time of compiling where one program runs every input.
    frame = frame.drop(columns=[name for name in ("index", "compile_s") if frame[name].isna().all()])
    times = [times_of(attempts) for attempts in inputs]
    frame["median_s"] = [pd.Series(repeats, dtype="float64").median() for repeats in frame["times_s"]]
    frame["attempts"] = [len(attempts) for attempts in inputs]
    frame["pass_s"] = times
    frame["again_s"] = [seconds[-1] if len(seconds) > 1 else math.nan for seconds in times]
    return frame


def _header(series: Series, notes: Sequence[str]) -> dict[str, Any]:
    device = json.loads(series.provenance["device"])
    # The name of a virtual machine's CPU may say nothing.
    device["model"] = ", ".join(filter(None, (device.get("model"), series.provenance.get("processor"))))
    last = max(attempt.timestamp or 0.0 for attempts in series.inputs for attempt in attempts)
    return {
        "kernel": series.kernel,
        "parameters": list(series.parameters),
        "knobs": list(series.knobs),
        "date": datetime.fromtimestamp(last, UTC).date(),
        "driver": series.provenance.get("driver", ""),
        "compiler": series.provenance["compiler"],
        "policy": series.provenance["policy"] + _passes(series.inputs),
        "command": series.command,
        "device": {key: value for key, value in device.items() if value is not None},
        "versions": dict(series.versions),
        "notes": [f"Drift: {drift_of(series.inputs)} (the last entry of pass_s beside the first).", *series.notes, *notes],
    }


def _passes(inputs: Inputs) -> str:
    """What the policy says of the attempts beyond the first, "" where there is none."""
    rounds = passes(inputs)
    oftener = sum(len(attempts) > rounds for attempts in inputs)
    if rounds == 1 and not oftener:
        return ""
    once_more = f", {oftener:,} of {len(inputs):,} inputs once more" if oftener else ""
    return f"; measured in {rounds} {'passes' if rounds > 1 else 'pass'}{once_more}: times_s is of the attempt with the least time, pass_s has the time of each"


def _toml(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + " }" if value else "{}"
    return json.dumps(value, ensure_ascii=False)
