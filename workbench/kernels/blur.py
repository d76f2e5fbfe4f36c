"""NN+C's blur kernel in Halide: a 3 x 3 box filter of an n x n image in two passes, with the schedules of Table IV.

The space `workbench` is Table IV's for the programs that we build, kernels/halide/blur.py and blur_gpu.py: the same knobs and conditions, with tiles no larger
than the image; on a GPU they fill it without a rest.
The operation count depends on the schedule, which may recompute the first pass, so there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.errors import UsageError
from workbench.kernels.base import Kernel, whole
from workbench.schema import Workload
from workbench.space import Choice, Constraint, Space

__all__ = ["KERNELS", "SIZES"]

SIZES = tuple(2**p for p in range(10, 16))


def _complexity(params: Mapping[str, Any]) -> Any:
    return params["n"] ** 2


_SPLITS = tuple(2**p for p in range(1, 11))


def _table_iv(name: str, splits: tuple[int, ...]) -> Space:
    """s1 splits and vectorises the first pass; s2 and s3 tile the second, whose inner x is split by s4 and vectorised."""
    return Space(
        name,
        tuple(Choice(knob, splits) for knob in ("s1", "s2", "s3", "s4")),
        (
            Constraint("s3 at most s2", ("s3", "s2"), lambda s3, s2: s3 <= s2),
            Constraint("s4 at most s3", ("s4", "s3"), lambda s4, s3: s4 <= s3),
        ),
    )


_CPU = _table_iv("halide", _SPLITS)

_TILES = tuple(2**p for p in range(7))
_VECTORS = (2, 4, 8, 16)
_GPU = Space("halide", (Choice("y_split", _TILES), Choice("x_tile", _TILES), Choice("vector", _VECTORS)))


def _cpu(workload: Workload) -> Space:
    whole(workload, "n")
    return _CPU


def _workbench(workload: Workload) -> Space:
    n = whole(workload, "n")
    if n < 2:
        raise UsageError(f"blur: n is {n}; the image has at least 2 x 2 points")
    return _table_iv("workbench", tuple(split for split in _SPLITS if split <= n))


def _gpu(workload: Workload) -> Space:
    whole(workload, "n")
    return _GPU


def _gpu_workbench(workload: Workload) -> Space:
    n = whole(workload, "n")
    if n % 2:
        raise UsageError(f"{workload.kernel}: n is {n}; a thread computes at least 2 columns, and threads compute whole tiles: n is even")
    tiles, vectors = (tuple(value for value in values if n % value == 0) for values in (_TILES, _VECTORS))
    fits = Constraint("x_tile threads of vector columns divide the image", ("x_tile", "vector"), lambda x_tile, vector: n % (x_tile * vector) == 0)
    return Space("workbench", (Choice("y_split", tiles), Choice("x_tile", tiles), Choice("vector", vectors)), (fits,))


KERNELS: Mapping[str, Kernel] = {
    "blur": Kernel("blur", "Halide blur, CPU", ("n",), _complexity, spaces={"halide": _cpu, "workbench": _workbench}),
    "blur_gpu": Kernel("blur_gpu", "Halide blur, GPU", ("n",), _complexity, spaces={"halide": _gpu, "workbench": _gpu_workbench}),
}
