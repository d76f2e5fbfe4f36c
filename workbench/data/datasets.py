"""The catalogue: a name gives a tidy frame, its kernel, its device and its licence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from workbench.kernels.base import Kernel
from workbench.schema import Device

__all__ = ["Dataset"]


@dataclass(frozen=True)
class Dataset:
    """Measurements of one kernel on one device as a tidy frame.

    Attributes:
        name: name in the catalogue, such as "nnc-mm-i5-500".
        frame: one row an attempt, in the order of the source. Columns: `status` (values of Status), `time_s` (NaN unless ok), the columns named in
            `parameters` and `knobs`, and what else the source records (`times_s` statistics, `compile_s`, `gflop`, ...).
        kernel: what was measured.
        device: where.
        parameters: columns that say which workload a row is of (sizes, densities).
        knobs: columns that say which configuration (threads, tiles, vector widths).
        licence: SPDX name, or "none stated".
        source: where it comes from, in one line for print.
        sha256: file -> checksum of every file it was read from.
        notes: traits that a reader of a result must know, a sentence each.
    """

    name: str
    frame: pd.DataFrame
    kernel: Kernel
    device: Device
    parameters: tuple[str, ...]
    knobs: tuple[str, ...] = ()
    licence: str = "none stated"
    source: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that a model may see: parameters, then knobs."""
        return self.parameters + self.knobs

    @property
    def valid(self) -> pd.DataFrame:
        """Rows whose status is ok, with a fresh index."""
        return self.frame[self.frame["status"] == "ok"].reset_index(drop=True)
