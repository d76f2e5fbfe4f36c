"""Measure kernels on the machine that this runs on, into a store that `workbench measure` shares, and give what was measured as data sets."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pandas as pd

from workbench.data.datasets import Dataset
from workbench.data.parquet import to_frame
from workbench.data.store import Store
from workbench.errors import DataError, UsageError
from workbench.kernels import kernel as kernel_of
from workbench.kernels.halide.autoschedulers import AUTOSCHEDULERS
from workbench.measure import halide, native, tvm
from workbench.measure.export import frame_of
from workbench.measure.passes import by_input, label, rounds, times_of
from workbench.measure.runner import candidates, measure_missing
from workbench.measure.series import in_plain_columns
from workbench.reproduce.own import measuring_s

if TYPE_CHECKING:
    from workbench.schema import Device, Measurement, Workload

__all__ = ["Instances", "Schedules", "measure_convolutions", "measure_instances", "measure_schedules"]


@dataclass(frozen=True)
class Schedules:
    """What was measured of a Halide kernel.

    Attributes:
        data: schedules of all sizes; `index` is the schedule's in the space of its size.
        baselines: a row a size and autoscheduler: size, scheduler, status, time_s, compile_s, error.
    """

    data: Dataset
    baselines: pd.DataFrame


@dataclass(frozen=True)
class Instances:
    """What was measured of a matrix kernel in a library.

    Attributes:
        data: inputs with a time, in the order in which they were drawn.
        build_s: seconds until the program was there: next to none where it was built before.
        measuring_s: seconds of the first pass over the inputs; making them is part of it.
    """

    data: Dataset
    build_s: float
    measuring_s: float


def measure_schedules(
    store: Store,
    kernel: str,
    sizes: Sequence[int],
    schedules: int,
    *,
    passes: int = 1,
    threads: int = 1,
    seed: int = 0,
    pin: Sequence[int] = (),
) -> Schedules:
    """Measure what the store does not have yet of `schedules` random schedules a size (all, where there are fewer) and of the autoschedulers' choices.

    What `workbench measure halide --autoschedulers` has begun with the same options is gone on with.

    Raises:
        MissingPackage: Halide is not installed.
        UsageError: a kernel, size or CPU that cannot be used, or a store whose series was made otherwise.
        DataError: no schedule has a time.
    """
    if not sizes:
        raise UsageError(f"no size of {kernel} to measure")
    attempts: list[Measurement] = []
    baselines = []
    for size in dict.fromkeys(sizes):
        workload = halide.halide_workload(kernel, size, threads)
        with halide.open_series(workload, seed=seed, pin=pin) as runner:
            drawn: list[halide.Candidate] = [*candidates(runner.space, schedules, seed)]
            for group, times in rounds(drawn, passes, first=AUTOSCHEDULERS):
                for _ in measure_missing(store, runner, group, times=times):
                    pass
            device, names, wanted = runner.device, runner.space.names, set(drawn)
        found = by_input(store.rows(workload=workload, device=device.name))
        attempts += [record for records in found for record in records if record.index in wanted]
        for records in found:
            if "scheduler" in records[0].config:
                best = label(records)
                reason = best.error if best.time_s is None else ""
                baselines.append((size, str(best.config["scheduler"]), str(best.status), best.time_s, best.compile_s, reason))
    data = _dataset(f"{kernel} in Halide", attempts, kernel, device, ("n",), names)
    frame = pd.DataFrame(baselines, columns=["size", "scheduler", "status", "time_s", "compile_s", "error"])
    return Schedules(data, frame)


def measure_instances(
    store: Store,
    kernel: str,
    library: str,
    instances: int,
    *,
    passes: int = 1,
    max_threads: int = 1,
    seed: int = 0,
    pin: Sequence[int] = (),
) -> Instances:
    """Measure what the store does not have yet of the first `instances` random inputs of a matrix kernel.

    What `workbench measure matrix` has begun with the same options is gone on with.

    Raises:
        BuildError: no compiler, or a program that cannot be built.
        UsageError: a name, number or CPU that cannot be used, or a store whose series was made otherwise.
        DataError: no input has a time.
    """
    wanted = native.draw(kernel, library, instances, seed=seed, max_threads=max_threads)
    start = time.perf_counter()
    with native.open_series(kernel, library, store, max_threads=max_threads, seed=seed, pin=pin) as runner:
        build_s = time.perf_counter() - start
        for group, times in rounds(wanted, passes):
            for _ in runner.measure(group, times=times):
                pass
        device = runner.device
    keys = {(instance.workload.key, instance.threads) for instance in wanted}
    attempts = [
        record for record in store.rows(kernel=kernel, device=device.name, space=library) if (record.workload.key, record.config.get("threads")) in keys
    ]
    data = _dataset(f"{kernel} in {library}", attempts, kernel, device, kernel_of(kernel).parameters, ("threads",))
    return Instances(data, build_s, measuring_s(data, len(data.frame)))


def measure_convolutions(
    store: Store,
    workloads: Sequence[Workload],
    trials: int,
    *,
    passes: int = 1,
    threads: int = 1,
    seed: int = 0,
    pin: Sequence[int] = (),
) -> Dataset:
    """Measure what the store does not have yet of `trials` random configurations of each convolution, which are all of one kind.

    What `workbench measure convolutions` has begun with the same options is gone on with.

    Returns:
        All configurations, failed ones too, with the columns that `workbench measure export` writes.

    Raises:
        BuildError: no C++ compiler, which links.
        MissingPackage: TVM is not installed.
        UsageError: no workload, several kinds, one that a CPU's template has not, or a store whose series was made otherwise.
    """
    if len(kinds := {workload.kernel for workload in workloads}) != 1:
        raise UsageError(f"convolutions of {' and '.join(sorted(kinds)) or 'no kind'}; one kind makes a data set")
    kind = kernel_of(kinds.pop())
    assert kind.flop is not None  # every kind of convolution has one
    inputs, gflop = [], []
    for workload in dict.fromkeys(workloads):
        with tvm.open_series(workload, threads=threads, seed=seed, pin=pin) as runner:
            drawn = candidates(runner.space, trials, seed)
            for group, times in rounds(drawn, passes):
                for _ in measure_missing(store, runner, group, times=times):
                    pass
            device, wanted = runner.device, set(drawn)
        found = [records for records in by_input(store.rows(workload=workload, device=device.name)) if records[0].index in wanted]
        inputs += [[in_plain_columns(record) for record in records] for records in found]
        gflop += len(found) * [kind.flop(workload.params) / 1e9]
    frame = frame_of(inputs).assign(gflop=gflop)
    first = inputs[0][0]
    return Dataset(f"{kind.name} by TVM", frame, kind, device, tuple(first.workload.params), tuple(first.config), source="measured by this run")


def _dataset(name: str, attempts: Iterable[Measurement], kernel: str, device: Device, parameters: Sequence[str], knobs: Sequence[str]) -> Dataset:
    """Inputs with a time, each with its label, as `timestamp` the start of its first attempt and as `pass_s` the seconds of all its attempts."""
    inputs = by_input(attempts)
    frame = to_frame(dataclasses.replace(label(records), timestamp=records[0].timestamp) for records in inputs)
    frame["pass_s"] = [times_of(records) for records in inputs]
    data = Dataset(name, frame, kernel_of(kernel), device, tuple(parameters), tuple(knobs), source="measured by this run")
    if data.valid.empty:
        first = next(iter(chain.from_iterable(inputs)), None)
        raise DataError(f"{name}: none of {len(inputs)} inputs has a time" + (f"; the first says: {first.status}, {first.error}" if first else ""))
    return dataclasses.replace(data, frame=data.valid)
