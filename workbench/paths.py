"""Where the project stands: the checkout's folders, which notebooks, the registry and the reports share."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["project_root"]


def project_root() -> Path:
    """Folder that holds `notebooks/`, `data/` and `figures/`: `WORKBENCH_ROOT` if set, else the checkout that this package is installed from."""
    return Path(os.environ.get("WORKBENCH_ROOT") or Path(__file__).resolve().parents[1])
