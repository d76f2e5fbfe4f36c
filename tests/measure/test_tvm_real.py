"""A small convolution by TVM itself: built, linked, loaded, checked and timed. Its processes have no torch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import BuildError, MissingPackage
from workbench.kernels import kernel
from workbench.measure import tvm
from workbench.measure.runner import candidates
from workbench.measure.tvm import Runner
from workbench.measure.tvm_worker import aligned
from workbench.schema import Device, Status

SMALL = kernel("conv2d").workload({"n": 1, "ci": 4, "h": 8, "w": 8, "co": 8, "kh": 3, "kw": 3, "stride": (1, 1), "padding": (1, 1)})
HERE = Device("here", "cpu")

needs_tvm = pytest.mark.skipif(find_spec("tvm") is None, reason="TVM is not installed")


@needs_tvm
def test_candidates_are_built_checked_and_timed_in_processes_without_torch() -> None:
    with Runner(SMALL, device=HERE) as here:
        wanted = candidates(here.space, 4)
        found = list(here.measure(wanted))
        for pid in here.pids:
            files = {Path(mapped.path).name for mapped in psutil.Process(pid).memory_maps()}
            assert any(name.startswith("libtvm_runtime") for name in files)
            assert not any(name.startswith("libtorch") for name in files)
    assert [(m.index, m.status, m.error) for m in found] == [(index, Status.OK, "") for index in wanted]
    for m in found:
        assert m.time_s is not None
        assert 1e-7 < m.time_s < 0.1
        assert len(m.times_s) == 7
        assert m.compile_s is not None
        assert m.compile_s > 0.001
    assert here.provenance["compiler"].startswith("TVM 0.")
    assert '"num-cores":1' in here.provenance["compiler"].replace(" ", "")


@needs_tvm
def test_winograd_is_measured_as_the_others_are() -> None:
    with Runner(kernel("conv2d_winograd").workload(SMALL.params), device=HERE) as here:
        wanted = candidates(here.space, 2)
        assert [(m.index, m.status, m.error) for m in here.measure(wanted)] == [(index, Status.OK, "") for index in wanted]


@needs_tvm
@pytest.mark.parametrize(
    ("names", "status", "reason"),
    [
        ({"template": "faulty_tvm:Truncating"}, Status.RUN_ERROR, "running: "),
        ({"template": "faulty_tvm:Unlinkable"}, Status.COMPILE_ERROR, "building: RuntimeError: linking failed: "),
        ({"programs": "faulty_tvm:Strict"}, Status.WRONG_RESULT, "running: an error of 0.00"),
        ({"programs": "faulty_tvm:Idle"}, Status.WRONG_RESULT, "running: 512 of 512 values are not written"),
    ],
)
def test_a_fault_of_a_real_program_is_a_record(names: dict[str, str], status: Status, reason: str) -> None:
    with Runner(SMALL, device=HERE, **names) as here:  # type: ignore[arg-type]
        for found in here.measure(candidates(here.space, 2)):
            assert (found.status, found.error[: len(reason)]) == (status, reason)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_an_aligned_copy_is_a_copy_that_begins_at_64_bytes(shape: list[int]) -> None:
    values = np.random.default_rng(0).random(shape, dtype=np.float32)
    copy = aligned(values)
    assert copy.ctypes.data % 64 == 0
    assert copy.flags.c_contiguous
    assert np.array_equal(copy, values)
    copy[...] = 0
    assert values.any()


def test_without_tvm_or_a_linker_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tvm, "find_spec", lambda name: None)
        with pytest.raises(MissingPackage, match=r"needs the package 'apache-tvm', .*pip install apache-tvm"):
            Runner(SMALL)
    if find_spec("tvm"):
        monkeypatch.setenv("CXX", "no-such-compiler")
        with pytest.raises(BuildError, match="'no-such-compiler', which is not there; install one"):
            Runner(SMALL)
