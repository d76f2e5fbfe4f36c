"""A measurement record as a row of an Arrow table: the types of its columns, and what a table cannot hold as text. Needs pyarrow only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

__all__ = ["COLUMNS", "from_row", "to_row"]

# Field of a record (`Measurement.to_json`), without its version -> its type. `index` is text: a space may have more than 2^63 configurations. `config` is JSON:
# knobs differ between records of one file.
COLUMNS: Mapping[str, pa.DataType] = {
    "workload": pa.string(),
    "device": pa.string(),
    "status": pa.string(),
    "time_s": pa.float64(),
    "space": pa.string(),
    "index": pa.string(),
    "config": pa.string(),
    "times_s": pa.list_(pa.float64()),
    "compile_s": pa.float64(),
    "error": pa.string(),
    "host": pa.string(),
    "timestamp": pa.float64(),
    "load": pa.float64(),
}


def to_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as a row. Raises ValueError for a number in its configuration that is not finite."""
    index = None if record["index"] is None else str(int(record["index"]))
    return {**record, "index": index, "config": json.dumps(record["config"], allow_nan=False, separators=(",", ":"))}


def from_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Inverse of `to_row`. Raises KeyError, TypeError or ValueError for what is no row of a record."""
    index = None if row.get("index") is None else int(row["index"])
    return {**row, "index": index, "config": json.loads(row["config"])}
