"""From a store of matrix kernels to data sets under `data/raw`, each a folder with Parquet rows and the `dataset.toml` that says how they came about."""

from __future__ import annotations

import json
import re
import tempfile
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.data.local import read_frame, read_header, verify_files
from workbench.data.parquet import to_frame
from workbench.data.registry import sha256_of
from workbench.data.store import Store
from workbench.errors import DataError, StoreError, UsageError
from workbench.kernels.matrix import KERNELS, LIBRARIES
from workbench.measure.drift import drift, first_and_last
from workbench.measure.native import series

__all__ = ["export"]

_ROWS = "rows.parquet"


def export(store: Store, name: str, root: Path, *, replace: bool = False) -> dict[str, int]:
    """Write every series (kernel and library) of a store as the data set `root/<name>-<kernel>-<library>`.

    A row is the first attempt of an instance; `median_s` is the median of its repeats, and `again_s` the time of those that were measured again at the end.

    Args:
        store: what `Runner` has filled.
        name: such as "matrix-cpu-laptop": small letters, digits and hyphens.
        root: the folder of data sets, `data/raw` of the project.
        replace: whether data sets of that name may be there already.

    Returns:
        Name of each data set -> its number of rows.

    Raises:
        UsageError: a name that cannot be used, one that is there already, or a store without matrix kernels.
        StoreError: the folder cannot be written.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise UsageError(f"a data set cannot be named {name!r}; use small letters, digits and single hyphens, such as matrix-cpu-laptop")
    found = sorted({(record.workload.kernel, record.space, record.device) for record in store.rows()})
    chosen = [group for group in found if group[0] in KERNELS and group[1] in LIBRARIES]
    if not chosen:
        raise UsageError(f"{store.path}: it has no measurements of matrix kernels; make some with: workbench measure matrix --output {store.path}")
    if len(devices := {device for _, _, device in chosen}) > 1:
        raise UsageError(f"{store.path}: its measurements are of several devices ({', '.join(sorted(devices))}); a data set has one: use a store for each")
    folders = {group: root / f"{name}-{group[0]}-{group[1]}" for group in chosen}
    for folder in folders.values():
        if folder.exists() and not replace:
            raise UsageError(f"{folder}: is there already; use another name, or say that it may be replaced")
    return {folder.name: _write(store, *group, folder) for group, folder in folders.items()}


def _write(store: Store, kernel: str, library: str, device: str, folder: Path) -> int:
    where = {"kernel": kernel, "space": library, "device": device}
    pairs = first_and_last(store, **where)  # type: ignore[arg-type]
    frame = to_frame(first for first, _ in pairs)
    frame["median_s"] = [pd.Series(first.times_s, dtype="float64").median() for first, _ in pairs]
    frame["again_s"] = pd.array([last.time_s if last is not None else None for _, last in pairs], dtype="float64")
    note = store.note(series(kernel, library, device))
    if note is None:
        raise DataError(f"{store.path}: it does not say how {kernel} in {library} was measured; measure it with: workbench measure matrix")
    last = datetime.fromtimestamp(max(first.timestamp or 0.0 for first, _ in pairs), UTC).date()
    header = _header(kernel, json.loads(note), len(pairs), last, str(drift(store, **where)))  # type: ignore[arg-type]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            fresh = Path(scratch) / folder.name
            fresh.mkdir()
            frame.to_parquet(fresh / _ROWS, compression="zstd", index=False)
            text = "".join(f"{key} = {_toml(value)}\n" for key, value in {**header, "sha256": {_ROWS: sha256_of(fresh / _ROWS)}}.items())
            (fresh / "dataset.toml").write_text(text, encoding="utf-8")
            checked = read_header(fresh)  # what cannot be read again is not kept
            verify_files(fresh, checked)
            read_frame(fresh, checked)
            if folder.exists():
                folder.rename(Path(scratch) / "replaced")
            fresh.rename(folder)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written ({error.strerror or error}); choose a place that can be written, with free space") from error
    return len(frame)


def _header(kernel: str, provenance: dict[str, str], rows: int, measured: date, drifted: str) -> dict[str, Any]:
    package, _, version = provenance["headers"].partition(" ")
    return {
        "kernel": kernel,
        "parameters": list(KERNELS[kernel].parameters),
        "knobs": ["threads"],
        "date": measured,
        "driver": "",
        "compiler": provenance["compiler"],
        "policy": provenance["policy"],
        "command": f"{provenance['command']} --instances {rows}",
        "device": {key: value for key, value in json.loads(provenance["device"]).items() if value is not None},
        "versions": {package: version} if package else {},
        "notes": [
            f"Drift: {drifted} (column again_s).",
            "Inputs are single precision; a matrix of a density below one half is held as a sparse one.",
        ],
    }


def _toml(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + " }" if value else "{}"
    return json.dumps(value, ensure_ascii=False)
