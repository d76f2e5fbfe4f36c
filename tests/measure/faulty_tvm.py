"""TVM's template and programs with a fault each, which the children load by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.measure.tvm_builder import Tir
from workbench.measure.tvm_worker import Convolutions
from workbench.schema import Workload


class Truncating(Tir):
    def build(self, program: Any, path: Path) -> None:
        super().build(program, path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


class Unlinkable(Tir):
    def build(self, program: Any, path: Path) -> None:
        self._link = ["g++", "-lno-such-library"]
        super().build(program, path)


class Strict(Convolutions):
    """Expects one value that is wrong by a hundredth."""

    def prepare(self, workload: Workload, seed: int) -> None:
        super().prepare(workload, seed)
        self.expected[0, 0, 0, 0] += 0.01


class Idle(Convolutions):
    """Programs that write nothing."""

    def load(self, path: Path) -> Any:
        super().load(path)
        return lambda: None
