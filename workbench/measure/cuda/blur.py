"""NN+C's blur in Halide, with the GPU schedules of Table IV, as problems and candidates of a bundle: PTX that Halide has made, which the driver compiles."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from importlib import metadata
from pathlib import Path
from typing import Any

from workbench.kernels import kernel
from workbench.kernels.base import whole
from workbench.kernels.halide.blur_gpu import MARGIN
from workbench.measure.build import build, find_compiler
from workbench.measure.cuda.bundle import Candidate, Input, Launch, Problem
from workbench.measure.cuda.crew import Crew
from workbench.measure.cuda.draft import Draft
from workbench.measure.isolation import Child, ChildFailure
from workbench.measure.runner import candidates
from workbench.schema import Value, Workload

__all__ = ["KERNEL", "SPACE", "add", "halide_crew", "problem", "recorded"]

KERNEL, SPACE = "blur_gpu", "workbench"
_RECORDER = Path(__file__).with_name("recorder.cpp")
_BLOCK = 256
# Of nine terms and two divisions; see `workbench.measure.cuda.matrix`.
_TOLERANCE = 1e-5
# The largest unrolled tile takes Halide four seconds.
_RECORDING_LIMIT_S = 60.0
_NOTES = (
    "Pixels are in single precision; the image has a margin of one pixel on each side. A schedule is compiled once for all sizes, and the time has no copy.",
    "The paper prints the knobs of its GPU schedule, not the schedule: this is one of our own with these knobs.",
)
_MADE = "Programs are PTX by Halide {version}, compiled to machine code by the driver and not by the compiler of this entry."
# What the recorder calls the buffers of a pipeline -> their names in a problem.
_BUFFERS = {"input": "image", "output": "blurred"}


def problem(workload: Workload, seed: int = 0) -> Problem:
    """What an image size is on a GPU: of the buffer "image" it makes "blurred". Raises UsageError for a workload that has no size."""
    n = whole(workload, "n")
    of_workload = (zlib.crc32(workload.key.encode()) + seed) % 2**28
    pixels = (n + MARGIN) ** 2
    reference = Launch("reference_blur", (-(-n * n // _BLOCK), 1, 1), (_BLOCK, 1, 1), ("image", "expected", "size", n))
    return Problem(workload, (Input("image", pixels, pixels, of_workload),), "blurred", n * n, (reference,), _TOLERANCE)


def add(
    draft: Draft,
    sizes: Iterable[int],
    count: int,
    *,
    arch: str = "sm_80",
    seed: int = 0,
    share: float = 1.0,
    workers: int = 1,
    told: Callable[[], object] = bool,
) -> dict[str, int]:
    """Add a stage of `count` schedules of each image size, the smallest size first; sizes that have the same schedules are given the same ones.

    Args:
        draft: where they go.
        sizes: n of each image, n x n.
        count: how many schedules; all, where there are no more.
        arch, seed, share, workers, told: as of `workbench.measure.cuda.convolutions.add`.

    Returns:
        Reason -> how many schedules Halide made no program of.

    Raises:
        UsageError: a size that has no schedules.
        MissingPackage: Halide is not installed.
        BuildError: no C++ compiler, or a process does not start.
    """
    described = kernel(KERNEL)
    workloads = [described.workload({"n": n}) for n in sorted(set(sizes))]
    spaces = [described.space(workload, SPACE) for workload in workloads]
    drawn = [[(index, space.config(index)) for index in candidates(space, count, seed)] for space in spaces]
    # A schedule -> the sizes that have it.
    having: dict[tuple[Value, ...], list[int]] = {}
    for workload, of_size in zip(workloads, drawn, strict=True):
        for _, config in of_size:
            having.setdefault(tuple(config.values()), []).append(whole(workload, "n"))
    missing: dict[str, int] = {}
    made: dict[tuple[Value, ...], tuple[str, Mapping[int, Launch]]] = {}
    with halide_crew(workers) as crew:
        names = spaces[0].names if spaces else ()
        futures = {schedule: recorded(crew, dict(zip(names, schedule, strict=True)), having[schedule], arch) for schedule in having}
        for schedule, future in futures.items():
            found = future.result()
            told()
            if isinstance(found, str):
                missing[found] = missing.get(found, 0) + 1
            else:
                made[schedule] = found
    for workload, of_size in zip(workloads, drawn, strict=True):
        number = draft.problem(problem(workload, seed))
        for index, config in of_size:
            if (program := made.get(tuple(config.values()))) is not None:
                source, launches = program
                launch = launches[whole(workload, "n")]
                draft.candidates.append(Candidate(KERNEL, number, draft.program(source), SPACE, index, config, (launch,)))
    draft.notes |= {KERNEL: (*_NOTES, _MADE.format(version=metadata.version("halide")))}
    draft.end_stage("blur", share)
    return missing


def halide_crew(size: int) -> Crew:
    """Processes that make programs of schedules, for `recorded`. Raises MissingPackage where Halide is not installed, BuildError without a C++ compiler."""
    compiler = find_compiler()
    recorder = build(_RECORDER, {"halide": "halide/include"}, flags=("-std=c++17", "-O1", "-c"), compiler=compiler)
    setup = {"recorder": str(recorder), "linker": list(compiler.command)}
    return Crew("workbench.measure.cuda.recording", setup, size=size, remedy="run it again, and if that does not help, install the package halide anew")


def recorded(crew: Crew, config: Mapping[str, Value], sizes: Sequence[int], arch: str) -> Future[tuple[str, Mapping[int, Launch]] | str]:
    """PTX of a schedule and its launch for each image size, made by one of a `halide_crew`, or why there is none.

    The result raises BuildError where the process does not start.
    """

    def ask(child: Child) -> tuple[str, Mapping[int, Launch]] | str:
        try:
            answer = child.ask({"do": "record", "config": dict(config), "sizes": list(sizes), "arch": arch}, _RECORDING_LIMIT_S)
        except ChildFailure as failure:
            return str(failure.status)
        if "error" in answer:
            return str(answer["error"])
        return answer["source"], {n: _launch(*launch) for n, launch in zip(sizes, answer["launches"], strict=True)}

    return crew.submit(ask)


def _launch(name: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any], shared_bytes: int) -> Launch:
    named = tuple(_BUFFERS[one] if isinstance(one, str) else int(one) for one in arguments)
    return Launch(name, (grid[0], grid[1], grid[2]), (block[0], block[1], block[2]), named, shared_bytes)
