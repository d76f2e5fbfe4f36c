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
from functools import cache, partial
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

__all__ = ["GIVEN", "Alternatives", "CompiledModel", "compile_alternatives", "compile_model"]

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


# One more compiled function: rows of fixed values under one or several models, of which a call gives the others.

GIVEN = 8
_CHUNK = 1024

# `_fastest` calls the interpreter by this name: compiled code takes a compiled function from a global, `_ranker` puts it there.
_interpreter: Callable[[Ints, Floats, Floats, Floats], None] = _interpret


def _fastest(plan: Ints, numbers: Floats, out: Floats, p0: float, p1: float, p2: float, p3: float, p4: float, p5: float, p6: float, p7: float) -> int:
    """Place of the row with the least seconds, -1 where none has a number. `out` takes the seconds of all rows, unless its length is 0."""
    # Numbers one by one: an array made in Python for each call would cost as much as the arithmetic.
    given = np.empty(GIVEN)
    given[0], given[1], given[2], given[3], given[4], given[5], given[6], given[7] = p0, p1, p2, p3, p4, p5, p6, p7
    best, least, at, base = -1, np.inf, 1, 0
    for _ in range(plan[0]):
        rows, columns, long, weights, table = plan[at], plan[at + 1], plan[at + 2], plan[at + 3], plan[at + 4]
        sources = plan[at + 5 : at + 5 + columns]
        structure = plan[at + 5 + columns : at + 5 + columns + long]
        values = np.empty((min(rows, _CHUNK), columns))
        seconds = np.empty(min(rows, _CHUNK))
        for start in range(0, rows, _CHUNK):
            count = min(_CHUNK, rows - start)
            for r in range(count):
                for c in range(columns):
                    values[r, c] = given[sources[c]] if sources[c] >= 0 else numbers[table + (start + r) * columns + c]
            _interpreter(structure, numbers[weights:table], values[:count], seconds[:count])
            for r in range(count):
                if len(out) > 0:
                    out[base + start + r] = seconds[r]
                if seconds[r] < least:
                    best, least = base + start + r, seconds[r]
        base += rows
        at += 5 + columns + long
    return best


@cache
def _ranker() -> Callable[..., int]:
    """`_fastest` compiled, as `_kernel` is."""
    global _interpreter
    _interpreter = _kernel()
    import numba

    types = numba.types
    # Writable arrays: numba looks a read-only one's type up in Python, which costs as much as the call.
    arrays = types.Array(types.int64, 1, "C"), types.Array(types.float64, 1, "C"), types.Array(types.float64, 1, "C")
    signature = types.int64(*arrays, *[types.float64] * GIVEN)
    try:
        compiled = numba.njit(signature, cache=True, error_model="numpy")(_fastest)
    except Exception:
        compiled = numba.njit(signature, error_model="numpy")(_fastest)
    return compiled


@dataclass(frozen=True)
class Alternatives:
    """Rows of fixed values under one or several models, for the question which row is fastest for the values that a call gives.

    Attributes:
        given: names of the values that a call gives, in order.
        size: number of rows, over all models.
        call: the compiled function of exactly GIVEN numbers, `given` and as many more of any kind: the place of the fastest row, -1 where none is a number.
        plan, numbers: the packed models and rows.
    """

    given: tuple[str, ...]
    size: int
    call: Callable[..., int]
    plan: Ints
    numbers: Floats

    def fastest(self, *given: float) -> int:
        """Place of the row with the least predicted seconds, the first of equal ones; -1 where no row's prediction is a number."""
        return self.call(*self._padded(given))

    def times(self, *given: float) -> Floats:
        """Predicted seconds of all rows [size]; NaN as `CompiledModel.predict`."""
        out = np.empty(self.size)
        _ranker()(self.plan, self.numbers, out, *self._padded(given))
        return out

    def _padded(self, given: tuple[float, ...]) -> tuple[float, ...]:
        if len(given) != len(self.given):
            raise UsageError(f"{len(self.given)} values are needed ({', '.join(self.given)}); {len(given)} were given")
        return (*given, *(0.0,) * (GIVEN - len(given)))


def compile_alternatives(groups: Sequence[tuple[CompiledModel, pd.DataFrame]], given: Sequence[str]) -> Alternatives:
    """Pack models with the rows that they are to be asked for.

    Args:
        groups: a model, and a frame with a row an alternative and a column for each input of the model that is not given (others are left out).
        given: names of the values that each call gives.

    Raises:
        UsageError: more than GIVEN names, or an empty frame.
        DataError: an input of a model is neither given nor a column.
    """
    if len(given) > GIVEN or not groups:
        raise UsageError(f"{len(groups)} models and {len(given)} given values ({', '.join(given)}); there is at least one model, and at most {GIVEN} values")
    place = {name: i for i, name in enumerate(given)}
    plan, numbers, at = [np.array([len(groups)])], [], 0
    for model, frame in groups:
        if missing := [c for c in model.columns if c not in place and c not in frame.columns]:
            raise DataError(f"the model's input {missing[0]!r} is neither given ({', '.join(given)}) nor a column ({', '.join(map(str, frame.columns))})")
        if len(frame) == 0:
            raise UsageError(f"model {model.name!r} has no rows to choose among")
        table = np.zeros((len(frame), len(model.columns)))
        for i, column in enumerate(model.columns):
            if column not in place:
                table[:, i] = frame[column].to_numpy(dtype=np.float64)
        weights, rows = at, at + len(model.constants)
        header = [len(frame), len(model.columns), len(model.structure), weights, rows]
        plan += [np.array([*header, *(place.get(c, -1) for c in model.columns)]), model.structure]
        numbers += [model.constants, table.ravel()]
        at = rows + table.size
    packed, joined = np.concatenate(plan).astype(np.int64), np.concatenate(numbers)
    return Alternatives(tuple(given), sum(len(frame) for _, frame in groups), partial(_ranker(), packed, joined, np.empty(0)), packed, joined)
