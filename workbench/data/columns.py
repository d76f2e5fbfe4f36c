"""Convolutions as plain columns of numbers, and back: what is a tuple in a workload or a configuration has a column for each part in a data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.errors import DataError
from workbench.kernels import kernel
from workbench.kernels.conv_shape import shape_of
from workbench.schema import Value, Workload
from workbench.space import Space

__all__ = ["config_of", "knob_columns", "workload_columns", "workload_of"]

_AXES = ("h", "w")
_SIDES = (("pad_top", "pad_bottom"), ("pad_left", "pad_right"))


def workload_columns(workload: Workload) -> dict[str, int]:
    """Columns of a convolution: n, ci, h, w, co, kh, kw, stride_h, stride_w, pad_top, pad_left, pad_bottom, pad_right, dilation_h, dilation_w, groups.

    In one dimension those of h and of top and bottom are left out, of a transposed convolution dilation and groups. Raises UsageError for a workload that
    cannot be.
    """
    shape = shape_of(workload)
    axes, sides = _AXES[-len(shape.size) :], _SIDES[-len(shape.size) :]
    columns = {"n": shape.n, "ci": shape.ci, **dict(zip(axes, shape.size, strict=True)), "co": shape.co}
    columns |= {f"k{axis}": extent for axis, extent in zip(axes, shape.filter, strict=True)}
    columns |= {f"stride_{axis}": step for axis, step in zip(axes, shape.stride, strict=True)}
    for side in (0, 1):
        columns |= {names[side]: both[side] for names, both in zip(sides, shape.padding, strict=True)}
    if kernel(workload.kernel).optional:
        columns |= {f"dilation_{axis}": gap for axis, gap in zip(axes, shape.dilation, strict=True)}
        columns["groups"] = int(workload.params.get("groups", 1))  # type: ignore[arg-type]
    return columns


def workload_of(name: str, row: Mapping[str, Any]) -> Workload:
    """The convolution of the kernel `name` that has these columns: stride, dilation and padding are pairs in two dimensions, numbers in one.

    Padding that differs between the sides is (top, left, bottom, right), or (left, right). Raises DataError for a missing column.
    """
    found = kernel(name)
    flat = "h" not in found.parameters
    axes, sides = _AXES[-1 if flat else 0 :], _SIDES[-1 if flat else 0 :]

    def each(*columns: str) -> Value:
        values = tuple(int(row[column]) for column in columns)
        return values[0] if len(values) == 1 else values

    try:
        before, after = ([names[side] for names in sides] for side in (0, 1))
        params: dict[str, Value] = {parameter: int(row[parameter]) for parameter in found.parameters if parameter not in ("stride", "padding")}
        params["stride"] = each(*(f"stride_{axis}" for axis in axes))
        params["padding"] = each(*before) if each(*before) == each(*after) else each(*before, *after)
        if found.optional:
            params |= {"dilation": each(*(f"dilation_{axis}" for axis in axes)), "groups": int(row["groups"])}
    except KeyError as error:
        raise DataError(f"{name}: a row without the column {error.args[0]!r} does not say which convolution it is of") from error
    return found.workload(params)


def knob_columns(config: Mapping[str, Value]) -> dict[str, Value]:
    """Columns of a configuration: a tile's parts are tile_f_0, tile_f_1, ..., any other knob is itself."""
    columns: dict[str, Value] = {}
    for name, value in config.items():
        columns |= {f"{name}_{part}": factor for part, factor in enumerate(value)} if isinstance(value, tuple) else {name: value}
    return columns


def config_of(space: Space, row: Mapping[str, Any]) -> dict[str, Value]:
    """The configuration of a space that has these columns. Raises DataError for a missing column."""
    config: dict[str, Value] = {}
    try:
        for name, value in space.config(0).items():
            config[name] = tuple(int(row[f"{name}_{part}"]) for part in range(len(value))) if isinstance(value, tuple) else row[name]
    except KeyError as error:
        raise DataError(f"a row without the column {error.args[0]!r} is no configuration of the space {space.name!r}") from error
    return config
