"""Data sets that this project measured itself: folders `data/raw/<name>/` of Parquet files with a `dataset.toml` that says how they came about."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.data.registry import sha256_of
from workbench.errors import DataError
from workbench.paths import project_root
from workbench.schema import Device, Status

__all__ = ["Header", "count_rows", "folders", "read_frame", "read_header", "verify_files"]

TEXT = ("kernel", "driver", "compiler", "policy", "command")
NAMES = ("parameters", "knobs")
TABLES = ("device", "versions", "sha256")
OPTIONAL = ("licence", "notes", "sessions")
DEFAULT_LICENCE = "Apache-2.0"

Header = dict[str, Any]


def folders() -> dict[str, Path]:
    """Name -> folder of every data set under `data/raw`."""
    return {path.parent.name: path.parent for path in sorted((project_root() / "data" / "raw").glob("*/dataset.toml"))}


def read_header(folder: Path) -> Header:
    """The checked contents of `dataset.toml`.

    Returns:
        `kernel`, `driver`, `compiler`, `policy`, `command` (text), `date`, `parameters` and `knobs` (tuples of column names), `device` (a Device), `versions`,
        `sha256` (file -> checksum; the files are read in this order), `licence`, `notes` (tuple), `sessions`: file -> checksum of the records of the tunings
        that asked for the measurements; empty where no tuner had a hand in what was measured.

    Raises:
        DataError: names the file, the key and the value of what is wrong.
    """
    path = folder / "dataset.toml"
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    for key in (*TEXT, "date", *NAMES, *TABLES):
        if key not in record:
            raise DataError(f"{path}: the key {key!r} is missing; it needs {', '.join((*TEXT, 'date', *NAMES, *TABLES))}")
    if unknown := sorted(set(record) - {*TEXT, "date", *NAMES, *TABLES, *OPTIONAL}):
        raise DataError(f"{path}: unknown key {unknown[0]!r}")
    for key in TEXT:
        if not isinstance(record[key], str):
            raise DataError(f"{path}: {key} = {record[key]!r}; it must be text")
    record["notes"] = record.get("notes", [])
    for key in (*NAMES, "notes"):
        if not isinstance(record[key], list) or not all(isinstance(name, str) for name in record[key]):
            raise DataError(f"{path}: {key} = {record[key]!r}; it must be a list of texts")
        record[key] = tuple(record[key])
    record["sessions"] = record.get("sessions", {})
    for key in (*TABLES, "sessions"):
        if not isinstance(record[key], dict):
            raise DataError(f"{path}: {key} = {record[key]!r}; it must be a table")
    for key in ("sha256", "sessions"):
        for name in record[key]:
            if Path(name).name != name or not name.endswith(".parquet"):
                raise DataError(f"{path}: {key} lists {name!r}; a file is a Parquet file beside dataset.toml")
    if not record["sha256"]:
        raise DataError(f"{path}: sha256 lists no file")
    record["device"] = _device(path, record["device"])
    return {"licence": DEFAULT_LICENCE, **record}


def _device(path: Path, table: Mapping[str, Any]) -> Device:
    try:
        return Device(**table)
    except (TypeError, DataError) as error:
        raise DataError(f"{path}: device = {dict(table)!r}: {error}") from error


def count_rows(folder: Path, header: Header) -> int:
    """Number of rows by the files' footers. Raises DataError for a missing file or one that is no Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    for name in header["sha256"]:
        try:
            rows += pq.read_metadata(folder / name).num_rows
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{folder / name}: not a readable Parquet file: {error}") from error
    return rows


def verify_files(folder: Path, header: Header) -> None:
    """Check every file of a data set. Raises DataError for one that is missing or whose sha256 is not the one in dataset.toml."""
    for name, registered in {**header["sha256"], **header["sessions"]}.items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path}: dataset.toml lists the file, but it is not there")
        if (found := sha256_of(path)) != registered:
            raise DataError(f"{path}: sha256 is {found}, dataset.toml says {registered}; the file was changed or damaged: restore it, or measure again")


def read_frame(folder: Path, header: Header) -> pd.DataFrame:
    """The rows of every file of a data set, which `verify_files` has checked.

    Raises:
        DataError: a file is missing or is no Parquet; a column is missing; a status is unknown; a success has no positive, finite
            time, or a failure has one.
    """
    parts = []
    for name in header["sha256"]:
        path = folder / name
        try:
            parts.append(pd.read_parquet(path))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not a Parquet file: {error}") from error
    frame = pd.concat(parts, ignore_index=True)
    for column in ("status", "time_s", *header["parameters"], *header["knobs"]):
        if column not in frame:
            raise DataError(f"{folder}: no column {column!r}; the files have {', '.join(map(str, frame.columns))}")
    status = frame["status"].astype(str)
    if not (known := status.isin([str(s) for s in Status])).all():
        raise DataError(f"{folder}: row {int(known.argmin())}: unknown status {status[int(known.argmin())]!r}")
    ok, time = (status == "ok").to_numpy(), frame["time_s"].to_numpy(dtype=np.float64, na_value=np.nan)
    good = np.where(ok, np.isfinite(time) & (time > 0), np.isnan(time))
    if not good.all():
        i = int(np.argmin(good))
        raise DataError(
            f"{folder}: row {i}: status {status[i]!r} with time {float(time[i])!r}; a success has a positive, finite time in seconds, a failure has none"
        )
    return frame
