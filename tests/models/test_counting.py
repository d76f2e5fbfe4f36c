"""A kernel's operation count, run as a program of steps, equals the count itself."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.models.counting import STACK, STEPS, count_program

JOINS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "**": operator.pow, "//": operator.floordiv}


def run(program: tuple[tuple[int, int], ...], values: list[float]) -> float:
    stack: list[float] = []
    for code, operand in program:
        step = STEPS[code]
        if step == "given":
            stack.append(values[operand])
        elif step == "whole":
            stack.append(float(operand))
        elif step == "log2":
            stack.append(math.log2(stack.pop()))
        else:
            y, x = stack.pop(), stack.pop()
            stack.append(JOINS[step](x, y))
        assert len(stack) <= STACK
    (result,) = stack
    return result


@pytest.mark.parametrize("name", ["mm", "mv", "mc", "mp", "blur", "fft"])
@given(data=st.data())
def test_the_kernels(name: str, data: st.DataObject) -> None:
    found = kernel(name)
    values = [float(data.draw(st.integers(1, 4096), label=p)) for p in found.parameters]
    assert found.complexity is not None
    expected = found.complexity(dict(zip(found.parameters, values, strict=True)))
    assert run(count_program(found.complexity, found.parameters), values) == pytest.approx(float(expected), rel=1e-12)


def test_every_step() -> None:
    def count(p: Mapping[str, Any]) -> Any:
        return (2 + p["a"]) * (5 - p["b"]) + 3 * p["a"] ** 2 - -p["b"] // 2 + np.log2(p["a"] + 1) - 1

    program = count_program(count, ("a", "b"))
    assert {STEPS[code] for code, _ in program} == set(STEPS)
    assert run(program, [7.0, 3.0]) == pytest.approx(count({"a": 7.0, "b": 3.0}))


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (lambda p: np.sqrt(p["a"]), "the operation count of a cannot be compiled"),
        (lambda p: p["a"] * 0.5, "cannot be compiled: 0.5 is no whole number"),
        (lambda p: p["a"] if p["a"] > 1 else 1, "cannot be compiled"),
        (lambda p: 7, "cannot be compiled"),
        (lambda p: p["a"] * (p["a"] * (p["a"] * (p["a"] * (p["a"] * (p["a"] * (p["a"] * (p["a"] * p["a"]))))))), "holds 9 numbers at once, more than 8"),
    ],
)
def test_what_cannot_be_compiled(count: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        count_program(count, ("a",))
