"""What a run on a GPU brings back: a line of JSON for each candidate while it runs, one Parquet file at its end.

A record is a measurement (`Measurement.to_json`) with `details`. The first line of a run, and the metadata of the Parquet file, say how it was made.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.data.rows import COLUMNS, from_row, to_row
from workbench.errors import DataError, MissingData, StoreError, UsageError
from workbench.measure.cuda.bundle import Candidate, Identity, Problem, identity
from workbench.measure.cuda.pool import Compiled
from workbench.schema import Measurement, Status

__all__ = ["DETAILS", "RECORDS_VERSION", "Results", "identity_of", "read_results", "record", "right_groups"]

RECORDS_VERSION = 1
_LINES = "results.jsonl"
_PARQUET = "results.parquet"
_METADATA = b"workbench.cuda_results"

# Of a candidate: its group and label; where it failed; the first run, which finds no number in its output and nothing in the caches; the largest error of its
# output relative to the sizes of its terms; of how many runs a repeat is the mean; times with the copy of the result to the host, by the host's clock; what the
# kernel with the most of it needs; the size of its machine code; seconds since the run began; and how often the GPU's process had been started.
DETAILS: Mapping[str, pa.DataType] = {
    "group": pa.string(),
    "label": pa.string(),
    "stage": pa.string(),
    "first_s": pa.float64(),
    "relative_error": pa.float64(),
    "calls": pa.int64(),
    "copied_s": pa.float64(),
    "copied_times_s": pa.list_(pa.float64()),
    "registers": pa.int64(),
    "shared_bytes": pa.int64(),
    "local_bytes": pa.int64(),
    "max_threads": pa.int64(),
    "cubin_bytes": pa.int64(),
    "elapsed_s": pa.float64(),
    "gpu_process": pa.int64(),
}
_SCHEMA = pa.schema([("version", pa.int64()), *COLUMNS.items(), *DETAILS.items()])


def record(
    candidate: Candidate,
    problem: Problem,
    compiled: Compiled,
    answer: Mapping[str, Any] | None,
    *,
    device: str,
    host: str,
    timestamp: float,
    load: float | None,
) -> dict[str, Any]:
    """The record of a candidate.

    Args:
        candidate, problem: what was tried.
        compiled: how compiling its program ended.
        answer: how running it ended (`Gpu.measure`), None where there was nothing to run.
        device: name of the device.
        host, timestamp, load: where and when.
    """
    outcome: Mapping[str, Any] = answer if answer is not None else {"status": str(compiled.status), "stage": "compile", "error": compiled.error}
    ok = outcome["status"] == Status.OK
    times = tuple(outcome["times_s"]) if ok else ()
    measurement = Measurement(
        workload=problem.workload,
        device=device,
        status=Status(outcome["status"]),
        time_s=min(times, default=None),
        space=candidate.space,
        index=candidate.index,
        config=candidate.config,
        times_s=times,
        compile_s=compiled.compile_s,
        error="" if ok else str(outcome.get("error", "")),
        host=host,
        timestamp=timestamp,
        load=load,
    )
    details: dict[str, Any] = {"group": candidate.group, "label": candidate.label}
    details |= {name: outcome[name] for name in ("stage", "first_s", "calls") if name in outcome and not (ok and name == "stage")}
    if math.isfinite(error := outcome.get("relative_error", math.inf)):
        details["relative_error"] = error
    if ok and "copied_times_s" in outcome:
        details |= {"copied_s": min(outcome["copied_times_s"]), "copied_times_s": outcome["copied_times_s"]}
    if functions := outcome.get("functions"):
        details |= {name: max(facts[name] for facts in functions.values()) for name in ("registers", "shared_bytes", "local_bytes")}
        details["max_threads"] = min(facts["max_threads"] for facts in functions.values())
    if compiled.path is not None and compiled.path.suffix != ".ptx":
        details["cubin_bytes"] = compiled.path.stat().st_size
    return {**measurement.to_json(), "details": details}


class Results:
    """The records of a run, in a folder.

    Args:
        folder: where they go.
        header: how they are made.
        going_on: whether the folder may have results already, which these join.

    Raises:
        UsageError: the folder has results, and `going_on` is False.
        StoreError: it cannot be written.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any], *, going_on: bool) -> None:
        self._folder, self._header = folder, {"version": RECORDS_VERSION, **header}
        lines = folder / _LINES
        there = [path for path in (lines, folder / _PARQUET) if path.exists()]
        if there and not going_on:
            raise UsageError(f"{there[0]}: results of another run; go on with them by --skip-done {folder}, or name another folder")
        if lines.exists():
            _drop_torn_line(lines)
        try:
            self._file = lines.open("a", encoding="utf-8")
        except OSError as error:
            raise StoreError(f"{folder}: results cannot be kept there ({error.strerror or error}); name a folder that can be written") from error
        self._write({"header": self._header})

    def add(self, entry: Mapping[str, Any]) -> None:
        """Keep a record: it is in the file when this returns. Raises StoreError where the disk is full."""
        self._write(entry)

    def finish(self) -> int:
        """Put all records of the folder into one Parquet file in place of the lines; returns their number. Raises StoreError where the disk is full."""
        self._file.close()
        _, records = read_results(self._folder)
        target = self._folder / _PARQUET
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            table = pa.Table.from_pylist([to_row({**entry, **entry["details"]}) for entry in records], schema=_SCHEMA)
            pq.write_table(table.replace_schema_metadata({_METADATA: json.dumps(self._header).encode()}), fresh, compression="zstd")
            fresh.replace(target)
            (self._folder / _LINES).unlink()
        except OSError as error:
            raise StoreError(f"{target}: cannot be written ({error.strerror or error}); the records stand in {_LINES} beside it") from error
        finally:
            fresh.unlink(missing_ok=True)
        return len(records)

    def _write(self, entry: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(entry, allow_nan=False, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as error:
            raise StoreError(f"{self._folder / _LINES}: cannot be written ({error.strerror or error}); free space, and go on with --skip-done") from error


def read_results(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """How the results of a folder were made, and its records, in their order; a last line that was cut short is left out with a warning.

    Raises:
        MissingData: the folder has no results.
        DataError: what is there cannot be read, or is of a newer version.
    """
    parquet, lines = folder / _PARQUET, folder / _LINES
    if not (parquet.is_file() or lines.is_file()):
        raise MissingData(f"{folder}: neither {_PARQUET} nor {_LINES}; give the folder that a run wrote (--out)")
    header, records = _read_parquet(parquet) if parquet.is_file() else ({}, [])
    if lines.is_file():
        later, more = _read_lines(lines)
        header, records = later or header, records + more
    if not header:
        raise DataError(f"{folder}: its results do not say how they were made; the run ended before its first candidate, so that nothing is lost")
    if header.get("version", 0) > RECORDS_VERSION:
        raise DataError(f"{folder}: results of version {header['version']}; this workbench reads up to version {RECORDS_VERSION}: update it")
    return header, records


def identity_of(entry: Mapping[str, Any]) -> Identity:
    """What a record's candidate was."""
    return identity(entry["workload"], entry["space"], entry["index"], entry["config"])


def _read_parquet(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        table = pq.ParquetFile(path).read()
        header = json.loads((table.schema.metadata or {})[_METADATA])
        records = []
        for row in table.to_pylist():
            entry = from_row({name: row[name] for name in ("version", *COLUMNS)})
            entry["details"] = {name: row[name] for name in DETAILS if row.get(name) is not None}
            records.append(entry)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise DataError(f"{path}: not a file of results ({str(error).splitlines()[0]}); copy it again") from error
    return header, records


def _read_lines(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    header: dict[str, Any] = {}
    records = []
    lines = path.read_bytes().split(b"\n")
    if lines.pop():
        warnings.warn(f"{path}: its last line was cut short and is left out; that candidate counts as not measured", stacklevel=4)
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if "header" in entry:
                header = dict(entry["header"])
            else:
                Measurement.from_json({name: value for name, value in entry.items() if name != "details"})
                entry["details"] = dict(entry["details"])
                records.append(entry)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: line {number} is not a record ({error}); restore the file, or delete the line") from error
    return header, records


def _drop_torn_line(path: Path) -> None:
    """What is appended must begin on a line of its own."""
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)


def right_groups(records: Sequence[Mapping[str, Any]]) -> set[str]:
    """Groups of which a candidate was right."""
    return {entry["details"].get("group", "") for entry in records if entry["status"] == Status.OK}
