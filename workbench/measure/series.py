"""The series that a store has: each can become one data set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.data.columns import knob_columns, workload_columns
from workbench.data.store import Store
from workbench.errors import UsageError
from workbench.kernels import kernel as kernel_of
from workbench.kernels import networks
from workbench.kernels.conv import CPU, GPU
from workbench.kernels.conv import KERNELS as CONVOLUTIONS
from workbench.kernels.halide import PROBLEMS
from workbench.kernels.halide.fft import POINTS
from workbench.kernels.matrix import KERNELS, LIBRARIES
from workbench.measure import halide, native, tvm
from workbench.measure.cuda import live
from workbench.measure.passes import Inputs, by_input, passes
from workbench.measure.provenance import recorded
from workbench.schema import Measurement, Workload

__all__ = ["Series", "in_plain_columns", "series_of"]

_MATRIX_NOTES = ("Inputs are single precision; a matrix of a density below one half is held as a sparse one.",)
_HALIDE_NOTES = {"fft": (f"A call transforms a batch of images, {POINTS:,} / n^2 of them, one after the other; a time is that of one image.",)}
_AUTOSCHEDULER_NOTES = (
    "Each was told the number of threads, and Mullapudi2016 also Halide's generic machine: a last cache of 16 MiB, a load as dear as 40 operations.",
)
_CONVOLUTION_NOTES = {
    ("conv2d_winograd", CPU): ("The whole convolution is timed, the transform of the weights too, though they are constant in a network.",),
}
_COMPARED = {CPU: "numpy's", GPU: "a direct computation in double precision, which was compared with numpy's"}


@dataclass(frozen=True)
class Series:
    """Measurements that belong together.

    Attributes:
        name: what tells it from the other series of its store, such as "mm-eigen", "blur" or "blur-autoschedulers".
        kernel, parameters, knobs: what was measured, and the columns that say which workload and which configuration.
        inputs: the attempts of each input, in the order in which they were made.
        provenance: how it was measured, as the store states it.
        command: the command line that makes it.
        versions: package -> version.
        notes: traits that a reader of its times must know.
        columns: name -> what else is known of each input, such as `gflop`, the floating-point operations of a run in units of 10^9.
    """

    name: str
    kernel: str
    parameters: tuple[str, ...]
    knobs: tuple[str, ...]
    inputs: Inputs
    provenance: Mapping[str, str]
    command: str
    versions: Mapping[str, str]
    notes: tuple[str, ...]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def series_of(store: Store) -> list[Series]:
    """Every series of a store, by kernel and space; records of anything else are left out.

    Raises:
        UsageError: no series, several devices, or Halide measurements of one kernel that differ in threads or in how they were made.
        DataError: the store does not say how a series was measured.
        StoreError: the store cannot be read.
    """
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for record in store.rows():  # once: another process may be adding to it
        kernel, space = record.workload.kernel, record.space
        of_matrix = kernel in KERNELS and space in LIBRARIES
        of_halide = kernel in PROBLEMS and space in (halide.SPACE, halide.AUTOSCHEDULER_SPACE)
        of_tvm = kernel in CONVOLUTIONS and space in (CPU, GPU)
        if of_matrix or of_halide or of_tvm:
            groups.setdefault((kernel, space, record.device), []).append(record)
    if not groups:
        raise UsageError(
            f"{store.path}: it has no measurements of matrix kernels, Halide's schedules or convolutions; "
            f"make some with: workbench measure matrix --output {store.path}"
        )
    if len(devices := {device for _, _, device in groups}) > 1:
        raise UsageError(f"{store.path}: its measurements are of several devices ({', '.join(sorted(devices))}); a data set has one: use a store for each")
    device = devices.pop()
    inputs = {(kernel, space): by_input(records) for (kernel, space, _), records in sorted(groups.items())}
    found = [_matrix(store, kernel, space, device, of_space) for (kernel, space), of_space in inputs.items() if kernel in KERNELS]
    for kernel in PROBLEMS:
        found += _halide(store, kernel, device, inputs.get((kernel, halide.SPACE), []), inputs.get((kernel, halide.AUTOSCHEDULER_SPACE), []))
    return found + [_convolutions(store, kernel, space, device, of_kernel) for (kernel, space), of_kernel in inputs.items() if space in (CPU, GPU)]


def _matrix(store: Store, kernel: str, library: str, device: str, inputs: Inputs) -> Series:
    provenance = recorded(store, native.series(kernel, library, device), f"{kernel} in {library}")
    package, _, version = provenance.get("headers", "").partition(" ")
    return Series(
        name=f"{kernel}-{library}",
        kernel=kernel,
        parameters=KERNELS[kernel].parameters,
        knobs=("threads",),
        inputs=inputs,
        provenance=provenance,
        command=f"{provenance['command']} --instances {len(inputs)}{_option(inputs)}",
        versions={package: version} if package else {},
        notes=_MATRIX_NOTES,
    )


def _halide(store: Store, kernel: str, device: str, schedules: Inputs, choices: Inputs) -> list[Series]:
    """The series of a kernel's schedules and that of the autoschedulers' choices, of which either may be missing."""
    workloads = sorted({attempts[0].workload for attempts in (*schedules, *choices)}, key=lambda workload: workload.key)
    if not workloads:
        return []
    if len(threads := sorted({str(workload.params.get("threads")) for workload in workloads})) > 1:
        raise UsageError(
            f"{store.path}: its measurements of {kernel} are on {' and on '.join(threads)} threads; a data set has one number of them: use a store for each"
        )
    provenance, *others = [recorded(store, halide.series(workload, device), workload.key) for workload in workloads]
    for workload, other in zip(workloads[1:], others, strict=True):
        for key, value in provenance.items():
            if other.get(key, value) != value:
                raise UsageError(
                    f"{store.path}: its measurements of {workloads[0].key} have {key} {value!r}, those of {workload.key} {other[key]!r}; "
                    "a data set has one: use a store for each"
                )
    package, _, version = provenance["compiler"].partition(" ")
    of_schedules = Series(
        name=kernel,
        kernel=kernel,
        parameters=("n",),
        knobs=kernel_of(kernel).space(workloads[0], halide.SPACE).names,
        inputs=schedules,
        provenance=provenance,
        command=_halide_command(provenance["command"], schedules, choices),
        versions={package.lower(): version},
        notes=_HALIDE_NOTES.get(kernel, ()),
    )
    of_choices = replace(
        of_schedules, name=f"{kernel}-autoschedulers", knobs=("scheduler",), inputs=choices, notes=(*of_schedules.notes, *_AUTOSCHEDULER_NOTES)
    )
    return [series for series in (of_schedules, of_choices) if series.inputs]


def _halide_command(made_by: str, schedules: Inputs, choices: Inputs) -> str:
    """One command line for all sizes of which as many schedules were measured as often."""
    drawn, chosen = _by_size(schedules), _by_size(choices)
    sizes: dict[str, list[int]] = {}
    for n in sorted({*drawn, *chosen}):
        of_n = drawn.get(n, [])
        options = f"--schedules {len(of_n)}{' --autoschedulers' if n in chosen else ''}{_option(of_n or chosen[n])}"
        sizes.setdefault(options, []).append(n)
    return " && ".join(f"{made_by} {' '.join(f'--n {n}' for n in of_size)} {options}" for options, of_size in sizes.items())


def _by_size(inputs: Iterable[Sequence[Measurement]]) -> dict[int, list[Sequence[Measurement]]]:
    sizes: dict[int, list[Sequence[Measurement]]] = {}
    for attempts in inputs:
        sizes.setdefault(int(attempts[0].workload.params["n"]), []).append(attempts)  # type: ignore[arg-type]
    return sizes


def _convolutions(store: Store, kernel: str, space: str, device: str, inputs: Inputs) -> Series:
    """The series of a kind of convolution; tiles, strides and paddings become columns of their parts."""
    note = tvm.series(kernel, device) if space == CPU else live.series(kernel, device)
    provenance = recorded(store, note, f"{kernel} in {space}")
    kind, workloads = kernel_of(kernel), [attempts[0].workload for attempts in inputs]
    assert kind.flop is not None  # every kind of convolution has one
    flat = [[in_plain_columns(attempt) for attempt in attempts] for attempts in inputs]
    version = provenance["compiler"].partition(",")[0].removeprefix("TVM ")
    return Series(
        name=kernel,
        kernel=kernel,
        parameters=tuple(flat[0][0].workload.params),
        knobs=tuple(flat[0][0].config),
        inputs=flat,
        provenance=provenance,
        command=_convolutions_command(provenance["command"], inputs),
        versions={"apache-tvm": version},
        notes=(f"Configurations are drawn uniformly; the output of each was compared with {_COMPARED[space]}.", *_CONVOLUTION_NOTES.get((kernel, space), ())),
        columns={"gflop": [kind.flop(workload.params) / 1e9 for workload in workloads]},
    )


def in_plain_columns(attempt: Measurement) -> Measurement:
    """A convolution's measurement with a parameter and a knob for each part of a stride, a padding or a tile (`workbench.data.columns`)."""
    return replace(attempt, workload=Workload(attempt.workload.kernel, workload_columns(attempt.workload)), config=knob_columns(attempt.config))


def _convolutions_command(made_by: str, inputs: Inputs) -> str:
    """One command line for all layers of a network of which as many configurations were measured as often, and one for the training kernels."""
    groups: dict[Workload, list[Sequence[Measurement]]] = {}
    for attempts in inputs:
        groups.setdefault(attempts[0].workload, []).append(attempts)
    options = {workload: f"--trials {len(of_workload)}{_option(of_workload)}" for workload, of_workload in groups.items()}
    commands = []
    layers = {name: [layer.workload for layer in networks.network(name)] for name in networks.networks()}
    # A layer may be in several networks: those come first of which the most was measured.
    for name in sorted(layers, key=lambda name: -len({*layers[name]} & {*options})):
        numbers: dict[str, list[int]] = {}
        for number, workload in enumerate(layers[name], 1):
            if workload in options:
                numbers.setdefault(options.pop(workload), []).append(number)
        for with_options, chosen in numbers.items():
            which = "" if len(chosen) == len(layers[name]) else "".join(f" --layer {number}" for number in chosen)
            commands.append(f"{made_by} --network {name}{which} {with_options}")
    training = set(networks.training_kernels())
    commands += dict.fromkeys(f"{made_by} --set training {with_options}" for workload, with_options in options.items() if workload in training)
    return " && ".join(commands) or made_by


def _option(inputs: Inputs) -> str:
    return f" --passes {rounds}" if (rounds := passes(inputs)) > 1 else ""
