"""Kernels: one module a family, each giving parameters, complexity, operation count and configuration spaces.

`kernel(name)` loads the module of that kernel only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.kernels.base import Kernel

__all__ = ["kernel", "names"]

# Each module has a mapping KERNELS of the kernels named here.
_FAMILIES = {
    "conv": ("conv2d", "depthwise_conv2d", "conv2d_winograd", "conv1d", "conv1d_transpose", "conv2d_transpose"),
    "matrix": ("mm", "mv", "mc", "mp"),
    "blur": ("blur", "blur_gpu"),
    "fft": ("fft",),
    "recorded": ("flextensor_conv2d", "convolution", "gemm"),
}


def names() -> tuple[str, ...]:
    """Names of all kernels."""
    return tuple(name for family in _FAMILIES.values() for name in family)


def kernel(name: str) -> Kernel:
    """The kernel of that name. Raises UsageError, listing the names there are, for any other."""
    for module, members in _FAMILIES.items():
        if name in members:
            found: Kernel = importlib.import_module(f"{__name__}.{module}").KERNELS[name]
            return found
    raise UsageError(f"there is no kernel {name!r}; there are {', '.join(names())}")
