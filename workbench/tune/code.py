"""Which code tuned: a digest of what can change a proposal, so that a tuning which goes another way than before can be told from one that was changed."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import workbench

__all__ = ["code_digest", "modules"]

_ROOT = Path(workbench.__file__).parent
# What proposes, and kernels, which are imported by name. Of what these import, modules of the kinds below count: what measures, draws, judges or reports cannot
# change a proposal, nor can a model or search that no framework has.
_COMPOSED, _BY_NAME = "tune/frameworks.py", "kernels"
_START = (_COMPOSED, "tune/loop.py")
_KINDS = ("features", "kernels", "data", "models", "meta", "tune", "metrics", "knobs", "space", "loopnest", "schema")


@functools.cache
def code_digest(*others: Path, parts: tuple[type, ...] = ()) -> str:
    """Sixteen hexadecimal digits of spaces, features, cost models and searches, and of `others`, modules of this package, with what they import of these.

    With `parts`, the classes that one framework is composed of, those of other frameworks do not count.
    """
    digest = hashlib.sha256()
    for path in modules(*others, parts=parts):
        digest.update(f"{_name(path)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def modules(*others: Path, parts: tuple[type, ...] = ()) -> list[Path]:
    """The files that `code_digest` reads."""
    left = [*others, *(_ROOT / name for name in _START), *(_ROOT / _BY_NAME).glob("*.py"), *(Path(inspect.getfile(part)) for part in parts)]
    found: set[Path] = set()
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            if parts and path == _ROOT / _COMPOSED:
                continue  # it counts, but what it imports is what frameworks are composed of
            left += [other for other in _imported(path) if other.relative_to(_ROOT).with_suffix("").parts[0] in _KINDS]
    return sorted(found | {table for path in found for table in path.parent.glob("*.toml") if _ROOT in table.parents})


def _name(path: Path) -> str:
    # A part of somebody else's framework lies elsewhere.
    return path.relative_to(_ROOT).as_posix() if _ROOT in path.parents else path.name


def _imported(path: Path) -> Iterator[Path]:
    # Files of this package that a module imports, at its top or within a function.
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == workbench.__name__ and len(parts) > 1:
                place = _ROOT.parent.joinpath(*parts)
                yield from (found for found in (place.with_suffix(".py"), place / "__init__.py") if found.is_file())
