"""Analytic loop nests beside those read off TIR, in a process without torch: functions that the fixture `in_tvm_process` calls there."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.errors import UsageError
from workbench.kernels import kernel, tir
from workbench.loopnest import LoopNest, Number
from workbench.schema import Workload


def rows(nest: LoopNest, row: int, buffers: dict[str, str] | None = None) -> list[tuple[Any, ...]]:
    """Every value of one configuration of a nest but for the names of loops and statements, which TIR has its own of; its buffers renamed."""

    def at(*numbers: Number) -> tuple[int, ...]:
        return tuple(int(number[row] if isinstance(number, np.ndarray) else number) for number in numbers)

    names = {buffer.name: (buffers or {}).get(buffer.name, buffer.name) for buffer in nest.buffers}
    found: list[tuple[Any, ...]] = [("loop", loop.parent, loop.annotation, *at(loop.extent)) for loop in nest.loops]
    found += [("buffer", names[buffer.name], buffer.scope, *at(*buffer.shape)) for buffer in nest.buffers]
    for statement in nest.statements:
        found.append(("statement", statement.loop, statement.add, statement.mul, statement.div))
        for access in statement.accesses:
            found.append(("access", names[access.buffer], access.store, *zip(at(*access.strides), at(*access.mods), strict=True)))
    return found


def extracted(workload: Workload, space_name: str, index: int) -> LoopNest:
    """The nest of one configuration's schedule."""
    return tir.loop_nest(tir.schedule(workload, space_name, kernel(workload.kernel).space(workload, space_name).config(index)))


def differences(workload: Workload, space_name: str, count: int, seed: int) -> dict[int, list[Any]]:
    """Index -> pairs of values that differ, of configurations at random; no pairs where everything is equal."""
    found = kernel(workload.kernel)
    space = found.space(workload, space_name)
    indices = space.sample(min(count, space.size), seed)
    result: dict[int, list[Any]] = {}
    for places, nest in found.loop_nest(workload, indices, space_name).parts:
        for row, place in enumerate(places):
            index = int(indices[place])
            read = extracted(workload, space_name, index)
            # Buffers are the same where they stand at the same place in the list, which has their scopes and shapes.
            renamed = {ours.name: theirs.name for ours, theirs in zip(nest.buffers, read.buffers, strict=False)}
            left, right = rows(nest, row, renamed), rows(read, 0)
            result[index] = [pair for pair in zip(left, right, strict=False) if pair[0] != pair[1]] + left[len(right) :] + right[len(left) :]
    return result


def error_of(workload: Workload, space_name: str, index: int) -> str:
    """What is said of a configuration's schedule that has no nest."""
    try:
        extracted(workload, space_name, index)
    except UsageError as error:
        return str(error)
    raise AssertionError("a nest has been read")


def error_of_element(kind: str) -> str:
    """What is said of a function that computes each of 8 elements in some way which no convolution has."""
    tir.llvm_target(1)  # loads TVM without torch
    import tvm
    from tvm import te

    a = te.placeholder((8,), "float32", "a")
    b = {
        "function": lambda: te.compute((8,), lambda i: te.exp(a[i]), "b"),
        "shifted index": lambda: te.compute((8,), lambda i: a[i >> 1], "b"),
        "no loop": lambda: te.compute((), lambda: a[1], "b"),
    }[kind]()
    try:
        tir.loop_nest(tvm.IRModule({"main": te.create_prim_func([a, b])}))
    except UsageError as error:
        return str(error)
    raise AssertionError("a nest has been read")
