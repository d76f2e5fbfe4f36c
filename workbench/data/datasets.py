"""The catalogue: a name gives a tidy frame, its kernel, its device and its licence."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.data import registry
from workbench.data.catalogue import ENTRIES, Entry
from workbench.errors import DataError, UsageError
from workbench.kernels.base import Kernel
from workbench.schema import Device

__all__ = ["Dataset", "describe", "files_of", "load_dataset", "names", "read_file"]

_loaded: dict[tuple[str, tuple[str, ...]], Dataset] = {}


@dataclass(frozen=True)
class Dataset:
    """Measurements of one kernel on one device as a tidy frame.

    Attributes:
        name: name in the catalogue, such as "nnc-mm-i5-500".
        frame: one row an attempt, in the order of the source. Columns: `status` (values of Status), `time_s` (NaN unless ok), the columns named in
            `parameters` and `knobs`, and what else the source records (`times_s` statistics, `compile_s`, `gflop`, ...).
        kernel: what was measured.
        device: where.
        parameters: columns that say which workload a row is of (sizes, densities).
        knobs: columns that say which configuration (threads, tiles, vector widths).
        licence: SPDX name, or "none stated".
        source: where it comes from, in one line for print.
        sha256: file -> checksum of every file it was read from.
        notes: traits that a reader of a result must know, a sentence each.
    """

    name: str
    frame: pd.DataFrame
    kernel: Kernel
    device: Device
    parameters: tuple[str, ...]
    knobs: tuple[str, ...] = ()
    licence: str = "none stated"
    source: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that a model may see: parameters, then knobs."""
        return self.parameters + self.knobs

    @property
    def valid(self) -> pd.DataFrame:
        """Rows whose status is ok, with a fresh index."""
        return self.frame[self.frame["status"] == "ok"].reset_index(drop=True)


def names() -> list[str]:
    """Names of all data sets, in the order of the catalogue."""
    return list(ENTRIES)


def files_of(name: str) -> list[registry.ExternalFile]:
    """Registered files of a data set. Raises UsageError for an unknown name."""
    return [registry.find(repository, path) for repository, path in _entry(name).files]


def describe(name: str) -> dict[str, Any]:
    """What the catalogue says of a data set without reading it, as plain JSON types. Raises UsageError for an unknown name."""
    entry = _entry(name)
    return {
        "name": entry.name,
        "kernel": entry.kernel,
        "device": dataclasses.asdict(entry.device),
        "rows": entry.rows,
        "parameters": list(entry.parameters),
        "knobs": list(entry.knobs),
        "licence": entry.licence,
        "files": [{"key": file.key, "bytes": file.bytes, "sha256": file.sha256, "url": file.url} for file in files_of(name)],
        "notes": list(entry.notes),
    }


def load_dataset(name: str) -> Dataset:
    """The data set of a name, read once a process; the frame is a fresh copy that a caller may change.

    Raises:
        UsageError: an unknown name (the message has close matches).
        MissingData: a file that is neither in the cache, nor in the mirror, nor on the network.
        DataError: a file with a wrong sha256 or contents.
    """
    entry = _entry(name)
    files = files_of(name)
    paths = [registry.fetch(file, dataset=name) for file in files]
    key = (name, tuple(str(path) for path in paths))
    if key not in _loaded:
        _loaded[key] = _build(entry, files, paths)
    return dataclasses.replace(_loaded[key], frame=_loaded[key].frame.copy())


def read_file(path: Path | str, format: str, layout: str | None = None) -> pd.DataFrame:
    """Read one file of a format ("nnc", "halide", "kernel-tuner", "autotvm", "flextensor") as a tidy frame; `layout` where the format has several."""
    path = Path(path)
    if format in ("nnc", "halide"):
        from workbench.data import nnc_csv

        return nnc_csv.read(path, layout or None)
    raise UsageError(f"unknown format {format!r}; use nnc, halide, kernel-tuner, autotvm or flextensor")


def _entry(name: str) -> Entry:
    if name in ENTRIES:
        return ENTRIES[name]
    close = difflib.get_close_matches(name, names(), 3)
    hint = f"did you mean {', '.join(close)}?" if close else "`workbench data list` shows the names"
    raise UsageError(f"unknown data set {name!r}; {hint}")


def _build(entry: Entry, files: list[registry.ExternalFile], paths: list[Path]) -> Dataset:
    parts = [read_file(path, entry.format, entry.layout) for path in paths]
    frame = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    inputs = list(entry.parameters + entry.knobs)
    if entry.layout == "blur-cpu-xeon":
        # One published line lost its inputs; without it the inputs are whole numbers again.
        frame = frame.dropna(subset=inputs).astype(dict.fromkeys(inputs, "int64")).reset_index(drop=True)
    if len(frame) != entry.rows:
        raise DataError(f"data set {entry.name}: {len(frame)} rows, the catalogue says {entry.rows}")
    return Dataset(
        name=entry.name,
        frame=frame,
        kernel=_kernel(entry.kernel),
        device=entry.device,
        parameters=entry.parameters,
        knobs=entry.knobs,
        licence=entry.licence,
        source=", ".join(f"{file.repository} {file.path} at {file.commit[:10]}" for file in files),
        sha256={file.key: file.sha256 for file in files},
        notes=entry.notes,
    )


def _kernel(name: str) -> Kernel:
    complexity = {
        "mm": lambda p: p["m"] * p["n"] * p["k"],
        "mv": lambda p: p["m"] * p["n"],
        "mc": lambda p: (p["m"] - p["r"] + 1) * (p["n"] - p["r"] + 1) * p["r"] ** 2,
    }.get(name, lambda p: p["n"] ** 2)
    entry = next(entry for entry in ENTRIES.values() if entry.kernel == name)
    return Kernel(name, name, entry.parameters, complexity=complexity)
