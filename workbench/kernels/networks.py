"""The convolutions of five networks, and MetaTune's training kernels (Section 6 and Table 2). The tables stand in networks.toml.

Networks take one image of 3 x 224 x 224. MobileNet-v1 stands for its depthwise convolutions alone. Stride and padding are (vertical, horizontal) pairs in two
dimensions and whole numbers in one, so that equal convolutions have equal keys.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.schema import Workload

__all__ = ["Layer", "by_id", "layer", "network", "networks", "training_kernels", "winograd_layers"]


@dataclass(frozen=True)
class Layer:
    """A distinct convolution of a network.

    Attributes:
        workload: the convolution.
        count: how often the network runs it for one input.
        names: the modules that are this convolution.
        id: its name in records of measurements, "" where it has none.
    """

    workload: Workload
    count: int
    names: tuple[str, ...]
    id: str = ""

    @property
    def flop(self) -> int:
        """Floating-point operations of one run."""
        count = kernel(self.workload.kernel).flop
        assert count is not None  # every kind of convolution has one
        return int(count(self.workload.params))


def networks() -> tuple[str, ...]:
    """Names of the networks."""
    return tuple(_tables()["network"])


def network(name: str) -> tuple[Layer, ...]:
    """The distinct convolutions of a network in order of appearance, the shortcut of a residual block after its first convolution.

    Raises:
        UsageError: there is no such network; close names are listed.
    """
    table = _table(name)
    return tuple(_layer(table["kernel"], row, row["id"]) for row in table["layers"])


def winograd_layers(name: str) -> tuple[Layer, ...]:
    """The layers of a network that are also in the set as conv2d_winograd: some of those with 3 x 3 filters and stride 1. Raises UsageError as `network`."""
    return tuple(_layer("conv2d_winograd", row, row["winograd"]) for row in _table(name)["layers"] if "winograd" in row)


def layer(name: str, number: int) -> Layer:
    """The distinct convolution of that number, from 1, of a network. Raises UsageError for an unknown network or number."""
    layers = network(name)
    if number not in range(1, len(layers) + 1):
        raise UsageError(f"{name} has no layer {number!r}; its distinct convolutions have numbers from 1 to {len(layers)}")
    return layers[number - 1]


def training_kernels() -> tuple[Workload, ...]:
    """The 47 kernels for meta-training: conv1d 9, conv1d_transpose 9, conv2d 10, conv2d_transpose 9, conv2d_winograd 10."""
    return tuple(_workload(kind, row) for kind, rows in _tables()["training"].items() for row in rows)


def by_id() -> Mapping[str, Workload]:
    """Every workload of this module by its name in records of measurements: layers, their winograd twins and training kernels."""
    layers = [found for name in networks() for found in (*network(name), *winograd_layers(name))]
    training = {row["id"]: _workload(kind, row) for kind, rows in _tables()["training"].items() for row in rows}
    return {**{found.id: found.workload for found in layers}, **training}


@cache
def _tables() -> Mapping[str, Any]:
    tables = tomllib.loads(Path(__file__).with_name("networks.toml").read_text(encoding="utf-8"))
    return {"network": {table["name"]: table for table in tables["network"]}, "training": tables["training"]}


def _table(name: str) -> Mapping[str, Any]:
    tables: Mapping[str, Mapping[str, Any]] = _tables()["network"]
    if name not in tables:
        close = difflib.get_close_matches(str(name), tables, n=3, cutoff=0.5)
        raise UsageError(f"there is no network {name!r}; " + (f"close: {', '.join(close)}" if close else f"there are {', '.join(tables)}"))
    return tables[name]


def _layer(kind: str, row: Mapping[str, Any], id: str) -> Layer:
    return Layer(_workload(kind, row), len(row["names"]), tuple(row["names"]), id)


def _workload(kind: str, row: Mapping[str, Any]) -> Workload:
    size, k, stride, padding = (row[name] for name in ("size", "k", "stride", "padding"))
    if kind.startswith("conv1d"):
        params = {"w": size, "kw": k, "stride": stride, "padding": padding}
    else:
        params = {"h": size, "w": size, "kh": k, "kw": k, "stride": (stride, stride), "padding": (padding, padding)}
    return kernel(kind).workload({"n": 1, "ci": row["ci"], "co": row["co"], **params})
