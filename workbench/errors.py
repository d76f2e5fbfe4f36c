"""The errors a person can meet: one small tree, each message saying what was wrong, with which value, and what to do.

`WorkbenchError` is what the command line turns into one line and a non-zero exit; anything else is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

__all__ = ["DataError", "MissingData", "MissingPackage", "NotebookError", "SpaceError", "StoreError", "UsageError", "WorkbenchError"]


class WorkbenchError(Exception):
    """Base of every error that the user can act on."""


class UsageError(WorkbenchError, ValueError):
    """An argument, option or name that cannot be used."""


class SpaceError(UsageError):
    """A configuration space, index or knob value that cannot be used."""


class DataError(WorkbenchError, ValueError):
    """A file or frame whose contents are not what its format promises (names file, place and value)."""


class MissingData(WorkbenchError, FileNotFoundError):
    """A registered file that is neither in the cache, nor in the mirror, nor on the network (says how to get it)."""


class MissingPackage(WorkbenchError, ImportError):
    """A heavy package that is not installed (says the pip command)."""


class StoreError(WorkbenchError, OSError):
    """The measurement store cannot read or write (says what is kept and what is lost)."""


class NotebookError(WorkbenchError, RuntimeError):
    """A notebook that cannot be run or that failed (names notebook, cell and line)."""
