"""Data sets measured with this package: which of a series stand beside the authors' devices, and what they are called in print.

A series is what `workbench measure export --name SERIES` makes: `SERIES-<kernel>-<library>` of the matrix kernels, `SERIES-<kernel>` and
`SERIES-<kernel>-autoschedulers` of Halide's; `SERIES-5000-<kernel>-<library>` are those for unconstrained models. `workbench measure import-bundle` makes the
series `matrix-gpu-DEVICE` and `halide-gpu-DEVICE`, where a CUDA variant stands for the library. Series that models were developed on have other names
(`SERIES-dev`), so that nothing here takes them for results.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from workbench.data import local
from workbench.data.datasets import Dataset, load_dataset, names
from workbench.errors import DataError, UsageError
from workbench.features.inputs import with_complexity
from workbench.kernels.halide.autoschedulers import AUTOSCHEDULERS
from workbench.kernels.matrix import KERNELS as MATRIX
from workbench.kernels.matrix import LIBRARIES
from workbench.kernels.matrix.cuda import VARIANTS
from workbench.reproduce.outputs import Outputs

__all__ = [
    "SCHEDULES",
    "TITLES",
    "autoschedulers",
    "gpu_series",
    "machine",
    "matrix_sets",
    "measured_sets",
    "measuring_s",
    "parts",
    "schedule_sets",
    "title",
    "tuned_sets",
]

TITLES = {"mm": "MM", "mv": "MV", "mc": "MC", "mp": "MP"}
SCHEDULES = {"blur": "Blur", "blur_gpu": "Blur", "fft": "FFT"}
# What a matrix kernel is written in -> its name in print.
_LIBRARIES = {name: name.capitalize() for name in LIBRARIES} | {name: f"CUDA {name}" for name in VARIANTS}
# Ends the name of a GPU's set whose times have the copy of the result to the host, as the paper's have; the set without is its other half, of the same runs.
_COPY = "+copy"

# NN+C trains on this many instances.
TRAINING_ROWS = 250

# No instance takes as long: what measures it gives up after a minute unless told otherwise.
_PAUSE_S = 300.0

# Machines whose series stand under data/raw: the end of the series' name -> the name in print. Any other is printed as it is.
_MACHINES = {"emr": "Emerald Rapids", "h200": "H200"}


def machine(series: str) -> str:
    """Name in print of the machine of a series: "matrix-cpu-emr" and "halide-cpu-emr" are of the Emerald Rapids, "matrix-cpu-laptop" of the "laptop"."""
    last = re.sub(r"^(matrix|halide)-[cg]pu-|-5000$", "", series)
    return _MACHINES.get(last, last)


def parts(data_set: str) -> tuple[str, str, str]:
    """Series, kernel and library of a matrix set's name: "matrix-cpu-emr-mm-eigen" has "matrix-cpu-emr", "mm" and "eigen"; with and without copy are one."""
    series, kernel, library = data_set.removesuffix(_COPY).rsplit("-", 2)
    return series, kernel, library


def title(data_set: str) -> str:
    """Column of a matrix set in the paper's tables: library and machine, such as "Eigen Emerald Rapids" or "CUDA shared H200 with copy"."""
    series, _, library = parts(data_set)
    return f"{_LIBRARIES.get(library, library.capitalize())} {machine(series)}{' with copy' if data_set.endswith(_COPY) else ''}"


def gpu_series(kernels: Collection[str], pattern: str = "*") -> list[str]:
    """Series of GPUs under data/raw that have some of the kernels, in the order of their names; without those for unconstrained models and for development.

    Args:
        kernels: names of matrix kernels, or of Halide's.
        pattern: of the series, such as "matrix-gpu-*"; "" is none.
    """
    found = {parts(name)[0] if kernel in MATRIX else name.rsplit("-", 1)[0] for kernel in kernels for name in measured_sets((kernel,), kind="gpu")}
    return [name for name in sorted(found) if fnmatch.fnmatchcase(name, pattern) and not name.endswith(("-5000", "-dev"))]


def matrix_sets(series: str, out: Outputs, rows: int = 500) -> list[Dataset]:
    """The matrix sets of a series that are there, their successful rows with c, in the order of kernels and libraries; none for the series "".

    A set of a GPU is two: its times are without the copy of the result to the host, and with it.

    Args:
        series: such as "matrix-cpu-emr".
        rows: 500, or 5000 for those that unconstrained models are trained on.
    """
    prefix = series if rows == 500 else f"{series}-{rows}"
    sets = _load(series, [f"{prefix}-{kernel}-{library}" for kernel in MATRIX for library in _LIBRARIES], out)
    return [one for dataset in sets for one in (dataset, *_with_copy(dataset))]


def schedule_sets(series: str, out: Outputs) -> list[Dataset]:
    """The Halide sets of a series that are there, their successful rows with c; none for the series ""."""
    return _load(series, [f"{series}-{kernel}" for kernel in SCHEDULES], out)


def autoschedulers(data_set: str, out: Outputs) -> pd.DataFrame | None:
    """Times of Halide's autoschedulers by input size, measured with the schedules of a data set: a row a size n, a column an autoscheduler, seconds.

    NaN where one found no schedule; None where they were not measured.
    """
    name = f"{data_set}-autoschedulers"
    if name not in names():
        return None
    frame = out.uses(load_dataset(name)).frame
    if twice := frame.duplicated(["n", "scheduler"]).sum():
        raise DataError(f"data set {name}: {twice} rows repeat an autoscheduler and a size; each stands once")
    return frame.pivot(index="n", columns="scheduler", values="time_s").reindex(columns=list(AUTOSCHEDULERS)).astype(float)


def measured_sets(kernels: Collection[str], patterns: Sequence[str] = (), kind: str = "") -> list[str]:
    """Names of the data sets under data/raw of some kernels, without those whose configurations tuners chose: they are no sample of a space.

    Args:
        kernels: names of the kernels.
        patterns: names or patterns of data sets; none is all.
        kind: "cpu" or "gpu", of the device; "" is any.
    """
    found = []
    for name, folder in local.folders().items():
        header = local.read_header(folder)
        chosen = not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        if chosen and not header["sessions"] and header["kernel"] in kernels and kind in ("", header["device"].kind):
            found.append(name)
    return found


def tuned_sets() -> list[str]:
    """Names of the data sets under data/raw whose configurations tuners chose."""
    return [name for name, folder in local.folders().items() if local.read_header(folder)["sessions"]]


def measuring_s(dataset: Dataset, rows: int) -> float:
    """Wall seconds that the first `rows` instances of a series took, with everything between two of them (making inputs, checks).

    From the start of the first to the start of the one after the last; the end of the very last is not recorded, so it counts as an average one. A series that
    was cut short and continued later has a pause, which is no measuring: what lies more than five minutes apart counts for nothing.

    Raises:
        DataError: no start times, or fewer rows.
    """
    if "timestamp" not in dataset.frame.columns:
        raise DataError(f"data set {dataset.name}: no column 'timestamp', so it does not say how long measuring took")
    starts = np.sort(dataset.frame["timestamp"].to_numpy(dtype=float))
    if not 1 < rows <= len(starts):
        raise DataError(f"data set {dataset.name}: {len(starts)} rows; the measuring time of {rows} cannot be told")
    apart = np.diff(starts)
    lasted = np.where(apart <= _PAUSE_S, apart, 0.0)
    if rows < len(starts):
        return float(lasted[:rows].sum())
    return float(lasted.sum() * rows / (rows - 1))


def _with_copy(dataset: Dataset) -> list[Dataset]:
    """The set with the times of runs with the copy of the result, which has no passes; none where too few of them were taken."""
    if "copied_s" not in dataset.frame:
        return []
    copied = dataset.frame.dropna(subset="copied_s").drop(columns="pass_s", errors="ignore")
    if len(copied) <= TRAINING_ROWS:
        return []
    return [replace(dataset, name=f"{dataset.name}{_COPY}", frame=copied.assign(time_s=copied["copied_s"]))]


def _load(series: str, wanted: list[str], out: Outputs) -> list[Dataset]:
    if not series:
        return []
    known = names()
    if not any(name.startswith(f"{series}-") for name in known):
        close = difflib.get_close_matches(series, {name.rsplit("-", 2)[0] for name in known if name.count("-") > 2}, n=3)
        hint = f"close: {', '.join(close)}" if close else "`workbench data list` shows the names"
        raise UsageError(f"no data set of a series {series!r}; {hint}. To make one: workbench measure, then workbench measure export --name {series}")
    sets = [out.uses(load_dataset(name)) for name in wanted if name in known]
    sets = [with_complexity(replace(dataset, frame=dataset.valid)) for dataset in sets]
    for dataset in sets:
        if len(dataset.frame) <= TRAINING_ROWS:
            raise DataError(
                f"data set {dataset.name}: {len(dataset.frame)} rows with a time; models train on {TRAINING_ROWS} and are tested on the others. Measure more "
                "(the paper has 500), or leave the series out"
            )
    return sets
