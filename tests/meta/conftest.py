"""Invented kernels: sinusoids of one input, as in MAML's own toy, each with an amplitude and a phase of its own."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from workbench.meta.tasks import Pool


def sinusoid(rng: np.random.Generator, rows: int = 40) -> list[np.ndarray]:
    amplitude, phase, x = rng.uniform(0.1, 5), rng.uniform(0, np.pi), rng.uniform(-5, 5, (rows, 1))
    return [x, amplitude * np.sin(x[:, 0] - phase)]


@pytest.fixture(scope="session")
def sinusoids() -> Pool:
    rng = np.random.default_rng(0)
    return Pool.of([sinusoid(rng) for _ in range(100)])


@pytest.fixture(scope="session")
def small_net():
    """Makes a network of one input."""
    return lambda: nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
