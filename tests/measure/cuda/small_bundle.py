"""Bundles for tests: a convolution written by hand, right and wrong in every way that a kernel can be, and small matrix instances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from workbench.kernels import kernel
from workbench.kernels.conv_shape import shape_of
from workbench.kernels.matrix import KERNELS
from workbench.kernels.matrix.cuda import VARIANTS, source
from workbench.measure.cuda import convolutions, matrix
from workbench.measure.cuda.bundle import Candidate, Launch, Problem, Stage, write_bundle
from workbench.measure.cuda.draft import REFERENCE
from workbench.schema import Workload

CONVOLUTION = kernel("conv2d").workload({"n": 1, "ci": 3, "h": 6, "w": 5, "co": 4, "kh": 3, "kw": 2, "stride": 1, "padding": 1})
BLOCK = 64
# Buffers beside input and output, and how many float32 they have.
SCRATCH = {"twice": {"sums": 168}, "memory": {"sums": 1 << 40}}

SOURCE = """
#define CI 3
#define H 6
#define W 5
#define CO 4
#define KH 3
#define KW 2
#define OH 6
#define OW 6

static __device__ float at(const float* data, const float* weight, int i, int channels) {
    const int x = i % OW, y = i / OW % OH, f = i / (OW * OH);
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c)
        for (int p = 0; p < KH; ++p)
            for (int q = 0; q < KW; ++q) {
                const int row = y + p - 1, column = x + q - 1;
                if (row >= 0 && row < H && column >= 0 && column < W) sum += data[(c * H + row) * W + column] * weight[((f * CI + c) * KH + p) * KW + q];
            }
    return sum;
}

#define KERNEL(name) extern "C" __global__ void name(float* output, const float* data, const float* weight)
#define INDEX const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); if (i >= CO * OH * OW) return;

KERNEL(right) { INDEX output[i] = at(data, weight, i, CI); }
KERNEL(lacks_a_channel) { INDEX output[i] = at(data, weight, i, CI - 1); }
KERNEL(lacks_an_element) { INDEX if (i != 77) output[i] = at(data, weight, i, CI); }
KERNEL(adds_up) { INDEX output[i] = (output[i] == output[i] ? output[i] : 0.0f) + at(data, weight, i, CI); }
KERNEL(illegal) { INDEX output[i + (1 << 28)] = 0.0f; }
KERNEL(traps) { __trap(); }
KERNEL(hangs) { const volatile float* seen = data; while (seen[0] == seen[0]) {} }
KERNEL(slow) {
    const long long begun = clock64();
    while (threadIdx.x + blockIdx.x == 0 && clock64() - begun < 300000000) {}
    INDEX
    output[i] = at(data, weight, i, CI);
}
KERNEL(spoils_its_input) { INDEX output[i] = at(data, weight, i, CI); __syncthreads(); ((float*)data)[i % (CI * H * W)] = 0.0f; }
extern "C" __global__ void first_half(const float* data, const float* weight, float* sums) { INDEX sums[i] = at(data, weight, i, CI - 1); }
extern "C" __global__ void second_half(const float* data, const float* weight, const float* sums, float* output) {
    INDEX
    output[i] = sums[i] + at(data, weight, i, CI) - at(data, weight, i, CI - 1);
}
"""
# What does not compile, and what a compiler never comes to the end of: a pipe that nobody writes to.
BROKEN = 'extern "C" __global__ void right(float* output) { output[0] = nonsense; }\n'
ENDLESS = '#include "{pipe}"\n'


def convolution(name: str, program: int = 0, index: int = 0, group: str = "conv2d") -> Candidate:
    """The candidate whose kernel, or whose fault, has this name."""
    blocks = (-(-144 // BLOCK), 1, 1)
    launches: tuple[Launch, ...] = (Launch(name, blocks, (BLOCK, 1, 1), ("output", "data", "weight")),)
    if name == "refused":
        launches = (Launch("right", blocks, (2048, 1, 1), ("output", "data", "weight")),)
    elif name == "memory":
        launches = (Launch("right", blocks, (BLOCK, 1, 1), ("output", "data", "weight")),)
    elif name == "twice":
        launches = (
            Launch("first_half", blocks, (BLOCK, 1, 1), ("data", "weight", "sums"), timed=False),
            Launch("second_half", blocks, (BLOCK, 1, 1), ("data", "weight", "sums", "output")),
        )
    return Candidate(group, 0, program, "by-hand", index, {"kernel": name, "tile": (1, index)}, launches, SCRATCH.get(name, {}), label="valid")


def problem() -> Problem:
    assert shape_of(CONVOLUTION).output_shape == (1, 4, 6, 6)
    return convolutions.problem(CONVOLUTION)


def write_convolutions(path: Path, names: Sequence[str], extra: Sequence[str] = ()) -> Path:
    """A bundle of convolutions; a name "program:i" stands for `right` of the i-th of the extra programs."""
    candidates = []
    for index, name in enumerate(names):
        program = int(name.partition(":")[2]) + 1 if ":" in name else 0
        candidates.append(convolution("right" if program else name, program, index))
    write_bundle(
        path,
        made_by="workbench measure bundle",
        stages=[Stage("convolutions", len(candidates), 1.0)],
        programs=[SOURCE, *extra],
        reference=REFERENCE.read_text(),
        problems=[problem()],
        candidates=candidates,
    )
    return path


def small_instances() -> list[Workload]:
    """One or two of each matrix kernel, of which the emulation takes milliseconds."""
    params = {
        "mm": [{"m": 9, "n": 17, "k": 5, "d1": 0.5, "d2": 1.0}, {"m": 1, "n": 1, "k": 1, "d1": 1.0, "d2": 1.0}],
        "mv": [{"m": 35, "n": 40, "d1": 0.25}, {"m": 3, "n": 70, "d1": 1.0}],
        "mc": [{"m": 12, "n": 20, "r": 3, "d1": 1.0}, {"m": 7, "n": 9, "r": 7, "d1": 0.5}],
        "mp": [{"m": 11, "n": 19, "r": 3, "s": 2, "d1": 0.5}, {"m": 5, "n": 8, "r": 5, "s": 1, "d1": 1.0}],
    }
    return [KERNELS[name].workload(of_kernel[i]) for i in range(2) for name, of_kernel in params.items()]


def write_matrices(path: Path, workloads: Iterable[Workload] = ()) -> Path:
    """A bundle of both variants of matrix instances."""
    chosen = list(workloads) or small_instances()
    kernels = list(dict.fromkeys(workload.kernel for workload in chosen))
    candidates = [matrix.candidate(workload, variant, i, kernels.index(workload.kernel)) for i, workload in enumerate(chosen) for variant in VARIANTS]
    write_bundle(
        path,
        made_by="workbench measure bundle",
        stages=[Stage("matrix", len(candidates), 1.0)],
        programs=map(source, kernels),
        reference=REFERENCE.read_text(),
        problems=map(matrix.problem, chosen),
        candidates=candidates,
        notes={f"{name}-{variant}": ["A note."] for name in kernels for variant in VARIANTS},
    )
    return path
