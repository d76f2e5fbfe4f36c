"""Tuning tasks: a workload's configurations in one space on one device, what cost models see of them, and what was measured of them.

A cost model learns from measured tasks and ranks the configurations of another one. What it sees is the workload, the configuration and the description of the
device: never the order of rows, the number of repeats, or who is in a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from workbench.data.columns import workload_columns, workload_of
from workbench.data.datasets import Dataset
from workbench.errors import DataError, UsageError
from workbench.features.hardware import HardwareTerms
from workbench.features.knobs import KnobVectors
from workbench.features.remembered import Remembered
from workbench.features.supergraph import SuperGraphs
from workbench.kernels.base import Kernel
from workbench.kernels.recorded import YOLO
from workbench.schema import Device, Workload
from workbench.space import Space

__all__ = ["MeasuredTask", "TuningTask", "aligned", "tasks_of"]

_Floats = NDArray[np.float32]
_Bools = NDArray[np.bool_]
_FIRST_LINE = 600  # of FlexTensor's file: before it a tuner was finding out what runs at all


@dataclass(frozen=True, eq=False)
class TuningTask:
    """A workload's configurations in one space on one device.

    Attributes:
        name: for print, such as "yolo8".
        kernel, workload, device: what is tuned, and for what.
        space_name: a space of the kernel, None for its first.
    """

    name: str
    kernel: Kernel
    workload: Workload
    device: Device
    space_name: str | None = None

    @cached_property
    def space(self) -> Space:
        """The configurations."""
        return self.kernel.space(self.workload, self.space_name)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers of `vectors`: "knob ...", "hardware ..." where there are terms, and "workload ..."."""
        terms = () if self._terms is None else self._terms.columns
        return (*(f"knob {name}" for name in self._knobs.columns), *(f"hardware {name}" for name in terms), *(f"workload {name}" for name in self._sizes))

    def vectors(self, indices: ArrayLike) -> _Floats:
        """Knob vectors, hardware terms and the workload's sizes of configurations `indices` [n]: [n, columns], float32.

        Raises:
            SpaceError: an index that is not in the space.
        """
        given = np.asarray(indices)
        return self._remembered.of(given, lambda places: self._vectors(given[places]))

    @cached_property
    def _remembered(self) -> Remembered:
        return Remembered(len(self.columns))

    def _vectors(self, indices: NDArray[Any]) -> _Floats:
        parts = [self._knobs.of(indices)]
        if self._terms is not None:
            parts.append(self._terms.of(indices))
        parts.append(np.tile(np.array(list(self._sizes.values()), dtype=np.float32), (len(indices), 1)))
        return np.concatenate(parts, axis=1)

    @property
    def has_graphs(self) -> bool:
        """Whether configurations have super-graphs."""
        return self._graphs is not None

    def graphs(self, indices: ArrayLike) -> tuple[_Floats, _Bools]:
        """Super-graphs of configurations `indices` [n]: features [n, slots, columns] as sign(x) log2(1 + |x|), and which slots are there [n, slots].

        Raises:
            UsageError: as `supergraphs`.
            SpaceError: an index that is not in the space.
        """
        return self.supergraphs.of(indices)

    @property
    def supergraphs(self) -> SuperGraphs:
        """The super-graphs of all configurations, with features as `graphs` has them. Raises UsageError if loop nests do not fit into it or there are none."""
        if self._graphs is None:
            raise UsageError(
                f"configurations of the space {self.space.name!r} of kernel {self.kernel.name!r} have no super-graphs, which hold convolution layers"
            )
        return self._graphs

    @cached_property
    def _knobs(self) -> KnobVectors:
        return KnobVectors(self.space)

    @cached_property
    def _terms(self) -> HardwareTerms | None:
        try:
            return HardwareTerms(self.kernel, self.workload, self.device, self.space_name)
        except UsageError:
            return None

    @cached_property
    def _graphs(self) -> SuperGraphs | None:
        try:
            return SuperGraphs(self.kernel, self.workload, self.space_name, logarithms=True)
        except UsageError:
            return None

    @cached_property
    def _sizes(self) -> dict[str, float]:
        try:
            plain = workload_columns(self.workload)
        except UsageError:  # no convolution layer: its parameters are numbers
            plain = {name: value for name, value in self.workload.params.items() if isinstance(value, int)}
        sizes = {name: math.log2(1 + value) for name, value in plain.items()}
        return sizes | ({"flop": math.log2(self.kernel.flop(self.workload.params))} if self.kernel.flop else {})


@dataclass(frozen=True, eq=False)
class MeasuredTask:
    """Configurations of a task that were measured, each once in the table.

    Attributes:
        task: whose.
        indices: configurations [n].
        throughput: how fast each is [n], in GFLOP/s, or in runs a second where the kernel has no count of operations; 0 for a failure.
        valid: whether each ran and was right [n].
        time_s: seconds of each [n], NaN for a failure.
        build_s: seconds that its build took [n], NaN where not recorded.
        run_s: seconds that all repeats of its timing took [n], NaN where not recorded.
    """

    task: TuningTask
    indices: NDArray[np.int64]
    throughput: NDArray[np.float64]
    valid: _Bools
    time_s: NDArray[np.float64]
    build_s: NDArray[np.float64]
    run_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def best(self) -> float:
        """Throughput of the fastest."""
        return float(self.throughput.max())

    @cached_property
    def label(self) -> NDArray[np.float64]:
        """Throughput over the best of the table [n], from 0 (a failure) to 1."""
        return self.throughput / self.best

    @cached_property
    def vectors(self) -> _Floats:
        """`TuningTask.vectors` of all rows."""
        return self.task.vectors(self.indices)

    def rows(self, chosen: ArrayLike) -> MeasuredTask:
        """The table with some of its rows alone."""
        places = np.asarray(chosen)
        return MeasuredTask(self.task, *(getattr(self, name)[places] for name in ("indices", "throughput", "valid", "time_s", "build_s", "run_s")))


def aligned(vectors: _Floats, columns: Sequence[str], wanted: Sequence[str]) -> _Floats:
    """Vectors [n, columns] with the columns `wanted`, in their order: zeros where there is none, as a tile of 1 has in a knob vector."""
    found = np.zeros((len(vectors), len(wanted)), dtype=np.float32)
    place = {name: i for i, name in enumerate(columns)}
    here = [i for i, name in enumerate(wanted) if name in place]
    found[:, here] = vectors[:, [place[wanted[i]] for i in here]]
    return found


def tasks_of(dataset: Dataset) -> list[MeasuredTask]:
    """The tasks of a data set, one a workload, in order of appearance.

    A configuration that was measured several times has the median of its times, and is valid if each attempt was. Of FlexTensor's set those lines and layers
    are left out that its notes advise against.

    Args:
        dataset: whose knobs are those of a space of its kernel: one of our own, FlexTensor's, or Kernel Tuner's.

    Raises:
        DataError: no space of the kernel has the data set's knobs, or a workload has no valid row.
    """
    frame, own = dataset.frame, "space" in dataset.frame
    recorded_layers = "layer" in frame
    if recorded_layers:
        frame = frame[(frame["line"] >= _FIRST_LINE) & ~frame["layer"].str.contains("|", regex=False)]
    found = []
    for _, rows in frame.groupby(list(dataset.parameters), sort=False):
        first = rows.iloc[0]
        if own:
            workload = workload_of(dataset.kernel.name, first)
        elif recorded_layers:
            workload = YOLO[first["layer"]]
        else:
            workload = dataset.kernel.workload({name: first[name].item() for name in dataset.parameters})
        name = str(first["space"]) if own else _space_name(dataset, workload)
        task = TuningTask(str(first["layer"]) if recorded_layers else workload.key, dataset.kernel, workload, dataset.device, name)
        found.append(_measured(task, rows, dataset.name))
    return found


def _space_name(dataset: Dataset, workload: Workload) -> str:
    for name in dataset.kernel.spaces:
        columns = _columns(dataset.kernel.space(workload, name)).values()
        if set(dataset.knobs) == {column for names in columns for column in names}:
            return name
    raise DataError(f"data set {dataset.name}: no space of kernel {dataset.kernel.name!r} has its knobs {', '.join(dataset.knobs)}")


def _columns(space: Space) -> dict[str, list[str]]:
    # Knob -> the columns of a frame that hold it: a tile has one a part.
    return {knob.name: [f"{knob.name}_{part}" for part in range(knob.options.shape[1])] if knob.options.ndim == 2 else [knob.name] for knob in space.knobs}


def _measured(task: TuningTask, rows: pd.DataFrame, dataset: str) -> MeasuredTask:
    space = task.space
    if "index" in rows:
        index = rows["index"].to_numpy()
    else:
        index = space.encode({name: rows[columns if len(columns) > 1 else columns[0]].to_numpy() for name, columns in _columns(space).items()})
    flop = task.kernel.flop
    table = pd.DataFrame(
        {
            "index": index,
            "time_s": rows["time_s"].to_numpy(dtype=np.float64, na_value=np.nan),
            "valid": (rows["status"] == "ok").to_numpy(),
            "build_s": rows["compile_s"].to_numpy(dtype=np.float64, na_value=np.nan) if "compile_s" in rows else np.nan,
            "run_s": _run_s(rows),
        }
    )
    by = table.groupby("index", sort=False).agg(time_s=("time_s", "median"), valid=("valid", "all"), build_s=("build_s", "median"), run_s=("run_s", "median"))
    valid = by["valid"].to_numpy()
    if not valid.any():
        raise DataError(f"data set {dataset}: no configuration of {task.name} is valid, so there is no best to compare with")
    time_s = np.where(valid, by["time_s"], np.nan)
    work = flop(task.workload.params) / 1e9 if flop else 1.0
    throughput = np.where(valid, work / time_s, 0.0)
    return MeasuredTask(task, by.index.to_numpy(), throughput, valid, time_s, by["build_s"].to_numpy(), by["run_s"].to_numpy())


def _run_s(rows: pd.DataFrame) -> NDArray[np.float64]:
    # A failure has no repeats: what it took until it failed nobody recorded.
    if "times_s" in rows:
        took = np.array([float(np.sum(times)) for times in rows["times_s"]])
    elif "n_rep" in rows:
        took = (rows["n_rep"] * rows["time_s"]).to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        took = np.zeros(len(rows))
    return np.where(took > 0, took, np.nan)
