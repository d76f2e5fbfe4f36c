"""NN+C's four matrix kernels: products of matrices (MM) and of a matrix and a vector (MV), convolution (MC) and max pooling (MP).

Parameters are as in Table II and in the published files: A has m x n elements of density d1, MM's B n x k of density d2, MC's filter r x r, MP's window s and
pooling r. They have no configuration space: what was varied beside the sizes is the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.kernels.base import Kernel

__all__ = ["INSTANCES", "KERNELS", "Instances"]


@dataclass(frozen=True)
class Instances:
    """Ranges from which the instances of a kernel were drawn (NN+C, Table II).

    Attributes:
        sizes: parameter -> its values, equally likely.
        at_least: parameter -> another one that it is not smaller than.
        densities: density -> the two sizes of its matrix; it is 2^-p with a whole p from 0 to floor(log2(product of the sizes)).
    """

    sizes: Mapping[str, range | tuple[int, ...]]
    at_least: Mapping[str, str] = field(default_factory=dict)
    densities: Mapping[str, tuple[str, str]] = field(default_factory=dict)


_SIDE = range(1, 1025)
_OF_A = {"d1": ("m", "n")}

INSTANCES: Mapping[str, Instances] = {
    "mm": Instances({"m": _SIDE, "n": _SIDE, "k": _SIDE}, densities={**_OF_A, "d2": ("n", "k")}),
    "mv": Instances({"m": _SIDE, "n": _SIDE}, densities=_OF_A),
    "mc": Instances({"r": (3, 5, 7), "m": _SIDE, "n": _SIDE}, {"m": "r", "n": "r"}, _OF_A),
    "mp": Instances({"r": (2, 3, 4, 5), "s": (1, 2), "m": _SIDE, "n": _SIDE}, {"m": "r", "n": "r"}, _OF_A),
}


def _mm(p: Mapping[str, Any]) -> Any:
    return p["m"] * p["n"] * p["k"]


def _mv(p: Mapping[str, Any]) -> Any:
    return p["m"] * p["n"]


def _mc(p: Mapping[str, Any]) -> Any:
    # As the paper has it. The published files carry (m + r - 1)(n + r - 1) r^2 instead.
    return (p["m"] - p["r"] + 1) * (p["n"] - p["r"] + 1) * p["r"] ** 2


def _mp(p: Mapping[str, Any]) -> Any:
    return -(-p["n"] // p["s"]) * -(-p["m"] // p["s"]) * p["s"] ** 2


# A multiplication and an addition for each step of the direct algorithm, whatever the density. Max pooling compares and computes nothing: it has no count.
KERNELS: Mapping[str, Kernel] = {
    "mm": Kernel("mm", "Matrix-matrix multiplication", ("m", "n", "k", "d1", "d2"), _mm, lambda p: 2 * _mm(p)),
    "mv": Kernel("mv", "Matrix-vector multiplication", ("m", "n", "d1"), _mv, lambda p: 2 * _mv(p)),
    "mc": Kernel("mc", "Matrix convolution", ("m", "n", "r", "d1"), _mc, lambda p: 2 * _mc(p)),
    "mp": Kernel("mp", "Max pooling", ("m", "n", "r", "s", "d1"), _mp),
}
