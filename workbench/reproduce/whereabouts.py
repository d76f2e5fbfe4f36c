"""Loaded into a notebook's kernel by the runner: it notes which line is running, and dies with the runner.

A kernel that hangs or dies leaves no traceback. So a mark before every top-level statement of a cell writes the statement's line to a small file, which
the runner reads afterwards: one system call a statement.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import os
import signal
import sys
from typing import Any

__all__ = ["PLACE_VARIABLE", "load_ipython_extension", "read_line"]

PLACE_VARIABLE = "WORKBENCH_WHEREABOUTS"
_MARK = "__workbench_at__"
_WIDTH = 16


class _Marks(ast.NodeTransformer):
    def visit_Module(self, node: ast.Module) -> ast.Module:
        body: list[ast.stmt] = []
        for statement in node.body:
            line = statement.decorator_list[0].lineno if getattr(statement, "decorator_list", None) else statement.lineno  # type: ignore[attr-defined]
            call = ast.Expr(ast.Call(ast.Name(_MARK, ast.Load()), [ast.Constant(line)], []))
            body += [ast.fix_missing_locations(ast.copy_location(call, statement)), statement]
        node.body = body
        return node


def load_ipython_extension(shell: Any) -> None:
    """IPython calls this when the kernel starts (`--IPKernelApp.extra_extensions`)."""
    _die_with_parent()
    file = os.open(os.environ[PLACE_VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def at(line: int) -> None:
        os.pwrite(file, str(line).ljust(_WIDTH).encode("ascii"), 0)

    setattr(builtins, _MARK, at)
    shell.ast_transformers.append(_Marks())


def read_line(path: str | os.PathLike[str]) -> int | None:
    """Line of the last statement that was begun, within its cell; None if none was."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read(_WIDTH))
    except (OSError, ValueError):
        return None


def _die_with_parent() -> None:
    # Only Linux can promise it. Elsewhere ipykernel itself looks once a second whether its parent lives, when Python gets to run.
    if sys.platform == "linux":
        import ctypes

        parent = os.getppid()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        expected = os.environ.get("JPY_PARENT_PID")
        if expected and parent != int(expected):
            os._exit(1)
