"""Each framework is a line of composition; here each is taken through a small tuning of a layer on invented throughputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from workbench.errors import UsageError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.kernels import kernel
from workbench.kernels.conv import CPU
from workbench.measure.replay import Replay
from workbench.models.metatune import MetaTune
from workbench.schema import Device
from workbench.tune.frameworks import FRAMEWORKS, Framework, NoModel, framework
from workbench.tune.loop import Budget, tune
from workbench.tune.portfolio import Portfolio
from workbench.tune.search import Candidates, RandomSearch


def invented(co: int, rows: int, seed: int) -> MeasuredTask:
    """A layer whose speed depends on two of its tiles; one in ten configurations fails."""
    layer = {"n": 1, "ci": 16, "h": 14, "w": 14, "co": co, "kh": 3, "kw": 3, "stride": (1, 1), "padding": (1, 1)}
    task = TuningTask(f"layer of {co} channels", kernel("conv2d"), kernel("conv2d").workload(layer), Device("invented-cpu", "cpu"), CPU)
    indices = task.space.sample(rows, seed)
    tiles = task.space.decode(indices, ["tile_f", "tile_x"])
    rng = np.random.default_rng(seed)
    valid = rng.random(rows) > 0.1
    throughput = np.where(valid, 5.0 + np.log2(tiles["tile_f"][:, 2]) + 2 * np.log2(tiles["tile_x"][:, 2]), 0.0)
    unknown = np.full(rows, np.nan)
    return MeasuredTask(task, indices, throughput, valid, np.where(valid, 1 / throughput.clip(1), np.nan), unknown, unknown)


def short(found: Framework) -> Framework:
    """The framework with little pre-training and meta-training."""
    return replace(found, surrogate=lambda: replace(MetaTune(template=found.name.endswith("-T")), epochs=4, outer=4)) if "meta" in found.name else found


@pytest.fixture(scope="module")
def history() -> list[MeasuredTask]:
    return [invented(co, 64, seed) for seed, co in enumerate((8, 16, 32))]


@pytest.fixture(scope="module")
def table() -> MeasuredTask:
    return invented(64, 300, 9)


def test_names_in_any_case_and_an_unknown_one() -> None:
    assert all(name == found.name for name, found in FRAMEWORKS.items())
    assert framework("xgb-xfer") is framework("xgb-Xfer") is FRAMEWORKS["xgb-Xfer"]
    with pytest.raises(UsageError, match="no framework 'meta-bo-x'; there are xgb, xgb-Xfer, RL, meta-RL, meta-RL-T, meta-BO, meta-BO-T, xgb-Xfer-sh"):
        framework("meta-bo-x")


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_each_tunes_a_layer_and_does_the_same_again(name: str, history: list[MeasuredTask], table: MeasuredTask) -> None:
    found = short(FRAMEWORKS[name])
    fitted = found.fit(history, seed=1)
    outcomes = []
    for _ in range(2):
        tuner = found.tuner(table.task, fitted, Candidates(table.task.space, table.indices), seed=3, ranking_only=True)
        outcomes.append(tune(tuner, Replay(table), Budget(trials=48), batch=16))
    first, again = outcomes
    assert first.why == "48 trials"
    assert len(set(first.trials.indices.tolist())) == 48
    assert first.trials.indices.tolist() == again.trials.indices.tolist()
    np.testing.assert_array_equal(first.predicted, again.predicted)
    if name == "random":
        assert np.isnan(first.predicted).all()
        return
    assert np.isfinite(first.predicted).all()
    # Better than what chance gives; with a history from the first trial on.
    assert first.trials.throughput[16:].mean() > table.throughput.mean()
    assert not found.transfers or first.trials.throughput[:16].mean() > table.throughput.mean()


@pytest.mark.parametrize("name", [name for name, found in FRAMEWORKS.items() if found.transfers])
def test_what_transfers_needs_a_history(name: str) -> None:
    with pytest.raises(UsageError, match=f"framework '{name}' learns from tasks that were measured before, and there is none"):
        FRAMEWORKS[name].fit([])


@pytest.mark.parametrize("name", [name if name in ("xgb-Xfer-shrunk", "meta-BO-T") else pytest.param(name, marks=pytest.mark.slow) for name in FRAMEWORKS])
def test_each_searches_a_space_where_every_configuration_can_be_measured(name: str, history: list[MeasuredTask], table: MeasuredTask) -> None:
    found = short(FRAMEWORKS[name])
    tuner = found.tuner(table.task, found.fit(history), seed=1)
    for _ in range(2):
        asked = tuner.ask(8)
        assert 0 < len(asked) <= 8
        assert table.task.space.satisfies(asked).all()
        tuner.tell(asked, np.arange(len(asked)), np.arange(len(asked)) > 0)
    assert len(set(tuner.trials.indices.tolist())) == len(tuner.trials)


def test_random_needs_no_history_and_stays_random_where_others_rank(table: MeasuredTask) -> None:
    random = framework("random")
    fitted = random.fit([])
    assert isinstance(fitted, NoModel)
    for ranking_only in (False, True):
        assert isinstance(random.tuner(table.task, fitted, ranking_only=ranking_only).search, RandomSearch)
    xgb = framework("xgb")
    assert isinstance(xgb.tuner(table.task, xgb.fit([]), ranking_only=True).search, Portfolio)
