from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def emulation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that is CUDA's driver and NVRTC without a GPU, built once."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to build the emulated driver with")
    folder = tmp_path_factory.mktemp("emulation")
    header = f'-DEMULATION_HEADER="{HERE / "emulation.hpp"}"'
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", header, "-o", str(folder / "cuda.so"), str(HERE / "emulation.cpp"), "-ldl"]
    subprocess.run(command, check=True, timeout=250)
    return folder / "cuda.so"


@pytest.fixture
def emulated(emulation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated device is what child processes find; programs that one test has built are there for the next."""
    monkeypatch.setitem(os.environ, "WORKBENCH_CUDA_DRIVER", str(emulation))
    monkeypatch.setitem(os.environ, "WORKBENCH_NVRTC", str(emulation))
    monkeypatch.setitem(os.environ, "EMULATED_FOLDER", str(emulation.parent))
