"""The child process that makes PTX of Halide pipelines without a GPU, `python -m workbench.measure.cuda.recording JSON`: Halide may crash, hang or grow.

A compiled pipeline asks Halide's runtime to hand its device code to CUDA's driver and to launch its kernels. Linked with recorder.cpp in place of that runtime
and run, it says what it asks for. The JSON has `recorder`, that file compiled, and `linker`, the command of a compiler that links it. Request:

    record  the blur of the knobs `config` for the architecture `arch`, and what it launches for each of `sizes`
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import BuildError
from workbench.kernels.halide.blur_gpu import MARGIN, compile_object
from workbench.measure.serving import Commands, serve

__all__ = ["ENTRY"]

# Name of the kernel. Halide's own counts how many pipelines the process has compiled before.
ENTRY = "blur"


def _prepare(setup: dict[str, Any]) -> Commands:
    def record(request: Mapping[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="workbench-halide-") as folder:
            pipeline, program = Path(folder) / "pipeline.o", Path(folder) / "program"
            compile_object(request["config"], request["arch"], pipeline)
            _said([*setup["linker"], setup["recorder"], str(pipeline), "-o", str(program)])
            said = _said([str(program), str(MARGIN), *map(str, request["sizes"])])
        launches, _, source = said.partition("\n")
        return _renamed(json.loads(launches), source)

    return {"record": record}


def _renamed(launches: list[list[list[Any]]], source: str) -> dict[str, Any]:
    """The answer: `source`, and `launches`, of each size the one of its kernel. Raises BuildError for a pipeline of several kernels."""
    names = {launch[0] for of_size in launches for launch in of_size}
    if len(names) != 1 or any(len(of_size) != 1 for of_size in launches):
        raise BuildError(f"Halide's blur has {len(names)} kernels ({', '.join(sorted(names))}) and is expected to have one")
    (name,) = names
    if f".entry {name}(" not in source:
        raise BuildError(f"Halide's device code has no kernel {name}")
    return {"source": source.strip().replace(name, ENTRY) + "\n", "launches": [[ENTRY, *launch[1:]] for (launch,) in launches]}


def _said(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise BuildError(f"{Path(command[0]).name}: {done.stderr.strip()[-300:] or f'exit code {done.returncode}'}")
    return done.stdout


if __name__ == "__main__":
    serve(_prepare)
