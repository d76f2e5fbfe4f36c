"""Loop nests read off TIR: one by hand, and functions that have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nest_child
import pytest

from workbench.kernels import kernel

InChild = Callable[..., Any]


def test_a_nest_by_hand(in_tvm_process: InChild) -> None:
    """Two inputs of 4 numbers, 2 filters of 3 numbers, padded by one: 4 outputs each."""
    conv = kernel("conv1d")
    workload = conv.workload({"n": 2, "ci": 3, "w": 4, "co": 2, "kw": 3, "stride": 1, "padding": 1})
    config = {"tile_f": (2, 1, 1), "tile_x": (1, 2, 2), "tile_rc": (3, 1), "tile_rx": (1, 3), "order": 0, "pad_at": 0, "unroll": 0}
    nest = in_tvm_process(nest_child.extracted, workload, "workbench-cpu", conv.space(workload, "workbench-cpu").index(config))
    loops = [(loop.name, loop.parent, loop.extent, loop.annotation) for loop in nest.loops]
    assert loops == [
        ("i0_i1_fused", -1, 6, "parallel"),
        ("i2", 0, 6, "none"),
        # Two inputs times two filters; the block of one filter and 4 outputs below them in two tiles.
        ("nn_ff_0_yy_0_fused", -1, 4, "parallel"),
        ("ff_1", 2, 1, "none"),
        ("yy_1", 3, 2, "none"),
        ("ff_2_init", 4, 1, "none"),
        ("yy_2_init", 5, 2, "vectorize"),
        ("rc_0", 4, 3, "none"),
        ("ry_0", 7, 1, "none"),
        ("ff_2", 8, 1, "none"),
        ("rc_1", 9, 1, "none"),
        ("ry_1", 10, 3, "none"),
        ("yy_2", 11, 2, "vectorize"),
        ("ax0", 4, 1, "none"),
        ("ax1", 13, 1, "none"),
        ("ax2", 14, 2, "vectorize"),
    ]
    assert [(buffer.name, buffer.scope, buffer.shape) for buffer in nest.buffers] == [
        ("data", "global", (2, 3, 4)),
        ("weight", "global", (2, 3, 3)),
        ("conv1d_ncw", "global", (2, 2, 4)),
        ("pad_temp", "global", (2, 3, 6)),
        ("conv1d_ncw_global", "global", (1, 1, 2)),
    ]
    assert [statement.name for statement in nest.statements] == ["pad_temp", "conv1d_ncw_init", "conv1d_ncw_update", "conv1d_ncw_global"]
    padding, zeros, products, copies = nest.statements
    assert [(part.loop, part.add, part.mul, part.div) for part in nest.statements] == [(1, 0, 0, 0), (6, 0, 0, 0), (12, 1, 1, 0), (15, 0, 0, 0)]
    assert [(access.buffer, access.store, access.strides, access.mods) for access in padding.accesses] == [
        ("data", False, (4, 1), (-1, -1)),
        ("pad_temp", True, (6, 1), (-1, -1)),
    ]
    assert [(access.buffer, access.store, access.strides) for access in zeros.accesses] == [("conv1d_ncw_global", True, (0, 0, 0, 0, 1))]
    # Of the parallel loop's four iterations two go through the filters of an input, then the other input follows.
    assert [(access.buffer, access.store, access.strides, access.mods[0]) for access in products.accesses] == [
        ("conv1d_ncw_global", False, (0, 0, 0, 0, 0, 0, 0, 0, 1), -1),
        ("pad_temp", False, (0, 0, 2, 6, 0, 0, 0, 1, 1), 2),
        ("weight", False, (9, 0, 0, 3, 0, 0, 0, 1, 0), 2),
        ("conv1d_ncw_global", True, (0, 0, 0, 0, 0, 0, 0, 0, 1), -1),
    ]
    assert [(access.buffer, access.store, access.strides, access.mods) for access in copies.accesses] == [
        ("conv1d_ncw_global", False, (0, 0, 0, 0, 0, 1), 6 * (-1,)),
        ("conv1d_ncw", True, (4, 0, 2, 0, 0, 1), 6 * (-1,)),
    ]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("function", "a loop nest cannot have Call in a value"),
        ("shifted index", "a loop nest cannot have RShift in an index or a condition"),
        ("no loop", "a loop nest cannot have a statement outside all loops, as the one that writes b is"),
    ],
)
def test_functions_without_a_nest(kind: str, message: str, in_tvm_process: InChild) -> None:
    assert in_tvm_process(nest_child.error_of_element, kind) == message


def test_an_extent_that_changes_has_no_place_in_a_nest(in_tvm_process: InChild) -> None:
    """Tiles of 4 output channels over groups of 3: some need the inputs of one group, some of two."""
    conv = kernel("conv1d")
    workload = conv.workload({"n": 1, "ci": 4, "w": 4, "co": 12, "kw": 1, "stride": 1, "padding": 0, "groups": 4})
    config = {"tile_f": (6, 1, 2), "tile_x": (4, 1, 1), "tile_rc": (1, 1), "tile_rx": (1, 1), "order": 0, "pad_at": 1, "unroll": 0}
    message = in_tvm_process(nest_child.error_of, workload, "workbench-cpu", conv.space(workload, "workbench-cpu").index(config))
    assert message.startswith("an extent of ax1 depends on other loops: ")
