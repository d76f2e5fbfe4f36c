"""What the matrix kernels compute, in numpy and double precision: the measure of every program that is timed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.errors import DataError

__all__ = ["Run", "difference", "read_run", "reference", "shapes"]

Matrix = NDArray[np.float64]


class Run(NamedTuple):
    """Inputs and result of one run: A (m x n), the second input (0 x 0 for MP), and what the program made of them."""

    a: Matrix
    b: Matrix
    result: Matrix


def shapes(kernel: str, params: Mapping[str, Any]) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Shapes of A, of the second input and of the result."""
    m, n = int(params["m"]), int(params["n"])
    if kernel == "mm":
        k = int(params["k"])
        return (m, n), (n, k), (m, k)
    if kernel == "mv":
        return (m, n), (n, 1), (m, 1)
    r, s = int(params["r"]), int(params.get("s", 1))
    return (m, n), (r, r) if kernel == "mc" else (0, 0), ((m - r) // s + 1, (n - r) // s + 1)


def reference(kernel: str, params: Mapping[str, Any], a: Matrix, b: Matrix) -> Matrix:
    """The product A B (mm, mv), the valid convolution of A with the filter B (mc), or the maxima of the r x r windows of A that lie s apart (mp)."""
    if kernel in ("mm", "mv"):
        return np.asarray(a @ b)
    r, s = int(params["r"]), int(params.get("s", 1))
    windows = np.lib.stride_tricks.sliding_window_view(a, (r, r))[::s, ::s]
    if kernel == "mc":
        return np.einsum("ijpq,pq->ij", windows, b[::-1, ::-1])
    return np.asarray(windows.max(axis=(2, 3)))


def read_run(path: Path, kernel: str, params: Mapping[str, Any]) -> Run:
    """A run that a program has written out (row-major float32, one matrix after the other). Raises DataError for a file of another size."""
    wanted = shapes(kernel, params)
    values = np.fromfile(path, dtype=np.float32).astype(np.float64)
    ends = np.cumsum([rows * columns for rows, columns in wanted])
    if values.size != ends[-1]:
        raise DataError(f"{path}: {values.size} numbers; {kernel} of {dict(params)} has {ends[-1]} in its inputs and its result")
    return Run(*(part.reshape(shape) for part, shape in zip(np.split(values, ends[:-1]), wanted, strict=True)))


def difference(kernel: str, params: Mapping[str, Any], run: Run) -> str:
    """What is wrong with a run: "" if its inputs have the densities asked for and its result is right to float32's rounding."""
    for density, matrix, name in (("d1", run.a, "A"), ("d2", run.b, "B")):
        if density in params:
            wanted = min(matrix.size, max(1, int(np.floor(float(params[density]) * matrix.size + 0.5))))
            if (found := int(np.count_nonzero(matrix))) != wanted:
                return f"{name} has {found:,} elements that are not zero; a density of {params[density]} of {matrix.size:,} makes {wanted:,}"
    right = reference(kernel, params, run.a, run.b)
    # The error of a sum grows with the sum of its terms' sizes, which is what the kernel makes of absolute values. A maximum is exact.
    allowed = np.zeros_like(right) if kernel == "mp" else 1e-5 * reference(kernel, params, np.abs(run.a), np.abs(run.b)) + 1e-30
    wrong = ~(np.abs(run.result - right) <= allowed)
    if not wrong.any():
        return ""
    i, j = (int(index) for index in np.argwhere(wrong)[0])
    return f"{int(wrong.sum()):,} of {right.size:,} elements are wrong; the first, ({i}, {j}), is {run.result[i, j]:.9g} where numpy has {right[i, j]:.9g}"
