from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workbench.errors import BuildError
from workbench.kernels.matrix import LIBRARIES
from workbench.measure.build import build, find_compiler

EMULATION = Path(__file__).parent / "measure" / "cuda"
WORKER = os.environ.get("PYTEST_XDIST_WORKER")  # of pytest-xdist, where there are several
# The files that take longest, which several workers take up first: begun last, they would leave the others idle.
LONGEST = ("test_notebooks.py", "test_readme.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if WORKER:
        items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def program_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder for WORKBENCH_CACHE in which the programs of this test run are kept, which all workers share."""
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if WORKER else base) / "programs"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def program(program_cache: Path) -> Iterator[Callable[[str], Path]]:
    """The program of a library, as the product builds it."""
    with pytest.MonkeyPatch.context() as patch:

        def built(name: str) -> Path:
            library = LIBRARIES[name]
            patch.setitem(os.environ, "WORKBENCH_CACHE", str(program_cache))
            path = build(library.source, {library.package: library.include})
            patch.undo()
            return path

        yield built


@pytest.fixture(scope="session")
def emulation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that is CUDA's driver and NVRTC without a GPU, built once."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to build the emulated driver with")
    folder = tmp_path_factory.mktemp("emulation")
    header = f'-DEMULATION_HEADER="{EMULATION / "emulation.hpp"}"'
    ptx = f'-DEMULATION_PTX="{sys.executable} {EMULATION / "ptx.py"}"'
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", header, ptx, "-o", str(folder / "cuda.so"), str(EMULATION / "emulation.cpp"), "-ldl"]
    subprocess.run(command, check=True, timeout=250)
    return folder / "cuda.so"


@pytest.fixture
def emulated(emulation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated device is what child processes find; programs that one test has built are there for the next."""
    monkeypatch.setitem(os.environ, "WORKBENCH_CUDA_DRIVER", str(emulation))
    monkeypatch.setitem(os.environ, "WORKBENCH_NVRTC", str(emulation))
    monkeypatch.setitem(os.environ, "EMULATED_FOLDER", str(emulation.parent))
