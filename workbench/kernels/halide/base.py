"""What a Halide kernel gives to a runner: a problem (input, output, reference) that compiles to a program under any schedule."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.schema import Value

if TYPE_CHECKING:
    import halide as hl

__all__ = ["HalideProblem", "Pipeline", "Problem", "Program"]


@dataclass(frozen=True)
class Program:
    """A compiled candidate.

    Attributes:
        run: computes the output.
        compile_s: seconds from the definition to machine code, the search of an autoscheduler included.
        schedule: the schedule that an autoscheduler chose, as Halide's C++ text; "" for a candidate with knobs.
    """

    run: Callable[[], object]
    compile_s: float
    schedule: str = ""


class Problem(ABC):
    """One workload with its data. What a worker process needs to know, so that a test can put another in its place.

    Attributes:
        tolerance: largest relative error of a right result.
        runs: kernel runs in one call of a program; the time of a run is the time of a call divided by it.
    """

    tolerance: float
    runs: int = 1

    @abstractmethod
    def compile(self, config: Mapping[str, Value]) -> Program:
        """The program of a configuration. Any exception means that it cannot be compiled."""

    @abstractmethod
    def autoschedule(self, scheduler: str, parallelism: int) -> Program:
        """The program of an autoscheduler's own choice. Any exception means that it found none."""

    @abstractmethod
    def spoil(self) -> None:
        """Overwrite the output, so that a program that leaves some of it out is found out."""

    @abstractmethod
    def error(self) -> float:
        """Largest difference of the output from the reference, relative to the reference's largest value."""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline, scheduled or not.

    Attributes:
        output: the last function.
        inputs: the images it reads, in the order of the problem's buffers.
    """

    output: hl.Func
    inputs: tuple[hl.ImageParam, ...]


class HalideProblem(Problem):
    """A problem whose programs are Halide pipelines, compiled just in time for this machine.

    Attributes:
        inputs: buffers that the programs read.
        results: arrays that they write, one for each component of the output.
    """

    inputs: tuple[hl.Buffer, ...]
    results: tuple[Any, ...]

    @abstractmethod
    def define(self) -> Pipeline:
        """The algorithm without a schedule, with the estimates that an autoscheduler needs."""

    @abstractmethod
    def schedule(self, config: Mapping[str, Value]) -> Pipeline:
        """The algorithm with the schedule of a configuration."""

    def compile(self, config: Mapping[str, Value]) -> Program:
        """See `Problem.compile`."""
        import halide as hl

        start = time.perf_counter()
        built = self.schedule(config)
        return self._program(hl.Pipeline(built.output), built.inputs, start)

    def autoschedule(self, scheduler: str, parallelism: int) -> Program:
        """See `Problem.autoschedule`."""
        import halide as hl

        from workbench.kernels.halide.autoschedulers import apply

        start = time.perf_counter()
        built = self.define()
        pipeline = hl.Pipeline(built.output)
        return self._program(pipeline, built.inputs, start, apply(pipeline, scheduler, parallelism))

    def spoil(self) -> None:
        """See `Problem.spoil`."""
        for array in self.results:
            array.fill(-1)

    def _program(self, pipeline: hl.Pipeline, inputs: tuple[hl.ImageParam, ...], start: float, schedule: str = "") -> Program:
        import halide as hl

        # A call of a Callable costs about 1 us from Python, Pipeline.realize 3 us: the smallest transforms take no more than that themselves.
        call = pipeline.compile_to_callable(list(inputs), hl.get_jit_target_from_environment())
        arguments = (*self.inputs, *map(hl.Buffer, self.results))
        return Program(lambda: call(*arguments), time.perf_counter() - start, schedule)
