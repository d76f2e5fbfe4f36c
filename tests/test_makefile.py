"""The Makefile builds .venv once, again only when it must, and never believes half of one. A script stands in for Python: nothing is installed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(MAKE is None, reason="make is not installed")

# Notes each call; `-m venv` makes an environment of itself; pip fails while there is a file "no-network", and takes long while there is one "slow".
PYTHON = """#!/bin/sh
echo "$*" >> calls
case "$1 $2" in
  "-c "*) echo "cpython VERSION" ;;
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/workbench" ;;
  "-m pip") if [ -e slow ]; then sleep 2; fi; [ ! -e no-network ] ;;
esac
"""
BUILD = ["-m venv", "-m pip", "-m pip"]


class Checkout:
    def __init__(self, folder: Path, version: str = "3.11") -> None:
        self.folder = folder
        folder.mkdir()
        shutil.copy(ROOT / "Makefile", folder)
        self.lock.write_text("numpy==2.4.6\n")
        self.python = folder / "fake python"
        self.python.write_text(PYTHON.replace("VERSION", version))
        self.python.chmod(0o755)
        # The tests themselves may run under make, whose options must not reach this one.
        self.env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PROFILE", "PIP_FLAGS")}

    @property
    def lock(self) -> Path:
        return self.folder / "requirements.lock"

    def start(self, *arguments: str, python: str = "'./fake python'") -> subprocess.Popen[str]:
        command = [str(MAKE), f"PYTHON={python}", *arguments]
        return subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def make(self, *arguments: str, python: str = "'./fake python'") -> tuple[int, str]:
        """Exit code and what stands on stderr."""
        process = self.start(*arguments, python=python)
        _, errors = process.communicate(timeout=60)
        return process.returncode, errors

    def log(self) -> str:
        path = self.folder / "calls"
        return path.read_text() if path.exists() else ""

    def calls(self) -> list[str]:
        """What was asked of Python since the last look, the question for its version aside: the first two words of each."""
        lines = self.log().splitlines()
        (self.folder / "calls").unlink(missing_ok=True)
        return [" ".join(line.split()[:2]) for line in lines if not line.startswith("-c ")]


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path / "a checkout")


def test_the_environment_is_built_once(checkout):
    assert checkout.make("venv")[0] == 0
    assert checkout.calls() == BUILD
    assert checkout.make("venv")[0] == 0
    assert checkout.calls() == []


def test_tests_and_reproduction_build_what_is_missing_and_then_nothing(checkout):
    assert checkout.make("test")[0] == 0
    assert checkout.calls() == [*BUILD, "-m pytest"]
    assert checkout.make("test")[0] == 0
    assert checkout.calls() == ["-m pytest"]
    assert checkout.make("reproduce", "PROFILE=smoke")[0] == 0
    assert checkout.calls() == ["reproduce --profile"]


def test_no_python_is_needed_once_the_environment_stands(checkout):
    checkout.make("venv")
    checkout.calls()
    assert checkout.make("test", python="/nowhere/python3.11")[0] == 0
    assert checkout.calls() == ["-m pytest"]


def test_a_changed_lock_builds_anew_and_a_touched_one_does_not(checkout):
    checkout.make("venv")
    checkout.calls()
    os.utime(checkout.lock, (time.time() + 100, time.time() + 100))
    checkout.make("venv")
    assert checkout.calls() == []
    checkout.lock.write_text("numpy==2.4.7\n")
    checkout.make("venv")
    assert checkout.calls() == BUILD


def test_options_reach_pip(checkout):
    checkout.make("venv", "PIP_FLAGS=--extra-index-url https://example.org/cpu")
    assert checkout.log().count("--extra-index-url https://example.org/cpu") == 2


def test_without_a_network_no_half_environment_is_believed(checkout):
    (checkout.folder / "no-network").touch()
    code, errors = checkout.make("test")
    assert code != 0
    assert "not complete" in errors
    assert checkout.calls() == BUILD[:2]
    (checkout.folder / "no-network").unlink()
    assert checkout.make("test")[0] == 0
    assert checkout.calls() == [*BUILD, "-m pytest"]


def test_a_killed_build_is_begun_anew(checkout):
    (checkout.folder / "slow").touch()
    process = checkout.start("venv")
    deadline = time.monotonic() + 30
    while "-m pip" not in checkout.log() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (checkout.folder / "slow").unlink()
    assert "-m pip" in checkout.calls()
    assert checkout.make("venv")[0] == 0
    assert checkout.calls() == BUILD


def test_a_copied_environment_is_built_anew(checkout, tmp_path):
    """Its scripts would run what stands in the first folder."""
    checkout.make("venv")
    checkout.calls()
    shutil.copytree(checkout.folder, tmp_path / "copy")
    checkout.folder = tmp_path / "copy"
    assert checkout.make("venv")[0] == 0
    assert checkout.calls() == BUILD


def test_an_environment_whose_python_is_gone_is_built_anew(checkout):
    checkout.make("venv")
    checkout.calls()
    (checkout.folder / ".venv/bin/python").unlink()
    assert checkout.make("venv")[0] == 0
    assert checkout.calls() == BUILD


@pytest.mark.skipif(shutil.which("flock") is None, reason="flock is not installed: two builds at once cannot be kept apart")
def test_a_second_make_waits_for_the_first(checkout):
    (checkout.folder / "slow").touch()
    both = [checkout.start("venv") for _ in range(2)]
    errors = "".join(process.communicate(timeout=60)[1] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert "waiting" in errors
    assert checkout.calls() == BUILD


@pytest.mark.parametrize(("python", "found"), [("/nowhere/python3.11", "not found"), ("'./fake python'", "cpython 3.12")])
def test_another_python_gives_the_message_what_to_do(tmp_path, python, found):
    checkout = Checkout(tmp_path / "a checkout", version="3.12")
    code, errors = checkout.make("test", python=python)
    assert code != 0
    assert "CPython 3.11 is needed" in errors
    assert found in errors
    assert "make PYTHON=" in errors
    assert checkout.calls() == []
    assert not (checkout.folder / ".venv").exists()


def test_a_wrong_python_leaves_the_environment_that_stands(checkout):
    checkout.make("venv")
    checkout.calls()
    checkout.lock.write_text("numpy==2.4.7\n")
    assert checkout.make("test", python="/nowhere/python3.11")[0] != 0
    assert (checkout.folder / ".venv/bin/python").exists()


def test_ci_runs_the_tests_with_the_mirror_beside_the_checkout(checkout):
    shutil.copytree(ROOT / ".ci", checkout.folder / ".ci")
    mirror = checkout.folder.parent / "shared" / "data" / "mirror"
    mirror.mkdir(parents=True)
    checkout.python.write_text(checkout.python.read_text().replace('"$*" >> calls', '"$* mirror=$WORKBENCH_MIRROR" >> calls'))
    env = {**checkout.env, "PYTHON": "'./fake python'"}
    env.pop("WORKBENCH_MIRROR", None)
    subprocess.run([checkout.folder / ".ci" / "run"], env=env, check=True, capture_output=True)
    assert re.fullmatch(rf"-m pytest -m not slow -n 2 .* mirror={re.escape(str(mirror))}", checkout.log().splitlines()[-1])
