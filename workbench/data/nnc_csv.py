"""The CSV files of NN+C's authors: matrix kernels on five devices, Halide's blur and FFT.

The files have no header row, so the first line is a measurement. Which column is what depends on kernel, device and device model: a `Layout` says it. What a
file can be checked against is checked: numbers of columns, ranges, and the work c = f(K, H) that most files carry in their last column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.data.text import read_text
from workbench.errors import DataError, UsageError

__all__ = ["LAYOUTS", "Layout", "layout_of", "read"]

Columns = Mapping[str, np.ndarray]

# Above this a cell cannot be a time in seconds; NN+C's slowest run took 284 s.
SLOWEST_S = 1e4
# Operations a second, median of a file, that no device of the paper leaves: outside, the unit of the time column is another.
SLOWEST_RATE, FASTEST_RATE = 1e5, 1e13
DENSITIES = ("d1", "d2")


@dataclass(frozen=True)
class Layout:
    """Columns of a kind of file.

    Attributes:
        columns: names in the order of the file; the first is the time, "-" is an empty column that every row has.
        per_second: units of the time column in a second.
        work: the last column c as a function of the others, None where the file has none.
        torn_end: the last row may have a time and no inputs, as one published file has.
    """

    columns: tuple[str, ...]
    per_second: float = 1.0
    work: Callable[[Columns], np.ndarray] | None = None
    torn_end: bool = False


def _mm(row: Columns) -> np.ndarray:
    return row["m"] * row["n"] * row["k"]


def _mv(row: Columns) -> np.ndarray:
    return row["m"] * row["n"]


def _mc(row: Columns) -> np.ndarray:
    # What the files hold. The paper's text has (m-r+1)(n-r+1) r^2.
    return (row["m"] + row["r"] - 1) * (row["n"] + row["r"] - 1) * row["r"] ** 2


def _square(row: Columns) -> np.ndarray:
    return row["n"] ** 2


_SCHEDULE_4 = ("s1", "s2", "s3", "s4")
_SCHEDULE_6 = ("s1", "s2", "s3", "s4", "s5", "s6")

LAYOUTS: Mapping[str, Layout] = {
    "mm-cpu": Layout(("time", "m", "n", "k", "d1", "d2", "threads", "c"), work=_mm),
    "mm-gpu": Layout(("time", "m", "n", "k", "d1", "d2", "c"), work=_mm),
    "mv-cpu": Layout(("time", "m", "n", "d1", "threads", "c"), work=_mv),
    "mv-gpu": Layout(("time", "m", "n", "d1", "c"), work=_mv),
    "mc-cpu": Layout(("time", "m", "n", "r", "d1", "threads", "c"), work=_mc),
    "mc-gpu": Layout(("time", "m", "n", "r", "d1", "c"), work=_mc),
    "blur-cpu-i5": Layout(("time", *_SCHEDULE_4, "n", "c"), work=_square),
    "blur-cpu-xeon": Layout(("time", "n", *_SCHEDULE_4), torn_end=True),
    "blur-gpu": Layout(("time", "n", "y_split", "x_tile", "vector", "c"), work=_square),
    "fft-cpu": Layout(("time", "n", *_SCHEDULE_6, "c"), per_second=1e6, work=_square),
    "fft-gpu": Layout(("time", "n", *_SCHEDULE_6, "-"), per_second=1e6),
}

_NAMES = {
    ("matrix_matrix", "cpu"): "mm-cpu",
    ("matrix_matrix", "gpu"): "mm-gpu",
    ("matrix_vector", "cpu"): "mv-cpu",
    ("matrix_vector", "gpu"): "mv-gpu",
    ("matrix_conv", "cpu"): "mc-cpu",
    ("matrix_conv", "gpu"): "mc-gpu",
    ("halide_blur", "cpu_xeon"): "blur-cpu-xeon",
    ("halide_blur", "cpu"): "blur-cpu-i5",
    ("halide_blur", "gpu"): "blur-gpu",
    ("halide_fft", "gpu"): "fft-gpu",
    ("halide_fft", ""): "fft-cpu",
}


def layout_of(path: Path) -> str:
    """Name of the layout of a file that has one of the authors' names. Raises UsageError for another name."""
    name = path.name.lower()
    for (kernel, device), layout in _NAMES.items():
        if kernel in name and device in name:
            return layout
    raise UsageError(f"{path}: the name does not tell the columns; give the layout, one of {', '.join(LAYOUTS)}")


def read(path: Path | str, layout: str | None = None) -> pd.DataFrame:
    """Read one file as a tidy frame, a row a line in the order of the file.

    Args:
        path: the CSV file.
        layout: a key of `LAYOUTS`; None infers it from the authors' file name.

    Returns:
        Columns `time_s` (seconds), the inputs of the layout, `c` where the file has it, and `status` ("ok"). Integers are int64, densities float64. A last row
        that has a time but no inputs (layout "blur-cpu-xeon") is kept with NaN inputs, which makes all inputs float64.

    Raises:
        DataError: names file, line, column and value of what is wrong.
        UsageError: an unknown layout, or none that fits the file's name.
    """
    path = Path(path)
    name = layout_of(path) if layout is None else layout
    if name not in LAYOUTS:
        raise UsageError(f"unknown layout {name!r}; use one of {', '.join(LAYOUTS)}")
    lines = read_text(path).splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DataError(f"{path}: the file is empty; expected lines of {len(LAYOUTS[name].columns)} columns ({', '.join(LAYOUTS[name].columns)})")
    return _frame(path, lines, LAYOUTS[name])


def _frame(path: Path, lines: list[str], layout: Layout) -> pd.DataFrame:
    names = layout.columns
    torn = layout.torn_end and lines[-1].count(",") == len(names) - 1 and not lines[-1].split(",", 1)[1].replace(",", "").strip()
    numbers = [_cells(path, i, line, names) for i, line in enumerate(lines[:-1] if torn else lines, 1)]
    values = np.array(numbers, dtype=np.float64).reshape(len(numbers), len(names))
    column = {name: values[:, j] for j, name in enumerate(names) if name != "-"}
    _check(path, column, layout)
    data: dict[str, np.ndarray] = {"time_s": column["time"] / layout.per_second}
    for name in names[1:]:
        if name != "-":
            data[name] = column[name] if name in DENSITIES else column[name].astype(np.int64)
    frame = pd.DataFrame(data)
    if torn:
        last = _cells(path, len(lines), lines[-1].split(",", 1)[0], ("time",))
        _check_time(path, np.array(last), len(lines), layout.per_second)
        frame = pd.concat([frame.astype(np.float64), pd.DataFrame({"time_s": [last[0] / layout.per_second]})], ignore_index=True)
    frame["status"] = "ok"
    return frame


def _cells(path: Path, number: int, line: str, names: tuple[str, ...]) -> list[float]:
    cells = line.split(",")
    if len(cells) != len(names):
        raise DataError(f"{path}: line {number} has {len(cells)} columns, expected {len(names)} ({', '.join(names)}): {line[:80]!r}")
    if names[-1] == "-":
        if cells[-1].strip():
            raise DataError(f"{path}: line {number}, column {len(names)}: {cells[-1]!r}, expected nothing after the last comma")
        cells[-1] = "0"
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        j = next(j for j, cell in enumerate(cells) if not _is_number(cell))
        raise DataError(f"{path}: line {number}, column {j + 1} ({names[j]}): {cells[j]!r} is not a number") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _check(path: Path, column: Columns, layout: Layout) -> None:
    _check_time(path, column["time"], 1, layout.per_second)
    for name, values in column.items():
        if name == "time":
            continue
        j = layout.columns.index(name) + 1
        if name in DENSITIES:
            _refuse(path, (values > 0) & (values <= 1), values, name, j, "a density is above 0 and at most 1")
        else:
            _refuse(path, (values >= 1) & (values <= 2**53) & (np.floor(values) == values), values, name, j, "expected a whole number of at least 1")
    if layout.work is None or "c" not in column:
        return
    work = layout.work(column)
    _refuse(path, work == column["c"], column["c"], "c", len(layout.columns), "it does not follow from the other columns: a torn line or another layout")
    rate = float(np.median(work * layout.per_second / column["time"]))
    if not SLOWEST_RATE <= rate <= FASTEST_RATE:
        raise DataError(
            f"{path}: column 1 (time): the median row does {rate:.3g} operations a second, outside {SLOWEST_RATE:g} to {FASTEST_RATE:g}; "
            f"is the time really in units of {1 / layout.per_second:g} s?"
        )


def _check_time(path: Path, values: np.ndarray, first_line: int, per_second: float = 1.0) -> None:
    good = np.isfinite(values) & (values > 0)
    if not good.all():
        i = int(np.argmin(good))
        raise DataError(f"{path}: line {first_line + i}, column 1 (time): {float(values[i])!r} is not a positive, finite time")
    if (values / per_second > SLOWEST_S).any():
        i = int(np.argmax(values))
        raise DataError(f"{path}: line {first_line + i}, column 1 (time): {float(values[i])!r} would be {values[i] / per_second:g} s; the unit looks wrong")


def _refuse(path: Path, good: np.ndarray, values: np.ndarray, name: str, number: int, why: str) -> None:
    if not good.all():
        i = int(np.argmin(good))
        value = float(values[i])
        shown = int(value) if math.isfinite(value) and value.is_integer() else value
        raise DataError(f"{path}: line {i + 1}, column {number} ({name}): {shown!r}; {why}")
