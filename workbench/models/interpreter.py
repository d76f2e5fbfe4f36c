"""The compiled function behind `models.compiled`: it interprets any linear, network or compact model, so that a new model costs no compilation.

A call goes over groups of rows and gives the place of the row with the least seconds. A column of a row comes from a table or, the same for all rows, from the
call. The rows of a group are under one model or, where it is a stack, each under a model of its own; the models of a stack differ in their numbers alone, so
its rows go through as one row would. All models stand in two arrays, plan (integers) and numbers (float64):

    plan:    groups, height and width of the scratch memory (width 0: as the rows need), the number of steps of the operation count and its steps
             (see `models.counting`), then for each group
             rows (0: as many as `out` has), whether it is a stack (0 or 1), where its numbers begin, where its rows begin in the table, columns,
             sources [columns] (which given value, GIVEN for the operation count, -1 for the table), and the model:
             terms, layers after the input, largest layer, activation (0 ReLU, 1 tanh), log-linear terms K, log target (0 or 1),
             operations [terms], first columns [terms], second columns [terms], layer sizes from the input to the output;
             then the place of the first row, after which the others follow, or in a stack the place of each row
    numbers: [n, lanes]: for each group and layer weights [in, out] and bias [out], then with log-linear terms P [terms, K], p [K] and the factor of their
             log sum exp; scalers of inputs and outputs are part of them; row r of a stack has lane r, all rows of another group have lane 0

Operations are numbered as `features.inputs.OPERATIONS` is ordered. Rows go through in blocks, each step a loop over the rows of a block: the interpreter's
own decisions cost once a block, and the compiler vectorises what is left. A stack has at most a block of rows. Arrays are read by place and never sliced: a
slice costs as much as a short loop. A linear model is a network without hidden layers.

numba's cache looks at this file alone: what the function uses stands here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.errors import MissingPackage
from workbench.models.base import Floats

__all__ = ["BLOCK", "GIVEN", "Ints", "decay", "dispatcher", "entry_point", "interpret"]

Ints = npt.NDArray[np.int64]

BLOCK = 64
# Most values that a call gives.
GIVEN = 5
# So few rows are summed one by one: the start of a vectorised loop costs more than it saves.
_FEW = 4


def decay(x: float) -> float:
    """e^-x of x >= 0, to 1e-14; beyond 40, where it is nothing beside 1, as at 40. NaN of NaN.

    A polynomial of x/32 and five squarings: unlike the library's exponential, a loop of it vectorises.
    """
    y = (40.0 if x > 40.0 else x) / -32.0
    z = y * y
    cosh = 1 + z * (1 / 2 + z * (1 / 24 + z * (1 / 720 + z * (1 / 40320 + z / 3628800))))
    sinh = y * (1 + z * (1 / 6 + z * (1 / 120 + z * (1 / 5040 + z / 362880))))
    e = cosh + sinh
    e *= e
    e *= e
    e *= e
    e *= e
    return e * e


def count_operations(plan: Ints, given: tuple[float, ...], scratch: Floats) -> float:
    """The operation count c of what is given; any number where the plan has no steps for it."""
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
    c: float = scratch[0, 0]
    return c


def read_inputs(plan: Ints, at: int, table: Floats, given: tuple[float, ...], count_given: float, scratch: Floats, start: int, count: int) -> float:
    """Put `count` rows of the group at `at` in the plan, from row `start` on, into the scratch memory: columns, terms, and marks.

    Zero times a number that is not finite is NaN: it marks rows whose inputs ReLU, tanh or a comparison would otherwise hide. What is the same for all rows is
    computed once; so is its mark, which is returned.
    """
    first_cell, columns, sources = plan[at + 3], plan[at + 4], at + 5
    terms = plan[sources + columns]
    operations = sources + columns + 6
    marks, mark = columns + terms, 0.0
    for r in range(count):
        scratch[marks, r] = 0.0
    for c in range(columns):
        source = plan[sources + c]
        if source >= 0:
            scratch[c, 0] = count_given if source == GIVEN else given[source]
            mark += 0.0 * scratch[c, 0]
        else:
            for r in range(count):
                scratch[c, r] = table[first_cell + (start + r) * columns + c]
            for r in range(count):
                scratch[marks, r] += 0.0 * scratch[c, r]
    for t in range(terms):
        z, op, a, b = columns + t, plan[operations + t], plan[operations + terms + t], plan[operations + 2 * terms + t]
        a_varies, b_varies = plan[sources + a] < 0, plan[sources + b] < 0
        some = count if a_varies or b_varies else 1
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
                scratch[z, r] = np.log2(max(1.0, scratch[a, r if a_varies else 0] / scratch[b, r if b_varies else 0]))
        elif op == 7:
            for r in range(some):
                scratch[z, r] = np.log2(scratch[a, r]) if scratch[a, r] < 0.5 else 0.0
        elif op == 8:
            for r in range(some):
                scratch[z, r] = 0.0 if scratch[a, r] < 0.5 else 1.0
        else:
            for r in range(some):
                scratch[z, r] = 1.0 if scratch[a, r] == 1.0 else 0.0
        if some == 1:
            mark += 0.0 * scratch[z, 0]
            for r in range(1, count):
                scratch[z, r] = scratch[z, 0]
        else:
            for r in range(count):
                scratch[marks, r] += 0.0 * scratch[z, r]
    return mark


def run_network(plan: Ints, at: int, numbers: Floats, scratch: Floats, count: int) -> int:
    """The row of the scratch memory with the outputs for the `count` rows of terms that `read_inputs` has put there."""
    stack, now, columns = plan[at + 1] > 0, plan[at + 2], plan[at + 4]
    model = at + 5 + columns
    terms, depth, width, activation, mixture = plan[model], plan[model + 1], plan[model + 2], plan[model + 3], plan[model + 4]
    sizes = model + 6 + 3 * terms
    # Rows of the scratch memory: the columns, the terms, their marks, two layers, the log-linear terms, and two more.
    layers = columns + terms + 1
    lines = layers + 2 * width
    highest, sums = lines + mixture, lines + mixture + 1
    before, result = columns, columns
    for layer in range(depth + 1 if mixture > 0 else depth):
        # The log-linear terms stand where a layer more would, and read the inputs.
        linear = layer == depth
        fan_in, fan_out = terms if linear else plan[sizes + layer], mixture if linear else plan[sizes + layer + 1]
        before, after = columns if linear else before, lines if linear else layers + (layer % 2) * width
        bias = now + fan_in * fan_out
        for j in range(fan_out):
            unit = after + j
            if count < _FEW:
                for r in range(count):
                    lane = r if stack else 0
                    total = numbers[bias + j, lane]
                    for i in range(fan_in):
                        total += numbers[now + i * fan_out + j, lane] * scratch[before + i, r]
                    scratch[unit, r] = total
            elif stack:
                for r in range(count):
                    scratch[unit, r] = numbers[bias + j, r]
                for i in range(fan_in):
                    place, source = now + i * fan_out + j, before + i
                    for r in range(count):
                        scratch[unit, r] += numbers[place, r] * scratch[source, r]
            else:
                for r in range(count):
                    scratch[unit, r] = numbers[bias + j, 0]
                for i in range(fan_in):
                    weight, source = numbers[now + i * fan_out + j, 0], before + i
                    for r in range(count):
                        scratch[unit, r] += weight * scratch[source, r]
            if layer < depth - 1:
                if activation == 0:
                    for r in range(count):
                        scratch[unit, r] = 0.0 if scratch[unit, r] < 0.0 else scratch[unit, r]
                else:
                    for r in range(count):
                        # tanh, several times faster than the library's; its error is some ulps of 1.
                        e = decay(2.0 * abs(scratch[unit, r]))
                        scratch[unit, r] = np.copysign((1.0 - e) / (1.0 + e), scratch[unit, r])
        now = bias + fan_out
        result, before = result if linear else after, after
    if mixture > 0:
        # Log sum exp without overflow: the largest is taken out.
        for r in range(count):
            scratch[highest, r] = scratch[lines, r]
            scratch[sums, r] = 0.0
        for k in range(1, mixture):
            for r in range(count):
                scratch[highest, r] = max(scratch[highest, r], scratch[lines + k, r])
        for k in range(mixture):
            for r in range(count):
                scratch[sums, r] += decay(scratch[highest, r] - scratch[lines + k, r])
        for r in range(count):
            scratch[result, r] += numbers[now, r if stack else 0] * (scratch[highest, r] + np.log(scratch[sums, r]))
    return result


def interpret(
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
    """Place of the row with the least seconds, the first of equal ones, -1 where none has a number.

    `out` takes the seconds of all rows, unless its length is 0; a row with an input that is not finite has NaN. The given values come one by one: an array made
    of them in Python would cost as much as the arithmetic. Compiled by `dispatcher`; plain Python gives the same numbers.
    """
    given = (p0, p1, p2, p3, p4)
    scratch = np.empty((plan[1], plan[2] if plan[2] > 0 else min(BLOCK, len(out))))
    count_given = count_operations(plan, given, scratch)
    best, least, at = -1, np.inf, 4 + 2 * plan[3]
    for _ in range(plan[0]):
        rows = plan[at] if plan[at] > 0 else len(out)
        stack, columns = plan[at + 1] > 0, plan[at + 4]
        model = at + 5 + columns
        terms, depth, logarithm = plan[model], plan[model + 1], plan[model + 5]
        places = model + 7 + 3 * terms + depth
        marks = columns + terms
        for start in range(0, rows, BLOCK):
            count = min(BLOCK, rows - start)
            mark = read_inputs(plan, at, table, given, count_given, scratch, start, count)
            result = run_network(plan, at, numbers, scratch, count)
            for r in range(count):
                scratch[result, r] += scratch[marks, r] + mark
            if len(out) > 0:
                for r in range(count):
                    out[plan[places + r] if stack else plan[places] + start + r] = np.exp(scratch[result, r]) if logarithm else scratch[result, r]
            for r in range(count):
                place = plan[places + r] if stack else plan[places] + start + r
                # Rows of all models are compared by logarithm: a time at or below zero is none.
                key = scratch[result, r] if logarithm else np.log(scratch[result, r])
                if key < least or (key == least and place < best):
                    best, least = place, key
        at = places + (rows if stack else 1)
    return best


@cache
def dispatcher() -> Any:
    """`interpret` compiled: from numba's cache folder where it has one, else in memory (a few seconds, once a process)."""
    try:
        import numba
    except ImportError as error:
        raise MissingPackage("compiled inference needs the package 'numba', which is not installed; run: pip install numba") from error
    arithmetic: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}
    for step in (decay, count_operations, read_inputs, run_network):
        numba.extending.register_jitable(**arithmetic)(step)
    types = numba.types
    # Read-only arrays in the signature take writable ones too: one compilation serves both.
    signature = types.int64(
        types.Array(types.int64, 1, "C", readonly=True),
        types.Array(types.float64, 2, "C", readonly=True),
        types.Array(types.float64, 1, "C", readonly=True),
        types.Array(types.float64, 1, "C"),
        *[types.float64] * GIVEN,
    )
    try:
        compiled = numba.njit(signature, cache=True, nogil=True, **arithmetic)(interpret)
    except Exception:
        # The cache only saves time: no writable folder, a full disk or a damaged file must not stop a prediction. A real fault shows again below.
        compiled = numba.njit(signature, nogil=True, **arithmetic)(interpret)
    return compiled


@cache
def entry_point() -> Callable[..., int]:
    """The compiled function without numba's choice among signatures, which takes as long as a prediction: it has only one."""
    (compiled,) = dispatcher().overloads.values()
    point: Callable[..., int] = compiled.entry_point
    return point
