"""The shape of a convolution: what the parameters of a workload say, checked once, for every kind in one and two dimensions.

Parameters (NCW and NCHW): n inputs of ci x (h x) w, co filters of (kh x) kw, stride and dilation as one number or one for each axis, padding as one number, one
for each axis, or first those before and then those after: (left, right), (top, left, bottom, right). The axes of a kind are those whose filter sizes it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from workbench.errors import UsageError
from workbench.knobs import is_integer
from workbench.schema import Value, Workload

__all__ = ["OPTIONAL", "OPTIONAL_1D", "PARAMETERS", "PARAMETERS_1D", "TRANSPOSED", "Shape", "macs", "output_size", "shape_of", "transposed_macs"]

PARAMETERS = ("n", "ci", "h", "w", "co", "kh", "kw", "stride", "padding")
PARAMETERS_1D = ("n", "ci", "w", "co", "kw", "stride", "padding")
OPTIONAL: Mapping[str, Value] = {"dilation": (1, 1), "groups": 1}
OPTIONAL_1D: Mapping[str, Value] = {"dilation": 1, "groups": 1}
ONE_DIMENSIONAL = ("conv1d", "conv1d_transpose")
# A transposed convolution has neither dilation nor groups here.
TRANSPOSED = ("conv1d_transpose", "conv2d_transpose")


@dataclass(frozen=True)
class Shape:
    """A convolution in whole numbers. Tuples have one entry for each spatial axis: (height, width), or (width,).

    Attributes:
        kernel: name of the kernel, such as "conv2d".
        n, ci, co: inputs, input channels, output channels.
        size, filter, output: of the input, of the filter, of the output.
        stride, dilation: steps of the filter, and between its elements.
        padding: zeros (before, after).
        groups: groups of channels that do not mix; ci for a depthwise convolution.
    """

    kernel: str
    n: int
    ci: int
    co: int
    size: tuple[int, ...]
    filter: tuple[int, ...]
    output: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    groups: int

    @property
    def transposed(self) -> bool:
        """Whether the stride spreads the input instead of thinning the output."""
        return self.kernel in TRANSPOSED

    @property
    def data_shape(self) -> tuple[int, ...]:
        """Shape of the input array, NCW or NCHW."""
        return (self.n, self.ci, *self.size)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Shape of the filters: (co, ci / groups, ...), depthwise (ci, co / ci, ...), transposed (ci, co, ...)."""
        if self.kernel == "depthwise_conv2d":
            return (self.ci, self.co // self.ci, *self.filter)
        return (self.ci, self.co, *self.filter) if self.transposed else (self.co, self.ci // self.groups, *self.filter)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the output array, NCW or NCHW."""
        return (self.n, self.co, *self.output)


def _axes(params: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(axis for axis in ("h", "w") if f"k{axis}" in params)


def _each(value: Any, axes: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else axes * (value,)


def _sides(padding: Any, axes: int) -> Sequence[tuple[Any, Any]]:
    both = _each(padding, axes)
    return list(zip(both[:axes], both[-axes:], strict=True))


def output_size(params: Mapping[str, Any], transposed: bool = False) -> tuple[Any, ...]:
    """Size of the output along each axis, (height, width) or (width,), of parameters that are scalars or arrays."""
    axes = _axes(params)
    steps, gaps = _each(params["stride"], len(axes)), _each(params.get("dilation", 1), len(axes))
    sizes = []
    for axis, step, gap, (before, after) in zip(axes, steps, gaps, _sides(params["padding"], len(axes)), strict=True):
        reach = (params[f"k{axis}"] - 1) * gap + 1
        sizes.append((params[axis] - 1) * step + reach - before - after if transposed else (params[axis] + before + after - reach) // step + 1)
    return tuple(sizes)


def macs(params: Mapping[str, Any]) -> Any:
    """Multiply-accumulates of the direct algorithm: n x co x output positions x (ci / groups) x filter, of parameters that are scalars or arrays.

    Also what winograd is credited with, as AutoTVM does.
    """
    depth = params["ci"] // params.get("groups", 1)
    return params["n"] * params["co"] * math.prod(output_size(params)) * depth * math.prod(params[f"k{axis}"] for axis in _axes(params))


def transposed_macs(params: Mapping[str, Any]) -> Any:
    """Multiply-accumulates of a transposed convolution: n x ci x co x input positions x filter.

    Every input element meets every element of its filters once. The zeros that a stride puts between input elements are no work, whatever a program does
    with them; what the padding cuts off the output is not taken off.
    """
    axes = _axes(params)
    return params["n"] * params["ci"] * params["co"] * math.prod(params[axis] for axis in axes) * math.prod(params[f"k{axis}"] for axis in axes)


@lru_cache(maxsize=512)
def shape_of(workload: Workload) -> Shape:
    """Shape of a convolution's workload after a look at each parameter.

    Raises:
        UsageError: a parameter is missing, is not a whole number, is out of its range, or is one that the kind cannot have; or no output is left.
    """
    kernel = workload.kernel
    flat, transposed, depthwise = kernel in ONE_DIMENSIONAL, kernel in TRANSPOSED, kernel == "depthwise_conv2d"
    names, optional = (PARAMETERS_1D, OPTIONAL_1D) if flat else (PARAMETERS, OPTIONAL)
    params: dict[str, Any] = {**optional, **workload.params}
    axes = 1 if flat else 2
    lengths = {"stride": (axes,), "dilation": (axes,), "padding": (axes, 2 * axes)}
    for name in (*names, *optional):
        if name not in params:
            raise UsageError(f"{kernel}: parameter {name!r} is missing; it takes {', '.join(names)}")
        value, least = params[name], 0 if name == "padding" else 1
        parts = value if isinstance(value, tuple | list) and len(value) in lengths.get(name, ()) else (value,)
        if not all(is_integer(part) and part >= least for part in parts):
            several = f", or {' or '.join(map(str, lengths[name]))} of them" if name in lengths else ""
            raise UsageError(f"{kernel}: {name} is {value!r}; it is a whole number of at least {least}{several}")
    for name in optional:
        if transposed and {*_each(params[name], axes)} != {1}:
            raise UsageError(f"{kernel}: {name} is {params[name]!r}; a transposed convolution has neither dilation nor groups here")
    ci, co, groups = params["ci"], params["co"], params["groups"]
    if depthwise and (co % ci or groups not in (1, ci)):
        raise UsageError(f"{kernel}: co is {co}, ci {ci}, groups {groups}; a depthwise convolution has a multiple of ci as co, and ci groups or none named")
    if ci % groups or co % groups:
        raise UsageError(f"{kernel}: groups is {groups}; it divides both ci, {ci}, and co, {co}")
    output = output_size(params, transposed)
    if min(output) < 1:
        why = "the padding takes it all" if transposed else "the filter does not fit into the padded input"
        raise UsageError(f"{kernel}: the output would be {' x '.join(map(str, output))}; {why}")
    return Shape(
        kernel=kernel,
        n=int(params["n"]),
        ci=int(ci),
        co=int(co),
        size=tuple(int(params[axis]) for axis in _axes(params)),
        filter=tuple(int(params[f"k{axis}"]) for axis in _axes(params)),
        output=tuple(map(int, output)),
        stride=tuple(map(int, _each(params["stride"], axes))),
        dilation=tuple(map(int, _each(params["dilation"], axes))),
        padding=tuple((int(before), int(after)) for before, after in _sides(params["padding"], axes)),
        groups=int(ci if depthwise else groups),
    )
