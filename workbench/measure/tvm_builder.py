"""The child process of `workbench.measure.tvm` that builds: from a configuration to a shared library.

It runs as `python -m workbench.measure.tvm_builder JSON`, where the JSON names the template, the number of threads and the command that links. Requests:

    describe  what the libraries are built for and by
    build     a `config` of a `workload` into the file `path`

It lives long and imports what building needs and no more: the builder of TVM's MetaSchedule loads every tensor intrinsic, 25 s of processor time in
each process.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from workbench.kernels.conv import CPU
from workbench.measure.serving import Commands, failed, serve
from workbench.schema import Workload

__all__ = ["Template", "Tir", "without_torch"]


class Template(Protocol):
    """What builds candidates; made with the number of threads, the command that links, such as ["g++"], and the target, "" for this machine's processor."""

    def describe(self) -> str:
        """Compiler and target in one line."""

    def schedule(self, workload: Workload, config: Mapping[str, Any]) -> Any:
        """The program of a configuration. What it raises says that the configuration has none."""

    def build(self, program: Any, path: Path) -> None:
        """Make its library."""


def without_torch() -> None:
    """Keep torch out of this process: TVM's foreign-function interface would import it, and both have crashed in one process (LLVM's symbols, tvm#9362)."""
    sys.modules["torch"] = None  # type: ignore[assignment]


class Tir:
    """The template of `workbench.kernels.tir` for this machine's processor, or for another target in TVM's JSON."""

    def __init__(self, threads: int, link: Sequence[str], target: str = "") -> None:
        without_torch()
        import tvm

        from workbench.kernels import tir

        self._tvm, self._schedule = tvm, tir.schedule
        self._target = tvm.target.Target(json.loads(target)) if target else tir.llvm_target(threads)
        self._link = list(link)

    def describe(self) -> str:
        """See the protocol."""
        return f"TVM {self._tvm.__version__}, {self._target}"

    def schedule(self, workload: Workload, config: Mapping[str, Any]) -> Any:
        """See the protocol."""
        return self._schedule(workload, CPU, config)

    def build(self, program: Any, path: Path) -> None:
        """See the protocol."""
        built = self._tvm.tirx.build(program, self._target)
        code = path.with_suffix(".o")
        built.write_to_file(str(code))
        # What a kernel calls is there already where it is loaded: TVM's runtime and the C library.
        linked = subprocess.run([*self._link, "-shared", "-nostdlib", "-o", str(path), str(code)], capture_output=True, text=True, check=False)
        code.unlink()
        if linked.returncode:
            raise RuntimeError(f"linking failed: {linked.stderr.strip()[-300:]}")


class _Builder:
    def __init__(self, template: Template) -> None:
        self.template = template

    def describe(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"text": self.template.describe()}

    def build(self, request: Mapping[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        config = {knob: tuple(value) if isinstance(value, list) else value for knob, value in request["config"].items()}
        try:
            program = self.template.schedule(Workload.from_key(request["workload"]), config)
        except Exception as error:  # whatever a template finds wrong with a configuration
            return {**failed(error), "invalid": True}
        self.template.build(program, Path(request["path"]))
        return {"compile_s": time.perf_counter() - start}


def _prepare(setup: dict[str, Any]) -> Commands:
    module, _, name = setup["template"].partition(":")
    builder = _Builder(getattr(importlib.import_module(module), name)(setup["threads"], setup["link"], setup["target"]))
    return {"describe": builder.describe, "build": builder.build}


if __name__ == "__main__":
    serve(_prepare)
