"""Invented data sets of the shapes of the published ones, and where the published ones are."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from workbench.data.datasets import Dataset
from workbench.kernels import kernel
from workbench.schema import Device

Invent = Callable[..., Dataset]

CPU = Device("invented-cpu", "cpu", max_threads=8)
GPU = Device("invented-gpu", "gpu")
MATRIX = {"mm": ("m", "n", "k", "d1", "d2"), "mv": ("m", "n", "d1"), "mc": ("m", "n", "r", "d1"), "mp": ("m", "n", "r", "s", "d1")}
SCHEDULES = {
    ("blur", "cpu"): ("s1", "s2", "s3", "s4"),
    ("blur_gpu", "gpu"): ("y_split", "x_tile", "vector"),
    ("fft", "cpu"): ("s1", "s2", "s3", "s4", "s5", "s6"),
    ("fft", "gpu"): ("s1", "s2", "s3", "s4", "s5", "s6"),
}


def invented(name: str, kind: str, rows: int = 90, seed: int = 0, noise: float = 0.05) -> Dataset:
    """Rows drawn at random and a time that follows a simple law of them: the work over the threads, and a start-up cost."""
    rng = np.random.default_rng(seed)
    values: dict[str, np.ndarray] = {}
    if name in MATRIX:
        parameters, knobs = MATRIX[name], ("threads",) if kind == "cpu" else ()
        for column in parameters:
            if column.startswith("d"):
                values[column] = 2.0 ** -rng.integers(0, 6, rows)
            elif column in ("r", "s"):
                values[column] = rng.choice([3, 5, 7] if name == "mc" else [2, 3, 4, 5] if column == "r" else [1, 2], rows)
            else:
                values[column] = rng.integers(8, 1025, rows)
        if knobs:
            values["threads"] = rng.integers(1, 9, rows)
        values["c"] = kernel(name).complexity({p: np.asarray(v, dtype=float) for p, v in values.items()})  # type: ignore[misc]
    else:
        parameters, knobs = ("n",), SCHEDULES[name, kind]
        values["n"] = 2 ** rng.integers(10 if name != "fft" else 4, 15 if name != "fft" else 8, rows)
        for column in knobs:
            values[column] = 2 ** rng.integers(1, 7, rows)
        values["c"] = values["n"].astype(float) ** 2
    work = 1e-9 * values["c"] / values.get("threads", np.ones(rows)) + 1e-6 * (1 + values.get("s1", np.zeros(rows)))
    frame = pd.DataFrame(values).assign(time_s=(work + 2e-5) * np.exp(noise * rng.standard_normal(rows)), status="ok")
    return Dataset(f"invented-{name}-{kind}", frame, kernel(name), CPU if kind == "cpu" else GPU, parameters, knobs)


@pytest.fixture(scope="session")
def invent() -> Invent:
    return invented


@pytest.fixture(scope="session")
def mirror() -> None:
    if not os.environ.get("WORKBENCH_MIRROR"):
        pytest.skip("WORKBENCH_MIRROR is not set: the published measurements are out of reach")
