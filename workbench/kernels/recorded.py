"""Kernels known through others' recorded measurements: FlexTensor's conv2d, Kernel Tuner's convolution, CLBlast's GEMM.

Their spaces are what the recordings were drawn from; those of Kernel Tuner and CLBlast were measured exhaustively, and the constraints here leave exactly
the recorded configurations.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.kernels import conv
from workbench.kernels.base import Kernel, whole
from workbench.kernels.conv_nests.recorded import flextensor, kernel_tuner
from workbench.kernels.conv_shape import shape_of
from workbench.schema import Value, Workload
from workbench.space import Choice, Constraint, Space, Split, product_at_most

__all__ = ["KERNELS", "YOLO"]


def _layer(ci: int, size: int, co: int, kernel: int, stride: int, padding: int) -> Workload:
    shape: dict[str, Value] = {"n": 1, "ci": ci, "h": size, "w": size, "co": co, "kh": kernel, "kw": kernel}
    return Workload("flextensor_conv2d", {**conv.OPTIONAL, **shape, "stride": (stride, stride), "padding": (padding, padding)})


# The layers of YOLO v1 that FlexTensor measured on a TITAN Xp.
YOLO: Mapping[str, Workload] = {
    f"yolo{number}": _layer(*shape)
    for number, shape in enumerate(
        [
            (3, 448, 64, 7, 2, 3),
            (64, 112, 192, 3, 1, 1),
            (192, 56, 128, 1, 1, 0),
            (128, 56, 256, 3, 1, 1),
            (256, 56, 256, 1, 1, 0),
            (256, 56, 512, 3, 1, 1),
            (512, 28, 256, 1, 1, 0),
            (256, 28, 512, 3, 1, 1),
            (512, 28, 512, 1, 1, 0),
            (512, 28, 1024, 3, 1, 1),
            (1024, 14, 512, 1, 1, 0),
            (512, 14, 1024, 3, 1, 1),
            (1024, 14, 1024, 3, 1, 1),
            (1024, 14, 1024, 3, 2, 1),
            (1024, 7, 1024, 3, 1, 1),
        ],
        start=1,
    )
}


@lru_cache(maxsize=64)
def _flextensor(workload: Workload) -> Space:
    shape = shape_of(workload)
    spatial = (Split("tile_f", shape.co, 4), Split("tile_y", shape.output[0], 4), Split("tile_x", shape.output[1], 4))
    reduction = (Split("tile_c", shape.ci, 3), Split("tile_r", shape.filter[0], 3), Split("tile_s", shape.filter[1], 3))
    return Space("flextensor", (*spatial, *reduction, Choice("unroll_max_step", (0, 1, 512, 1500)), Choice("unroll_explicit", (0, 1))))


_EIGHT = tuple(range(1, 9))
_BLOCK: Mapping[str, int | None] = {"block_size_x": None, "block_size_y": None}


def _convolution(workload: Workload) -> Space:
    """Eight knobs, the filter's two sizes among them as Kernel Tuner has it."""
    knobs = (
        Choice("block_size_x", (1, 2, 4, 8, 16, 32, 48, 64, 96, 112, 128)),
        Choice("block_size_y", (1, 2, 4, 8, 16, 32)),
        Choice("filter_height", (whole(workload, "kh"),)),
        Choice("filter_width", (whole(workload, "kw"),)),
        Choice("read_only", (0, 1)),
        Choice("tile_size_x", _EIGHT),
        Choice("tile_size_y", _EIGHT),
        Choice("use_padding", (0, 1)),
    )
    enough = Constraint("at least 64 threads (block_size_x x block_size_y)", tuple(_BLOCK), lambda x, y: x * y >= 64)
    return Space("convolution", knobs, (enough, product_at_most(1024, "threads", _BLOCK), product_at_most(29, "outputs a thread", _TILE)))


_TILE: Mapping[str, int | None] = {"tile_size_x": None, "tile_size_y": None}
_SHARED_FLOATS = 12 * 1024  # 48 KiB


def _fits(bx: NDArray[Any], by: NDArray[Any], tx: NDArray[Any], ty: NDArray[Any], shared: NDArray[Any], height: NDArray[Any], width: NDArray[Any]) -> Any:
    return (shared == 0) | ((bx * tx + width - 1) * (by * ty + height - 1) < _SHARED_FLOATS)


def _milo(workload: Workload) -> Space:
    """Ten knobs: shared and constant memory are choices too."""
    knobs = (
        Choice("block_size_x", tuple(range(16, 257, 16))),
        Choice("block_size_y", (1, 2, 4, 8, 16)),
        Choice("tile_size_x", (1, 2, 3, 4)),
        Choice("tile_size_y", (1, 2, 3, 4)),
        Choice("read_only", (0, 1)),
        Choice("use_padding", (0, 1)),
        Choice("use_shmem", (0, 1)),
        Choice("use_cmem", (1,)),
        Choice("filter_height", (whole(workload, "kh"),)),
        Choice("filter_width", (whole(workload, "kw"),)),
    )
    constraints = (
        product_at_most(1024, "threads", _BLOCK),
        Constraint("padding only where block_size_x is no multiple of 32", ("use_padding", "block_size_x"), lambda pad, x: (pad == 0) | (x % 32 != 0)),
        Constraint("padding only with shared memory", ("use_padding", "use_shmem"), lambda pad, shared: (pad == 0) | (shared == 1)),
        Constraint("the input of a block fits into 48 KiB of shared memory", (*_BLOCK, *_TILE, "use_shmem", "filter_height", "filter_width"), _fits),
    )
    return Space("convolution_milo", knobs, constraints)


def _multiple(of: str, *factors: str) -> Constraint:
    return Constraint(f"{of} a multiple of {' x '.join(factors)}", (of, *factors), lambda whole, *parts: whole % np.prod(parts, axis=0) == 0)


def _copies(whole: str, width: str) -> Constraint:
    # The MDIMC x NDIMC threads of a group, in rows of `width`, load KWG lines in whole passes.
    return Constraint(f"{whole} a multiple of MDIMC x NDIMC / {width}", (whole, "MDIMC", "NDIMC", width), lambda k, m, n, d: k % (m * n // d) == 0)


_GEMM = Space(
    "clblast",
    (
        Choice("MWG", (16, 32, 64, 128)),
        Choice("NWG", (16, 32, 64, 128)),
        Choice("KWG", (32,)),
        Choice("MDIMC", (8, 16, 32)),
        Choice("NDIMC", (8, 16, 32)),
        Choice("MDIMA", (8, 16, 32)),
        Choice("NDIMB", (8, 16, 32)),
        Choice("KWI", (2,)),
        Choice("VWM", (1, 2, 4, 8)),
        Choice("VWN", (1, 2, 4, 8)),
        Choice("STRM", (0,)),
        Choice("STRN", (0,)),
        Choice("SA", (0, 1)),
        Choice("SB", (0, 1)),
        Choice("PRECISION", (32,)),
    ),
    (
        _multiple("MWG", "MDIMC", "VWM"),
        _multiple("NWG", "NDIMC", "VWN"),
        _multiple("MWG", "MDIMA", "VWM"),
        _multiple("NWG", "NDIMB", "VWN"),
        _copies("KWG", "MDIMA"),
        _copies("KWG", "NDIMB"),
    ),
)


def _clblast(workload: Workload) -> Space:
    for name in ("m", "n", "k"):
        whole(workload, name)
    return _GEMM


def _image_macs(p: Mapping[str, Any]) -> Any:
    return p["w"] * p["h"] * p["kw"] * p["kh"]


def _gemm_macs(p: Mapping[str, Any]) -> Any:
    return p["m"] * p["n"] * p["k"]


def _double(count: Any) -> Any:
    return lambda params: 2 * count(params)


KERNELS: Mapping[str, Kernel] = {
    "flextensor_conv2d": Kernel(
        "flextensor_conv2d",
        "Direct convolution, FlexTensor's schedule",
        conv.PARAMETERS,
        conv.macs,
        _double(conv.macs),
        {"flextensor": _flextensor},
        conv.OPTIONAL,
        {"flextensor": conv.THREADS},
        {"flextensor": flextensor},
    ),
    # The output has w x h pixels; the filter is kw x kh.
    "convolution": Kernel(
        "convolution",
        "Convolution of an image",
        ("w", "h", "kw", "kh"),
        _image_macs,
        _double(_image_macs),
        {"convolution": _convolution, "convolution_milo": _milo},
        threads={"convolution": _BLOCK, "convolution_milo": _BLOCK},
        nests={"convolution": kernel_tuner, "convolution_milo": kernel_tuner},
    ),
    "gemm": Kernel(
        "gemm",
        "Matrix-matrix multiplication, CLBlast",
        ("m", "n", "k"),
        _gemm_macs,
        _double(_gemm_macs),
        {"clblast": _clblast},
        threads={"clblast": {"MDIMC": None, "NDIMC": None}},
    ),
}
