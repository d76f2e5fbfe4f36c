"""The loop nest of a scheduled function, read off its TIR: what the nests of `kernels.conv_nests` are held against.

The function is lowered only as far as blocks need to become statements and buffers as small as they can be, so every loop of the schedule is still there,
loops of one iteration and those bound to threads included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from workbench.errors import UsageError
from workbench.loopnest import Access, Buffer, Loop, LoopNest, Statement, pattern

__all__ = ["extract"]

_S = tvm.s_tir.transform
_LOWER = tvm.ir.transform.Sequential(
    [_S.LowerInitBlock(), _S.PlanAndUpdateBufferAllocationLocation(), _S.ConvertBlocksToOpaque(), _S.CompactBufferAllocation()]
)
_KINDS = {"SERIAL": "none", "PARALLEL": "parallel", "VECTORIZED": "vectorize", "UNROLLED": "unroll"}

# Values of the variables: numbers, and for one of them all that its loop goes through.
_Values = Mapping[Any, Any]
_Function = Callable[[_Values], Any]

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Min": np.minimum,
    "Max": np.maximum,
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
}
_ARITHMETIC = {"Add": "add", "Sub": "add", "Mul": "mul", "Div": "div"}


def extract(module: tvm.IRModule) -> LoopNest:
    """See `workbench.kernels.tir.loop_nest`."""
    reader = _Reader()
    function = _LOWER(module)["main"]
    for buffer in function.params:
        reader.buffer(buffer)
    reader.statement(function.body)
    return LoopNest(1, tuple(reader.loops), tuple(reader.buffers.values()), tuple(reader.statements))


class _Reader:
    def __init__(self) -> None:
        self.loops: list[Loop] = []
        self.statements: list[Statement] = []
        self.buffers: dict[Any, Buffer] = {}
        self._names: dict[tuple[str, str], int] = {}
        self._around: list[tuple[int, Any, int]] = []  # position, variable and extent of the open loops
        self._conditions: list[_Function] = []
        self._block = "statement"
        self._counts = {"add": 0, "mul": 0, "div": 0}
        self._accesses: list[Access] = []

    def buffer(self, buffer: Any) -> Buffer:
        """The buffer's entry, made at its first use."""
        if buffer not in self.buffers:
            self.buffers[buffer] = Buffer(self._unique("buffer", buffer.name), buffer.scope(), tuple(_whole(extent, buffer.name) for extent in buffer.shape))
        return self.buffers[buffer]

    def statement(self, node: Any) -> None:
        """Read a statement and all within it."""
        kind = type(node).__name__
        if kind == "For":
            self._loop(node)
        elif kind == "SeqStmt":
            for part in node.seq:
                self.statement(part)
        elif kind == "SBlockRealize":
            around, self._block = self._block, node.block.name_hint or self._block
            with self._when(node.predicate):
                self.statement(node.block.body)
            self._block = around
        elif kind == "IfThenElse" and node.else_case is None:
            with self._when(node.condition):
                self.statement(node.then_case)
        elif kind == "BufferStore":
            self._assignment(node)
        else:
            raise UsageError(f"a loop nest cannot be read from a {kind}")

    def _loop(self, node: Any) -> None:
        tag = str(node.thread_binding.thread_tag) if node.thread_binding is not None else _KINDS[tvm.tirx.ForKind(node.kind).name]
        name = self._unique("loop", node.loop_var.name)
        parent = self._around[-1][0] if self._around else -1
        extent = _whole(node.extent, name)
        self.loops.append(Loop(name, parent, extent, "vthread" if tag.startswith("vthread") else tag))
        self._around.append((len(self.loops) - 1, node.loop_var, extent))
        self.statement(node.body)
        self._around.pop()

    def _unique(self, kind: str, name: str) -> str:
        count = self._names[kind, name] = self._names.get((kind, name), 0) + 1
        return name if count == 1 else f"{name}#{count}"

    @contextmanager
    def _when(self, condition: Any) -> Iterator[None]:
        self._conditions.append(_function(condition))
        yield
        self._conditions.pop()

    def _assignment(self, node: Any) -> None:
        if not self._around:
            raise UsageError(f"a loop nest cannot have a statement outside all loops, as the one that writes {node.buffer.name} is")
        self._counts = dict.fromkeys(self._counts, 0)
        self._accesses = []
        self._value(node.value)
        self._access(node.buffer, node.indices, True)
        name = self._unique("statement", self._block)
        self.statements.append(Statement(name, self._around[-1][0], **self._counts, accesses=tuple(self._accesses)))

    def _value(self, node: Any) -> None:
        kind = type(node).__name__
        if kind == "TensorLoad":
            self._access(node.source, node.indices, False)
        elif kind in _ARITHMETIC:
            self._counts[_ARITHMETIC[kind]] += 1
            self._value(node.a)
            self._value(node.b)
        elif kind == "Select":
            self._value(node.true_value)
            self._value(node.false_value)
        elif kind == "Call" and node.op.name == "prim.if_then_else":
            for value in list(node.args)[1:]:
                self._value(value)
        elif kind != "FloatImm":
            raise UsageError(f"a loop nest cannot have {kind} in a value")

    def _access(self, buffer: Any, indices: Any, store: bool) -> None:
        entry = self.buffer(buffer)
        functions = [_function(index) for index in indices]
        first = {variable: 0 for _, variable, _ in self._around}
        patterns = []
        for _, variable, extent in self._around:
            steps = np.arange(extent, dtype=np.int64)
            values = {**first, variable: steps}
            runs = np.ones(len(steps), dtype=bool)
            for condition in self._conditions:
                runs &= np.asarray(condition(values), dtype=bool)
            places: NDArray[np.int64] = np.zeros(len(steps), dtype=np.int64)
            for function, length in zip(functions, entry.shape, strict=True):
                places = places * length + function(values)
            patterns.append(pattern(places[runs]))
        strides, mods = zip(*patterns, strict=True)
        self._accesses.append(Access(entry.name, store, strides, mods))


def _whole(extent: Any, name: str) -> int:
    if type(extent).__name__ != "IntImm":
        raise UsageError(f"an extent of {name} depends on other loops: {extent}")
    return int(extent)


def _function(node: Any) -> _Function:
    # An index or condition as a function of the variables' values.
    kind = type(node).__name__
    if kind == "IntImm":
        value = int(node)
        return lambda values: value
    if kind == "Var":
        return lambda values: values[node]
    if kind == "Cast":
        return _function(node.value)
    if kind in _BINARY:
        operation, left, right = _BINARY[kind], _function(node.a), _function(node.b)
        return lambda values: operation(left(values), right(values))
    raise UsageError(f"a loop nest cannot have {kind} in an index or a condition")
