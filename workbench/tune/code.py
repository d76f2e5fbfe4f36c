"""Which code tuned: a digest of what can change a proposal, so that a tuning which goes another way than before can be told from one that was changed."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import workbench

__all__ = ["code_digest"]

_PARTS = ("features", "kernels", "models", "meta", "tune", "knobs.py", "space.py", "loopnest.py", "schema.py")


@functools.cache
def code_digest() -> str:
    """Sixteen hexadecimal digits of spaces, features, cost models and searches."""
    package = Path(workbench.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package)
        if path.suffix in (".py", ".toml") and name.parts[0] in _PARTS:
            digest.update(f"{name.as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
