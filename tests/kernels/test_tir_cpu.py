"""The CPU template: every kind is right under schedules at random, and each knob does to the loops what it says. Winograd takes ten times as long to build."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import tir_child
from test_tir import WORKLOADS, of

from workbench.kernels import kernel

InChild = Callable[..., Any]


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_schedules_are_right(workload: Any, in_tvm_process: InChild) -> None:
    errors = in_tvm_process(tir_child.drawn_errors, workload, "workbench-cpu", 1 if "winograd" in workload.kernel else 3, 5)
    assert max(errors.values()) < 1e-5, errors


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_many_schedules_are_right(workload: Any, in_tvm_process: InChild) -> None:
    errors = in_tvm_process(tir_child.drawn_errors, workload, "workbench-cpu", 20 if "winograd" in workload.kernel else 60, 6)
    assert max(errors.values()) < 1e-5, errors


CONFIG = {
    "tile_f": (2, 3, 1),
    "tile_y": (1, 7, 1),
    "tile_x": (3, 1, 3),
    "tile_rc": (1, 4),
    "tile_ry": (3, 1),
    "tile_rx": (3, 1),
    "order": 0,
    "pad_at": 0,
    "unroll": 16,
}


def loops(script: str, block: str) -> list[str]:
    """Loops around a block, "kind extent", outermost first, those of several iterations in one line told apart."""
    lines = script.splitlines()
    at = next(i for i, line in enumerate(lines) if f'sblock("{block}")' in line)
    indent, found = len(lines[at]) - len(lines[at].lstrip()), []
    for line in reversed(lines[:at]):
        here = len(line) - len(line.lstrip())
        if line.strip() and here < indent:
            indent = here
            if several := re.search(r"in T\.grid\((.*)\):", line):
                found += [f"range {extent}" for extent in reversed(several[1].split(", "))]
            elif one := re.search(r"in (?:T\.)?(\w+)\((\d+)", line):
                found.append(f"{one[1]} {one[2]}")
    return found[::-1]


def test_the_loops_are_those_of_the_knobs(in_tvm_process: InChild) -> None:
    workload = of("conv2d", n=2, h=7, kh=3)
    assert kernel("conv2d").space(workload, "workbench-cpu").index(CONFIG) >= 0
    script = in_tvm_process(tir_child.script, workload, "workbench-cpu", CONFIG)
    # Batch 2 times the outer tiles 2, 1, 3 in parallel; middle 3, 7, 1; outer reduction 1, 3, 3; inner f, y; inner reduction; the vector.
    outside = ["parallel 12", "range 3", "range 7", "range 1", "range 1", "range 3", "range 3"]
    assert loops(script, "conv2d_nchw_update") == [*outside, "range 1", "range 1", "range 4", "range 1", "range 1", "vectorized 3"]
    assert loops(script, "pad_temp")[0] == "parallel 8"
    assert '"pragma_auto_unroll_max_step": 16' in script

    script = in_tvm_process(tir_child.script, workload, "workbench-cpu", {**CONFIG, "order": 1, "pad_at": 1, "unroll": 0})
    assert loops(script, "conv2d_nchw_update") == [*outside, "range 4", "range 1", "range 1", "range 1", "range 1", "vectorized 3"]
    assert loops(script, "pad_temp")[0] == "parallel 12"
    assert '"pragma_auto_unroll_max_step": 0' in script


def test_the_loops_of_winograd_are_its_transforms_and_the_products_knobs(in_tvm_process: InChild) -> None:
    workload = of("conv2d_winograd", n=2, h=7, kh=3)
    config = {"tile_b": (36, 1, 1), "tile_y": (1, 2, 3), "tile_x": (2, 3, 2), "tile_rc": (2, 2), "order": 0, "unroll": 64}
    script = in_tvm_process(tir_child.script, workload, "workbench-cpu", config)
    # 36 products of 6 x 4 by 4 x 12 (2 inputs of 2 x 3 tiles): outer 36, 1, 2; middle 1, 2, 3; a step of 2; inner b, y, two channels, and the vector.
    middle = ["parallel 72", "range 1", "range 2", "range 3", "range 2"]
    assert loops(script, "bgemm_update") == [*middle, "range 1", "range 3", "range 2", "vectorized 2"]
    assert script.count('"pragma_auto_unroll_max_step": 64') == 1
    # A half has 6 elements of a column for each of 6 columns, 3 of the filters'; the other half has 6 of a row for each of those.
    for name, around, first, second, summed in (("data_pack", (16, 3), 36, 36, 6), ("kernel_pack", (4, 6), 18, 36, 3), ("inverse", (6, 12), 24, 16, 6)):
        outside = [f"parallel {around[0]}", f"range {around[1]}"]
        assert loops(script, f"{name}_half") == [*outside, f"unroll {first}", f"unroll {summed}"]
        assert loops(script, name) == [*outside, f"unroll {second}", f"unroll {summed}"]
    assert loops(script, "conv2d_winograd") == ["parallel 12", "range 7", "range 9"]
    assert loops(script, "data_pad")[0] == "parallel 8"

    script = in_tvm_process(tir_child.script, workload, "workbench-cpu", {**config, "order": 1})
    assert loops(script, "bgemm_update") == [*middle, "range 2", "range 1", "range 3", "vectorized 2"]
