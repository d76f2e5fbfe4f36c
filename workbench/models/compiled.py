"""Compiled inference: one numba kernel interprets any linear, network or compact model, so that a new model costs no compilation.

A call goes over groups of rows, each under a model of its own, and gives the place of the row with the least seconds. A column of a row comes from a table or,
the same for all rows, from the call: an input may so be asked for with thousands of configurations, or with a handful in about a microsecond. All models stand
in two arrays, plan (integers) and numbers (float64):

    plan:    groups, height and width of the scratch memory (width 0: as the rows need), the number of steps of the operation count and its steps
             (see `models.counting`), then for each group
             rows (0: as many as `out` has), where its numbers begin, where its rows begin in the table, columns,
             sources [columns] (which given value, GIVEN for the operation count, -1 for the table), and the model:
             terms, layers after the input, largest layer, activation (0 ReLU, 1 tanh), log-linear terms K, log target (0 or 1),
             operations [terms], first columns [terms], second columns [terms], layer sizes from the input to the output
    numbers: for each group centre [terms], 1/scale [terms], out_centre, out_scale, for each layer weights [in, out] and bias [out], then P [K, terms] and p [K]

Operations are numbered as `features.inputs.OPERATIONS` is ordered. Rows go through in blocks, each step a loop over the rows of a block: the interpreter's
own decisions cost once a block, and the compiler vectorises what is left. Arrays are read by place and never sliced: a slice costs as much as a short loop.
A linear model is a network without hidden layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from workbench.models.counting import STACK, count_program
from workbench.models.linear import LinearModel
from workbench.models.nnc import Network

__all__ = ["GIVEN", "Alternatives", "CompiledModel", "compile_alternatives", "compile_model"]

Ints = npt.NDArray[np.int64]

_CODES = {name: code for code, name in enumerate(OPERATIONS)}
_BLOCK = 64
# So few rows are summed one by one: the start of a vectorised loop costs more than it saves.
_FEW = 4
GIVEN = 5


def _interpret(
    plan: Ints,
    numbers: Floats,
    table: Floats,
    out: Floats,
    p0: float,
    p1: float,
    p2: float,
    p3: float,
    p4: float,
) -> int:
    """Place of the row with the least seconds, -1 where none has a number; `out` takes the seconds of all rows, unless its length is 0.

    A row with an input that is not finite has NaN. Compiled by `_kernel`; plain Python gives the same numbers. The given values come one by one: an array made
    of them in Python would cost as much as the arithmetic.
    """
    given = (p0, p1, p2, p3, p4)
    scratch = np.empty((plan[1], plan[2] if plan[2] > 0 else min(_BLOCK, len(out))))
    top = 0
    for i in range(plan[3]):
        code, operand = plan[4 + 2 * i], plan[5 + 2 * i]
        if code < 2:
            scratch[top, 0] = given[operand] if code == 0 else operand
            top += 1
        elif code == 7:
            scratch[top - 1, 0] = np.log2(scratch[top - 1, 0])
        else:
            top -= 1
            x, y = scratch[top - 1, 0], scratch[top, 0]
            scratch[top - 1, 0] = x + y if code == 2 else x - y if code == 3 else x * y if code == 4 else x**y if code == 5 else x // y
    operation_count = scratch[0, 0]
    best, least, base, at = -1, np.inf, 0, 4 + 2 * plan[3]
    for _ in range(plan[0]):
        rows = plan[at] if plan[at] > 0 else len(out)
        first_number, first_cell, columns, sources = plan[at + 1], plan[at + 2], plan[at + 3], at + 4
        model = sources + columns
        terms, depth, width, activation, mixture, logarithm = plan[model], plan[model + 1], plan[model + 2], plan[model + 3], plan[model + 4], plan[model + 5]
        operations, first, second, sizes = model + 6, model + 6 + terms, model + 6 + 2 * terms, model + 6 + 3 * terms
        # Rows of the scratch memory: the columns, the terms, two layers, and four more.
        poison = columns + terms + 2 * width
        highest, line, sums = poison + 1, poison + 2, poison + 3
        for start in range(0, rows, _BLOCK):
            count = min(_BLOCK, rows - start)
            # Zero times a number that is not finite is NaN: it marks rows whose inputs ReLU, tanh or a comparison would otherwise hide.
            for r in range(count):
                scratch[poison, r] = 0.0
            for c in range(columns):
                source = plan[sources + c]
                if source < 0:
                    for r in range(count):
                        scratch[c, r] = table[first_cell + (start + r) * columns + c]
                else:
                    value = operation_count if source == GIVEN else given[source]
                    for r in range(count):
                        scratch[c, r] = value
                for r in range(count):
                    scratch[poison, r] += 0.0 * scratch[c, r]
            for t in range(terms):
                z, op, a, b = columns + t, plan[operations + t], plan[first + t], plan[second + t]
                # What is the same for all rows is computed once.
                some = count if plan[sources + a] < 0 or plan[sources + b] < 0 else 1
                if op == 0:
                    for r in range(some):
                        scratch[z, r] = scratch[a, r]
                elif op == 1:
                    for r in range(some):
                        scratch[z, r] = np.log2(scratch[a, r])
                elif op == 2:
                    for r in range(some):
                        scratch[z, r] = 1.0 / scratch[a, r]
                elif op == 3:
                    for r in range(some):
                        scratch[z, r] = np.log2(scratch[a, r]) if scratch[a, r] < 1.0 else -20.0
                elif op == 4:
                    for r in range(some):
                        # Only a number that an integer can hold may be cast; beyond, all are multiples of 16.
                        whole = np.int64(scratch[a, r]) if abs(scratch[a, r]) < 9.0e18 else np.int64(0)
                        divisor = 16
                        while whole & (divisor - 1):
                            divisor >>= 1
                        scratch[z, r] = divisor / 16.0
                elif op == 5:
                    for r in range(some):
                        scratch[z, r] = np.log2(np.ceil(scratch[a, r] / 16.0) * 16.0 / scratch[a, r])
                elif op == 6:
                    for r in range(some):
                        scratch[z, r] = np.log2(max(1.0, scratch[a, r] / scratch[b, r]))
                elif op == 7:
                    for r in range(some):
                        scratch[z, r] = np.log2(scratch[a, r]) if scratch[a, r] < 0.5 else 0.0
                elif op == 8:
                    for r in range(some):
                        scratch[z, r] = 0.0 if scratch[a, r] < 0.5 else 1.0
                else:
                    for r in range(some):
                        scratch[z, r] = 1.0 if scratch[a, r] == 1.0 else 0.0
                for r in range(some, count):
                    scratch[z, r] = scratch[z, 0]
                centre, inverse = numbers[first_number + t], numbers[first_number + terms + t]
                for r in range(count):
                    scratch[poison, r] += 0.0 * scratch[z, r]
                    scratch[z, r] = (scratch[z, r] - centre) * inverse
            now = first_number + 2 * terms + 2
            layer_in = columns
            for layer in range(depth):
                fan_in, fan_out = plan[sizes + layer], plan[sizes + layer + 1]
                layer_out = columns + terms if layer % 2 == 0 else columns + terms + width
                bias = now + fan_in * fan_out
                for j in range(fan_out):
                    unit = layer_out + j
                    if count < _FEW:
                        for r in range(count):
                            total = numbers[bias + j]
                            for i in range(fan_in):
                                total += numbers[now + i * fan_out + j] * scratch[layer_in + i, r]
                            scratch[unit, r] = total
                    else:
                        for r in range(count):
                            scratch[unit, r] = numbers[bias + j]
                        for i in range(fan_in):
                            weight, before = numbers[now + i * fan_out + j], layer_in + i
                            for r in range(count):
                                scratch[unit, r] += weight * scratch[before, r]
                    if layer < depth - 1:
                        if activation == 0:
                            for r in range(count):
                                scratch[unit, r] = 0.0 if scratch[unit, r] < 0.0 else scratch[unit, r]
                        else:
                            for r in range(count):
                                # tanh, a few times faster than the library's; its error is an ulp of 1.
                                scratch[unit, r] = 1.0 - 2.0 / (np.exp(2.0 * scratch[unit, r]) + 1.0)
                now = bias + fan_out
                layer_in = layer_out
            if mixture > 0:
                bias = now + mixture * terms
                # A running maximum and a running sum: log sum exp in one pass over the terms, without overflow.
                for k in range(mixture):
                    for r in range(count):
                        scratch[line, r] = numbers[bias + k]
                    for i in range(terms):
                        weight, before = numbers[now + k * terms + i], columns + i
                        for r in range(count):
                            scratch[line, r] += weight * scratch[before, r]
                    if k == 0:
                        for r in range(count):
                            scratch[highest, r] = scratch[line, r]
                            scratch[sums, r] = 1.0
                    else:
                        for r in range(count):
                            small = np.exp(-abs(scratch[line, r] - scratch[highest, r]))
                            scratch[sums, r] = scratch[sums, r] + small if scratch[line, r] <= scratch[highest, r] else scratch[sums, r] * small + 1.0
                            scratch[highest, r] = max(scratch[highest, r], scratch[line, r])
                for r in range(count):
                    scratch[layer_in, r] += scratch[highest, r] + np.log(scratch[sums, r])
            centre, scale = numbers[first_number + 2 * terms], numbers[first_number + 2 * terms + 1]
            for r in range(count):
                scratch[layer_in, r] = scratch[layer_in, r] * scale + centre + scratch[poison, r]
            if len(out) > 0:
                for r in range(count):
                    out[base + start + r] = np.exp(scratch[layer_in, r]) if logarithm else scratch[layer_in, r]
            for r in range(count):
                # Rows of all models are compared by logarithm: a time at or below zero is none.
                key = scratch[layer_in, r] if logarithm else np.log(scratch[layer_in, r])
                if key < least:
                    best, least = base + start + r, key
        base += rows
        at = sizes + depth + 1
    return best


@cache
def _kernel() -> Any:
    """`_interpret` compiled: from numba's cache folder where it has one, else in memory (a few seconds, once a process)."""
    try:
        import numba
    except ImportError as error:
        raise MissingPackage("compiled inference needs the package 'numba', which is not installed; run: pip install numba") from error
    types = numba.types
    # Read-only arrays in the signature take writable ones too: one compilation serves both.
    signature = types.int64(
        types.Array(types.int64, 1, "C", readonly=True),
        types.Array(types.float64, 1, "C", readonly=True),
        types.Array(types.float64, 1, "C", readonly=True),
        types.Array(types.float64, 1, "C"),
        *[types.float64] * GIVEN,
    )
    options: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}, "nogil": True}
    try:
        compiled = numba.njit(signature, cache=True, **options)(_interpret)
    except Exception:
        # The cache only saves time: no writable folder, a full disk or a damaged file must not stop a prediction. A real fault shows again below.
        compiled = numba.njit(signature, **options)(_interpret)
    return compiled


@cache
def _entry() -> Callable[..., int]:
    """The compiled function without numba's choice among signatures, which takes as long as a prediction: it has only one."""
    (compiled,) = _kernel().overloads.values()
    entry: Callable[..., int] = compiled.entry_point
    return entry


_ZEROS = (0.0,) * GIVEN


@dataclass(frozen=True)
class CompiledModel:
    """A model as arrays for the compiled kernel; it holds no reference to the model it came from, and two arrays are all that `predict` reads.

    Attributes:
        name: of the model.
        columns: input columns in the order that `predict` takes them.
        plan, numbers: the packed model (see the module), whose rows all come from the table.
    """

    name: str
    columns: tuple[str, ...]
    plan: Ints
    numbers: Floats

    def predict(self, values: npt.ArrayLike) -> Floats:
        """Seconds [n] of values [n, columns]; NaN for a row with an input that is not finite or has no logarithm.

        Raises UsageError for another number of columns.
        """
        array = np.ascontiguousarray(values, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != len(self.columns):
            raise UsageError(f"model {self.name!r} takes an array [n, {len(self.columns)}] of {', '.join(self.columns)}; this one has shape {array.shape}")
        out = np.empty(len(array))
        _entry()(self.plan, self.numbers, array.ravel(), out, *_ZEROS)
        return out

    def predict_one(self, *values: float) -> float:
        """Seconds of one row, its values in the order of `columns`; NaN and errors as `predict`."""
        if len(values) != len(self.columns):
            raise UsageError(f"model {self.name!r} takes {len(self.columns)} values ({', '.join(self.columns)}); {len(values)} were given")
        out = np.empty(1)
        _entry()(self.plan, self.numbers, np.array(values, dtype=np.float64), out, *_ZEROS)
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
    _entry()
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
    header = [len(terms), len(layers) - 1, max(layers), int(tanh), mixture, int(log)]
    operands = [_CODES[t.operation] for t in terms], [place[t.column] for t in terms], [place[t.second or t.column] for t in terms]
    structure = [*header, *operands[0], *operands[1], *operands[2], *layers]
    height = len(columns) + len(terms) + 2 * max(layers) + 4
    plan = np.array([1, height, 0, 0, 0, 0, 0, len(columns), *[-1] * len(columns), *structure], dtype=np.int64)
    numbers = np.concatenate([centre, 1 / np.asarray(scale), out, weights]).astype(np.float64)
    plan.flags.writeable = numbers.flags.writeable = False
    return CompiledModel(name, columns, plan, numbers)


@dataclass(frozen=True)
class Alternatives:
    """Rows of fixed values under one or several models, for the question which row is fastest for the values that a call gives.

    Attributes:
        given: names of the values that a call gives, in order.
        size: number of rows, over all models.
        call: the compiled function behind `fastest`, which checks nothing.
        plan, numbers, table: the packed models and rows (see the module).
    """

    given: tuple[str, ...]
    size: int
    call: Callable[..., int]
    plan: Ints
    numbers: Floats
    table: Floats

    def fastest(self, *given: float) -> int:
        """Place of the row with the least predicted seconds, the first of equal ones; -1 where no row's prediction is a number above zero."""
        self._check(given)
        return self.call(*given)

    def times(self, *given: float) -> Floats:
        """Predicted seconds of all rows [size]; NaN as `CompiledModel.predict`."""
        self._check(given)
        out = np.empty(self.size)
        _entry()(self.plan, self.numbers, self.table, out, *_ZEROS[len(given) :], *given)
        return out

    def _check(self, given: tuple[float, ...]) -> None:
        if len(given) != len(self.given):
            raise UsageError(f"{len(self.given)} values are needed ({', '.join(self.given)}); {len(given)} were given")


def compile_alternatives(
    groups: Sequence[tuple[CompiledModel, pd.DataFrame]], given: Sequence[str], complexity: Callable[[Mapping[str, Any]], Any] | None = None
) -> Alternatives:
    """Pack models with the rows that they are to be asked for.

    Args:
        groups: a model, and a frame with a row an alternative and a column for each input of the model that is not given (others are left out).
        given: names of the values that each call gives.
        complexity: the operation count of what is given: the input c of the models, unless it is given itself or None.

    Raises:
        UsageError: more than GIVEN names, an empty frame, or an operation count that cannot be compiled.
        DataError: an input of a model is neither given nor a column.
    """
    if len(given) > GIVEN or not groups:
        raise UsageError(f"{len(groups)} models and {len(given)} given values ({', '.join(given)}); there is at least one model, and at most {GIVEN} values")
    steps = [number for step in count_program(complexity, (*[""] * (GIVEN - len(given)), *given)) for number in step] if complexity is not None else []
    # The given values are the last of the compiled function's: those before them are bound, and a call needs no padding.
    unused = GIVEN - len(given)
    place = {**({"c": GIVEN} if steps else {}), **{name: unused + i for i, name in enumerate(given)}}
    plan: list[int] = []
    tables, first_number, first_cell, height = [], 0, 0, STACK
    for model, frame in groups:
        if missing := [c for c in model.columns if c not in place and c not in frame.columns]:
            raise DataError(f"the model's input {missing[0]!r} is neither given ({', '.join(given)}) nor a column ({', '.join(map(str, frame.columns))})")
        if len(frame) == 0:
            raise UsageError(f"model {model.name!r} has no rows to choose among")
        width = len(model.columns)
        table = np.zeros((len(frame), width))
        for i, column in enumerate(model.columns):
            if column not in place:
                table[:, i] = frame[column].to_numpy(dtype=np.float64)
        plan += [len(frame), first_number, first_cell, width, *(place.get(c, -1) for c in model.columns), *model.plan[8 + width :].tolist()]
        tables.append(table.ravel())
        first_number, first_cell, height = first_number + len(model.numbers), first_cell + table.size, max(height, int(model.plan[1]))
    longest, size = min(_BLOCK, max(len(frame) for _, frame in groups)), sum(len(frame) for _, frame in groups)
    packed = np.array([len(groups), height, longest, len(steps) // 2, *steps, *plan], dtype=np.int64)
    arrays = packed, np.concatenate([model.numbers for model, _ in groups]), np.concatenate(tables)
    return Alternatives(tuple(given), size, partial(_entry(), *arrays, np.empty(0), *_ZEROS[:unused]), *arrays)
