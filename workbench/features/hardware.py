"""Hardware terms: what a configuration of a convolution layer asks of a device, from its loop nest and what is known of the device.

All are base-2 logarithms but for shares, which are from 0 to 1. The nest of the statement that adds up products is what is looked at; winograd's transforms are
the same in every configuration. Elements are float32. A device's figures appear in terms that relate a configuration to them, never its name; a term that needs
a figure which is not known of the device is left out. Nothing is known of caches, so working sets stand as bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UsageError
from workbench.kernels.base import Kernel
from workbench.kernels.limits import GpuLimits
from workbench.loopnest import Access, Buffer, Loop, LoopNest, NestBatch, Number
from workbench.schema import Device, Workload

__all__ = ["HardwareTerms"]

_Floats = NDArray[np.float32]
_BYTES = 4
_CHUNK = 16384
_LIMITS = GpuLimits()
_REGISTERS = 255  # of a thread: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", 3.5 and later


@dataclass(frozen=True)
class HardwareTerms:
    """Hardware terms of the configurations of a workload in one space, on a device.

    On a GPU:
        threads, virtual_threads, blocks: of a block, of a thread, and in all.
        steps: times that a block fetches.
        shared_bytes: that a block holds.
        accumulators, outputs: sums that a thread holds, with and without those of its virtual threads.
        body: products of a thread between two fetches.
        reads_per_product: numbers read from shared memory for a product, where a thread keeps in registers what it uses again.
        registers, spill: accumulators and what is kept so, for want of a count; and how many times the most that a thread may have, 0 where it is less.
        occupancy: share of the threads that one block may have, of blocks that fit side by side into the threads and the shared memory that one block may have.
        within_limits: 1 where the limits of every CUDA device are kept (`kernels.limits.GpuLimits`), else 0.
        traffic_bytes: fetched by all blocks, and written once.
        data_bytes, data_reads, data_passes, data_traffic, and those of weight, of what is fetched into shared memory: what of shared_bytes it is; the numbers
            of it that a thread keeps in registers for each step of its sums; how many numbers a thread brings at most each time; and bytes of traffic for a
            floating-point operation.

    On a CPU:
        tasks: iterations of the parallel loop.
        work_per_task: floating-point operations of one.
        vector: length of the innermost loop.
        accumulators: sums that are added up at once.
        inner_bytes, step_bytes, task_bytes: working sets, of an innermost tile, of a whole sum of one, and of a task.
        padded_bytes: written by padding.
        traffic_bytes: working sets of all tasks, padding, and the output written once.

    On both:
        intensity: floating-point operations for a byte of traffic.
        rounds, balance: threads of a GPU's blocks, or tasks, for each of the device's `max_threads`, and the share of those that work, on average over rounds.
        compute_s, traffic_s: seconds that operations take at the device's peak, and that traffic takes at its bandwidth.

    Args:
        kernel, workload: a layer.
        device: where it runs.
        space: name, None for the kernel's first.

    Raises:
        UsageError: the space is not there, has no loop nests or some that hold nothing in a GPU's shared memory, or is for another kind of device.
    """

    kernel: Kernel
    workload: Workload
    device: Device
    space: str | None = None

    def __post_init__(self) -> None:
        self.columns  # noqa: B018 what cannot be is said now

    @cached_property
    def _flop(self) -> float:
        if self.kernel.flop is None:
            raise UsageError(f"kernel {self.kernel.name!r} has no count of floating-point operations, so it has no hardware terms")
        return float(self.kernel.flop(self.workload.params))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the terms."""
        (_, nest), *_ = self._nests(np.arange(0)).parts
        return tuple(self._terms(nest))

    def of(self, indices: ArrayLike) -> _Floats:
        """Terms of configurations `indices` [n]: [n, columns], float32. Raises SpaceError for an index that is not in the space."""
        given = np.asarray(indices)
        found = np.empty((len(given), len(self.columns)), dtype=np.float32)
        for start in range(0, len(given), _CHUNK):
            for places, nest in self._nests(given[start : start + _CHUNK]).parts:
                for column, term in enumerate(self._terms(nest).values()):
                    found[start + places, column] = term
        return found

    def _nests(self, indices: NDArray[Any]) -> NestBatch:
        return self.kernel.loop_nest(self.workload, indices, self.space)

    def _terms(self, nest: LoopNest) -> dict[str, Any]:
        view = _View(nest)
        runs_on = "gpu" if any(loop.annotation.startswith("blockIdx") for loop in nest.loops) else "cpu"
        if self.device.kind != runs_on:
            space = self.kernel.space(self.workload, self.space).name
            raise UsageError(
                f"device {self.device.name!r} is a {self.device.kind}; configurations of {self.kernel.name!r} in the space {space!r} run on a {runs_on}"
            )
        terms, moved, threads = _gpu(view, self._flop) if runs_on == "gpu" else _cpu(view, self._flop)
        traffic = moved + view.written()
        terms |= {"traffic_bytes": np.log2(traffic), "intensity": np.log2(self._flop / traffic)}
        if self.device.max_threads:
            rounds = threads / self.device.max_threads
            terms |= {"rounds": np.log2(rounds), "balance": rounds / np.ceil(rounds)}
        if self.device.peak_gflops:
            terms["compute_s"] = math.log2(self._flop / (self.device.peak_gflops * 1e9))
        if self.device.bandwidth_gb_s:
            terms["traffic_s"] = np.log2(traffic / (self.device.bandwidth_gb_s * 1e9))
        return terms


class _View:
    # A nest from its statement that adds up: products over loops around it, as floats, of which none is too large.

    def __init__(self, nest: LoopNest) -> None:
        self._nest = nest
        self._statements = {statement.name: statement for statement in nest.statements}
        self.buffers = {buffer.name: buffer for buffer in nest.buffers}
        self.update = self._statements["update"]
        self.loops = [nest.loops[loop] for loop in nest.paths[self.update.loop]]

    def product(self, chosen: Callable[[Loop], bool]) -> Any:
        # Iterations of some of the loops.
        return math.prod(_float(loop.extent) for loop in self.loops if chosen(loop))

    def touched(self, access: Access, chosen: Callable[[Loop], bool]) -> Any:
        # Places that an access is at in some of the loops. Two that move it by turns, as over outputs and over the filter, may be at one place: at most all.
        places = math.prod(_moves(loop.extent, stride, mod) for loop, stride, mod in zip(self.loops, access.strides, access.mods, strict=True) if chosen(loop))
        return np.minimum(places, _size(self.buffers[access.buffer]))

    def loads(self) -> dict[str, Access]:
        # What the statement loads, by buffer.
        return {access.buffer: access for access in self.update.accesses if not access.store}

    def iterations(self, statement: str) -> Any:
        # How often a statement is carried out.
        return math.prod(_float(self._nest.loops[loop].extent) for loop in self._nest.paths[self._statements[statement].loop])

    def written(self) -> Any:
        # Bytes of the array that sums are written to.
        return _BYTES * _size(self.buffers[self._statements["write"].accesses[-1].buffer])


def _size(buffer: Buffer) -> Any:
    # Elements of a buffer.
    return math.prod(_float(extent) for extent in buffer.shape)


def _gpu(view: _View, flop: float) -> tuple[dict[str, Any], Any, Any]:
    # Terms; bytes that are fetched; threads of all blocks.
    def bound(to: str) -> Any:
        return view.product(lambda loop: loop.annotation.startswith(to))

    def kept(loop: Loop) -> bool:
        # Whether a thread goes through it with what it has in registers: outputs of its own.
        level, _, axis = loop.name.partition(".")
        return level == "vthread" or (level == "inner" and not axis.startswith("r"))

    if not any(buffer.scope == "shared" for buffer in view.buffers.values()):
        raise UsageError("no hardware terms for configurations that hold nothing in shared memory: they are of convolution layers, tiled for it")
    threads, virtual, blocks = bound("threadIdx"), bound("vthread"), bound("blockIdx")
    steps = view.product(lambda loop: loop.name.startswith(("step.", "middle.")))
    fetched = {name: _size(buffer) for name, buffer in view.buffers.items() if buffer.scope == "shared"}
    shared = _BYTES * sum(fetched.values())
    outputs = _size(view.buffers["sums"])
    sums = virtual * outputs
    reads = {name: view.touched(access, kept) for name, access in view.loads().items() if name in fetched}
    read = sum(reads.values())
    registers = sums + read
    fit = np.minimum(_LIMITS.threads // threads, _LIMITS.shared_bytes // shared)
    asked = {"threads": threads, "threads_z": bound("threadIdx.z"), "shared_bytes": shared, "local_bytes": _BYTES * sums, "virtual_threads": virtual}
    logarithms = {
        "threads": threads,
        "virtual_threads": virtual,
        "blocks": blocks,
        "steps": steps,
        "shared_bytes": shared,
        "accumulators": sums,
        "outputs": outputs,
        "registers": registers,
        "spill": np.maximum(registers / _REGISTERS, 1),
        "body": virtual * view.product(lambda loop: loop.name.startswith("inner.")),
        "reads_per_product": read / view.product(kept),
    }
    for name, size in fetched.items():
        of = name.removesuffix(".shared")
        logarithms |= {
            f"{of}_bytes": _BYTES * size,
            f"{of}_reads": reads[name],
            f"{of}_passes": np.ceil(size / threads),
            f"{of}_traffic": _BYTES * blocks * steps * size / flop,
        }
    shares = {
        "occupancy": fit * threads / _LIMITS.threads,
        "within_limits": reduce(np.logical_and, (value <= getattr(_LIMITS, name) for name, value in asked.items())),
    }
    return {**{name: np.log2(value) for name, value in logarithms.items()}, **shares}, blocks * steps * shared, blocks * threads


def _cpu(view: _View, flop: float) -> tuple[dict[str, Any], Any, Any]:
    # Terms; bytes of working sets and padding; tasks.
    def working_set(chosen: Callable[[Loop], bool]) -> Any:
        return _BYTES * sum(view.touched(access, chosen) for access in view.loads().values())

    tasks = view.product(lambda loop: loop.annotation == "parallel")
    task = working_set(lambda loop: loop.annotation != "parallel")
    padded = _BYTES * view.iterations("pad")
    logarithms = {
        "tasks": tasks,
        "work_per_task": flop / tasks,
        "vector": _float(view.loops[-1].extent),
        "accumulators": _size(view.buffers["sums"]),
        "inner_bytes": working_set(lambda loop: loop.name.startswith("inner.")),
        "step_bytes": working_set(lambda loop: loop.name.startswith(("inner.", "step."))),
        "task_bytes": task,
        "padded_bytes": padded,
    }
    return {name: np.log2(value) for name, value in logarithms.items()}, tasks * task + padded, tasks


def _float(number: Number) -> Any:
    return number.astype(np.float64) if isinstance(number, np.ndarray) else float(number)


def _moves(extent: Number, stride: Number, mod: Number) -> Any:
    # Places that a loop leads to: an access that stands still for some iterations is at one in them.
    if not isinstance(stride, np.ndarray) and stride:
        return _float(extent)
    stays = np.where(mod > 0, mod, extent) if isinstance(mod, np.ndarray) else mod if mod > 0 else extent
    return _float(extent) / (np.where(stride != 0, 1, stays) if isinstance(stride, np.ndarray) else stays)
