"""A bundle that is being put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.measure.cuda.bundle import Candidate, Problem, Stage, write_bundle

__all__ = ["REFERENCE", "Draft"]

REFERENCE = Path(__file__).with_name("reference.cu")


@dataclass
class Draft:
    """Programs and problems, each once, and candidates in the order in which to measure them.

    Attributes:
        candidates, stages, notes: see `bundle.Bundle`.
    """

    candidates: list[Candidate] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    notes: dict[str, Sequence[str]] = field(default_factory=dict)
    _programs: dict[str, int] = field(default_factory=dict)
    _problems: dict[Problem, int] = field(default_factory=dict)

    def program(self, source: str) -> int:
        """The number of a program."""
        return self._programs.setdefault(source, len(self._programs))

    def problem(self, problem: Problem) -> int:
        """The number of a problem."""
        return self._problems.setdefault(problem, len(self._problems))

    def end_stage(self, name: str, share: float) -> None:
        """Make a stage of the candidates that came after the last one."""
        self.stages.append(Stage(name, len(self.candidates) - sum(stage.candidates for stage in self.stages), share))

    def write(self, path: Path, made_by: str) -> None:
        """Write the bundle. Raises StoreError where it cannot be written."""
        write_bundle(
            path,
            made_by=made_by,
            stages=self.stages,
            programs=self._programs,
            reference=REFERENCE.read_text(encoding="utf-8"),
            problems=self._problems,
            candidates=self.candidates,
            notes=self.notes,
        )
