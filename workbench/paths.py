"""Where the project stands, and what files are called: what notebooks, the registry and the reports share."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["project_root", "slug"]


def project_root() -> Path:
    """Folder that holds `notebooks/`, `data/` and `figures/`: `WORKBENCH_ROOT` if set, else the checkout that this package is installed from."""
    return Path(os.environ.get("WORKBENCH_ROOT") or Path(__file__).resolve().parents[1])


def slug(text: str) -> str:
    """A text as part of a file's name: small letters and digits, and a hyphen for each run of anything else."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
