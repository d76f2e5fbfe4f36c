from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

FAKE = Path(__file__).with_name("fake_program.py")


@pytest.fixture(scope="session")
def fake() -> Callable[..., list[str]]:
    """The command of a program that answers at once, and misbehaves for the numbers of rows given."""

    def command(faults: Mapping[int | str, str | float] | None = None) -> list[str]:
        return [sys.executable, "-I", "-S", str(FAKE), json.dumps({str(m): fault for m, fault in (faults or {}).items()})]

    return command


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`data/raw` of a project that has nothing yet."""
    raw = tmp_path / "data" / "raw"
    raw.mkdir(parents=True)
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    return raw
