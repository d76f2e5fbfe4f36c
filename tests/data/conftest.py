"""Folders outside the project that some tests compare with, and an empty world for the registry."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest


@pytest.fixture(scope="session")
def mirror() -> Path:
    folder = os.environ.get("WORKBENCH_MIRROR")
    if not folder:
        pytest.skip("WORKBENCH_MIRROR is not set: the published files are out of reach")
    if not Path(folder).is_dir():
        pytest.skip(f"WORKBENCH_MIRROR={folder} is no folder: the published files are out of reach")
    return Path(folder)


class Expected:
    """Reads careful conversions of published files, which the importers must equal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str) -> pd.DataFrame:
        path = self.folder / f"{name}.parquet"
        if not path.is_file():
            pytest.skip(f"no table of expected values at {path}")
        return pd.read_parquet(path)


@pytest.fixture(scope="session")
def expected(mirror: Path) -> Expected:
    return Expected(mirror.parent / "expected")


@pytest.fixture
def one(mirror: Path):
    """The only file of the mirror that matches a pattern."""

    def find(pattern: str) -> Path:
        found = list(mirror.glob(pattern))
        if not found:
            pytest.skip(f"the mirror has no file {pattern}")
        assert len(found) == 1
        return found[0]

    return find
