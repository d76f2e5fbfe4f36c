"""NN+C's matrix kernels in CUDA C, each in two variants: all from global memory, or by tiles in shared memory, as the paper has them on its GPUs.

Matrices are dense and in single precision; the density of an input concerns its contents only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from workbench.errors import UsageError
from workbench.kernels.matrix.reference import shapes

__all__ = ["VARIANTS", "Run", "run", "source"]

VARIANTS = ("global", "shared")

_FOLDER = Path(__file__).parent
# As the sources have them.
_TILE, _ROWS, _MV_TILE, _MV_PARTS = 16, 128, 32, 8


class Run(NamedTuple):
    """A launch: the kernel's name, blocks and threads in x, y, z, and its arguments: "a", "b" and "c" are the inputs and the result, a number is itself."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[str | int, ...]


def source(kernel: str) -> str:
    """CUDA C of both variants of a kernel. Raises UsageError for an unknown one."""
    path = _FOLDER / f"{kernel}.cu"
    if not path.is_file():
        raise UsageError(f"there is no matrix kernel {kernel!r} in CUDA; there are {', '.join(sorted(found.stem for found in _FOLDER.glob('*.cu')))}")
    return path.read_text(encoding="utf-8")


def run(kernel: str, variant: str, params: Mapping[str, Any]) -> Run:
    """How a variant runs on an instance. Raises UsageError for an unknown variant."""
    if variant not in VARIANTS:
        raise UsageError(f"there is no variant {variant!r}; there are {', '.join(VARIANTS)}")
    name = f"{kernel}_{variant}"
    sizes = tuple(int(params[size]) for size in ("m", "n", "k", "r", "s") if size in params)
    if kernel == "mv":
        block, rows = ((_ROWS, 1, 1), _ROWS) if variant == "global" else ((_MV_TILE, _MV_PARTS, 1), _MV_TILE)
        return Run(name, (-(-sizes[0] // rows), 1, 1), block, ("a", "b", "c", *sizes))
    rows, columns = shapes(kernel, params)[2]
    buffers = ("a", "c") if kernel == "mp" else ("a", "b", "c")
    return Run(name, (-(-columns // _TILE), -(-rows // _TILE), 1), (_TILE, _TILE, 1), (*buffers, *sizes))
