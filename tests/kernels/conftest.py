from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def expected_tables() -> Path:
    """Folder of the conversions that importers and decoders must equal."""
    mirror = os.environ.get("WORKBENCH_MIRROR")
    if not mirror:
        pytest.skip("WORKBENCH_MIRROR is not set: the expected tables stand beside the mirror of others' files")
    folder = Path(mirror).parent / "expected"
    if not folder.is_dir():
        pytest.skip(f"no expected tables beside the mirror: {folder}")
    return folder
