"""What variant selection speaks of: a variant, the choice of one, and the trained model of a data set with the variants that it can predict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real

import numpy as np
import pandas as pd

from workbench.data.datasets import Dataset
from workbench.errors import UsageError
from workbench.kernels.base import Kernel
from workbench.kernels.matrix import INSTANCES
from workbench.models.base import CostModel
from workbench.schema import Device, Status

__all__ = ["Choice", "Number", "Source", "Variant", "complete", "duration"]

Number = int | float

# Beyond it a float skips whole numbers.
_LARGEST = 2**53


@dataclass(frozen=True)
class Variant:
    """One way to run a kernel.

    Attributes:
        data_set: the data set whose model predicts its time.
        device: name of the device.
        library: "eigen", "boost", ... or "" where the data do not say.
        threads: number of threads, None where the data do not say.
        schedule: the other knobs, such as Halide's split factors.
    """

    data_set: str
    device: str
    library: str = ""
    threads: int | None = None
    schedule: Mapping[str, Number] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        threads = [] if self.threads is None else [f"{self.threads} thread{'s' if self.threads != 1 else ''}"]
        knobs = [" ".join(f"{name}={value}" for name, value in self.schedule.items())] if self.schedule else []
        parts = [*([self.library] if self.library else []), *knobs, *threads]
        return f"{', '.join(parts) or self.data_set} on {self.device}"


@dataclass(frozen=True)
class Choice:
    """The variant to run, and whether it pays to ask.

    Attributes:
        variant: predicted to be the fastest.
        predicted_s: its predicted time in seconds.
        runner_up: the next one, None where there is only one variant.
        runner_up_s: its predicted time.
        default: the variant that is best on average over the training rows; None where it cannot run these inputs.
        default_s: its predicted time.
        gain_s: predicted seconds that a run of `variant` saves over one of `default`, 0 or more; None without a default.
        cost_s: seconds that one answer of `Selector.choose` takes, measured on the machine that asks.
        pays: whether one run gains more than asking costs.
        variants: how many were compared.
        compile_s: median seconds to compile a schedule, as recorded with the training rows; None where nothing is compiled or recorded.
        runs_to_pay: runs after which the gain has paid for asking and compiling; None where nothing is gained.
        notes: what the reader must know, a sentence each: inputs outside the training rows, a runner-up as close as the models' error, inputs so small that
            asking never pays, and what holds of the data (the selector's own notes).
    """

    variant: Variant
    predicted_s: float
    runner_up: Variant | None
    runner_up_s: float | None
    default: Variant | None
    default_s: float | None
    gain_s: float | None
    cost_s: float
    pays: bool
    variants: int
    compile_s: float | None = None
    runs_to_pay: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A model with what it was trained on and the variants that it predicts.

    Attributes:
        data_set, sha256, device: the data set, its files' checksums, and what it was measured on.
        library: of all its rows, "" where the data do not say.
        threads: of all its rows where it is no knob, None where it is one or the data do not say.
        knobs: the knobs that tell its variants apart.
        space: the kernel's configuration space that its variants are, "" where `configs` lists them.
        configs: knob values of each variant; of a space only the one that is best on average.
        averages: geometric mean of the predicted seconds of each of `configs` over the inputs of the training rows.
        ranges: parameter -> least and largest value in the training rows.
        rows: valid rows of the data set. trained: how many of them trained, drawn with `seed`. recipe: how.
        mape: error on the other rows in percent, by the papers' rule (without the fastest 30%); None where too few were left.
        compile_s: median seconds to compile one of the training rows, None where not recorded.
        model: predicts seconds.
        measured: of a space, what was measured of it: column (parameters, knobs, "time_s") -> values, so that who tries a few can learn from it. Else empty.
    """

    data_set: str
    sha256: Mapping[str, str]
    device: Device
    library: str
    threads: int | None
    knobs: tuple[str, ...]
    space: str
    configs: tuple[Mapping[str, Number], ...]
    averages: tuple[float, ...]
    ranges: Mapping[str, tuple[float, float]]
    rows: int
    trained: int
    seed: int
    recipe: str
    mape: float | None
    compile_s: float | None
    model: CostModel
    measured: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def measurements(self, kernel: Kernel) -> Dataset | None:
        """What was measured as a data set, None where nothing is kept."""
        if not self.measured:
            return None
        frame = pd.DataFrame({name: np.array(values) for name, values in self.measured.items()}).assign(status=Status.OK.value)
        return Dataset(self.data_set, frame, kernel, self.device, kernel.parameters, self.knobs)

    def variant(self, config: Mapping[str, Number]) -> Variant:
        """The variant of a configuration: the knob `threads` is its number of threads, the others are its schedule."""
        threads = int(config["threads"]) if "threads" in config else self.threads
        return Variant(self.data_set, self.device.name, self.library, threads, {name: value for name, value in config.items() if name != "threads"})


def complete(kernel: Kernel, inputs: Mapping[str, Number]) -> dict[str, Number]:
    """All parameters of a kernel in its order: densities that are left out are 1, and so is the stride s.

    Raises:
        UsageError: an unknown or missing parameter, a density outside 0 to 1, anything else that is no whole number from 1 to 2^53, a matrix smaller than its
            window.
    """
    defaults = {name: 1 for name in kernel.parameters if _is_density(name) or name == "s"}
    params = kernel.workload({**defaults, **inputs}).params
    out: dict[str, Number] = {}
    for name in kernel.parameters:
        value = params[name]
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value <= 0:
            raise UsageError(f"kernel {kernel.name!r}: {name} is {value!r}; it is a positive number")
        if _is_density(name) and value > 1:
            raise UsageError(f"kernel {kernel.name!r}: {name} is {value!r}; a density is at most 1")
        if not _is_density(name) and value != int(value):
            raise UsageError(f"kernel {kernel.name!r}: {name} is {value!r}; it is a whole number")
        if value > _LARGEST:
            raise UsageError(f"kernel {kernel.name!r}: {name} is {value:g}; it is at most 2^53")
        out[name] = int(value) if value == int(value) else float(value)
    for name, least in (INSTANCES[kernel.name].at_least if kernel.name in INSTANCES else {}).items():
        if out[name] < out[least]:
            raise UsageError(f"kernel {kernel.name!r}: {name} is {out[name]!r}, less than {least} = {out[least]!r}; the window must fit into the matrix")
    return out


def _is_density(name: str) -> bool:
    # As in the published files: d1 of the first matrix, d2 of the second.
    return name[0] == "d" and name[1:].isdigit()


def duration(seconds: float) -> str:
    """Seconds for print, in s, ms or us, to three digits."""
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
