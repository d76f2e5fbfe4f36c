"""Small projects for the runner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_project import Project


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Project]:
    return lambda **limits: Project(tmp_path / "checkout", **limits)
