"""Barriers that TVM 0.27 leaves out of CUDA kernels, put back.

Its pass ThreadSync takes a write and a read of shared memory for accesses of one thread, in need of no barrier, when both have the same index and that
contains threadIdx.x; but threads that differ in threadIdx.y or z then share the element. Here every write is kept apart from every read of the same
buffer, whatever their indices: a barrier that was not needed costs little, one that is missing gives wrong results now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from workbench.errors import BuildError

__all__ = ["repair"]

_BARRIER = "tirx.tvm_storage_sync"
_SHARED = "shared"


@dataclass
class _Node:
    """A statement, what it reads and writes of shared memory, itself and below, and whether a barrier is among it."""

    stmt: tirx.Stmt
    children: list[_Node] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    barrier: bool = False

    @property
    def whole(self) -> bool:
        """Whether no barrier can be needed inside."""
        return not self.barrier and not self.reads & self.writes

    @property
    def is_barrier(self) -> bool:
        return self.barrier and not self.children


@dataclass(frozen=True)
class _Pending:
    """Buffers that were read and written since the last barrier."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    def __or__(self, other: _Pending | _Node) -> _Pending:
        return _Pending(self.reads | other.reads, self.writes | other.writes)

    def meets(self, node: _Node) -> bool:
        return bool(self.writes & node.reads or self.reads & node.writes)


def repair(function: tirx.PrimFunc) -> tuple[tirx.PrimFunc, int]:
    """A kernel with the barriers that it needs, and the number of those that were missing.

    Args:
        function: a device function after ThreadSync and SplitHostDevice.

    Raises:
        BuildError: a barrier would be needed where only some threads may come by.
    """
    inserted: list[_Node] = []
    body, _ = _mend(_summary(function.body), _Pending(), inserted)
    return (function.with_body(body), len(inserted)) if inserted else (function, 0)


def _summary(stmt: tirx.Stmt) -> _Node:
    node = _Node(stmt)
    for expression in _expressions(stmt):
        tvm_ffi.structural_walk(expression, (tvm.ir.TensorLoad, lambda load: _add(node.reads, load.source)))
    if isinstance(stmt, tirx.BufferStore):
        _add(node.writes, stmt.buffer)
    elif isinstance(stmt, tirx.Evaluate):
        node.barrier = isinstance(stmt.value, tvm.ir.Call) and getattr(stmt.value.op, "name", "") == _BARRIER
    node.children = [_summary(child) for child in _below(stmt)]
    for child in node.children:
        node.reads |= child.reads
        node.writes |= child.writes
        node.barrier |= child.barrier
    return node


def _add(names: set[str], buffer: Any) -> None:
    if buffer.scope() == _SHARED:
        names.add(str(buffer.name))


def _below(stmt: tirx.Stmt) -> Sequence[tirx.Stmt]:
    if isinstance(stmt, tirx.SeqStmt):
        return list(stmt.seq)
    if isinstance(stmt, tirx.IfThenElse):
        return [stmt.then_case] if stmt.else_case is None else [stmt.then_case, stmt.else_case]
    return [stmt.body] if isinstance(stmt, tirx.For | tirx.AttrStmt) else []


def _expressions(stmt: tirx.Stmt) -> Sequence[Any]:
    if isinstance(stmt, tirx.IfThenElse):
        return [stmt.condition]
    if isinstance(stmt, tirx.BufferStore):
        return [stmt.value, *stmt.indices]
    return [stmt.value] if isinstance(stmt, tirx.Evaluate | tirx.Bind) else []


def _mend(node: _Node, before: _Pending, inserted: list[_Node]) -> tuple[tirx.Stmt, _Pending]:
    """The statement with its barriers, and what is pending after it."""
    if node.is_barrier:
        return node.stmt, _Pending()
    if node.whole:
        if not before.meets(node):
            return node.stmt, before | node
        inserted.append(node)
        return tirx.SeqStmt([_barrier(), node.stmt]), _Pending() | node
    stmt = node.stmt
    if isinstance(stmt, tirx.SeqStmt):
        parts = []
        for child in node.children:
            part, before = _mend(child, before, inserted)
            parts.append(part)
        return tirx.SeqStmt(parts), before
    if isinstance(stmt, tirx.AttrStmt):
        body, after = _mend(node.children[0], before, inserted)
        return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, body), after
    if isinstance(stmt, tirx.For):
        # What an iteration leaves pending meets the next one; it leaves no more when more was pending before it, so one look is enough.
        _, left = _mend(node.children[0], before, [])
        body, after = _mend(node.children[0], before | left, inserted)
        return tirx.For(stmt.loop_var, stmt.min, stmt.extent, stmt.kind, body, stmt.thread_binding, stmt.annotations, stmt.step), after | before
    raise BuildError(f"a kernel of TVM would need a barrier inside {type(stmt).__name__}, where only some threads may come by")


def _barrier() -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_intrin("int32", _BARRIER, tvm.ir.StringImm(_SHARED)))
