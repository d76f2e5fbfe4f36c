"""The GPU template: the same nest on a CPU, its CUDA source emulated, its launches against the knobs, and the barriers that TVM leaves out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda_emulation
import numpy as np
import pytest
import tir_child
from test_tir import WORKLOADS, of

from workbench.kernels import kernel, limits
from workbench.kernels.conv_reference import inputs, reference
from workbench.kernels.conv_shape import shape_of
from workbench.schema import Workload

InChild = Callable[..., Any]
# One winograd is enough where time counts: it lowers ten times as long as the others.
QUICK = {name: workload for name, workload in WORKLOADS.items() if name != "winograd, tiles beyond an input without padding"}


@pytest.mark.parametrize("workload", QUICK.values(), ids=QUICK)
def test_nests_are_right(workload: Workload, in_tvm_process: InChild) -> None:
    errors = in_tvm_process(tir_child.drawn_errors, workload, "workbench-gpu", 1 if "winograd" in workload.kernel else 2, 7, False)
    assert max(errors.values()) < 1e-5, errors


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_many_nests_are_right(workload: Workload, in_tvm_process: InChild) -> None:
    errors = in_tvm_process(tir_child.drawn_errors, workload, "workbench-gpu", 40, 8, False)
    assert max(errors.values()) < 1e-5, errors


def drawn(workload: Workload, seed: int) -> tuple[int, dict[str, Any]]:
    """A configuration within the limits of virtual threads, which bound the size of the source."""
    space = kernel(workload.kernel).space(workload, "workbench-gpu")
    index = int(space.restrict(limits.constraint(workload, limits.GpuLimits(virtual_threads=4))).sample(1, seed)[0])
    return index, space.config(index)


@pytest.mark.parametrize("workload", QUICK.values(), ids=QUICK)
def test_launches_are_those_of_the_knobs(workload: Workload, in_tvm_process: InChild) -> None:
    index, config = drawn(workload, 2)
    shape, asked = shape_of(workload), limits.demand(workload, [index])
    program = in_tvm_process(tir_child.cuda, workload, config)
    (main,) = [launch for launch in program.launches if launch.shared_bytes]
    z, y, x = config.get("tile_f", config.get("tile_b")), config.get("tile_y", (1, 1, 1, 1)), config["tile_x"]
    batch = 1 if "winograd" in workload.kernel else shape.n
    assert main.grid == (x[0], y[0], batch * z[0])
    assert main.block == (x[2], y[2], z[2])
    assert (main.shared_bytes, main.local_bytes) == (asked.shared_bytes[0], asked.local_bytes[0])
    assert program.buffers.items() >= {name: int(np.prod(getattr(shape, f"{name}_shape"))) for name in ("data", "weight", "output")}.items()
    assert program.launches[-1].arguments.count("output") == 1
    assert len(program.launches) == (5 if "winograd" in workload.kernel else 1)
    assert all(name in program.buffers for launch in program.launches for name in launch.arguments)


@pytest.fixture
def emulate(program_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Workload], float]:
    """Error of a program's emulated run."""
    monkeypatch.setitem(os.environ, "WORKBENCH_CACHE", str(program_cache))

    def error(program: Any, workload: Workload) -> float:
        right = reference(workload, *inputs(workload, 1))
        return float(np.abs(cuda_emulation.run(program, workload, tmp_path) - right).max() / np.abs(right).max())

    return error


@pytest.mark.parametrize("name", ["conv1d_transpose", "winograd"])
def test_cuda_source_is_right(name: str, in_tvm_process: InChild, emulate: Callable[[Any, Workload], float]) -> None:
    _, config = drawn(WORKLOADS[name], 3)
    assert emulate(in_tvm_process(tir_child.cuda, WORKLOADS[name], config), WORKLOADS[name]) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_much_cuda_source_is_right(workload: Workload, in_tvm_process: InChild, emulate: Callable[[Any, Workload], float]) -> None:
    for seed in range(8):
        index, config = drawn(workload, seed)
        assert emulate(in_tvm_process(tir_child.cuda, workload, config), workload) < 1e-5, index


# A filter of one element: threads that differ in z alone read the same element of the input, where one of them has written it.
FAULTY = of("conv2d", ci=4, h=5, w=5, co=4, kh=1, kw=1, padding=0)
FAULTY_CONFIG = {
    "tile_f": (2, 1, 2, 1),
    "tile_y": (1, 1, 5, 1),
    "tile_x": (1, 1, 5, 1),
    "tile_rc": (4, 1),
    "tile_ry": (1, 1),
    "tile_rx": (1, 1),
    "auto_unroll_max_step": 0,
    "unroll_explicit": 0,
}


@pytest.mark.parametrize(("unrolled", "missing"), [(0, 1), (1, 3)])
def test_a_barrier_that_tvm_leaves_out(unrolled: int, missing: int, in_tvm_process: InChild, emulate: Callable[[Any, Workload], float]) -> None:
    config = {**FAULTY_CONFIG, "auto_unroll_max_step": 1500 * unrolled, "unroll_explicit": unrolled}
    whole, broken = (in_tvm_process(tir_child.cuda, FAULTY, config, repaired) for repaired in (True, False))
    assert whole.barriers_added == missing
    assert whole.source.count("__syncthreads") == broken.source.count("__syncthreads") + missing
    assert emulate(whole, FAULTY) < 1e-5
    assert not emulate(broken, FAULTY) < 1e-2  # not a number, or far off


def test_where_barriers_go(in_tvm_process: InChild) -> None:
    found = in_tvm_process(tir_child.repairs)
    write, read, barrier = "s[thread] =", "= s[", "storage_sync"
    assert found == {
        "apart": (1, [write, barrier, read]),
        "kept": (0, [write, barrier, read]),
        # The next iteration's write waits for this one's read.
        "around": (1, ["for ", barrier, write, barrier, read]),
        "before_a_loop": (2, [write, "for ", barrier, read, barrier, write]),
        "two_buffers": (0, [write, barrier, "r[thread] =", read]),
        "under_a_condition": "a kernel of TVM would need a barrier inside IfThenElse, where only some threads may come by",
    }
