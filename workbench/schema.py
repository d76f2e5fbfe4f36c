"""One versioned record for every measurement: workload, device, status, measurement.

A row is one timing attempt of one configuration of one workload on one device. Units are part of the names: `time_s`, `compile_s`, `gflop`. A failure
has no number: its `time_s` is None (NaN in a frame) and its `status` says why, never 0 and never 1e10.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from workbench.errors import DataError

__all__ = ["SCHEMA_VERSION", "Device", "Measurement", "Status", "Value", "Workload"]

SCHEMA_VERSION = 1

Value = int | float | str | tuple[int, ...]


class Status(str, Enum):  # noqa: UP042 (StrEnum came with Python 3.11, and records are also written where an older one is)
    """How a timing attempt ended."""

    __str__ = str.__str__

    OK = "ok"
    INVALID_CONFIG = "invalid_config"
    COMPILE_ERROR = "compile_error"
    RUN_ERROR = "run_error"
    TIMEOUT = "timeout"
    WRONG_RESULT = "wrong_result"


@dataclass(frozen=True)
class Device:
    """What a kernel ran on.

    `peak_gflops` is the single-precision peak in GFLOP/s, `bandwidth_gb_s` the memory bandwidth in GB/s; both None where the vendor's figure is not known.
    """

    name: str
    kind: str  # "cpu" or "gpu"
    model: str = ""
    peak_gflops: float | None = None
    bandwidth_gb_s: float | None = None
    max_threads: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("cpu", "gpu"):
            raise DataError(f"device {self.name!r}: kind is {self.kind!r}; use 'cpu' or 'gpu'")


@dataclass(frozen=True)
class Workload:
    """One instance of a kernel: its name and parameters, such as `Workload("mm", {"m": 512, "n": 512, "k": 64})`."""

    kernel: str
    params: Mapping[str, Value] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Canonical text, equal for equal workloads: kernel and parameters as JSON with sorted keys."""
        return f"{self.kernel} {json.dumps(dict(self.params), sort_keys=True, separators=(',', ':'))}"

    def __hash__(self) -> int:
        return hash(self.key)

    @classmethod
    def from_key(cls, key: str) -> Workload:
        """Inverse of `key`. Raises DataError if the text is not a key."""
        kernel, _, text = key.partition(" ")
        try:
            params = json.loads(text)
            return cls(kernel, {k: tuple(v) if isinstance(v, list) else v for k, v in params.items()})
        except (ValueError, AttributeError, TypeError) as error:
            raise DataError(f"not a workload key: {key!r}") from error


@dataclass(frozen=True)
class Measurement:
    """One timing attempt.

    Attributes:
        workload: what was run.
        device: name of the device it ran on.
        space: name of the configuration space that `index` belongs to ("autotvm", "workbench", ...).
        index: index of the configuration in that space, or None where the space is not enumerated.
        config: knob name -> value.
        status: how it ended.
        time_s: the label in seconds (minimum or median, by the policy of the data set), None unless status is ok.
        times_s: every repeat in seconds.
        compile_s: seconds to build, None where not recorded.
        error: the reason of a failure, "" for ok.
        host, timestamp, load: where and when (seconds since 1970), and the machine's load average at that moment.
    """

    workload: Workload
    device: str
    status: Status
    time_s: float | None = None
    space: str = ""
    index: int | None = None
    config: Mapping[str, Value] = field(default_factory=dict)
    times_s: tuple[float, ...] = ()
    compile_s: float | None = None
    error: str = ""
    host: str = ""
    timestamp: float | None = None
    load: float | None = None
    version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", Status(self.status))
        if self.status is Status.OK:
            if self.time_s is None or not math.isfinite(self.time_s) or self.time_s <= 0:
                raise DataError(f"{self.workload.key}: status is ok but time_s is {self.time_s!r}; a success has a positive, finite time in seconds")
        elif self.time_s is not None:
            raise DataError(f"{self.workload.key}: status is {self.status} but time_s is {self.time_s!r}; a failure has no time")
        bad = [t for t in self.times_s if not (math.isfinite(t) and t > 0)]
        if bad:
            raise DataError(f"{self.workload.key}: repeat of {bad[0]!r} s; repeats are positive, finite seconds")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; `from_json` gives the same measurement back."""
        return {
            "version": self.version,
            "workload": self.workload.key,
            "device": self.device,
            "status": str(self.status),
            "time_s": self.time_s,
            "space": self.space,
            "index": self.index,
            "config": dict(self.config),
            "times_s": list(self.times_s),
            "compile_s": self.compile_s,
            "error": self.error,
            "host": self.host,
            "timestamp": self.timestamp,
            "load": self.load,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Measurement:
        """Build from `to_json`'s mapping. Raises DataError for another schema version, an unknown column or a missing one."""
        record = dict(record)
        version = record.get("version")
        if version != SCHEMA_VERSION:
            raise DataError(f"record of schema version {version!r}; this workbench reads version {SCHEMA_VERSION}")
        try:
            record["workload"] = Workload.from_key(record["workload"])
            record["config"] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.get("config", {}).items()}
            record["times_s"] = tuple(record.get("times_s", ()))
            return cls(**record)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"record is not a measurement: {error}") from error
