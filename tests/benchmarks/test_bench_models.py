"""Prediction and training of small models, each beside its peers in one run: `make bench`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from workbench.features.inputs import Term, evaluate
from workbench.models.compact import CompactModel
from workbench.models.compiled import compile_model
from workbench.models.evidence import SmallNet, fit_evidence
from workbench.models.interpreter import dispatcher
from workbench.models.nnc import Network
from workbench.models.training import forward, n_weights, train

ROWS = 100_000
MM = ("m", "n", "k", "d1", "d2", "threads", "c")


def seconds(call: Callable[[], object], repeats: int = 5, clock: Callable[[], float] = time.perf_counter) -> float:
    """Median of `repeats` calls after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(clock() - start)
    return float(np.median(times))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({c: rng.integers(1, 1025, ROWS).astype(float) for c in MM})


def network() -> Network:
    """NN+C for MM on a CPU: 7-7-1."""
    rng = np.random.default_rng(1)
    return Network("NN+C", tuple(Term("value", c) for c in MM), (7, 7, 1), rng.normal(size=64), np.full(7, 512.0), np.full(7, 300.0))


def compact() -> CompactModel:
    """The compact model of MM on a CPU at its largest: 10 inputs, 6 tanh units, 73 weights."""
    terms = (*(Term("log2", c) for c in MM), Term("inverse", "threads"), Term("emptied", "d1"), Term("emptied", "d2"))
    net = SmallNet(len(terms), 6)
    weights = np.random.default_rng(2).normal(size=net.n_parameters)
    return CompactModel("compact", terms, net, weights, np.full(10, 5.0), np.full(10, 3.0), -6.0, 0.5, 0.1)


def report(benchmark: Any, what: str, ours: float, unit: str, factor: float, peers: dict[str, float]) -> None:
    """Put our time and each peer's ratio into the record and on the screen."""
    benchmark.extra_info |= {f"{what}_{unit}": round(ours * factor, 4)}
    benchmark.extra_info |= {f"{name}_{unit}": round(t * factor, 4) for name, t in peers.items()}
    benchmark.extra_info |= {f"times_faster_than_{name}": round(t / ours, 1) for name, t in peers.items()}
    beside = ", ".join(f"{name} {t * factor:.3g} {unit} ({t / ours:.1f}x)" for name, t in peers.items())
    print(f"\n{what}: {ours * factor:.3g} {unit}; {beside}")


def numpy_network(model: Network, x: np.ndarray) -> np.ndarray:
    w = model.weights
    z = (x - model.centre) / model.scale
    return np.maximum(z @ w[:49].reshape(7, 7) + w[49:56], 0) @ w[56:63] + w[63]


def forest(x: np.ndarray, y: np.ndarray) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(200, max_features=1.0, random_state=0, n_jobs=1).fit(x[:250], y[:250])


def test_predicting_many_rows_of_a_network(benchmark: Any, frame: pd.DataFrame) -> None:
    model = network()
    fast = compile_model(model)
    values = frame[list(fast.columns)].to_numpy()
    theta, x = torch.from_numpy(model.weights)[None], torch.from_numpy((values - model.centre) / model.scale)[None]
    expected = model.predict_time_s(frame)
    np.testing.assert_allclose(fast.predict(values), expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(numpy_network(model, values), expected, rtol=1e-6, atol=1e-9)
    trees, few = forest(values, expected), values[:2000]
    benchmark.pedantic(fast.predict, args=(values,), rounds=20, warmup_rounds=1)
    peers = {
        "torch": seconds(lambda: forward(theta, x, model.layers)) / ROWS,
        "numpy": seconds(lambda: numpy_network(model, values)) / ROWS,
        "random_forest": seconds(lambda: trees.predict(few)) / len(few),
    }
    ours = benchmark.stats.stats.median / ROWS
    report(benchmark, "compiled", ours, "us a row", 1e6, peers)
    assert ours < 1e-6


def test_predicting_many_rows_of_the_compact_model(benchmark: Any, frame: pd.DataFrame) -> None:
    model = compact()
    fast = compile_model(model)
    values = frame[list(fast.columns)].to_numpy()
    np.testing.assert_allclose(fast.predict(values), model.predict_time_s(frame), rtol=1e-6)
    theta = torch.from_numpy(model.weights)[None]
    w1, a, w2, _, p0 = (part[0].numpy() for part in model.net.split(theta))

    def with_numpy() -> np.ndarray:
        z = (evaluate(frame, model.terms) - model.centre) / model.scale
        return np.exp((np.tanh(z @ w1.T + a) @ w2 + p0) * model.out_scale + model.out_centre)

    np.testing.assert_allclose(with_numpy(), fast.predict(values), rtol=1e-6)
    benchmark.pedantic(fast.predict, args=(values,), rounds=20, warmup_rounds=1)
    peers = {"torch": seconds(lambda: model.predict_time_s(frame)) / ROWS, "numpy": seconds(with_numpy) / ROWS}
    ours = benchmark.stats.stats.median / ROWS
    report(benchmark, "compiled", ours, "us a row", 1e6, peers)
    assert ours < 1e-6


def test_predicting_one_row(benchmark: Any, frame: pd.DataFrame) -> None:
    model = network()
    fast = compile_model(model)
    row = frame[list(fast.columns)].to_numpy()[0]
    values = row.tolist()
    theta, one = torch.from_numpy(model.weights)[None], torch.from_numpy(((row - model.centre) / model.scale)[None, None])
    trees = forest(frame.to_numpy(), frame["m"].to_numpy())
    benchmark.pedantic(fast.predict_one, args=tuple(values), rounds=50, iterations=1000, warmup_rounds=1)

    def often(call: Callable[[], object], times: int) -> float:
        def loop() -> None:
            for _ in range(times):
                call()

        return seconds(loop) / times

    peers = {
        "torch": often(lambda: forward(theta, one, model.layers), 500),
        "numpy": often(lambda: numpy_network(model, row[None]), 500),
        "random_forest": often(lambda: trees.predict(row[None]), 5),
    }
    report(benchmark, "one Python call", benchmark.stats.stats.median, "us", 1e6, peers)


@pytest.mark.parametrize("make", [network, compact], ids=["NN+C", "compact"])
def test_one_row_at_a_time_in_a_compiled_loop(benchmark: Any, make: Callable[[], Network | CompactModel], frame: pd.DataFrame) -> None:
    import numba

    model = make()
    fast, kernel = compile_model(model), dispatcher()

    @numba.njit
    def loop(plan: np.ndarray, numbers: np.ndarray, values: np.ndarray, out: np.ndarray) -> None:
        for i in range(len(values)):
            kernel(plan, numbers, values[i], out[i : i + 1], 0.0, 0.0, 0.0, 0.0, 0.0)

    values, out = np.ascontiguousarray(frame[list(fast.columns)].to_numpy()), np.empty(ROWS)
    benchmark.pedantic(loop, args=(fast.plan, fast.numbers, values, out), rounds=10, warmup_rounds=1)
    np.testing.assert_allclose(out, fast.predict(values), rtol=1e-12)
    report(benchmark, "one at a time", benchmark.stats.stats.median / ROWS, "us", 1e6, {"blocks": seconds(lambda: fast.predict(values)) / ROWS})
    # Processor time: what other programs take of a busy machine is not the prediction's. The wall time stands in the record.
    cpu = seconds(lambda: loop(fast.plan, fast.numbers, values, out), 15, time.process_time) / ROWS
    benchmark.extra_info["cpu_us"] = round(cpu * 1e6, 4)
    print(f"processor time {cpu * 1e6:.3g} us")
    assert cpu < 1e-6


def test_training_many_networks_at_once(benchmark: Any) -> None:
    """50 networks of 7-7-1 on 250 rows each, 200 epochs: ours as one batch, ours one after another, and one after another with autograd and torch's Adam."""
    count, epochs, layers = 50, 200, (7, 7, 1)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(count, 250, 7, generator=g)
    y = torch.sin(x[..., 0]) + x[..., 1] * x[..., 2]
    settings: dict[str, Any] = {"lr": 0.01, "epochs": epochs}
    done = benchmark.pedantic(lambda: train(x, y, layers, range(count), **settings), rounds=5, warmup_rounds=1)

    def one_by_one(few: int = 10) -> None:
        for i in range(few):
            alone = train(x[i : i + 1], y[i : i + 1], layers, [i], **settings)
            torch.testing.assert_close(alone.theta[0], done.theta[i], rtol=1e-3, atol=1e-3)

    def with_autograd(few: int = 2) -> None:
        for i in range(few):
            net = torch.nn.Sequential(torch.nn.Linear(7, 7), torch.nn.ReLU(), torch.nn.Linear(7, 1))
            assert sum(p.numel() for p in net.parameters()) == n_weights(layers)
            optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
            for _ in range(epochs):
                optimiser.zero_grad()
                torch.nn.functional.mse_loss(net(x[i])[:, 0], y[i]).backward()
                optimiser.step()

    peers = {"one_by_one": seconds(one_by_one, 3) / 10, "autograd": seconds(with_autograd, 3) / 2}
    report(benchmark, "batched", benchmark.stats.stats.median / count, "ms a network", 1e3, peers)


def test_evidence_fits_many_problems_at_once(benchmark: Any) -> None:
    """20 problems of 250 rows, 6 restarts each, 10 inputs and 4 tanh units: one batch beside one after another."""
    count, net = 20, SmallNet(10, 4)
    g = torch.Generator().manual_seed(0)
    z = torch.randn(count, 250, 10, generator=g, dtype=torch.float64)
    y = torch.tanh(z[..., 0]) + 0.3 * z[..., 1] + 0.05 * torch.randn(count, 250, generator=g, dtype=torch.float64)
    benchmark.pedantic(lambda: fit_evidence(net, z, y, steps=30), rounds=3, warmup_rounds=1)
    peers = {"one_by_one": seconds(lambda: [fit_evidence(net, z[i : i + 1], y[i : i + 1], steps=30) for i in range(5)], 3) / 5}
    report(benchmark, "batched", benchmark.stats.stats.median / count, "ms a problem", 1e3, peers)
