"""Invented data sets whose fastest variants are known by formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.data.datasets import Dataset
from workbench.kernels import kernel
from workbench.schema import Device
from workbench.tune.select import Selector, train_selector

CPU = Device("invented-cpu", "cpu", "Invented", max_threads=8)


def seconds(library: str, c: Any, threads: Any) -> Any:
    """Eigen works on several threads and takes 5 us to start each; Boost is three times slower and starts at once."""
    return 2e-7 + 3e-9 * c if library == "boost" else 5e-6 * threads + 1e-9 * c / threads


def matrix(library: str, name: str = "mm", threads: tuple[int, ...] = (1,), rows: int = 120, seed: int = 0, device: Device = CPU, tag: str = "") -> Dataset:
    """A matrix kernel in a library, with times of the law above and 1% of noise."""
    rng = np.random.default_rng(seed)
    found = kernel(name)
    values: dict[str, np.ndarray] = {
        p: 2.0 ** -rng.integers(0, 4, rows) if p.startswith("d") else np.exp(rng.uniform(0, np.log(1024), rows)).round().astype(int) for p in found.parameters
    }
    for p in {"r", "s"} & set(values):
        values[p] = rng.integers(1, 3, rows)
    count = np.asarray(found.complexity({p: v.astype(float) for p, v in values.items()}))  # type: ignore[misc]
    used = rng.choice(threads, rows)
    time = seconds(library, count, used) * np.exp(0.01 * rng.standard_normal(rows))
    frame = pd.DataFrame(values).assign(space=library, threads=used, status="ok", time_s=time)
    return Dataset(f"invented{tag}-{name}-{library}", frame, found, device, found.parameters, ("threads",), sha256={"rows.parquet": "0" * 64})


def schedule_seconds(frame: pd.DataFrame) -> Any:
    """The best schedule of every size has s1 = 16 and the largest s2 and s4; s3 does not matter."""
    return 1e-9 * frame["n"] ** 2 * (1 + 0.4 * np.abs(np.log2(frame["s1"]) - 4) + 4 / frame["s2"] + 8 / frame["s4"])


def blur(rows: int = 150, seed: int = 0, sizes: tuple[int, ...] = (64, 128, 256), threads: int = 1, tag: str = "") -> Dataset:
    """Blur's schedules with times of the law above."""
    found = kernel("blur")
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        space = found.space(found.workload({"n": n}), "workbench")
        parts.append(pd.DataFrame(space.decode(space.sample(rows // len(sizes), rng))).assign(n=n))
    frame = pd.concat(parts, ignore_index=True).assign(space="workbench", threads=threads, status="ok", compile_s=0.2)
    time = schedule_seconds(frame) / threads * np.exp(0.01 * rng.standard_normal(len(frame)))
    return Dataset(f"invented{tag}-blur", frame.assign(time_s=time), found, CPU, ("n",), ("s1", "s2", "s3", "s4"), sha256={"rows.parquet": "1" * 64})


@pytest.fixture(scope="session")
def invented_matrix() -> Callable[..., Dataset]:
    return matrix


@pytest.fixture(scope="session")
def invented_blur() -> Callable[..., Dataset]:
    return blur


@pytest.fixture(scope="session")
def law() -> Callable[..., Any]:
    return seconds


@pytest.fixture(scope="session")
def schedule_law() -> Callable[..., Any]:
    return schedule_seconds


@pytest.fixture(scope="session")
def mm() -> Selector:
    """Eigen on 1, 2 or 8 threads and Boost on one."""
    return train_selector([matrix("eigen", threads=(1, 2, 8), rows=240), matrix("boost", seed=1)], train=200)


@pytest.fixture(scope="session")
def blurred() -> Selector:
    return train_selector([blur()], train=120)
