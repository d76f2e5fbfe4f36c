"""What the catalogue knows of each data set without reading it: kernel, device, files, columns, licence and traits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.schema import Device

__all__ = ["ENTRIES", "Entry"]


@dataclass(frozen=True)
class Entry:
    """One data set of others.

    Attributes:
        name: name in the catalogue.
        kernel: name of the kernel.
        device: what it was measured on.
        files: (repository, path) of the registered files, in the order in which they are joined.
        format: importer ("nnc", "halide", "kernel-tuner", "autotvm", "flextensor").
        layout: layout of the format, "" where it has only one.
        rows: rows of the frame.
        parameters: columns that say which workload.
        knobs: columns that say which configuration.
        licence: SPDX name, or "none stated".
        notes: traits, a sentence each.
        constants: parameters that the file does not repeat in each row, with their value.
    """

    name: str
    kernel: str
    device: Device
    files: tuple[tuple[str, str], ...]
    format: str
    layout: str
    rows: int
    parameters: tuple[str, ...]
    knobs: tuple[str, ...]
    licence: str
    notes: tuple[str, ...] = ()
    constants: Mapping[str, int] = field(default_factory=dict)


# Peaks are single-precision GFLOP/s and GB/s as on the vendors' product pages and data sheets (NVIDIA at boost clock, Tesla K40c at base clock; AMD Radeon
# PRO W6600 and W7800). NN+C names its CPUs without a clock that would hold under all threads, so they have none.
I5 = Device("i5-7360u", "cpu", "Intel Core i5-7360U", max_threads=4)
I7 = Device("i7-8750h", "cpu", "Intel Core i7-8750H", max_threads=12)
XEON = Device("xeon-e5-2650-v2", "cpu", "Intel Xeon E5-2650 v2", max_threads=32)
TESLA = Device("tesla-k40c", "gpu", "NVIDIA Tesla K40c", 4290.0, 288.0)
QUADRO = Device("quadro-k420", "gpu", "NVIDIA Quadro K420", 300.0, 29.0)
RTX_2080_TI = Device("rtx-2080-ti", "gpu", "NVIDIA GeForce RTX 2080 Ti", 13450.0, 616.0)
TITAN_RTX = Device("titan-rtx", "gpu", "NVIDIA TITAN RTX", 16310.0, 672.0)
RTX_3090 = Device("rtx-3090", "gpu", "NVIDIA GeForce RTX 3090", 35580.0, 936.0)
A100 = Device("a100", "gpu", "NVIDIA A100-PCIE-40GB", 19500.0, 1555.0)
A4000 = Device("a4000", "gpu", "NVIDIA RTX A4000", 19170.0, 448.0)
W6600 = Device("w6600", "gpu", "AMD Radeon PRO W6600", 10400.0, 224.0)
W7800 = Device("w7800", "gpu", "AMD Radeon PRO W7800", 45200.0, 576.0)
TITAN_XP = Device("titan-xp", "gpu", "NVIDIA TITAN Xp", 12150.0, 547.6)
T4 = Device("t4", "gpu", "NVIDIA Tesla T4", 8100.0, 320.0)
UNNAMED_CPU = Device("unnamed-cpu", "cpu")
UNNAMED_GPU = Device("unnamed-gpu", "gpu")
SEVERAL_GPUS = Device("several-gpus", "gpu")

MATRIX = "Naifeng/Augmented-Neural-Network"
HALIDE = "Naifeng/Variant-Selection"
_MATRIX_KERNELS = (
    ("mm", "matrix_matrix", ("m", "n", "k", "d1", "d2")),
    ("mv", "matrix_vector", ("m", "n", "d1")),
    ("mc", "matrix_conv", ("m", "n", "r", "d1")),
)
_MATRIX_DEVICES = (("i5", "I5", I5), ("i7", "I7", I7), ("xeon", "Xeon", XEON), ("tesla", "Tesla", TESLA), ("quadro", "Quadro", QUADRO))

_LEAK = "Every input of the 500-row file recurs in the 5,000-row file, so choosing anything on the larger file leaks the smaller one's test rows."
_TWINS = "The Tesla and Quadro files have the same inputs and times within 1-5% (median): they look like one GPU, though the vendors' peaks differ 14-fold."
_MC_WORK = "The column c is (m+r-1)(n+r-1) r^2; the paper's text has (m-r+1)(n-r+1) r^2."
_SAME_INPUTS = frozenset({"mm-i5", "mv-i5", "mv-xeon", "mc-i5", "mc-i7", "mc-xeon", "mc-tesla", "mc-quadro"})


def _matrix_notes(kernel: str, device: str, kind: str, size: int) -> tuple[str, ...]:
    notes = []
    if kernel == "mm" and kind == "cpu":
        notes.append("The 500-row and 5,000-row files of this kernel on CPUs are of different builds (10 to 100 times apart): never mix them.")
    if kernel == "mm" and device in ("i7", "xeon") and size == 500:
        notes.append("The file does not fit the paper's Table VI: its constant-complexity baseline errs by 276-338%, the paper's by 34-39%.")
    if f"{kernel}-{device}" in _SAME_INPUTS:
        notes.append(_LEAK)
    if device == "xeon":
        notes.append("Threads go to 64; the paper says 32.")
    if device == "i7" and (kernel == "mc" or (kernel, size) == ("mm", 5000)):
        notes.append("Threads go to 24, twice what the named processor has.")
    if f"{kernel}-{device}" == "mv-i7":
        notes.append("170 of the 500-row file's inputs recur in the 5,000-row file.")
    if kind == "gpu":
        notes.append(_TWINS)
    if kernel == "mc":
        notes.append(_MC_WORK)
    return tuple(notes)


def _matrix_entries() -> list[Entry]:
    entries = []
    for kernel, stem, parameters in _MATRIX_KERNELS:
        for device, suffix, described in _MATRIX_DEVICES:
            kind = described.kind
            for size in (500, 5000):
                entries.append(
                    Entry(
                        name=f"nnc-{kernel}-{device}-{size}",
                        kernel=kernel,
                        device=described,
                        files=((MATRIX, f"Datasets/{stem}_{kind}_{size}_points_{suffix}.csv"),),
                        format="nnc",
                        layout=f"{kernel}-{kind}",
                        rows=size + (kernel == "mv" and kind == "gpu"),
                        parameters=parameters,
                        knobs=("threads",) if kind == "cpu" else (),
                        licence="none stated",
                        notes=_matrix_notes(kernel, device, kind, size),
                    )
                )
    return entries


def _halide(name: str, kernel: str, device: Device, path: str, layout: str, rows: int, knobs: tuple[str, ...], notes: tuple[str, ...]) -> Entry:
    return Entry(name, kernel, device, ((HALIDE, path),), "halide", layout, rows, ("n",), knobs, "none stated", notes)


_S4 = ("s1", "s2", "s3", "s4")
_S6 = ("s1", "s2", "s3", "s4", "s5", "s6")
_UNNAMED = "The authors do not name the device."
_FFT_WORK = "The column c is n^2; the paper says n log n."


def _halide_entries() -> list[Entry]:
    return [
        _halide("halide-blur-i5", "blur", I5, "Halide/blur_cpu/I5/experiment/halide_blur_cpu.csv", "blur-cpu-i5", 6000, _S4, ("One row stands twice.",)),
        _halide(
            "halide-blur-xeon",
            "blur",
            XEON,
            "Halide/blur_cpu/Xeon/experiment/halide_blur_cpu_Xeon.csv",
            "blur-cpu-xeon",
            5031,
            _S4,
            ("The file's last line has a time and no inputs; it is left out here.", "n = 32,768 has 81 rows, every other n has 990."),
        ),
        _halide(
            "halide-blur-quadro",
            "blur_gpu",
            QUADRO,
            "Halide/blur_gpu/Quadro/experiment/halide_blur_3x3_gpu_quadro.csv",
            "blur-gpu",
            1176,
            ("y_split", "x_tile", "vector"),
            (),
        ),
        _halide("halide-fft-cpu", "fft", UNNAMED_CPU, "Halide/fft_cpu/experiment/halide_FFT.csv", "fft-cpu", 4000, _S6, (_UNNAMED, _FFT_WORK)),
        _halide(
            "halide-fft-gpu",
            "fft",
            UNNAMED_GPU,
            "Halide/FFT/fft_gpu/experiments/halide_FFT_gpu.csv",
            "fft-gpu",
            1000,
            _S6,
            (_UNNAMED, "All rows are of n = 16.", "One row stands twice."),
        ),
    ]


BENCHMARK_HUB = "AutoTuningAssociation/benchmark_hub"
_ONE_WORKLOAD = "One workload on one device: it says how knobs act, not how sizes do."


def _kernel_tuner(kernel: str, device: Device, path: str, rows: int, knobs: str, constants: Mapping[str, int], *notes: str) -> Entry:
    stem = "kt-convolution-milo" if "milo" in path else f"kt-{kernel}"
    files = ((BENCHMARK_HUB, path),)
    notes = (_ONE_WORKLOAD, *notes)
    return Entry(f"{stem}-{device.name}", kernel, device, files, "kernel-tuner", "", rows, tuple(constants), tuple(knobs.split()), "MIT", notes, constants)


def _kernel_tuner_entries() -> list[Entry]:
    old = "currently_unused/cachefiles/KernelTuner data"
    image = {"w": 4096, "h": 4096, "kw": 15, "kh": 15}
    cube = {"m": 4096, "n": 4096, "k": 4096}
    plain = "block_size_x block_size_y filter_height filter_width read_only tile_size_x tile_size_y use_padding"
    milo = "block_size_x block_size_y tile_size_x tile_size_y read_only use_padding use_shmem use_cmem filter_height filter_width"
    gemm = "MWG NWG KWG MDIMC NDIMC MDIMA NDIMB KWI VWM VWN STRM STRN SA SB PRECISION"
    convolutions = ((RTX_2080_TI, "RTX_2080_Ti"), (TITAN_RTX, "RTX_Titan"), (RTX_3090, "RTX_3090"))
    milos = ((A100, "A100"), (A4000, "A4000"), (W6600, "W6600"), (W7800, "W7800"))
    valid = "The file holds valid configurations only."
    return [
        *(_kernel_tuner("convolution", device, f"{old}/convolution/{file}.json.gz", 6768, plain, image) for device, file in convolutions),
        *(_kernel_tuner("convolution", device, f"cachefiles/convolution_milo/{file}.json.gz", 4362, milo, image) for device, file in milos),
        *(_kernel_tuner("gemm", device, f"{old}/gemm/{file}.json.gz", 17956, gemm, cube, valid) for device, file in convolutions[:2]),
    ]


def _tiles(**parts: int) -> tuple[str, ...]:
    return tuple(f"tile_{axis}_{i}" for axis, count in parts.items() for i in range(count))


_FLEXTENSOR = Entry(
    name="titanxp-conv2d",
    kernel="flextensor_conv2d",
    device=TITAN_XP,
    files=(("pku-liang/FlexTensor", "auto_schedule/train_data/TitanXp-conv2d-yolo-op1-cuda-perf-data.txt"),),
    format="flextensor",
    layout="",
    rows=29571,
    parameters=("n", "ci", "h", "w", "co", "kh", "kw", "stride", "padding"),
    knobs=(*_tiles(f=4, y=4, x=4, c=3, r=3, s=3), "unroll_max_step", "unroll_explicit"),
    licence="MIT",
    notes=(
        "Layer and knob order are inferred from the products of tiles; 29,571 of 35,877 vectors are explained.",
        "y and x, and r and s, may be swapped.",
        "Rows of the layer yolo14|yolo15 do not say which of the two it is (h = w = stride = -1): leave them out of workload features.",
        "Lines of 600 and more are recommended (87% valid).",
        "Repeats of one configuration differ by 1.22x (median): take the median of repeats.",
        "A failure has no reason in the file; over 1,024 threads a block counts as an invalid configuration.",
    ),
)

_AUTOTVM = [
    Entry(
        name="autotvm-t4-bert",
        kernel="batch_matmul",
        device=T4,
        files=(("tlc-pack/TLCBench", "saved_logs/2020_01_01/autotvm/t4/bert-B1-float32.kernel.log"),),
        format="autotvm",
        layout="",
        rows=6094,
        parameters=("batch", "m", "n", "k"),
        knobs=(*_tiles(k=3, x=4, y=4), "auto_unroll_max_step", "unroll_explicit"),
        licence="none stated",
        notes=(
            "Trajectories of a tuner on dense and batched matrix products with every failure: not a uniform sample.",
            "Each task has knobs of its own; those it lacks are empty.",
            "dense_large_batch is slow as published.",
        ),
    ),
    Entry(
        name="tophub-cuda",
        kernel="conv2d",
        device=SEVERAL_GPUS,
        files=tuple(("tlc-pack/tophub", f"tophub/cuda_v{version}.log") for version in ("0.01", "0.02", "0.03", "0.04", "0.10")),
        format="autotvm",
        layout="",
        rows=860,
        parameters=("n", "ci", "h", "w", "co", "kh", "kw", "stride_h", "stride_w", "pad_top", "pad_left", "pad_bottom", "pad_right"),
        knobs=(*_tiles(f=4, y=4, x=4, rc=2, ry=2, rx=2, b=4), "auto_unroll_max_step", "unroll_explicit"),
        licence="none stated",
        notes=(
            "Best configurations only: not training data.",
            "Several devices (1080 Ti, Titan X, V100, TX2, Nano; column target) and several tasks (column task); knobs that a task lacks are empty.",
            "A record that several versions of the file repeat stands once.",
            "One record was edited by hand: its index and its knobs disagree.",
        ),
    ),
]

ENTRIES: Mapping[str, Entry] = {entry.name: entry for entry in [*_matrix_entries(), *_halide_entries(), *_kernel_tuner_entries(), _FLEXTENSOR, *_AUTOTVM]}
