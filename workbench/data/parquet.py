"""Measurement records as Parquet files and as tidy frames."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.data.rows import COLUMNS, from_row, to_row
from workbench.errors import DataError, MissingData, StoreError
from workbench.schema import SCHEMA_VERSION, Measurement

__all__ = ["read_parquet", "to_frame", "write_parquet"]

_BATCH = 20_000
_VERSION_KEY = b"workbench.schema_version"

_SCHEMA = pa.schema(list(COLUMNS.items()), metadata={_VERSION_KEY: str(SCHEMA_VERSION).encode()})


def write_parquet(path: Path | str, measurements: Iterable[Measurement]) -> int:
    """Write records to a Parquet file (zstd) and return their number. The file appears whole, replacing what was there, or not at all.

    Raises:
        StoreError: the folder cannot be written or the disk is full; `path` is as it was.
    """
    path = Path(path)
    count = 0
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror}); choose a folder that is there and can be written") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            with pq.ParquetWriter(file, _SCHEMA, compression="zstd") as writer:
                remaining = iter(measurements)
                while batch := [to_row(m.to_json()) for m in itertools.islice(remaining, _BATCH)]:
                    writer.write_table(pa.Table.from_pylist(batch, schema=_SCHEMA))
                    count += len(batch)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp's 0600 would keep others from reading a data set
        os.replace(name, path)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{path}: cannot be written ({error.strerror or error}); what stood there before is unchanged. Free space and export again") from error
    finally:
        Path(name).unlink(missing_ok=True)
    return count


def read_parquet(path: Path | str) -> Iterator[Measurement]:
    """Records of a file made by `write_parquet`, in its order.

    Raises:
        MissingData: no such file.
        DataError: not a Parquet file, damaged, of another schema version, or a row that is not a measurement (names the row, from 0).
    """
    path = Path(path)
    if not path.is_file():
        raise MissingData(f"{path}: no such file; give a Parquet file made by Store.export")
    row = 0
    try:
        with pq.ParquetFile(path) as file:
            metadata = file.schema_arrow.metadata or {}
            if metadata.get(_VERSION_KEY) != str(SCHEMA_VERSION).encode():
                found = metadata.get(_VERSION_KEY, b"none").decode(errors="replace")
                raise DataError(f"{path}: records of schema version {found}; this workbench reads version {SCHEMA_VERSION}")
            for batch in file.iter_batches(_BATCH):
                for record in batch.to_pylist():
                    yield _measurement(path, row, record)
                    row += 1
    except (pa.ArrowException, OSError, EOFError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path}: not a whole Parquet file, {row} records could be read ({str(error).splitlines()[0]}); export it again or restore it"
        ) from error


def _measurement(path: Path, row: int, record: dict[str, Any]) -> Measurement:
    try:
        return Measurement.from_json({**from_row(record), "version": SCHEMA_VERSION})
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: row {row} is not a measurement ({error})") from error


_BEFORE = ("kernel",)
_BETWEEN = ("device", "space", "index")
_AFTER = ("status", "time_s", "times_s", "compile_s", "error", "host", "timestamp", "load")


def to_frame(measurements: Iterable[Measurement]) -> pd.DataFrame:
    """A tidy frame, one row a record: `kernel`, a column a parameter, `device`, `space`, `index`, a column a knob, then status, times and circumstances.

    A record without some parameter or knob has a missing value there; a failure's `time_s` is NaN.

    Raises:
        DataError: a parameter and a knob, or either and a column of the record, have one name.
    """
    records = list(measurements)
    parameters = dict.fromkeys(name for m in records for name in m.workload.params)
    knobs = dict.fromkeys(name for m in records for name in m.config)
    names = [*_BEFORE, *parameters, *_BETWEEN, *knobs, *_AFTER]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"column {twice[0]!r} would stand for two things (parameter, knob or field of the record); read the records with rows() instead")
    columns: dict[str, Any] = {"kernel": [m.workload.kernel for m in records]}
    columns |= {name: [m.workload.params.get(name) for m in records] for name in parameters}
    columns |= {"device": [m.device for m in records], "space": [m.space for m in records], "index": _indices([m.index for m in records])}
    columns |= {name: [m.config.get(name) for m in records] for name in knobs}
    columns["status"] = [str(m.status) for m in records]
    for name in ("time_s", "compile_s", "timestamp", "load"):
        columns[name] = pd.array([getattr(m, name) for m in records], dtype="float64")
    columns |= {name: [getattr(m, name) for m in records] for name in ("times_s", "error", "host")}
    return pd.DataFrame(columns, columns=names)


def _indices(values: list[int | None]) -> Any:
    try:
        return pd.array(values, dtype="Int64")
    except OverflowError:
        return values  # beyond 2^63: Python's whole numbers
