"""One at a time: a lock on a file that processes on one machine share, and that the system takes back however a process ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.errors import StoreError

__all__ = ["locked"]


@contextmanager
def locked(path: Path, shows: str, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file, which is made where it is not there, for as long as the block lasts; gives whether it was had.

    Args:
        path: the file. Its contents do not count, and its folder must be there.
        shows: what the file shows others, for the error: "it shows others that ...".
        shared: several may hold it so at once, and none who does not share.
        wait: until it is free; else False is given where it is not.

    Raises:
        StoreError: the file cannot be written.
    """
    try:
        file = path.open("w")
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror or error}); it shows others {shows}") from error
    with file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
