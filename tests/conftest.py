from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workbench.errors import BuildError
from workbench.kernels.matrix import LIBRARIES
from workbench.measure.build import build, find_compiler


@pytest.fixture(scope="session")
def program_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder for WORKBENCH_CACHE in which the programs of this test run are kept."""
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    return tmp_path_factory.mktemp("programs")


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
