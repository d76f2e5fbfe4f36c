"""Two-dimensional convolutions and the spaces of AutoTVM's CUDA templates for them.

Parameters of a workload (NCHW): n images of ci x h x w, co filters of kh x kw, stride and padding as one number or a pair (vertical, horizontal), padding
also as (top, left, bottom, right), dilation likewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from workbench.errors import UsageError
from workbench.kernels.base import Kernel
from workbench.schema import Value, Workload
from workbench.space import Choice, Knob, Space, Split, is_integer

__all__ = ["KERNELS", "OPTIONAL", "PARAMETERS", "THREADS", "check", "macs", "output_size", "winograd_tile"]

PARAMETERS = ("n", "ci", "h", "w", "co", "kh", "kw", "stride", "padding")
OPTIONAL: Mapping[str, Value] = {"dilation": (1, 1), "groups": 1}
# Of the four tiles of an axis (block, virtual thread, thread, inner) the third is bound to threads.
THREADS: Mapping[str, int | None] = {"tile_f": 2, "tile_y": 2, "tile_x": 2}


def _pair(value: Any) -> tuple[Any, Any]:
    return (value[0], value[1]) if isinstance(value, tuple | list) else (value, value)


def output_size(params: Mapping[str, Any]) -> tuple[Any, Any]:
    """Height and width of the output, of parameters that are scalars or arrays."""
    padding = params["padding"]
    top, left, bottom, right = padding if isinstance(padding, tuple | list) and len(padding) == 4 else 2 * _pair(padding)
    stride, dilation = _pair(params["stride"]), _pair(params.get("dilation", 1))
    height = (params["h"] + top + bottom - (params["kh"] - 1) * dilation[0] - 1) // stride[0] + 1
    width = (params["w"] + left + right - (params["kw"] - 1) * dilation[1] - 1) // stride[1] + 1
    return height, width


def macs(params: Mapping[str, Any]) -> Any:
    """Multiply-accumulates of the direct algorithm, of parameters that are scalars or arrays; also what winograd is credited with, as AutoTVM does."""
    height, width = output_size(params)
    return params["n"] * params["co"] * height * width * (params["ci"] // params.get("groups", 1)) * params["kh"] * params["kw"]


def _depthwise_macs(params: Mapping[str, Any]) -> Any:
    height, width = output_size(params)
    return params["n"] * params["co"] * height * width * params["kh"] * params["kw"]


def check(workload: Workload) -> dict[str, Any]:
    """Parameters of a workload after a look at each: n, ci, h, w, co, kh, kw, stride, padding, dilation, groups, and the output's oh, ow.

    Raises:
        UsageError: a parameter is missing, is not a whole number, or is out of its range; or nothing is left of the output.
    """
    params: dict[str, Any] = {**OPTIONAL, **workload.params}
    for name in PARAMETERS:
        if name not in params:
            raise UsageError(f"{workload.kernel}: parameter {name!r} is missing; it takes {', '.join(PARAMETERS)}")
    lengths = {"stride": (2,), "dilation": (2,), "padding": (2, 4)}
    for name in (*PARAMETERS, *OPTIONAL):
        value, least = params[name], 0 if name == "padding" else 1
        parts = value if isinstance(value, tuple | list) and len(value) in lengths.get(name, ()) else (value,)
        if not all(is_integer(part) and part >= least for part in parts):
            several = f", or {' or '.join(map(str, lengths[name]))} of them" if name in lengths else ""
            raise UsageError(f"{workload.kernel}: {name} is {value!r}; it is a whole number of at least {least}{several}")
    params["oh"], params["ow"] = output_size(params)
    if params["oh"] < 1 or params["ow"] < 1:
        raise UsageError(f"{workload.kernel}: the output would be {params['oh']} x {params['ow']}; the filter does not fit into the padded input")
    return params


def _unroll(*steps: int) -> tuple[Knob, ...]:
    return Choice("auto_unroll_max_step", steps), Choice("unroll_explicit", (0, 1))


@lru_cache(maxsize=512)
def _direct(workload: Workload) -> Space:
    p = check(workload)
    if p["groups"] != 1:
        raise UsageError(f"{workload.kernel}: groups is {p['groups']}; AutoTVM's direct template has no groups (depthwise_conv2d is a kernel of its own)")
    tiles = (Split("tile_f", p["co"], 4), Split("tile_y", p["oh"], 4), Split("tile_x", p["ow"], 4))
    reduction = (Split("tile_rc", p["ci"], 2), Split("tile_ry", p["kh"], 2), Split("tile_rx", p["kw"], 2))
    return Space("autotvm", (*tiles, *reduction, *_unroll(0, 512, 1500)))


@lru_cache(maxsize=512)
def _depthwise(workload: Workload) -> Space:
    p = check(workload)
    if p["co"] % p["ci"] or p["groups"] not in (1, p["ci"]):
        given = f"co is {p['co']}, ci {p['ci']}, groups {p['groups']}"
        raise UsageError(f"{workload.kernel}: {given}; a depthwise convolution has a multiple of ci as co, and ci groups or none named")
    return Space("autotvm", (Split("tile_f", p["co"], 4), Split("tile_y", p["oh"], 4), Split("tile_x", p["ow"], 4), *_unroll(0, 256, 1500)))


def winograd_tile(height: int) -> int:
    """Output rows and columns that a winograd tile covers: 4 where the input's height divides by 8, else 2, as AutoTVM's CUDA template chooses."""
    return 4 if height % 8 == 0 else 2


@lru_cache(maxsize=512)
def _winograd(workload: Workload) -> Space:
    p = check(workload)
    if p["kh"] != p["kw"] or p["groups"] != 1 or {*_pair(p["stride"]), *_pair(p["dilation"])} != {1}:
        raise UsageError(f"{workload.kernel}: winograd needs a square filter, stride 1, dilation 1 and no groups, not {workload.key}")
    # The stage that is tuned: alpha^2 products of matrices, co x ci by ci x tiles.
    tile = winograd_tile(p["h"])
    alpha = tile + p["kh"] - 1
    tiles = p["n"] * -(-p["oh"] // tile) * -(-p["ow"] // tile)
    knobs = (Choice("tile_b", ((alpha * alpha, 1, 1, 1),)), Split("tile_y", p["co"], 4), Split("tile_x", tiles, 4), Split("tile_rc", p["ci"], 2))
    return Space("autotvm", (*knobs, *_unroll(0, 128, 1500)))


def _flop(params: Mapping[str, Any]) -> Any:
    return 2 * macs(params)


def _depthwise_flop(params: Mapping[str, Any]) -> Any:
    return 2 * _depthwise_macs(params)


KERNELS: Mapping[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel("conv2d", "Direct convolution", PARAMETERS, macs, _flop, {"autotvm": _direct}, OPTIONAL, {"autotvm": THREADS}),
        Kernel(
            "depthwise_conv2d", "Depthwise convolution", PARAMETERS, _depthwise_macs, _depthwise_flop, {"autotvm": _depthwise}, OPTIONAL, {"autotvm": THREADS}
        ),
        Kernel(
            "conv2d_winograd",
            "Winograd convolution",
            PARAMETERS,
            macs,
            _flop,
            {"autotvm": _winograd},
            OPTIONAL,
            {"autotvm": {"tile_b": 2, "tile_y": 2, "tile_x": 2}},
        ),
    )
}
