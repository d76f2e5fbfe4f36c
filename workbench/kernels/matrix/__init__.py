"""NN+C's four matrix kernels: products of matrices (MM) and of a matrix and a vector (MV), convolution (MC) and max pooling (MP).

Parameters are as in Table II and in the published files: A has m x n elements of density d1, MM's B n x k of density d2, MC's filter r x r; MP's windows are
r x r and lie s apart. They have no configuration space: what was varied beside the sizes is the number of threads.

The programs beside this file (eigen.cpp, boost.cpp, with harness.hpp) measure them in the two libraries; `reference.py` says in numpy what they compute.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from workbench.errors import UsageError
from workbench.kernels.base import Kernel

__all__ = ["INSTANCES", "KERNELS", "LIBRARIES", "Instances", "Library"]


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

    def draw(self, count: int, seed: int = 0) -> list[dict[str, int | float]]:
        """The first `count` instances, all different, of the sequence that belongs to `seed`: a longer draw begins with a shorter one.

        Raises:
            UsageError: `count` is negative, or more than the ranges have.
        """
        if count < 0:
            raise UsageError(f"cannot draw {count} instances; the count is 0 or more")
        drawn: dict[tuple[int | float, ...], dict[str, int | float]] = {}
        for instance in islice(self._sequence(seed), 100 * count):
            drawn.setdefault(tuple(instance.values()), instance)
            if len(drawn) == count:
                break
        if len(drawn) < count:
            raise UsageError(f"cannot draw {count:,} different instances from these ranges; {len(drawn):,} were found")
        return list(drawn.values())

    def _sequence(self, seed: int) -> Iterator[dict[str, int | float]]:
        generator = random.Random(seed)
        while True:
            instance: dict[str, int | float] = {}
            for name, values in self.sizes.items():
                least = instance.get(self.at_least.get(name, ""), 0)
                instance[name] = generator.choice([value for value in values if value >= least] if least else values)
            for name, (rows, columns) in self.densities.items():
                instance[name] = 2.0 ** -generator.randint(0, math.floor(math.log2(instance[rows] * instance[columns])))
            yield instance


@dataclass(frozen=True)
class Library:
    """A library that the kernels are written in.

    Attributes:
        name: "eigen" or "boost".
        source: the program, to be compiled with its folder's headers.
        package, include: the package that brings the library's headers, and their folder in it.
        threads: whether it has more threads than one.
    """

    name: str
    source: Path
    package: str
    include: str
    threads: bool


_FOLDER = Path(__file__).parent
LIBRARIES: Mapping[str, Library] = {
    "eigen": Library("eigen", _FOLDER / "eigen.cpp", "cmeel-eigen", "cmeel.prefix/include/eigen3", threads=True),
    "boost": Library("boost", _FOLDER / "boost.cpp", "boost-headers", "boost_headers/include", threads=False),
}

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
