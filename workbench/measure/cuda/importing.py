"""Results of runs on a GPU become data sets under `data/raw`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.data.store import Key
from workbench.errors import UsageError
from workbench.kernels import kernel as kernel_of
from workbench.kernels.conv import KERNELS as CONVOLUTIONS
from workbench.kernels.matrix import KERNELS as MATRIX
from workbench.measure.cuda import early
from workbench.measure.cuda.records import DETAILS, read_results
from workbench.measure.export import check_name, write_sets
from workbench.measure.passes import label
from workbench.measure.series import Series, in_plain_columns
from workbench.schema import Measurement

__all__ = ["import_results"]

# What the results of runs that make one data set have in common.
_SHARED = ("device", "policy", "compiler", "driver")
# Columns of a data set, of `DETAILS`; the others serve the run itself.
_COLUMNS = tuple(name for name in DETAILS if name not in ("group", "gpu_process", "elapsed_s"))


def import_results(folders: Sequence[Path], name: str, root: Path, *, notes: Sequence[str] = (), replace: bool = False) -> dict[str, int]:
    """Write what runs have brought back as data sets: `matrix-gpu-<name>-<kernel>-<variant>` for a matrix kernel, `conv-gpu-<name>-<kernel>` for a kind of
    convolution, `halide-gpu-<name>-blur_gpu` for blur.

    Rows are as `workbench.measure.export.export` makes them, what was measured in several runs being one row with several attempts. Further columns are of the
    attempt that stands: `label` is the class that a configuration was sampled from, the others see `workbench.measure.cuda.records`.

    Args:
        folders: of results, in the order of the runs.
        name: of the device, such as "h200".
        root, notes, replace: see `export`.

    Returns:
        Name of each data set -> its number of rows.

    Raises:
        UsageError: a name that cannot be used or is there already, or runs that differ in device, policy, compiler or driver.
        MissingData, DataError: results that cannot be read.
        StoreError: the data sets cannot be written.
    """
    check_name(name)
    runs = [early.read(folder) if early.is_early(folder) else read_results(folder) for folder in folders]
    header = _joined(folders, [header for header, _ in runs])
    attempts: dict[Key, list[tuple[Measurement, Mapping[str, Any]]]] = {}
    for _, records in runs:
        for entry in records:
            measurement = Measurement.from_json({field: value for field, value in entry.items() if field != "details"})
            key = Key.of(measurement.workload, measurement.device, measurement.space, measurement.index, measurement.config)
            attempts.setdefault(key, []).append((measurement, entry["details"]))
    groups: dict[tuple[str, str], list[list[tuple[Measurement, Mapping[str, Any]]]]] = {}
    for of_one in attempts.values():
        first = of_one[0][0]
        groups.setdefault((first.workload.kernel, first.space if first.workload.kernel in MATRIX else ""), []).append(of_one)
    if not groups:
        raise UsageError(f"{', '.join(map(str, folders))}: no candidate was measured; there is nothing to make a data set of")
    sets = {}
    for (kernel, variant), inputs in sorted(groups.items()):
        series = _series(kernel, variant, inputs, header)
        sets[f"{_family(kernel)}-gpu-{name}-{series.name}"] = series
    return write_sets(sets, root, notes=notes, replace=replace)


def _family(kernel: str) -> str:
    """What the names of a kernel's data sets begin with, as those of a CPU's do."""
    return "matrix" if kernel in MATRIX else "conv" if kernel in CONVOLUTIONS else "halide"


def _joined(folders: Sequence[Path], headers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What all runs say. Raises UsageError where they differ in what one data set has but once."""
    for folder, header in zip(folders, headers, strict=True):
        for key in _SHARED:
            if header[key] != headers[0][key]:
                raise UsageError(
                    f"{folder}: its {key} is {header[key]!r}, that of {folders[0]} {headers[0][key]!r}; a data set has one: use another name for it"
                )
    return {**headers[0], "made_by": " && ".join(dict.fromkeys(header["made_by"] for header in headers))}


def _plain(measurement: Measurement) -> Measurement:
    if measurement.workload.kernel in CONVOLUTIONS:
        return in_plain_columns(measurement)
    return replace(measurement, compile_s=None)  # one program runs every size


def _series(kernel: str, variant: str, inputs: Sequence[Sequence[tuple[Measurement, Mapping[str, Any]]]], header: Mapping[str, Any]) -> Series:
    plain = [[_plain(measurement) for measurement, _ in attempts] for attempts in inputs]
    # Of the attempt that stands: `label` gives one of those that it is given.
    standing = [attempts[[id(measurement) for measurement in of_plain].index(id(label(of_plain)))][1] for attempts, of_plain in zip(inputs, plain, strict=True)]
    columns: dict[str, Sequence[Any]] = {
        column: [details.get(column) for details in standing] for column in _COLUMNS if any(details.get(column) is not None for details in standing)
    }
    if kernel in CONVOLUTIONS and (flop := kernel_of(kernel).flop) is not None:
        columns["gflop"] = [flop(attempts[0][0].workload.params) / 1e9 for attempts in inputs]
    groups = dict.fromkeys(details.get("group", "") for attempts in inputs for _, details in attempts)
    notes = dict.fromkeys(sentence for group in ("", *groups) for sentence in header["notes"].get(group, ()))
    return Series(
        name=f"{kernel}-{variant}" if variant else kernel,
        kernel=kernel,
        parameters=tuple(plain[0][0].workload.params) if kernel in CONVOLUTIONS else kernel_of(kernel).parameters,
        knobs=tuple(plain[0][0].config),
        inputs=plain,
        provenance={**{key: header[key] for key in ("policy", "compiler", "driver")}, "device": json.dumps(header["device"])},
        command=header["made_by"],
        versions=header["versions"],
        notes=tuple(notes),
        columns=columns,
    )
