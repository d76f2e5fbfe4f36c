"""Boosted trees as cost models: on invented throughputs, and what holds of them on FlexTensor's measurements."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from workbench.data.datasets import load_dataset
from workbench.errors import DataError, UsageError
from workbench.features.tasks import MeasuredTask, TuningTask, tasks_of
from workbench.kernels import kernel
from workbench.models.boosting import Xgb, XgbXfer, XgbXferShrunk, _recall
from workbench.models.surrogate import Surrogate, Trials
from workbench.schema import Device

GPU = Device("invented-gpu", "gpu", peak_gflops=1e3, bandwidth_gb_s=100.0)
LAYERS = {"a": (16, 12, 32), "b": (32, 16, 32), "c": (32, 24, 16), "d": (16, 24, 64)}
MODELS: Sequence[Surrogate] = (Xgb(), Xgb("rank"), Xgb(features="vectors"), XgbXfer(), XgbXfer("vectors", objective="rank"), XgbXferShrunk())
NAMES = [f"{model.name} {i}" for i, model in enumerate(MODELS)]


def invented(layer: str, rows: int = 200, scale: float = 1.0) -> MeasuredTask:
    """Throughputs that follow a simple law: more threads are better, beyond 64 it fails, and a large inner tile helps."""
    ci, size, co = LAYERS[layer]
    found = kernel("conv2d")
    workload = found.workload({"n": 1, "ci": ci, "h": size, "w": size, "co": co, "kh": 3, "kw": 3, "stride": 1, "padding": 1})
    task = TuningTask(layer, found, workload, GPU, "workbench-gpu")
    indices = task.space.sample(rows, 0)
    knobs = task.space.decode(indices)
    tiles = [knobs[f"tile_{axis}"] for axis in "fyx"]
    threads, inner = (np.prod([tile[:, level] for tile in tiles], axis=0) for level in (2, 3))
    valid = threads <= 64
    gflops = scale * (np.log2(threads) + np.minimum(np.log2(inner), 4) + 1)
    unknown = np.full(rows, np.nan)
    return MeasuredTask(task, indices, np.where(valid, gflops, 0.0), valid, np.where(valid, 1 / gflops, np.nan), unknown, unknown)


@pytest.fixture(scope="module")
def history() -> list[MeasuredTask]:
    return [invented("a"), invented("b", scale=7.0), invented("c", scale=0.1)]


@pytest.fixture(scope="module")
def target() -> MeasuredTask:
    return invented("d", 260, scale=30.0)


def first(measured: MeasuredTask, count: int) -> Trials:
    return Trials(measured.indices[:count], measured.throughput[:count], measured.valid[:count])


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_trials_are_learnt_from(model: Surrogate, history: list[MeasuredTask], target: MeasuredTask) -> None:
    adapted = model.fit(history, 1).adapt(target.task, 1)
    rest = target.indices[160:]
    before = adapted.predict(rest)
    trials = first(target, 160)
    adapted.update(trials)
    after = adapted.predict(rest)
    assert after.mean.shape == after.std.shape == rest.shape
    assert np.isnan(after.std).all()
    truth = target.throughput[160:] / trials.best
    assert spearmanr(after.mean, truth)[0] > 0.6
    assert np.mean((after.mean - truth) ** 2) < 0.6 * np.var(truth)
    if isinstance(model, Xgb):
        assert (before.mean == 0).all()
    else:
        assert spearmanr(before.mean, truth)[0] > 0.6
    # The same again, whether the trials come at once or by and by, and whether something was learnt before.
    again = model.fit(history, 1).adapt(target.task, 1)
    for count in (40, 100, 160):
        again.update(first(target, count))
    np.testing.assert_array_equal(again.predict(rest).mean, after.mean)
    np.testing.assert_array_equal(again.predict(rest[:1]).mean, after.mean[:1])
    assert len(again.predict(rest[:0]).mean) == 0


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_few_or_failed_trials(model: Surrogate, history: list[MeasuredTask], target: MeasuredTask) -> None:
    adapted = model.fit(history).adapt(target.task)
    start = adapted.predict(target.indices).mean
    adapted.update(Trials.none())
    np.testing.assert_array_equal(adapted.predict(target.indices).mean, start)
    adapted.update(first(target.rows(target.valid), 1))
    assert np.isfinite(adapted.predict(target.indices).mean).all()
    same = target.indices[:30]
    adapted.update(Trials(same, np.full(30, 5.0), np.ones(30, dtype=bool)))
    assert np.isfinite(adapted.predict(target.indices).mean).all()
    # Failures alone are learnt from: what failed is expected to be worse than before, or no better than nothing where nothing was known.
    adapted.update(Trials(same, np.zeros(30), np.zeros(30, dtype=bool)))
    failed = adapted.predict(same).mean
    assert np.isfinite(failed).all()
    assert failed.mean() <= start[:30].mean()


def test_recall_by_hand() -> None:
    # Of rows whose order is 2, 0, 1, the scores say 0, 2, 1: of the best one none, of the best two both, then all.
    assert _recall([3.0, 1.0, 2.0], np.array([2, 0, 1]), 64) == pytest.approx((0 + 1 + 1) / 3)
    assert _recall([3.0, 1.0, 2.0], np.array([2, 0, 1]), 2) == pytest.approx(1 / 2)
    assert _recall([3.0, 1.0, 2.0], np.array([0, 2, 1]), 3) == 1


def test_failures_are_told_apart(target: MeasuredTask) -> None:
    adapted = Xgb(features="vectors").adapt(target.task)
    adapted.update(first(target, 200))
    rest = adapted.predict(target.indices[200:]).mean
    valid = target.valid[200:]
    assert 5 < (~valid).sum() < 50
    assert rest[~valid].mean() < 0.3 * rest[valid].mean()


def test_what_was_learnt_elsewhere_counts_less_with_each_trial(history: list[MeasuredTask], target: MeasuredTask) -> None:
    # After 64 trials half of the margin is left, and none once that would be less than a twentieth, after 277.
    model = XgbXfer("vectors").fit(history)
    adapted = model.adapt(target.task)
    base = adapted.predict(target.indices).mean
    same = np.tile(target.indices[:1], 320)
    for count, share in ((1, 0.5 ** (1 / 64)), (64, 0.5), (276, 0.5 ** (276 / 64)), (278, 0.0)):
        # Equal rows have no split: all that is added is one number, which brings the trial's prediction to its label.
        adapted.update(Trials(same[:count], np.ones(count), np.ones(count, dtype=bool)))
        found = adapted.predict(target.indices).mean
        np.testing.assert_allclose(found - found[0], share * (base - base[0]), atol=1e-5)


def test_a_correction_is_shrunk(history: list[MeasuredTask], target: MeasuredTask) -> None:
    # Twenty trials move what all other tasks say by little, AutoTVM's trees by much.
    moved = {}
    for model in (XgbXfer("vectors"), XgbXferShrunk()):
        adapted = model.fit(history).adapt(target.task)
        before = adapted.predict(target.indices[20:]).mean
        adapted.update(Trials(target.indices[:20], np.arange(1.0, 21), np.ones(20, dtype=bool)))
        moved[model.name] = 1 - spearmanr(before, adapted.predict(target.indices[20:]).mean)[0]
    assert moved["xgb-xfer-shrunk"] < 0.5 * moved["xgb-xfer"]


def test_the_best_so_far_is_no_best_of_a_table(history: list[MeasuredTask], target: MeasuredTask) -> None:
    # Trials that are all slow: over the best of them they are as good as 1, and what is better than all of them is above 1.
    order = np.argsort(target.throughput)
    slow = target.rows(order[target.valid[order]][:60])
    adapted = XgbXferShrunk().fit(history).adapt(target.task)
    adapted.update(first(slow, 60))
    fast = target.rows(order[-20:])
    truth = fast.throughput / slow.best
    assert truth.min() > 1.2
    assert adapted.predict(fast.indices).mean.mean() > 1.0
    assert abs(adapted.predict(slow.indices).mean.mean() - slow.label.mean()) < 0.1


@pytest.mark.parametrize("model", [XgbXfer("vectors"), XgbXferShrunk()], ids=["xgb-xfer", "xgb-xfer-shrunk"])
def test_a_base_is_kept(model: XgbXfer | XgbXferShrunk, history: list[MeasuredTask], target: MeasuredTask, tmp_path: Path) -> None:
    fitted = model.fit(history, 3)
    assert model.base is None
    fitted.save(tmp_path / "base.json")
    found = model.load(tmp_path / "base.json")
    for adapted in (both := [one.adapt(target.task) for one in (fitted, found)]):
        adapted.update(first(target, 50))
    np.testing.assert_array_equal(*(adapted.predict(target.indices).mean for adapted in both))
    other = XgbXfer("knobs")
    with pytest.raises(DataError, match=f"{model.name} on the features 'vectors', not xgb-xfer on 'knobs'"):
        other.load(tmp_path / "base.json")
    (tmp_path / "torn.json").write_text(json.dumps({"model": model.name}))
    with pytest.raises(DataError, match=f"no saved {model.name}"):
        model.load(tmp_path / "torn.json")
    with pytest.raises(DataError, match=f"no saved {model.name}"):
        model.load(tmp_path / "none.json")


def test_a_fit_differs_by_its_seed_alone(history: list[MeasuredTask], target: MeasuredTask) -> None:
    first_, second, other = (XgbXferShrunk().fit(history, seed).adapt(target.task).predict(target.indices).mean for seed in (0, 0, 1))
    np.testing.assert_array_equal(first_, second)
    assert (first_ != other).any()


def test_a_space_without_nests_is_seen_by_its_knobs() -> None:
    found = kernel("gemm")
    task = TuningTask("gemm", found, found.workload({"m": 1024, "n": 1024, "k": 1024}), GPU)
    indices = task.space.sample(120, 0)
    gflops = task.space.decode(indices)["MWG"].astype(float)  # invented: larger work groups are faster
    adapted = Xgb().adapt(task)
    adapted.update(Trials(indices[:90], gflops[:90], np.ones(90, dtype=bool)))
    assert spearmanr(adapted.predict(indices[90:]).mean, gflops[90:])[0] > 0.95


def test_what_cannot_be(history: list[MeasuredTask], target: MeasuredTask) -> None:
    with pytest.raises(UsageError, match="no objective 'mse'; choose one of regression, rank"):
        Xgb("mse")
    with pytest.raises(UsageError, match="no objective 'mse'"):
        XgbXfer(objective="mse")
    for model in (Xgb, XgbXfer, XgbXferShrunk):
        with pytest.raises(UsageError, match="no features 'loops'; choose one of itervar, curve, knobs, vectors"):
            model(features="loops")
    for transfer in (XgbXfer(), XgbXferShrunk()):
        with pytest.raises(UsageError, match=f"{transfer.name} learns from other tasks first"):
            transfer.adapt(target.task)
        with pytest.raises(UsageError, match=f"{transfer.name} learns from other tasks first"):
            transfer.save("nowhere.json")
        with pytest.raises(DataError, match="no measured tasks"):
            transfer.fit([])
        broken = replace(target, throughput=np.full(len(target), np.nan))
        with pytest.raises(DataError, match="task d: a throughput over its best of nan is no finite number"):
            transfer.fit([*history, broken])


@pytest.fixture(scope="module")
def layers(mirror: None) -> dict[str, MeasuredTask]:
    return {measured.task.name: measured for measured in tasks_of(load_dataset("titanxp-conv2d"))}


def test_flextensor_layers(layers: dict[str, MeasuredTask]) -> None:
    # yolo3, of which no other layer is a near twin: what the others say ranks it, and stays right with few trials of its own; trees without it need many.
    target = layers.pop("yolo3")
    drawn = np.random.default_rng(0).permutation(len(target))
    tried, rest = target.rows(drawn[:16]), target.rows(drawn[256:])
    found = {}
    for model in (Xgb(features="vectors"), XgbXferShrunk()):
        adapted = model.fit(list(layers.values())).adapt(target.task)
        adapted.update(first(tried, 16))
        found[model.name] = spearmanr(adapted.predict(rest.indices).mean, rest.throughput)[0]
    assert found["xgb-xfer-shrunk"] > 0.65
    assert found["xgb-xfer-shrunk"] > found["xgb"] + 0.1


@pytest.mark.slow
def test_ten_thousand_configurations_in_a_tenth_of_a_second(layers: dict[str, MeasuredTask]) -> None:
    # Of processor time, the best of some. Loop context vectors take most of it.
    target = layers["yolo2"]
    others = [measured for name, measured in layers.items() if name != "yolo2"]
    indices = target.task.space.sample(10_000, 0)
    for model, limit in ((Xgb(), 0.15), (XgbXfer(), 0.2), (XgbXferShrunk(), 0.1)):
        adapted = model.fit(others).adapt(target.task)
        began = time.process_time()
        adapted.update(first(target, 256))
        assert time.process_time() - began < 1
        spent = []
        for _ in range(5):
            began = time.process_time()
            adapted.predict(indices)
            spent.append(time.process_time() - began)
        assert min(spent) < limit
