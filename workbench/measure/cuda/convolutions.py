"""Convolutions of the space "workbench-gpu" as problems and candidates of a bundle.

Candidates are drawn uniformly over the whole space, then by class in fixed proportions: of ten, eight are `valid` (within a GPU's limits, at least a warp of
threads a block), one `small` (fewer threads), one `invalid` (beyond a limit: expected to fail, and a model must learn that it does). Configurations with more
than 64 virtual threads are left out: each is written out in the source.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from workbench.errors import MissingPackage
from workbench.kernels import kernel
from workbench.kernels.conv import GPU
from workbench.kernels.conv_shape import Shape, shape_of
from workbench.kernels.limits import demand, exceeded
from workbench.kernels.tir.program import CudaProgram
from workbench.measure.cuda.bundle import Candidate, Input, Launch, Problem
from workbench.measure.cuda.crew import Crew
from workbench.measure.cuda.draft import Draft
from workbench.measure.cuda.lowering import program_of
from workbench.measure.isolation import Child, ChildFailure
from workbench.measure.runner import candidates
from workbench.schema import Workload

__all__ = ["CLASSES", "Drawn", "add", "candidate", "draw", "lowered", "problem", "tvm_crew"]

CLASSES = ("valid", "small", "invalid")
_BLOCK = 256
# See `workbench.measure.cuda.matrix`; an output is the sum of up to 4,608 products. Winograd's transforms add and cancel more, and yet its error is about 1e-6.
_TOLERANCE = 1e-5
_WARP = 32
_TEN = ("valid", "valid", "valid", "valid", "invalid", "valid", "valid", "small", "valid", "valid")
_FIRST_DRAWS, _MOST_DRAWS = 1 << 12, 1 << 17
# A source beyond this takes longer to compile than it is worth; nor is a schedule that takes TVM so long.
_LONGEST_SOURCE = 200_000
_LOWERING_LIMIT_S = 10.0
_NOTES = {
    "conv2d_winograd": "Winograd's transform of the weights, which are constant, is not part of the time; the other four of its kernels are.",
}


@dataclass(frozen=True)
class Drawn:
    """A configuration to measure: its index in the space "workbench-gpu", and its class."""

    index: int
    label: str


def draw(workload: Workload, count: int, seed: int = 0) -> list[Drawn]:
    """`count` different configurations in the proportions of their classes, or as many as there are; a longer draw begins with a shorter one.

    A class of which the space has too few, or so few that chance does not meet them, is replaced by the others. Raises UsageError for a workload that
    does not have the space.
    """
    space = kernel(workload.kernel).space(workload, GPU)
    most = min(space.size, _MOST_DRAWS)
    seen = min(most, _FIRST_DRAWS)
    while True:
        by_class = _classified(workload, candidates(space, seen, seed))
        drawn = _in_turns(by_class, count, last=seen == most)
        if drawn is not None:
            return drawn
        seen = min(most, 4 * seen)


def _in_turns(by_class: Mapping[str, list[int]], count: int, last: bool) -> list[Drawn] | None:
    """The first of each class in their turns; None where there are too few of one, unless these are the `last`."""
    left = {label: iter(indices) for label, indices in by_class.items()}
    drawn = []
    for turn in range(count):
        wanted = _TEN[turn % len(_TEN)]
        for label in (wanted, *CLASSES):
            if (index := next(left[label], None)) is not None:
                drawn.append(Drawn(index, label))
                break
            if not last:
                return None
    return drawn


def _classified(workload: Workload, indices: Sequence[int]) -> dict[str, list[int]]:
    """Class -> its members among the indices, in their order; those that are left out are in none."""
    broken = exceeded(workload, indices)
    left_out = broken.pop("virtual_threads")
    invalid = np.any(list(broken.values()), axis=0) & ~left_out
    small = (demand(workload, indices).threads < _WARP) & ~invalid & ~left_out
    members = {"valid": ~(invalid | small | left_out), "small": small, "invalid": invalid}
    return {label: [indices[int(i)] for i in np.flatnonzero(is_one)] for label, is_one in members.items()}


def add(
    draft: Draft,
    workloads: Sequence[Workload],
    count: int,
    *,
    arch: str = "sm_80",
    seed: int = 0,
    share: float = 1.0,
    workers: int = 1,
    told: Callable[[], object] = bool,
) -> dict[str, int]:
    """Add a stage of `count` configurations of each workload, the workloads in turns.

    Args:
        draft: where they go.
        workloads: convolutions.
        count: how many of each.
        arch: the architecture whose features may be used.
        seed: of the draw and of the inputs.
        share: see `Stage`.
        workers: processes that make programs.
        told: called after each.

    Returns:
        Reason -> how many configurations have no program: the source is too long, or TVM cannot make it, or not in time.

    Raises:
        UsageError: a workload without the space "workbench-gpu".
        MissingPackage: TVM is not installed.
        BuildError: a process does not start.
    """
    numbers = [draft.problem(problem(workload, seed)) for workload in workloads]
    drawn = [draw(workload, count, seed) for workload in workloads]
    turns = [(i, drawn[i][turn]) for turn in range(count) for i in range(len(workloads)) if turn < len(drawn[i])]
    missing: dict[str, int] = {}
    with tvm_crew(workers) as crew:
        made = [(i, one, lowered(crew, workloads[i], one.index, arch)) for i, one in turns]
        for i, one, future in made:
            found = future.result()
            told()
            if isinstance(found, str):
                missing[found] = missing.get(found, 0) + 1
                continue
            draft.candidates.append(candidate(workloads[i], one, found, numbers[i], draft.program(found.source)))
    draft.notes |= {name: [_NOTES[name]] for name in {workload.kernel for workload in workloads} & set(_NOTES)}
    draft.end_stage("convolutions", share)
    return missing


def candidate(workload: Workload, drawn: Drawn, program: CudaProgram, problem: int, number: int) -> Candidate:
    """A configuration's program, with the numbers of its problem and its program."""
    scratch = {name: count for name, count in program.buffers.items() if name not in ("data", "weight", "output")}
    launches = []
    constant: set[str] = set()  # what depends on the weights alone is made once in a network's life
    read: set[str] = set()
    for launch in program.launches:
        arguments = launch.arguments
        timed = "weight" not in arguments or "data" in arguments
        if not timed:
            constant |= {*arguments} - {"weight"}
        else:
            # TVM takes a buffer that has been read for the last time for something else: the next run would find that in place of the constant.
            reused = {name: f"{name} (reused)" for name in arguments if name in read}
            scratch |= {fresh: program.buffers[name] for name, fresh in reused.items()}
            read |= {*arguments} & constant
            arguments = tuple(reused.get(name, name) for name in arguments)
        launches.append(Launch(launch.name, launch.grid, launch.block, arguments, timed=timed))
    config = kernel(workload.kernel).space(workload, GPU).config(drawn.index)
    return Candidate(workload.kernel, problem, number, GPU, drawn.index, config, tuple(launches), scratch, label=drawn.label)


def tvm_crew(size: int) -> Crew:
    """Processes that make programs of configurations, for `lowered`."""
    return Crew("workbench.measure.cuda.lowering", {}, size=size, remedy="run it again, and if that does not help, install the package apache-tvm anew")


def lowered(crew: Crew, workload: Workload, index: int, arch: str) -> Future[CudaProgram | str]:
    """The program of a configuration of "workbench-gpu", made by one of a crew that runs `workbench.measure.cuda.lowering`, or why there is none.

    The result raises MissingPackage where TVM is not installed, and BuildError where the process does not start.
    """

    def ask(child: Child) -> CudaProgram | str:
        try:
            answer = child.ask({"do": "lower", "workload": workload.key, "index": index, "arch": arch, "longest": _LONGEST_SOURCE}, _LOWERING_LIMIT_S)
        except ChildFailure as failure:
            return str(failure.status)
        if answer.get("missing"):
            raise MissingPackage(answer["missing"])
        if "error" in answer:
            return answer["error"]
        return "source too long" if answer["source"] is None else program_of(answer)

    return crew.submit(ask)


def problem(workload: Workload, seed: int = 0) -> Problem:
    """What a convolution is on a GPU: of the buffers "data" and "weight" it makes "output". Raises UsageError for a workload that is no convolution."""
    shape = shape_of(workload)
    of_workload = (zlib.crc32(workload.key.encode()) + seed) % 2**27
    sizes = (math.prod(shape.data_shape), math.prod(shape.weight_shape))
    inputs = tuple(Input(name, size, size, 2 * of_workload + i) for i, (name, size) in enumerate(zip(("data", "weight"), sizes, strict=True)))
    count = math.prod(shape.output_shape)
    name = "reference_transposed" if shape.transposed else "reference_convolution"
    reference = Launch(name, (-(-count // _BLOCK), 1, 1), (_BLOCK, 1, 1), ("data", "weight", "expected", "size", *_arguments(shape)))
    return Problem(workload, inputs, "output", count, (reference,), _TOLERANCE)


def _arguments(shape: Shape) -> tuple[int, ...]:
    """What the reference kernels take, one-dimensional convolutions as those of one row."""
    flat = len(shape.size) == 1

    def both(pair: tuple[int, ...], one: int) -> tuple[int, ...]:
        return (one, *pair) if flat else pair

    sizes = (shape.n, shape.ci, *both(shape.size, 1), shape.co, *both(shape.filter, 1), *both(shape.output, 1), *both(shape.stride, 1))
    before = both(tuple(first for first, _ in shape.padding), 0)
    return (*sizes, *before) if shape.transposed else (*sizes, *before, *both(shape.dilation, 1), shape.groups)
