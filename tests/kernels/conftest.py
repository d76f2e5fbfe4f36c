from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tir_child


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


@pytest.fixture(scope="session")
def in_tvm_process() -> Iterator[Callable[..., Any]]:
    """Call a function of a test module in a process that has TVM and not torch, which this one has."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), tir_child.start) as pool:
        yield lambda function, *args: pool.submit(function, *args).result()
