"""Text of a file of measurements, plain or gzip, with or without a byte-order mark."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from workbench.errors import DataError

__all__ = ["read_text"]


def read_text(path: Path) -> str:
    """UTF-8 text of a file; a gzip stream is known by its first bytes.

    Raises:
        DataError: the file cannot be read, its gzip stream is cut or damaged, or it is not UTF-8 (names the byte offset).
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{path}: the gzip stream is cut or damaged ({len(raw)} bytes): {error}") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8 text; the file is damaged or of another format") from error
