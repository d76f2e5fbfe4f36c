"""The catalogue: a name gives a tidy frame, its kernel, its device and its licence."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.data import local, registry
from workbench.data.catalogue import ENTRIES, Entry
from workbench.errors import DataError, UsageError
from workbench.kernels import kernel
from workbench.kernels.base import Kernel
from workbench.schema import Device

__all__ = ["FORMATS", "Dataset", "checksums", "describe", "files_of", "load_dataset", "names", "read_file"]

FORMATS: Mapping[str, str] = {
    "nnc": "nnc_csv",
    "halide": "nnc_csv",
    "kernel-tuner": "kernel_tuner",
    "autotvm": "autotvm",
    "flextensor": "flextensor",
}

# What AutoTVM's logs of matrix products measured; no template of ours, so it has no space.
_BATCH_MATMUL = Kernel(
    "batch_matmul",
    "Batched matrix product",
    ("batch", "m", "n", "k"),
    complexity=lambda p: p["batch"] * p["m"] * p["n"] * p["k"],
    flop=lambda p: 2 * p["batch"] * p["m"] * p["n"] * p["k"],
)

_loaded: dict[tuple[str, ...], Dataset] = {}


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
    """Names of all data sets: those of others in the order of the catalogue, then those under `data/raw`."""
    return [*ENTRIES, *_own()]


def files_of(name: str) -> list[registry.ExternalFile]:
    """Registered files of others that a data set is read from; none for one of our own. Raises UsageError for an unknown name."""
    _check_name(name)
    return [registry.find(repository, path) for repository, path in ENTRIES[name].files] if name in ENTRIES else []


def checksums(name: str) -> list[str]:
    """sha256 of every file that a data set is read from, as registered; the files themselves are not looked at.

    Raises:
        UsageError: an unknown name.
        DataError: a data set of our own whose dataset.toml cannot be read.
    """
    if name in ENTRIES:
        return [file.sha256 for file in files_of(name)]
    _check_name(name)
    header = local.read_header(_own()[name])
    return [*header["sha256"].values(), *header["sessions"].values()]


def describe(name: str) -> dict[str, Any]:
    """What is known of a data set without reading its rows, as plain JSON types.

    Returns:
        `name`, `kernel`, `device`, `rows`, `parameters`, `knobs`, `licence`, `files` (key, bytes, sha256, and url for one of others), `notes`.

    Raises:
        UsageError: an unknown name.
        DataError: a data set of our own whose dataset.toml or files cannot be read.
    """
    _check_name(name)
    if name in ENTRIES:
        entry = ENTRIES[name]
        facts = {field: getattr(entry, field) for field in ("kernel", "device", "rows", "parameters", "knobs", "licence", "notes")}
        files = [{"key": file.key, "bytes": file.bytes, "sha256": file.sha256, "url": file.url} for file in files_of(name)]
    else:
        folder = _own()[name]
        header = local.read_header(folder)
        facts = {field: header[field] for field in ("kernel", "device", "parameters", "knobs", "licence", "notes")} | {"rows": local.count_rows(folder, header)}
        files = [
            {"key": file, "bytes": (folder / file).stat().st_size, "sha256": sha256} for file, sha256 in {**header["sha256"], **header["sessions"]}.items()
        ]
    facts |= {"device": dataclasses.asdict(facts["device"])} | {field: list(facts[field]) for field in ("parameters", "knobs", "notes")}
    return {"name": name, **facts, "files": files}


def load_dataset(name: str) -> Dataset:
    """The data set of a name, read once a process; the frame is a copy (on write) that a caller may change.

    Raises:
        UsageError: an unknown name (the message has close matches).
        MissingData: a file that is neither in the cache, nor in the mirror, nor on the network.
        DataError: a file with a wrong sha256 or contents.
    """
    _check_name(name)
    if name in ENTRIES:
        files = files_of(name)
        paths = [registry.fetch(file, dataset=name) for file in files]
        key = (name, *(str(path) for path in paths))
        if key not in _loaded:
            _loaded[key] = _build(ENTRIES[name], files, paths)
    else:
        folder = _own()[name]
        header = local.read_header(folder)
        local.verify_files(folder, header)
        key = (name, str(folder), repr(header))
        if key not in _loaded:
            _loaded[key] = _build_own(name, folder, header)
    return dataclasses.replace(_loaded[key], frame=_loaded[key].frame.copy(deep=False))


def read_file(path: Path | str, format: str, layout: str | None = None) -> pd.DataFrame:
    """Read one file as a tidy frame.

    Args:
        path: the file.
        format: "nnc", "halide", "kernel-tuner", "autotvm" or "flextensor".
        layout: columns of the file, for "nnc" and "halide" (a key of `nnc_csv.LAYOUTS`); None infers them from the authors' file name.

    Raises:
        UsageError: an unknown format or layout.
        DataError: what is wrong with the file, with line, column and value.
    """
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; use {', '.join(FORMATS)}")
    module = importlib.import_module(f"workbench.data.{FORMATS[format]}")
    if format in ("nnc", "halide"):
        frame: pd.DataFrame = module.read(path, layout)
    elif layout:
        raise UsageError(f"format {format!r} has no layouts, so layout {layout!r} means nothing; leave it out")
    else:
        frame = module.read(path)
    return frame


def _own() -> dict[str, Path]:
    own = local.folders()
    if twice := sorted(set(own) & set(ENTRIES)):
        raise DataError(f"{own[twice[0]]}: the catalogue has a data set of others of that name; rename the folder")
    return own


def _check_name(name: str) -> None:
    if name in ENTRIES or name in _own():
        return
    close = difflib.get_close_matches(name, names(), 3)
    hint = f"did you mean {', '.join(close)}?" if close else "`workbench data list` shows the names"
    raise UsageError(f"unknown data set {name!r}; {hint}")


def _build(entry: Entry, files: list[registry.ExternalFile], paths: list[Path]) -> Dataset:
    frame = pd.concat([read_file(path, entry.format, entry.layout or None) for path in paths], ignore_index=True)
    inputs = list(entry.parameters + entry.knobs)
    if entry.layout == "blur-cpu-xeon":
        # One published line lost its inputs; without it the inputs are whole numbers again.
        frame = frame.dropna(subset=inputs).astype(dict.fromkeys(inputs, "int64")).reset_index(drop=True)
    elif entry.name == "tophub-cuda":
        # A version of the file repeats the records of the version before it.
        frame = frame.drop_duplicates(["target", "index", "time_s", "timestamp"], ignore_index=True)
    frame = pd.DataFrame(dict(entry.constants), index=frame.index).join(frame) if entry.constants else frame
    if len(frame) != entry.rows:
        raise DataError(f"data set {entry.name}: {len(frame)} rows, the catalogue says {entry.rows}")
    return Dataset(
        name=entry.name,
        frame=frame,
        kernel=_BATCH_MATMUL if entry.kernel == _BATCH_MATMUL.name else kernel(entry.kernel),
        device=entry.device,
        parameters=entry.parameters,
        knobs=entry.knobs,
        licence=entry.licence,
        source=", ".join(f"{file.repository} {file.path} at {file.commit[:10]}" for file in files),
        sha256={file.key: file.sha256 for file in files},
        notes=entry.notes,
    )


def _build_own(name: str, folder: Path, header: local.Header) -> Dataset:
    return Dataset(
        name=name,
        frame=local.read_frame(folder, header),
        kernel=kernel(header["kernel"]),
        device=header["device"],
        parameters=header["parameters"],
        knobs=header["knobs"],
        licence=header["licence"],
        source=f"data/raw/{name}, measured {header['date']} by `{header['command']}`; {header['policy']}",
        sha256={**header["sha256"], **header["sessions"]},
        notes=header["notes"],
    )
