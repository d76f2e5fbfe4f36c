"""The package's own cost model after 64 trials: scoring 10,000 configurations of a layer, a batch of 64, and learning from it. Throughputs are synthetic."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
import xgboost

from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.kernels import kernel
from workbench.kernels.networks import layer
from workbench.models.forest import Forest
from workbench.models.hybrid import Hybrid
from workbench.models.surrogate import Adapted, Trials
from workbench.schema import Device
from workbench.tune.portfolio import Portfolio
from workbench.tune.search import Candidates

COUNT, TRIALS, BATCH = 10_000, 64, 64
CPU = Device("invented", "cpu", peak_gflops=100.0, bandwidth_gb_s=20.0)


def measured(number: int, rows: int, seed: int) -> MeasuredTask:
    """Synthetic: throughput falls with the distance of the logarithm of each knob from its middle."""
    workload = layer("resnet-18", number).workload
    task = TuningTask(f"resnet-18 {number}", kernel("conv2d"), workload, CPU, "workbench-cpu")
    indices = task.space.sample(rows, seed)
    speed = 50 * np.exp(-np.square(task.space.coordinates(indices) - 0.5).sum(axis=1))
    unknown = np.full(rows, np.nan)
    return MeasuredTask(task, indices, speed, np.ones(rows, dtype=bool), unknown, unknown, unknown)


@pytest.fixture(scope="module")
def adapted() -> tuple[Adapted, MeasuredTask, Trials]:
    torch.set_num_threads(1)
    fitted = Hybrid().fit([measured(number, 100, number) for number in (4, 5, 6, 9)])
    target = measured(2, COUNT, 2)
    model = fitted.adapt(target.task)
    trials = Trials.none().and_then(target.indices[:TRIALS], target.throughput[:TRIALS], target.valid[:TRIALS])
    model.update(trials)
    return model, target, trials


def seconds(call: object, times: int = 3) -> float:
    """Median processor time of calls, each with indices that were not asked for before."""
    found = []
    for _ in range(times):
        start = time.process_time()
        call()  # type: ignore[operator]
        found.append(time.process_time() - start)
    return float(np.median(found))


def test_scoring(adapted: tuple[Adapted, MeasuredTask, Trials]) -> None:
    model, target, _ = adapted
    drawn = iter(target.task.space.sample(4 * COUNT, 7).reshape(4, COUNT))
    model.predict(next(drawn))
    new_s = seconds(lambda: model.predict(next(drawn)))
    known = target.indices
    model.predict(known)
    known_s = seconds(lambda: model.predict(known))
    print(f"\n{COUNT:,} configurations: {new_s * 1e3:.0f} ms, of which features are known {known_s * 1e3:.0f} ms")
    assert new_s < 1.0


def test_trees_beside_xgboost() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(COUNT, 30)).astype(np.float32)
    data = xgboost.DMatrix(rows[:4000], label=rows[:4000, 0] * rows[:4000, 1] + np.sin(rows[:4000, 2]), nthread=1)
    booster = xgboost.train({"max_depth": 6, "eta": 0.06, "nthread": 1}, data, 300)
    forest = Forest.of(booster)
    np.testing.assert_array_equal(forest.margin(rows), booster.inplace_predict(rows))
    mine, theirs = seconds(lambda: forest.margin(rows), 5), seconds(lambda: booster.inplace_predict(rows), 5)
    print(f"\n300 trees of depth 6 on {COUNT:,} rows: {mine * 1e3:.0f} ms, XGBoost {theirs * 1e3:.0f} ms: {mine / theirs:.2f}")
    assert mine < theirs


def test_a_batch_and_an_update(adapted: tuple[Adapted, MeasuredTask, Trials]) -> None:
    model, target, trials = adapted
    rng = np.random.default_rng(0)
    propose_s = seconds(lambda: Portfolio().propose(model, Candidates(target.task.space), trials, BATCH, rng))
    update_s = seconds(lambda: model.update(trials))
    print(f"\na batch of {BATCH}: {propose_s * 1e3:.0f} ms; an update after {TRIALS} trials: {update_s * 1e3:.0f} ms")
    assert update_s < 1.0
