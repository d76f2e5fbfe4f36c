"""NN+C's matrix kernels as problems and candidates of a bundle, with the instances that the CPU's series have."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from workbench.kernels.base import whole
from workbench.kernels.matrix import INSTANCES, KERNELS
from workbench.kernels.matrix.cuda import VARIANTS, run, source
from workbench.kernels.matrix.reference import shapes
from workbench.measure.cuda.bundle import Candidate, Input, Launch, Problem
from workbench.measure.cuda.draft import Draft
from workbench.schema import Workload

__all__ = ["add", "candidate", "instances", "problem"]

_BLOCK = 256
# Of a sum of n products in single precision, in any order: n roundings of 6e-8 relative to the sum of the terms' sizes at the very worst; what is seen grows
# with the root of n. As `workbench.kernels.matrix.reference.difference` allows. A maximum is exact.
_TOLERANCE = 1e-5
_NOTES = (
    "Matrices are dense and in single precision; the density of an input concerns its contents only.",
    "copied_s is the least time of a run with the copy of its result to the host's pageable memory, by the host's clock, as the paper's GPU times are.",
)


def instances(count: int, seed: int = 0) -> Iterator[Workload]:
    """`count` workloads of each kernel, kernel by kernel in turns; of the same seed they are those of `workbench measure matrix`."""
    drawn = [[KERNELS[name].workload(params) for params in INSTANCES[name].draw(count, seed)] for name in KERNELS]
    for together in zip(*drawn, strict=True):
        yield from together


def problem(workload: Workload, seed: int = 0) -> Problem:
    """What an instance is on a GPU. An input has as many elements that are not zero as the CPU's, its contents are others."""
    kernel, params = workload.kernel, workload.params
    of_workload = (zlib.crc32(workload.key.encode()) + seed) % 2**27
    a, b, result = (rows * columns for rows, columns in shapes(kernel, params))
    inputs = [_input("a", a, params.get("d1", 1.0), 2 * of_workload), _input("b", b, params.get("d2", 1.0), 2 * of_workload + 1)]
    sizes = tuple(whole(workload, size) for size in ("m", "n", "k", "r", "s") if size in params)
    buffers = ("a", "expected", "size") if kernel == "mp" else ("a", "b", "expected", "size")
    # A vector is a matrix of one column.
    name, sizes = ("mm", (*sizes, 1)) if kernel == "mv" else (kernel, sizes)
    reference = Launch(f"reference_{name}", (-(-result // _BLOCK), 1, 1), (_BLOCK, 1, 1), (*buffers, *sizes))
    return Problem(workload, tuple(part for part in inputs if part.count), "c", result, (reference,), 0.0 if kernel == "mp" else _TOLERANCE)


def add(draft: Draft, count: int, seed: int = 0, share: float = 1.0) -> None:
    """Add a stage of both variants on `count` instances of each kernel. Raises UsageError for a count that the ranges do not have."""
    for workload in instances(count, seed):
        number, program = draft.problem(problem(workload, seed)), draft.program(source(workload.kernel))
        draft.candidates += [candidate(workload, variant, number, program) for variant in VARIANTS]
    draft.notes |= {f"{kernel}-{variant}": _NOTES for kernel in KERNELS for variant in VARIANTS}
    draft.end_stage("matrix", share)


def candidate(workload: Workload, variant: str, problem: int, program: int) -> Candidate:
    """A variant's run on an instance, with the numbers of its problem and its program; it is timed with the copy of its result too."""
    launch = Launch(*run(workload.kernel, variant, workload.params))
    return Candidate(f"{workload.kernel}-{variant}", problem, program, variant, None, {}, (launch,), copied=True)


def _input(name: str, count: int, density: object, seed: int) -> Input:
    nonzero = min(count, max(1, int(np.floor(float(density) * count + 0.5))))  # type: ignore[arg-type]
    return Input(name, count, nonzero, seed)
