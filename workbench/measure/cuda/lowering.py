"""The child process that makes CUDA sources of convolutions, `python -m workbench.measure.cuda.lowering JSON`: TVM may crash, hang or grow. Request:

lower  the configuration `index` of a `workload` for the architecture `arch`; a source of more than `longest` characters is not handed out
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from workbench.errors import MissingPackage
from workbench.kernels import kernel, tir
from workbench.kernels.conv import GPU
from workbench.kernels.tir.program import CudaProgram, Launch
from workbench.measure.serving import Commands, serve
from workbench.schema import Workload

__all__ = ["program_of"]


def _lower(request: Mapping[str, Any]) -> dict[str, Any]:
    workload = Workload.from_key(request["workload"])
    config = kernel(workload.kernel).space(workload, GPU).config(request["index"])
    try:
        program = tir.cuda_program(workload, config, request["arch"])
    except MissingPackage as error:
        return {"missing": str(error)}
    return {"source": None} if len(program.source) > request["longest"] else asdict(program)


def program_of(answer: Mapping[str, Any]) -> CudaProgram:
    """The program that an answer holds."""
    launches = tuple(
        Launch(one["name"], tuple(one["grid"]), tuple(one["block"]), tuple(one["arguments"]), one["shared_bytes"], one["local_bytes"])
        for one in answer["launches"]
    )
    return CudaProgram(answer["source"], launches, answer["buffers"], answer["barriers_added"])


def _prepare(setup: dict[str, Any]) -> Commands:
    return {"lower": _lower}


if __name__ == "__main__":
    serve(_prepare)
