"""Loop nests of the convolution templates straight from the knobs, without TVM: those that `kernels.tir` schedules, value by value.

Loops are named "level.axis": the levels are those of the templates' descriptions in `kernels.tir.cpu` and `kernels.tir.gpu`, the axes those of the slots
(f, y, x, rc, ry, rx; b, y, x, rc of winograd) and n, the batch. A loop or a buffer that several kinds of convolution have has one name in all of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from workbench.kernels.conv import CPU
from workbench.kernels.conv_nests import cpu, gpu, winograd_cpu, winograd_gpu
from workbench.kernels.conv_nests.places import direct, tiles_of
from workbench.loopnest import NestBatch
from workbench.schema import Workload
from workbench.space import Space

__all__ = ["nests"]


def nests(workload: Workload, space: Space, indices: ArrayLike) -> NestBatch:
    """Nests of configurations [n] of `workbench-cpu` or `workbench-gpu`.

    On a GPU there is one structure, on a CPU there are four: with `pad_at` 0 padding has loops of its own, with 1 they are inside the parallel loop; `order`
    exchanges inner loops. Winograd has no `pad_at` and so two structures on a CPU.

    Raises:
        UsageError: a direct convolution whose groups have several channels, or a channel several filters.
        SpaceError: an index that is not in the space.
    """
    knobs = space.decode(indices)
    batch = len(next(iter(knobs.values())))
    if space.name == CPU:
        parts = []
        for order in (0, 1):
            for pad_at in (0, 1) if "pad_at" in knobs else (0,):
                rows = np.flatnonzero((knobs["order"] == order) & (knobs.get("pad_at", 0) == pad_at))
                tiles = tiles_of(space, {name: values[rows] for name, values in knobs.items()})
                if workload.kernel == "conv2d_winograd":
                    found = winograd_cpu.nest(workload, tiles, len(rows), order)
                else:
                    found = cpu.nest(direct(workload), tiles, len(rows), order, pad_at)
                parts.append((rows, found))
        return NestBatch(batch, tuple(parts))
    if workload.kernel == "conv2d_winograd":
        nest = winograd_gpu.nest(workload, tiles_of(space, knobs), batch)
    else:
        nest = gpu.nest(direct(workload), tiles_of(space, knobs), batch)
    return NestBatch(batch, ((np.arange(batch), nest),))
