"""The errors a person can meet: one small tree, each message saying what was wrong, with which value, and what to do.

`WorkbenchError` is what the command line turns into one line and a non-zero exit; anything else is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

__all__ = [
    "BuildError",
    "DataError",
    "DeviceError",
    "MissingData",
    "MissingPackage",
    "NotebookError",
    "SpaceError",
    "StoreError",
    "TrainingError",
    "UsageError",
    "WorkbenchError",
]


# Packages whose module has another name than what pip installs.
_PIP_NAMES = {"sklearn": "scikit-learn", "tvm": "apache-tvm", "xgboost": "xgboost-cpu"}


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

    @classmethod
    def needed_by(cls, what: str, error: ModuleNotFoundError) -> MissingPackage:
        """The error for `what` (such as "workbench.Dataset") when Python found no module."""
        module = (error.name or "").partition(".")[0]
        package = _PIP_NAMES.get(module, module)
        return cls(f"{what} needs the package {package!r}, which is not installed; run: pip install {package}", name=error.name)


class StoreError(WorkbenchError, OSError):
    """The measurement store cannot read or write (says what is kept and what is lost)."""


class TrainingError(WorkbenchError, ArithmeticError):
    """Training whose loss is no longer a finite number (says at which step, and which weights are kept)."""


class BuildError(WorkbenchError, RuntimeError):
    """A program that cannot be built on this machine, or that does not start (names the compiler or the program and what it said)."""


class DeviceError(WorkbenchError, RuntimeError):
    """A device that is not there, or that does not answer (says what was looked for)."""


class NotebookError(WorkbenchError, RuntimeError):
    """A notebook that cannot be run or that failed (names notebook, cell and line)."""
