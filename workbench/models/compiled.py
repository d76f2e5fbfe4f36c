"""Compiled inference: models packed as numbers for one compiled function (see `models.interpreter`), to predict and to choose among rows.

An input may be asked for with thousands of configurations, or with a handful in about a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import DataError, UsageError
from workbench.features.inputs import OPERATIONS, Term, columns_of
from workbench.models.base import CostModel, Floats
from workbench.models.compact import CompactModel
from workbench.models.counting import STACK, count_program
from workbench.models.interpreter import BLOCK, GIVEN, Ints, entry_point
from workbench.models.linear import LinearModel
from workbench.models.nnc import Network

__all__ = ["GIVEN", "Alternatives", "CompiledModel", "compile_alternatives", "compile_model"]

_CODES = {name: code for code, name in enumerate(OPERATIONS)}
# In the plan of a compiled model: numbers before its sources, after which its structure stands, and then its place.
_STRUCTURE = 9
# Models of at most so many rows each go through together: their numbers are kept once a row.
_STACKED = 8
_ZEROS = (0.0,) * GIVEN


@dataclass(frozen=True)
class CompiledModel:
    """A model as arrays for the compiled kernel; it holds no reference to the model it came from, and two arrays are all that `predict` reads.

    Attributes:
        name: of the model.
        columns: input columns in the order that `predict` takes them.
        plan, numbers: the packed model (see `models.interpreter`), whose rows all come from the table.
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
        entry_point()(self.plan, self.numbers, array.ravel(), out, *_ZEROS)
        return out

    def predict_one(self, *values: float) -> float:
        """Seconds of one row, its values in the order of `columns`; NaN and errors as `predict`."""
        if len(values) != len(self.columns):
            raise UsageError(f"model {self.name!r} takes {len(self.columns)} values ({', '.join(self.columns)}); {len(values)} were given")
        out = np.empty(1)
        entry_point()(self.plan, self.numbers, np.array(values, dtype=np.float64), out, *_ZEROS)
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
        weights = np.concatenate([w1.reshape(h, d).T.ravel(), a, w2, *([[0.0], p1.reshape(k, d).T.ravel(), p0] if k else [p0])])
        out = (model.out_centre, model.out_scale)
        compiled = _pack(model.name, model.terms, (d, h, 1), weights, model.centre, model.scale, out, tanh=True, mixture=k, log=True)
    else:
        raise UsageError(f"model {model.name!r} is a {type(model).__name__}; only linear models, networks and compact models compile")
    entry_point()
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
    shapes = [*pairwise(layers), *([(len(terms), mixture)] if mixture else [])]
    expected = sum((a + 1) * b for a, b in shapes)
    if layers[0] != len(terms) or layers[-1] != 1 or len(weights) != expected or not np.isfinite(weights).all():
        raise UsageError(f"model {name!r} has {len(terms)} terms and {len(weights)} weights for layers {tuple(layers)}; it needs {expected} finite ones")
    header = [len(terms), len(layers) - 1, max(layers), int(tanh), mixture, int(log)]
    operands = [_CODES[t.operation] for t in terms], [place[t.column] for t in terms], [place[t.second or t.column] for t in terms]
    structure = [*header, *operands[0], *operands[1], *operands[2], *layers]
    height = len(columns) + len(terms) + 2 * max(layers) + mixture + 3
    # One group of as many rows as there are, whose columns all come from the table.
    plan = np.array([1, height, 0, 0, 0, 0, 0, 0, len(columns), *[-1] * len(columns), *structure, 0], dtype=np.int64)
    numbers = _unscaled(shapes, len(layers) - 1, weights, centre, scale, out)[:, None]
    plan.flags.writeable = numbers.flags.writeable = False
    return CompiledModel(name, columns, plan, numbers)


def _unscaled(shapes: Sequence[tuple[int, int]], depth: int, weights: Floats, centre: Floats, scale: Floats, out: tuple[float, float]) -> Floats:
    """The weights for terms that are not standardised and outputs that are not scaled: of `depth` layers, then of log-linear terms where there are some."""
    numbers, at, (out_centre, out_scale) = [], 0, out
    for i, (a, b) in enumerate(shapes):
        matrix, bias = np.asarray(weights[at : at + a * b], dtype=np.float64).reshape(a, b), weights[at + a * b : at + (a + 1) * b]
        if i in (0, depth):  # what reads the terms
            matrix = matrix / np.asarray(scale)[:, None]
            bias = bias - centre @ matrix
        if i == depth - 1:
            matrix, bias = matrix * out_scale, bias * out_scale + out_centre
        numbers += [matrix.ravel(), bias]
        at += (a + 1) * b
    return np.concatenate([*numbers, *([[out_scale]] if len(shapes) > depth else [])])


@dataclass(frozen=True)
class Alternatives:
    """Rows of fixed values under one or several models, for the question which row is fastest for the values that a call gives.

    Attributes:
        given: names of the values that a call gives, in order.
        size: number of rows, over all models.
        call: the compiled function behind `fastest`, which checks nothing.
        plan, numbers, table: the packed models and rows (see `models.interpreter`).
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
        entry_point()(self.plan, self.numbers, self.table, out, *_ZEROS[len(given) :], *given)
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
    for model, frame in groups:
        if missing := [c for c in model.columns if c not in place and c not in frame.columns]:
            raise DataError(f"the model's input {missing[0]!r} is neither given ({', '.join(given)}) nor a column ({', '.join(map(str, frame.columns))})")
        if len(frame) == 0:
            raise UsageError(f"model {model.name!r} has no rows to choose among")
    starts = np.cumsum([0, *(len(frame) for _, frame in groups)])
    stacks = _stacks(groups)
    plan: list[int] = []
    numbers: list[Floats] = []
    tables: list[Floats] = []
    first_number = first_cell = 0
    for members in stacks:
        model, frames, stack = groups[members[0]][0], [groups[i][1] for i in members], len(members) > 1
        places = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in members])
        columns = [np.zeros(len(places)) if c in place else np.concatenate([f[c].to_numpy(dtype=np.float64) for f in frames]) for c in model.columns]
        lanes = np.repeat(members, [len(frame) for frame in frames]) if stack else members
        numbers.append(np.hstack([groups[i][0].numbers for i in lanes]))
        tables.append(np.column_stack(columns).ravel())
        plan += [len(places), stack, first_number, first_cell, len(columns), *(place.get(c, -1) for c in model.columns)]
        plan += [*model.plan[_STRUCTURE + len(columns) : -1].tolist(), *(places if stack else places[:1]).tolist()]
        first_number, first_cell = first_number + len(numbers[-1]), first_cell + tables[-1].size
    widest, longest = max(n.shape[1] for n in numbers), max(len(frame) for _, frame in groups)
    height = max(STACK, *(int(model.plan[1]) for model, _ in groups))
    packed = np.array([len(stacks), height, min(BLOCK, max(widest, longest)), len(steps) // 2, *steps, *plan], dtype=np.int64)
    padded = np.concatenate([np.pad(n, ((0, 0), (0, widest - n.shape[1]))) for n in numbers])
    arrays = packed, padded, np.concatenate(tables)
    return Alternatives(tuple(given), int(starts[-1]), partial(entry_point(), *arrays, np.empty(0), *_ZEROS[:unused]), *arrays)


def _stacks(groups: Sequence[tuple[CompiledModel, pd.DataFrame]]) -> list[list[int]]:
    """Places of the groups that go through together: models of one structure with few rows each."""
    stacks: list[list[int]] = []
    # The stack that the next model of a structure joins, as long as there is room.
    latest: dict[tuple[tuple[str, ...], bytes], list[int]] = {}
    for i, (model, frame) in enumerate(groups):
        structure = model.columns, model.plan.tobytes()
        members = latest.get(structure, [])
        if len(frame) > _STACKED:
            stacks.append([i])
        elif members and sum(len(groups[k][1]) for k in members) + len(frame) <= BLOCK:
            members.append(i)
        else:
            stacks.append([i])
            latest[structure] = stacks[-1]
    return stacks
