"""Runs a CudaProgram on the CPU, by cuda_emulation.hpp: what its source computes under its launches, with races brought to light."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from workbench.kernels.conv_reference import inputs
from workbench.kernels.conv_shape import shape_of
from workbench.kernels.tir.program import CudaProgram, Launch
from workbench.measure.build import build
from workbench.schema import Workload

HEADER = Path(__file__).with_suffix(".hpp")


def run(program: CudaProgram, workload: Workload, folder: Path) -> np.ndarray:
    """The output of a program for `inputs(workload, 1)`; `folder` is for its files."""
    source, data, result = folder / "emulated.cpp", folder / "inputs", folder / "output"
    (folder / HEADER.name).write_text(HEADER.read_text())
    source.write_text(f'#include "{HEADER.name}"\n{program.source}\n{_main(program)}')
    binary = build(source, {}, flags=("-std=c++17", "-O0", "-w"))
    data.write_bytes(b"".join(array.tobytes() for array in inputs(workload, 1)))
    subprocess.run([binary, data, result], check=True, timeout=60)
    return np.fromfile(result, np.float32).reshape(shape_of(workload).output_shape)


def _main(program: CudaProgram) -> str:
    made = {"data": "emulation::read(file, {})", "weight": "emulation::read(file, {})"}
    buffers = "".join(f"    auto {name} = {made.get(name, 'emulation::spoilt({})').format(size)};\n" for name, size in program.buffers.items())
    launches = "".join(map(_launch, program.launches))
    return (
        "int main(int, char** arguments) {\n"
        '    auto file = std::fopen(arguments[1], "rb");\n'
        f"{buffers}{launches}"
        '    file = std::fopen(arguments[2], "wb");\n'
        "    std::fwrite(output.data(), sizeof(float), output.size(), file);\n"
        "    return std::fclose(file);\n}\n"
    )


def _launch(launch: Launch) -> str:
    sizes = ", ".join("{" + ", ".join(map(str, size)) + "}" for size in (launch.grid, launch.block))
    return f"    emulation::launch({sizes}, [&] {{ {launch.name}({', '.join(f'{name}.data()' for name in launch.arguments)}); }});\n"
