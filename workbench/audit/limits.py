"""Hardware limits that a configuration's columns can be held against: threads a block and static shared memory of a GPU kernel.

Only configurations of known templates can be judged, so each rule names the columns it reads and applies to frames that have them all. A rule may be lenient
(what it calls possible may still fail) but must never call a configuration impossible that can run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.schema import Device

__all__ = ["MAX_THREADS", "Rule", "exceeded", "shared_limit"]

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", the same for every capability from 2.0; ROCm has the same limit of threads.
MAX_THREADS = 1024
CUDA_STATIC_SHARED = 48 * 1024
AMD_LDS = 64 * 1024
_FLOAT = 4

Ints = NDArray[np.int64]


def shared_limit(device: Device) -> int:
    """Bytes of shared memory that a block may declare statically."""
    return AMD_LDS if "AMD" in device.model else CUDA_STATIC_SHARED


@dataclass(frozen=True)
class Rule:
    """A quantity computed from columns: `kind` is "threads" or "shared"; `columns` must all be there."""

    kind: str
    template: str
    columns: tuple[str, ...]
    amount: Callable[[pd.DataFrame], Ints]


def _column(frame: pd.DataFrame, name: str) -> Ints:
    return frame[name].to_numpy(dtype=np.float64, na_value=0).astype(np.int64)


def _product(frame: pd.DataFrame, *names: str) -> Ints:
    result = np.ones(len(frame), dtype=np.int64)
    for name in names:
        result *= _column(frame, name)
    return result


def _convolution_shared(frame: pd.DataFrame) -> Ints:
    # Kernel Tuner's convolution keeps the input tile with its border in shared memory; `use_shmem` = 0 (where the kernel has the knob) switches that off.
    height = _product(frame, "block_size_y", "tile_size_y") + _column(frame, "filter_height") - 1
    width = _product(frame, "block_size_x", "tile_size_x") + _column(frame, "filter_width") - 1
    if "use_shmem" in frame.columns:
        height = height * _column(frame, "use_shmem")
    return _FLOAT * height * width


def _clblast_shared(frame: pd.DataFrame) -> Ints:
    return _FLOAT * (_product(frame, "SA", "KWG", "MWG") + _product(frame, "SB", "KWG", "NWG"))


_TILES = tuple(f"tile_{axis}_{part}" for axis in "nfyx" for part in range(4)) + tuple(f"tile_{axis}_{part}" for axis in "crs" for part in range(3))


def _flextensor_shared(frame: pd.DataFrame) -> Ints:
    # Input and weight tiles of a block, loaded at the middle reduction loop. An unknown stride (-1) counts as 1, the least a block can need.
    n, f, y, x = (_product(frame, *(f"tile_{axis}_{part}" for part in (1, 2, 3))) for axis in "nfyx")
    c, r, s = (_column(frame, f"tile_{axis}_2") for axis in "crs")
    stride = np.maximum(_column(frame, "stride"), 1) if "stride" in frame.columns else np.ones_like(n)
    return _FLOAT * (n * c * ((y - 1) * stride + r) * ((x - 1) * stride + s) + f * c * r * s)


RULES = (
    Rule("threads", "Kernel Tuner block sizes", ("block_size_x", "block_size_y"), lambda f: _product(f, "block_size_x", "block_size_y")),
    Rule("threads", "CLBlast GEMM", ("MDIMC", "NDIMC"), lambda f: _product(f, "MDIMC", "NDIMC")),
    Rule(
        "shared",
        "Kernel Tuner convolution",
        ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "filter_height", "filter_width"),
        _convolution_shared,
    ),
    Rule("shared", "CLBlast GEMM", ("SA", "SB", "KWG", "MWG", "NWG"), _clblast_shared),
    Rule("shared", "FlexTensor conv2d", _TILES, _flextensor_shared),
)


def _tile_threads(frame: pd.DataFrame) -> Ints | None:
    """Threads of a TVM GPU schedule: part 2 of a 4-way tile is bound to threadIdx.

    A row without part 3 has a 3-way tile, whose part 2 lies inside a thread: it counts for nothing.
    """
    axes = [m.group(1) for c in frame.columns if (m := re.fullmatch(r"(tile_\w+)_3", str(c))) and f"{m.group(1)}_2" in frame.columns]
    if not axes:
        return None
    threads = np.ones(len(frame), dtype=np.int64)
    for axis in axes:
        threads *= np.where(frame[f"{axis}_3"].notna(), _column(frame, f"{axis}_2"), 1)
    return threads


def exceeded(frame: pd.DataFrame, device: Device) -> dict[str, NDArray[np.bool_]]:
    """Limit -> which rows break it, for the limits that this frame's columns allow to be checked. Empty for a CPU and for unknown templates."""
    if device.kind != "gpu":
        return {}
    broken: dict[str, NDArray[np.bool_]] = {}
    shared = shared_limit(device)
    tiles = _tile_threads(frame)
    if tiles is not None:
        broken[f"over {MAX_THREADS:,} threads a block"] = tiles > MAX_THREADS
    for rule in RULES:
        if all(c in frame.columns for c in rule.columns):
            limit = MAX_THREADS if rule.kind == "threads" else shared
            name = f"over {MAX_THREADS:,} threads a block" if rule.kind == "threads" else f"over {shared // 1024} KiB of shared memory"
            rows = rule.amount(frame) > limit
            broken[name] = broken[name] | rows if name in broken else rows
    return broken
