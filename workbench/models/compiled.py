"""Compiled inference: one numba kernel interprets any linear, network or compact model, so that a new model costs no compilation.

A model becomes two arrays, structure (integers) and constants (float64):

    structure: columns, terms, layers after the input, activation (0 ReLU, 1 tanh), log-linear terms K, log target (0 or 1),
               operations [terms], first columns [terms], second columns [terms], layer sizes from the input to the output
    constants: centre [terms], 1/scale [terms], out_centre, out_scale, then for each layer weights [in, out] and bias [out], then P [K, terms] and p [K]

Operations are numbered as `features.inputs.OPERATIONS` is ordered. Rows go through in blocks, each step a loop over the rows of a block: the interpreter's
own decisions cost once a block, and the compiler vectorises what is left. A linear model is a network without hidden layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import DataError, MissingPackage, UsageError
from workbench.features.inputs import OPERATIONS, Term, columns_of
from workbench.models.base import CostModel, Floats
from workbench.models.compact import CompactModel
from workbench.models.linear import LinearModel
from workbench.models.nnc import Network

__all__ = ["CompiledModel", "compile_model"]

Ints = npt.NDArray[np.int64]

_CODES = {name: code for code, name in enumerate(OPERATIONS)}
_HEADER = 6
_BLOCK = 64


def _interpret(structure: Ints, constants: Floats, values: Floats, out: Floats) -> None:
    """Seconds out [n] of values [n, columns]; NaN for a row with an input that is not finite. Compiled by `_kernel`; plain Python gives the same numbers."""
    terms, depth, activation, mixture, logarithm = structure[1], structure[2], structure[3], structure[4], structure[5]
    operations, first, second = structure[6 : 6 + terms], structure[6 + terms : 6 + 2 * terms], structure[6 + 2 * terms : 6 + 3 * terms]
    sizes = structure[6 + 3 * terms :]
    width = 1
    for i in range(depth + 1):
        width = max(width, sizes[i])
    # One allocation a call: for a single row, four would cost as much as the arithmetic.
    scratch = np.empty((terms + 2 * width + 4, _BLOCK))
    inputs, one, other = scratch[:terms], scratch[terms : terms + width], scratch[terms + width : terms + 2 * width]
    poison, highest, line, sums = scratch[-4], scratch[-3], scratch[-2], scratch[-1]
    for start in range(0, len(values), _BLOCK):
        rows = min(_BLOCK, len(values) - start)
        poison[:rows] = 0.0
        for t in range(terms):
            z, op, a, b = inputs[t], operations[t], first[t], second[t]
            if op == 0:
                for r in range(rows):
                    z[r] = values[start + r, a]
            elif op == 1:
                for r in range(rows):
                    z[r] = np.log2(values[start + r, a])
            elif op == 2:
                for r in range(rows):
                    z[r] = 1.0 / values[start + r, a]
            elif op == 3:
                for r in range(rows):
                    z[r] = np.log2(values[start + r, a]) if values[start + r, a] < 1.0 else -20.0
            elif op == 4:
                for r in range(rows):
                    # Only a number that an integer can hold may be cast; beyond, all are multiples of 16.
                    whole = np.int64(values[start + r, a]) if abs(values[start + r, a]) < 9.0e18 else np.int64(0)
                    divisor = 16
                    while whole & (divisor - 1):
                        divisor >>= 1
                    z[r] = divisor / 16.0
            elif op == 5:
                for r in range(rows):
                    z[r] = np.log2(np.ceil(values[start + r, a] / 16.0) * 16.0 / values[start + r, a])
            else:
                for r in range(rows):
                    z[r] = np.log2(max(1.0, values[start + r, a] / values[start + r, b]))
            centre, inverse = constants[t], constants[terms + t]
            for r in range(rows):
                # Zero times a number that is not finite is NaN: it marks rows whose inputs ReLU, tanh or a comparison would otherwise hide.
                poison[r] += 0.0 * (values[start + r, a] + values[start + r, b] + z[r])
                z[r] = (z[r] - centre) * inverse
        at = 2 * terms + 2
        source = inputs
        for layer in range(depth):
            fan_in, fan_out = sizes[layer], sizes[layer + 1]
            target = one if layer % 2 == 0 else other
            bias = at + fan_in * fan_out
            for j in range(fan_out):
                unit = target[j]
                unit[:rows] = constants[bias + j]
                for i in range(fan_in):
                    weight, given = constants[at + i * fan_out + j], source[i]
                    for r in range(rows):
                        unit[r] += weight * given[r]
                if layer < depth - 1:
                    if activation == 0:
                        for r in range(rows):
                            unit[r] = 0.0 if unit[r] < 0.0 else unit[r]
                    else:
                        for r in range(rows):
                            # tanh, a few times faster than the library's; its error is an ulp of 1.
                            unit[r] = 1.0 - 2.0 / (np.exp(2.0 * unit[r]) + 1.0)
            at = bias + fan_out
            source = target
        result = source[0]
        if mixture > 0:
            bias = at + mixture * terms
            # A running maximum and a running sum: log sum exp in one pass over the terms, without overflow.
            for k in range(mixture):
                line[:rows] = constants[bias + k]
                for i in range(terms):
                    weight, given = constants[at + k * terms + i], inputs[i]
                    for r in range(rows):
                        line[r] += weight * given[r]
                if k == 0:
                    highest[:rows] = line[:rows]
                    sums[:rows] = 1.0
                else:
                    for r in range(rows):
                        small = np.exp(-abs(line[r] - highest[r]))
                        sums[r] = sums[r] + small if line[r] <= highest[r] else sums[r] * small + 1.0
                        highest[r] = max(highest[r], line[r])
            for r in range(rows):
                result[r] += highest[r] + np.log(sums[r])
        centre, scale = constants[2 * terms], constants[2 * terms + 1]
        for r in range(rows):
            result[r] = result[r] * scale + centre + poison[r]
        if logarithm:
            for r in range(rows):
                out[start + r] = np.exp(result[r])
        else:
            for r in range(rows):
                out[start + r] = result[r]


@cache
def _kernel() -> Callable[[Ints, Floats, Floats, Floats], None]:
    """`_interpret` compiled: from numba's cache folder where it has one, else in memory (a few seconds, once a process)."""
    try:
        import numba
    except ImportError as error:
        raise MissingPackage("compiled inference needs the package 'numba', which is not installed; run: pip install numba") from error
    types = numba.types
    # Read-only arrays in the signature take writable ones too: one compilation serves both.
    signature = types.void(
        types.Array(types.int64, 1, "C", readonly=True),
        types.Array(types.float64, 1, "C", readonly=True),
        types.Array(types.float64, 2, "C", readonly=True),
        types.Array(types.float64, 1, "C"),
    )
    options: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}, "nogil": True}
    try:
        compiled = numba.njit(signature, cache=True, **options)(_interpret)
    except Exception:
        # The cache only saves time: no writable folder, a full disk or a damaged file must not stop a prediction. A real fault shows again below.
        compiled = numba.njit(signature, **options)(_interpret)
    return compiled


@dataclass(frozen=True)
class CompiledModel:
    """A model as arrays for the compiled kernel; it holds no reference to the model it came from, and two arrays are all that `predict` reads.

    Attributes:
        name: of the model.
        columns: input columns in the order that `predict` takes them.
        structure, constants: the packed model (see the module).
    """

    name: str
    columns: tuple[str, ...]
    structure: Ints
    constants: Floats

    def predict(self, values: npt.ArrayLike) -> Floats:
        """Seconds [n] of values [n, columns]; NaN for a row with an input that is not finite or has no logarithm.

        Raises UsageError for another number of columns.
        """
        array = np.ascontiguousarray(values, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != len(self.columns):
            raise UsageError(f"model {self.name!r} takes an array [n, {len(self.columns)}] of {', '.join(self.columns)}; this one has shape {array.shape}")
        out = np.empty(len(array))
        _kernel()(self.structure, self.constants, array, out)
        return out

    def predict_one(self, *values: float) -> float:
        """Seconds of one row, its values in the order of `columns`; NaN and errors as `predict`."""
        if len(values) != len(self.columns):
            raise UsageError(f"model {self.name!r} takes {len(self.columns)} values ({', '.join(self.columns)}); {len(values)} were given")
        out = np.empty(1)
        _kernel()(self.structure, self.constants, np.array((values,), dtype=np.float64), out)
        return float(out[0])

    def predict_time_s(self, frame: pd.DataFrame) -> Floats:
        """Seconds [n] of the rows of a frame; NaN as `predict`. Raises DataError for a missing column."""
        missing = [c for c in self.columns if c not in frame.columns]
        if missing:
            raise DataError(f"the model's input {missing[0]!r} is not a column of the frame; it has {', '.join(map(str, frame.columns))}")
        return self.predict(frame[list(self.columns)].to_numpy(dtype=np.float64))


def compile_model(model: CostModel) -> CompiledModel:
    """The compiled form of a fitted linear model, network or compact model, equal to it to 1e-6 relative.

    Raises:
        UsageError: a model of another kind (trees).
        MissingPackage: numba is not installed.
    """
    if isinstance(model, LinearModel):
        zeros, ones = np.zeros(len(model.terms)), np.ones(len(model.terms))
        weights = np.append(model.weights, model.intercept)
        compiled = _pack(model.name, model.terms, (len(model.terms), 1), weights, zeros, ones)
    elif isinstance(model, Network):
        compiled = _pack(model.name, model.terms, model.layers, model.weights, model.centre, model.scale, (model.out_centre, model.out_scale), log=model.log)
    elif isinstance(model, CompactModel):
        d, h, k = model.net.inputs, model.net.hidden, model.net.terms
        w1, a, w2, p1, p0 = np.split(np.asarray(model.weights, dtype=np.float64), np.cumsum([h * d, h, h, k * d]))
        weights = np.concatenate([w1.reshape(h, d).T.ravel(), a, w2, *([[0.0], p1, p0] if k else [p0])])
        out = (model.out_centre, model.out_scale)
        compiled = _pack(model.name, model.terms, (d, h, 1), weights, model.centre, model.scale, out, tanh=True, mixture=k, log=True)
    else:
        raise UsageError(f"model {model.name!r} is a {type(model).__name__}; only linear models, networks and compact models compile")
    _kernel()
    return compiled


def _pack(
    name: str,
    terms: Sequence[Term],
    layers: Sequence[int],
    weights: Floats,
    centre: Floats,
    scale: Floats,
    out: tuple[float, float] = (0.0, 1.0),
    *,
    tanh: bool = False,
    mixture: int = 0,
    log: bool = False,
) -> CompiledModel:
    columns = columns_of(terms)
    place = {column: i for i, column in enumerate(columns)}
    expected = sum((a + 1) * b for a, b in pairwise(layers)) + mixture * (len(terms) + 1)
    if layers[0] != len(terms) or layers[-1] != 1 or len(weights) != expected or not np.isfinite(weights).all():
        raise UsageError(f"model {name!r} has {len(terms)} terms and {len(weights)} weights for layers {tuple(layers)}; it needs {expected} finite ones")
    header = [len(columns), len(terms), len(layers) - 1, int(tanh), mixture, int(log)]
    operands = [_CODES[t.operation] for t in terms], [place[t.column] for t in terms], [place[t.second or t.column] for t in terms]
    structure = np.array([*header, *operands[0], *operands[1], *operands[2], *layers], dtype=np.int64)
    constants = np.concatenate([centre, 1 / np.asarray(scale), out, weights]).astype(np.float64)
    structure.flags.writeable = constants.flags.writeable = False
    return CompiledModel(name, columns, structure, constants)
