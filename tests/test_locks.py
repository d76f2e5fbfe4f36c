"""Locks: who waits, who is told, and that a killed process leaves none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from workbench.errors import StoreError
from workbench.locks import locked

HOLD = """
import sys, time
from pathlib import Path
from workbench.locks import locked
with locked(Path(sys.argv[1]), "nothing"):
    print("held", flush=True)
    time.sleep(100)
"""


def test_one_at_a_time_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with locked(path, "nothing", wait=False) as mine:
            assert not mine
        holder.kill()
        with locked(path, "nothing") as mine:  # waits until the system has taken it back
            assert mine
    with locked(path, "nothing", wait=False) as mine:
        assert mine


def test_several_may_share_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with locked(path, "nothing", shared=True) as first, locked(path, "nothing", shared=True, wait=False) as second:
        assert (first, second) == (True, True)
        with locked(path, "nothing", wait=False) as alone:
            assert not alone


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match=r"gone/a.lock: cannot be written \(No such file or directory\); it shows others that something is done"),
        locked(tmp_path / "gone" / "a.lock", "that something is done"),
    ):
        pass
