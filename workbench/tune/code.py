"""Which code tuned: a digest of what can change a proposal, so that a tuning which goes another way than before can be told from one that was changed."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

import workbench

__all__ = ["code_digest", "modules"]

_ROOT = Path(workbench.__file__).parent
# What proposes, and kernels, which are imported by name. Of what these import, modules of the kinds below count: what measures, draws, judges or reports cannot
# change a proposal, nor can a model or search that no framework has.
_START, _BY_NAME = ("tune/frameworks.py", "tune/loop.py"), "kernels"
_KINDS = ("features", "kernels", "data", "models", "meta", "tune", "metrics", "knobs", "space", "loopnest", "schema")


@functools.cache
def code_digest(*others: Path) -> str:
    """Sixteen hexadecimal digits of spaces, features, cost models and searches, and of `others`, modules of this package, with what they import of these."""
    digest = hashlib.sha256()
    for path in modules(*others):
        digest.update(f"{path.relative_to(_ROOT).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def modules(*others: Path) -> list[Path]:
    """The files that `code_digest` reads."""
    left = [*others, *(_ROOT / name for name in _START), *(_ROOT / _BY_NAME).glob("*.py")]
    found: set[Path] = set()
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += [other for other in _imported(path) if other.relative_to(_ROOT).with_suffix("").parts[0] in _KINDS]
    return sorted(found | {table for path in found for table in path.parent.glob("*.toml")})


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
