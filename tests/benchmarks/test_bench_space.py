"""A million decodes beside the scalar decoder that one would write first."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np
import pytest

from workbench.kernels import kernel
from workbench.space import Space

COUNT = 1_000_000
SUBSAMPLE = 20_000


@pytest.fixture(scope="module")
def space() -> Space:
    conv = kernel("conv2d")
    return conv.space(conv.workload({"n": 1, "ci": 128, "h": 112, "w": 112, "co": 128, "kh": 3, "kw": 3, "stride": (1, 1), "padding": (1, 1)}))


@pytest.fixture(scope="module")
def indices(space: Space) -> np.ndarray:
    return space.sample(COUNT, 0)


def scalar_tables() -> list[tuple[str, list[Any]]]:
    """Option lists of the layer above, made without the package."""

    def split(extent: int, parts: int) -> list[Any]:
        divisors = [d for d in range(1, extent + 1) if extent % d == 0]
        inner = (t for t in itertools.product(divisors, repeat=parts - 1) if extent % math.prod(t) == 0)
        return [(extent // math.prod(t), *reversed(t)) for t in inner]

    axes = [("tile_f", 128, 4), ("tile_y", 112, 4), ("tile_x", 112, 4), ("tile_rc", 128, 2), ("tile_ry", 3, 2), ("tile_rx", 3, 2)]
    return [*((name, split(extent, parts)) for name, extent, parts in axes), ("auto_unroll_max_step", [0, 512, 1500]), ("unroll_explicit", [0, 1])]


def scalar_decode(tables: list[tuple[str, list[Any]]], index: int) -> dict[str, Any]:
    values = {}
    for name, options in tables:
        index, digit = divmod(index, len(options))
        values[name] = options[digit]
    return values


def test_a_million_decodes(benchmark: Any, space: Space, indices: np.ndarray) -> None:
    decoded = benchmark.pedantic(space.decode, args=(indices,), rounds=5, warmup_rounds=1)
    tables, few = scalar_tables(), indices[:SUBSAMPLE].tolist()
    scalar_decode(tables, few[0])
    start = time.perf_counter()
    peer = [scalar_decode(tables, index) for index in few]
    peer_ns = (time.perf_counter() - start) / SUBSAMPLE * 1e9
    for row in range(0, SUBSAMPLE, 997):
        assert {name: tuple(column[row].tolist()) if column.ndim == 2 else column[row] for name, column in decoded.items()} == peer[row]
    ours_ns = benchmark.stats.stats.median / COUNT * 1e9
    benchmark.extra_info |= {"ns_a_decode": round(ours_ns, 1), "scalar_ns_a_decode": round(peer_ns, 1), "times_faster": round(peer_ns / ours_ns, 1)}
    print(f"\n{ours_ns:.0f} ns a decode, scalar Python {peer_ns:.0f} ns: {peer_ns / ours_ns:.0f} times faster")
    assert benchmark.stats.stats.median < 1.5


def test_a_million_encodes(benchmark: Any, space: Space, indices: np.ndarray) -> None:
    decoded = space.decode(indices)
    encoded = benchmark.pedantic(space.encode, args=(decoded,), rounds=3, warmup_rounds=1)
    np.testing.assert_array_equal(encoded, indices)


def test_a_million_samples_under_a_limit(benchmark: Any, space: Space) -> None:
    limited = space.restrict(kernel("conv2d").at_most_threads(1024))
    sampled = benchmark.pedantic(limited.sample, args=(COUNT, 0), rounds=3)
    assert len(sampled) == COUNT
