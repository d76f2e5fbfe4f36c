"""What a time model sees of a row: a list of terms over the columns of a frame, evaluated by numpy here and by compiled code in `models.interpreter`.

A term uses the workload, the configuration and nothing else: never row order, repeat count or membership of a pool. Terms serialise to JSON, so that a
saved model carries its own inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import DataError, UsageError

if TYPE_CHECKING:
    from workbench.data.datasets import Dataset

__all__ = ["OPERATIONS", "Term", "aligned_terms", "columns_of", "evaluate", "log_terms", "raw_terms", "schedule_terms", "stored_terms", "with_complexity"]

Floats = npt.NDArray[np.float64]

# Rows of 16 threads: on the GPUs of the matrix kernels a size costs what its next multiple of 16 costs, less when it is aligned.
_TILE = 16

# log2 of the sparsest density of Table II: one element of 1,024 x 1,024.
_EMPTIEST = -20.0

# A library holds a matrix of a lower density as a sparse one (kernels/matrix/harness.hpp), which is another program.
_SPARSE_BELOW = 0.5

# The order is the code that compiled inference uses: append, never reorder.
OPERATIONS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "value": lambda a, b: a,
    "log2": lambda a, b: np.log2(a),
    "inverse": lambda a, b: 1 / a,
    "emptied": lambda a, b: np.where(a < 1, np.log2(a), _EMPTIEST),
    "alignment": lambda a, b: np.gcd(a.astype(np.int64), _TILE) / _TILE,
    "padding": lambda a, b: np.log2(np.ceil(a / _TILE) * _TILE / a),
    "overhang": lambda a, b: np.log2(np.maximum(1.0, a / b)),
    "stored": lambda a, b: np.where(a < _SPARSE_BELOW, np.log2(a), 0.0),
    "dense": lambda a, b: np.where(a < _SPARSE_BELOW, 0.0, 1.0),
    "one": lambda a, b: np.where(a == 1, 1.0, 0.0),
}


@dataclass(frozen=True)
class Term:
    """One input of a model.

    Attributes:
        operation: name in OPERATIONS: the value itself, log2, 1/a, log2 of a density with 1 taken for the sparsest, gcd(a, 16)/16, log2 of the padding
            of a to a multiple of 16, log2 max(1, a/b), log2 of the share of elements that is stored at density a, whether all are, whether a is 1.
        column: column a.
        second: column b, where the operation has two.
    """

    operation: str
    column: str
    second: str = ""

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise UsageError(f"no operation {self.operation!r} on columns; there are {', '.join(OPERATIONS)}")

    def to_json(self) -> list[str]:
        """[operation, column] or [operation, column, second]."""
        return [self.operation, self.column, *([self.second] if self.second else [])]


def columns_of(terms: Sequence[Term]) -> tuple[str, ...]:
    """Columns that the terms read, each once, in order of first use."""
    return tuple(dict.fromkeys(c for t in terms for c in (t.column, t.second) if c))


def evaluate(frame: pd.DataFrame, terms: Sequence[Term]) -> Floats:
    """Matrix [rows, terms] of a frame.

    Raises:
        DataError: a column is missing, or a value or an input is not finite (the logarithm of zero, say).
    """
    missing = [c for c in columns_of(terms) if c not in frame.columns]
    if missing:
        raise DataError(f"the model's input {missing[0]!r} is not a column of the frame; it has {', '.join(map(str, frame.columns))}")
    values = {c: frame[c].to_numpy(dtype=float) for c in columns_of(terms)}
    # Some operations make a number of anything (is NaN equal to 1? no), so the values are looked at, not only what comes of them.
    for column, given in values.items():
        if not np.isfinite(given).all():
            row = int(np.flatnonzero(~np.isfinite(given))[0])
            raise DataError(f"row {row}: {column} is {given[row]}, which is no input for a model; leave that row out")
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.column_stack([OPERATIONS[t.operation](values[t.column], values[t.second or t.column]) for t in terms])
    if not np.isfinite(out).all():
        row, place = np.argwhere(~np.isfinite(out))[0]
        term = terms[place]
        raise DataError(
            f"row {row}: input {term.operation}({term.column}) is {out[row, place]} for {term.column} = {values[term.column][row]}; leave that row out"
        )
    return out


def with_complexity(dataset: Dataset) -> Dataset:
    """The data set with NN+C's operation count in column `c`: the source's own column where it has one, else the kernel's f(K, H).

    Raises DataError if the kernel has no complexity, or a column that it needs is missing.
    """
    if "c" in dataset.frame.columns:
        return dataset
    if dataset.kernel.complexity is None:
        raise DataError(f"data set {dataset.name}: kernel {dataset.kernel.name!r} has no complexity f(K, H), so NN+C has no input c")
    from dataclasses import replace

    missing = [p for p in dataset.kernel.parameters if p not in dataset.frame.columns]
    if missing:
        raise DataError(f"data set {dataset.name}: no column {missing[0]!r}, which the complexity of kernel {dataset.kernel.name!r} needs")
    parameters: dict[str, Any] = {p: dataset.frame[p].to_numpy(dtype=float) for p in dataset.kernel.parameters}
    return replace(dataset, frame=dataset.frame.assign(c=dataset.kernel.complexity(parameters)))


def raw_terms(dataset: Dataset, complexity: bool) -> list[Term]:
    """The paper's inputs (NN+C, section III-B): sizes, densities, threads or schedule parameters, and c, as plain numbers."""
    return [Term("value", name) for name in (*dataset.inputs, *(("c",) if complexity else ()))]


def log_terms(dataset: Dataset, complexity: bool) -> list[Term]:
    """The same inputs as base-2 logarithms: a product of sizes becomes a sum. A knob that may be 0 (a switch) has no logarithm and stays as it is."""
    switches = {name for name in dataset.knobs if name in dataset.frame and (dataset.frame[name] == 0).any()}
    return [Term("value" if name in switches else "log2", name) for name in (*dataset.inputs, *(("c",) if complexity else ()))]


def aligned_terms(dataset: Dataset, complexity: bool = True, emptied: bool = False) -> list[Term]:
    """Logarithms and what the hardware adds to them.

    On a CPU 1/threads (the parallel part of the time) and, with `emptied`, densities of exactly 1 taken for the sparsest (a sparse library that finds
    nothing to store: the rows of MM on I7 and Xeon behave so); on a GPU how well each size fills rows of 16 threads. Densities stay out on a GPU: the
    kernels do not look at them.
    """
    if dataset.device.kind == "gpu":
        sizes = [name for name in dataset.parameters if not name.startswith("d")]
        terms = [Term("log2", name) for name in sizes]
        terms += [Term("log2", "c")] if complexity else []
        # A filter of 3, 5 or 7 is no multiple of 16: only the sizes of the matrices can be aligned.
        return terms + [Term(op, name) for name in sizes if name != "r" for op in ("alignment", "padding")]
    terms = [Term("emptied", t.column) if emptied and t.column.startswith("d") else t for t in log_terms(dataset, complexity)]
    return terms + ([Term("inverse", "threads")] if "threads" in dataset.knobs else [])


def stored_terms(dataset: Dataset, complexity: bool) -> list[Term]:
    """Logarithms and 1/threads, with each density as what a library makes of it: the share of elements stored, and whether it takes the dense program."""
    terms = [Term("stored", t.column) if t.column.startswith("d") else t for t in log_terms(dataset, complexity)]
    terms += [Term("dense", name) for name in dataset.parameters if name.startswith("d")]
    return terms + ([Term("inverse", "threads")] if "threads" in dataset.knobs else [])


def schedule_terms(dataset: Dataset) -> list[Term]:
    """Inputs of a schedule model: logarithms of sizes and schedule parameters (a knob that may be 0 as it is), and what a schedule computes twice.

    A knob of 0, 1 or 2 numbers choices that have no order (what FFT does in parallel), so it also says whether it is 1.

    Halide's Blur computes its first stage in vectors of s1 inside tiles of s2: with s1 > s2 each tile computes s1/s2 times what it needs.
    An input that never varies in the data set is left out. Raises DataError if one is missing.
    """
    missing = [name for name in dataset.inputs if name not in dataset.frame.columns]
    if missing:
        raise DataError(f"data set {dataset.name}: its input {missing[0]!r} is not a column of the frame")
    # "not equal to 0" keeps a column with NaN, which `evaluate` then names. A knob of 0 has no logarithm; a size of 0 is a mistake.
    varied = {name: given for name in dataset.inputs if np.ptp(given := dataset.frame[name].to_numpy(dtype=float)) != 0}
    switches = [name for name, given in varied.items() if name in dataset.knobs and (given == 0).any()]
    terms = [Term("value" if name in switches else "log2", name) for name in varied]
    terms += [Term("one", name) for name in switches if varied[name].max() > 1]
    return terms + ([Term("overhang", "s1", "s2")] if dataset.kernel.name == "blur" else [])
