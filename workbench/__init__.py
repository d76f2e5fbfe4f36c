"""Workbench: learned kernel-performance models and auto-tuning, reproduced from raw measurements.

`import workbench` loads the standard library only; names below are loaded when first used (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "Dataset": "workbench.data.datasets",
    "load_dataset": "workbench.data.datasets",
    "Device": "workbench.schema",
    "Measurement": "workbench.schema",
    "Status": "workbench.schema",
    "Workload": "workbench.schema",
    "Space": "workbench.space",
    "Store": "workbench.data.store",
}

__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "workbench":
            raise
        from workbench.errors import MissingPackage

        raise MissingPackage.needed_by(f"workbench.{name}", error) from error


def __dir__() -> list[str]:
    return sorted(__all__)
