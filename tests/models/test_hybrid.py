"""The own cost model on invented tasks: layers whose speed follows from their knobs (synthetic), and twins of a made-up image filter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from workbench.errors import DataError, UsageError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.kernels import kernel
from workbench.measure.replay import Replay
from workbench.metrics import spearman
from workbench.models.bases import _TREES, fit_bases, history_of
from workbench.models.boosting import XgbXferShrunk
from workbench.models.hybrid import Hybrid
from workbench.models.metagp import Posterior, fit_process, with_bases
from workbench.models.surrogate import Trials
from workbench.models.twins import TwinProcess, learn_prior, twins_of
from workbench.schema import Device, Workload
from workbench.tune.loop import Budget, Tuner, tune
from workbench.tune.portfolio import Portfolio
from workbench.tune.search import Candidates

GPU = Device("invented", "gpu", peak_gflops=1e4, bandwidth_gb_s=500.0)


def layer(ci: int, size: int, co: int, rows: int = 120, seed: int = 0, likes: int = 7) -> MeasuredTask:
    """Synthetic: throughput falls with the distance of threads from 2^likes and of sums a thread from 8."""
    conv = kernel("flextensor_conv2d")
    workload = conv.workload({"n": 1, "ci": ci, "h": size, "w": size, "co": co, "kh": 3, "kw": 3, "stride": (1, 1), "padding": (1, 1)})
    task = TuningTask(f"{ci}-{size}-{co}", conv, workload, GPU)
    indices = task.space.sample(rows, seed)
    knobs = task.space.decode(indices)
    log_threads = sum(np.log2(knobs[f"tile_{axis}"][:, 2]) for axis in "fyx")
    log_sums = sum(np.log2(knobs[f"tile_{axis}"][:, [1, 3]].prod(axis=1)) for axis in "fyx")
    valid = log_threads <= 10
    speed = 1000 * np.exp(-0.15 * np.abs(log_threads - likes) - 0.1 * np.abs(log_sums - 3)) * (1 + ci / 512)
    return measured(task, indices, np.where(valid, speed, 0.0))


def measured(task: TuningTask, indices: np.ndarray, throughput: np.ndarray) -> MeasuredTask:
    unknown = np.full(len(indices), np.nan)
    return MeasuredTask(task, indices, throughput, throughput > 0, unknown, unknown, unknown)


def told(table: MeasuredTask, rows: Sequence[int] | np.ndarray) -> Trials:
    return Trials.none().and_then(table.indices[rows], table.throughput[rows], table.valid[rows])


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    """Less learning than for use, which takes most of the time and which the small tasks here do not need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_TREES, "n_estimators", 100)
        patch.setattr("workbench.models.bases._STEPS", 200)
        patch.setattr("workbench.models.metagp._STEPS", 250)
        yield


@pytest.fixture(scope="module")
def history() -> list[MeasuredTask]:
    return [layer(64, 56, 64, seed=1), layer(128, 28, 128, seed=2), layer(256, 14, 256, seed=3), layer(32, 56, 128, seed=4)]


@pytest.fixture(scope="module")
def fitted(history: list[MeasuredTask]) -> Hybrid:
    return Hybrid().fit(history)


def test_an_unseen_layer_is_ranked_before_and_better_after_its_trials(fitted: Hybrid) -> None:
    target = layer(128, 56, 64, rows=200, seed=5, likes=5)
    model = fitted.adapt(target.task)
    rest = np.arange(40, 200)
    before = model.predict(target.indices[rest])
    model.update(told(target, np.arange(40)))
    after = model.predict(target.indices[rest])
    assert spearman(target.label[rest], before.mean) > 0.3
    assert spearman(target.label[rest], after.mean) > spearman(target.label[rest], before.mean)
    assert after.std.mean() < before.std.mean()
    assert (after.std > 0).all()
    opinions = model.opinions(target.indices[rest])
    assert opinions.shares == (1, 1)
    assert (opinions.rankings[0] > after.mean).all()


def test_predictions_are_the_same_in_any_order_and_by_seed(history: list[MeasuredTask], fitted: Hybrid) -> None:
    target = layer(128, 56, 64, rows=30, seed=5)
    model, again = fitted.adapt(target.task, 3), Hybrid().fit(history).adapt(target.task, 3)
    backwards = model.predict(target.indices[::-1])
    for each in (model, again):
        each.update(told(target, np.arange(10)))
    np.testing.assert_array_equal(model.predict(target.indices).mean, again.predict(target.indices).mean)
    np.testing.assert_allclose(model.predict(target.indices[::-1]).mean, model.predict(target.indices).mean[::-1], rtol=1e-5)
    assert len(backwards.mean) == 30


def test_failures_alone_and_nothing_are_trials(fitted: Hybrid) -> None:
    target = layer(128, 56, 64, rows=60, seed=5)
    model = fitted.adapt(target.task)
    before = model.predict(target.indices).mean
    model.update(Trials.none())
    np.testing.assert_array_equal(model.predict(target.indices).mean, before)
    model.update(Trials.none().and_then(target.indices[:8], np.zeros(8), np.zeros(8, dtype=bool)))
    after = model.predict(target.indices[:8]).mean
    assert np.isfinite(after).all()
    assert after.mean() < before[:8].mean()


def test_a_configuration_that_was_told_twice_is_no_fault(fitted: Hybrid) -> None:
    target = layer(128, 56, 64, rows=60, seed=5)
    model = fitted.adapt(target.task)
    model.update(told(target, np.r_[np.arange(10), np.arange(10)]))
    assert np.isfinite(model.predict(target.indices).mean).all()


def test_crossed_bases_have_not_seen_their_task(history: list[MeasuredTask]) -> None:
    spoilt = [replace(history[0], throughput=history[0].throughput[::-1], valid=history[0].valid[::-1]), *history[1:]]
    honest, other = fit_bases(history_of(history)), fit_bases(history_of(spoilt))
    # What is said of the first task does not depend on its own labels; what is said of the others does.
    np.testing.assert_array_equal(honest.crossed[0], other.crossed[0])
    assert not np.array_equal(honest.crossed[1], other.crossed[1])


def test_the_best_of_a_task_is_found_to_lie_above_a_poor_best_so_far(history: list[MeasuredTask]) -> None:
    bases = fit_bases(history_of(history))
    target = layer(128, 56, 64, rows=200, seed=5)
    inputs = bases.history.standardised(target.task, target.vectors)
    said = bases.predict(inputs)
    slow = np.flatnonzero((target.label > 0) & (target.label < 0.5))[:24]
    posterior = Posterior([fit_process(bases)])
    posterior.condition(with_bases(inputs[slow], said[slow]), said[slow], target.label[slow] / target.label[slow].max())
    assert posterior.scale > 1.2
    posterior.condition(with_bases(inputs, said), said, target.label)
    assert posterior.scale < 1.2


def test_what_cannot_be_learnt_from_is_said() -> None:
    with pytest.raises(DataError, match="two or more"):
        history_of([layer(64, 56, 64)])
    with pytest.raises(UsageError, match="fit it to several workloads"):
        Hybrid().fit([layer(64, 56, 64)]).adapt(layer(128, 28, 128).task)


def device(name: str, likes: int, seed: int) -> MeasuredTask:
    """Synthetic: an image filter on a device that likes tiles of `likes` columns."""
    filtering = kernel("convolution")
    workload = Workload("convolution", {"w": 4096, "h": 4096, "kw": 15, "kh": 15})
    task = TuningTask(name, filtering, workload, Device(name, "gpu"), "convolution")
    indices = task.space.members()[::7]
    knobs = task.space.decode(indices)
    speed = 100 * np.exp(-0.4 * np.abs(knobs["tile_size_x"] - likes) - 0.1 * np.abs(np.log2(knobs["block_size_x"]) - 5) - 0.05 * knobs["use_padding"])
    noise = np.exp(0.02 * np.random.default_rng(seed).standard_normal(len(indices)))
    return measured(task, indices, np.where(knobs["block_size_x"] == 1, 0.0, speed * noise))


def test_twins_are_weighed_by_what_is_seen() -> None:
    twins, target = [device("a", 2, 1), device("b", 7, 2), device("c", 7, 3)], device("d", 2, 4)
    model = TwinProcess(target.task, twins)
    before = model.predict(target.indices)
    np.testing.assert_allclose(before.mean, np.mean([twin.label for twin in twins], axis=0))
    rows = np.random.default_rng(0).choice(len(target), 12, replace=False)
    model.update(told(target, rows))
    after = model.predict(target.indices)
    assert spearman(target.label, before.mean) < 0.8 < 0.9 < spearman(target.label, after.mean)
    assert (after.std[rows] < before.std[rows]).all()


def test_twins_that_disagree_make_a_prior_that_a_few_trials_move_far() -> None:
    target = device("d", 2, 4)
    alike, apart = ([device("a", 2, 1), device("b", 2, 2)], [device("a", 2, 1), device("b", 7, 2)])
    calm, wary = learn_prior(target.task.space, alike), learn_prior(target.task.space, apart)
    spread = [TwinProcess(target.task, twins, prior).predict(target.indices).std.mean() for twins, prior in ((alike, calm), (apart, wary))]
    assert spread[1] > 3 * spread[0]
    # Padding hardly matters on any of them, so it is the longest way from one end of the unit cube to the other; the tile's width is what they disagree on.
    names = list(target.task.space.coordinate_names)
    assert wary.lengths[names.index("tile_size_x")] < wary.lengths[names.index("use_padding")]
    again = learn_prior(target.task.space, apart)
    np.testing.assert_array_equal(wary.lengths, again.lengths)
    # A single twin says along what it varies, not how far others are from it.
    alone = learn_prior(target.task.space, alike[:1])
    assert (alone.weight, alone.constant) == (0.1, 0.05)


def test_a_batch_of_opinions_spreads_and_counts_what_is_being_tried() -> None:
    twins, target = [device("a", 2, 1), device("b", 7, 2)], device("d", 2, 4)
    model = TwinProcess(target.task, twins)
    found = model.opinions(target.indices)
    assert found.rankings.shape == (16, len(target))
    assert found.shares == (1,) * 16
    np.testing.assert_array_equal(found.rankings[0], model.predict(target.indices).mean)
    # What the second opinion adds for uncertainty is less where the first would have tried than it is without it.
    estimate = model.predict(target.indices)
    first = int(found.rankings[0].argmax())
    assert found.rankings[1][first] < (estimate.mean + estimate.std)[first] - 0.5 * estimate.std[first]
    model.update(told(target, np.arange(3)))
    assert model.opinions(target.indices[:5]).rankings.shape == (5, 5)


def test_one_opinion_in_four_knows_nothing_of_the_twins() -> None:
    # Synthetic: twins just like the device, so that who listens to them agrees with them.
    twins, target = [device("a", 2, 1), device("b", 2, 2)], device("d", 2, 4)
    model = TwinProcess(target.task, twins)
    model.update(told(target, np.arange(0, len(target), 50)))
    found = model.opinions(target.indices)
    own = model.predict(target.indices)
    np.testing.assert_allclose(found.rankings[0], own.mean / model._scale)
    agreed = [spearman(own.mean, ranking) for ranking in found.rankings]
    alone = [number for number in range(16) if number % 4 == 3]
    assert min(agreed[number] for number in range(16) if number not in alone) > max(agreed[number] for number in alone)


def test_a_device_unlike_its_only_twin_is_found_out() -> None:
    # Synthetic: the twin likes wide tiles, the device narrow ones, and the search must leave what the twin recommends.
    twin, target = device("a", 7, 1), device("d", 1, 4)
    tuner = Tuner(target.task, TwinProcess(target.task, [twin]), Portfolio(), Candidates(target.task.space, target.indices), seed=0)
    found = tune(tuner, Replay(target), Budget(trials=64), 16)
    assert found.trials.throughput.max() > 0.95 * target.best
    assert found.trials.throughput[:16].max() < 0.8 * target.best


def test_failures_alone_leave_a_prior() -> None:
    twins, target = [device("a", 2, 1), device("b", 7, 2)], device("d", 2, 4)
    model = TwinProcess(target.task, twins)
    before = model.predict(target.indices)
    promising = np.argsort(-before.mean)[:20]
    model.update(Trials.none().and_then(target.indices[promising], np.zeros(20), np.zeros(20, dtype=bool)))
    after = model.predict(target.indices)
    assert np.isfinite(after.mean).all()
    assert np.isfinite(after.std).all()
    assert after.mean[promising].max() < 0.5 * before.mean[promising].min()


def test_hybrid_turns_to_twins_where_there_are_any(fitted: Hybrid) -> None:
    target = device("d", 2, 4)
    assert twins_of(target.task, [*fitted.history, device("a", 2, 1)])[0].task.name == "a"
    assert isinstance(Hybrid().fit([device("a", 2, 1)]).adapt(target.task), TwinProcess)
    with pytest.raises(DataError, match="nothing to weigh"):
        TwinProcess(target.task, [])


def test_without_processes_the_bases_are_scaled_to_the_trials(fitted: Hybrid) -> None:
    target = layer(128, 56, 64, rows=200, seed=5)
    alone = replace(fitted, processes=(), shrunk=()).adapt(target.task)
    before = alone.predict(target.indices)
    assert fitted.bases is not None
    said = fitted.bases.predict(fitted.bases.history.standardised(target.task, target.vectors))
    np.testing.assert_allclose(before.mean, said[:, :2].mean(axis=1), rtol=1e-6)
    assert np.isnan(before.std).all()
    slow = np.flatnonzero((target.label > 0) & (target.label < 0.5))[:24]
    alone.update(told(target, slow))
    after = alone.predict(target.indices).mean
    # Labels over a poor best so far are larger than those over the best, all by one factor.
    assert after[0] / before.mean[0] > 1.2
    np.testing.assert_allclose(after / before.mean, after[0] / before.mean[0], rtol=1e-6)
    assert np.isfinite(alone.opinions(target.indices).rankings).all()
    trees = replace(fitted, processes=()).adapt(target.task)
    trees.update(told(target, np.arange(60)))
    scaled = replace(fitted, processes=(), shrunk=()).adapt(target.task)
    scaled.update(told(target, np.arange(60)))
    rest = slice(60, None)
    processes = [replace(fitted, shrunk=shrunk).adapt(target.task) for shrunk in (fitted.shrunk, ())]
    for model in processes:
        model.update(told(target, np.arange(60)))
    assert (processes[0].predict(target.indices[rest]).mean != processes[1].predict(target.indices[rest]).mean).any()
    errors = [np.mean((model.predict(target.indices[rest]).mean - target.label[rest]) ** 2) for model in (trees, scaled)]
    assert errors[0] < errors[1]
    with pytest.raises(UsageError, match="-1 Gaussian processes"):
        Hybrid(ensemble=-1)


def failing(ci: int, seed: int) -> MeasuredTask:
    """A layer on which more than 64 threads fail, which are fast elsewhere."""
    table = layer(ci, 28, 64, seed=seed, rows=200, likes=9)
    knobs = table.task.space.decode(table.indices)
    threads = np.prod([knobs[f"tile_{axis}"][:, 2] for axis in "fyx"], axis=0)
    return measured(table.task, table.indices, np.where(threads <= 64, table.throughput, 0.0))


def test_a_base_for_feasibility_tells_what_fails() -> None:
    tasks = [failing(ci, seed) for seed, ci in enumerate((32, 64, 128, 256))]
    plain, whole = fit_bases(history_of(tasks[:3])), Hybrid(feasibility=True, ensemble=1).fit(tasks[:3])
    assert len(whole.processes) == 1
    both = whole.bases
    assert both is not None
    inputs = both.history.standardised(tasks[3].task, tasks[3].vectors)
    said = both.predict(inputs)
    np.testing.assert_array_equal(said[:, :2], plain.predict(inputs))
    np.testing.assert_array_equal(both.throughput(said), plain.predict(inputs).mean(axis=1))
    assert all(crossed.shape == (200, 3) for crossed in both.crossed)
    runs = tasks[3].valid
    assert said[runs, 2].min() >= 0
    assert said[:, 2].max() <= 1
    assert said[runs, 2].mean() > 0.7 > 0.3 > said[~runs, 2].mean()
    model = whole.adapt(tasks[3].task)
    model.update(told(tasks[3], np.arange(16)))
    assert spearman(tasks[3].label, model.predict(tasks[3].indices).mean) > 0.5


def test_where_everything_ran_the_base_for_feasibility_says_one_number(history: list[MeasuredTask]) -> None:
    ran = [measured(one.task, one.indices[one.valid], one.throughput[one.valid]) for one in history]
    bases = fit_bases(history_of(ran), feasibility=True)
    said = bases.predict(bases.history.inputs[0])[:, 2]
    assert np.ptp(said) == 0
    assert said[0] > 0.99
    assert bases.predict(bases.history.inputs[0][:0]).shape == (0, 3)


def test_parts_can_be_left_out_or_added(history: list[MeasuredTask], fitted: Hybrid) -> None:
    target = layer(128, 56, 64, rows=200, seed=5)
    assert fitted.bases is not None
    plain, without = (fit_process(fitted.bases, embedding=embedding) for embedding in (True, False))
    missing = plain.state_dict().keys() - without.state_dict().keys()
    assert missing
    assert all(name.startswith("embed.") for name in missing)
    loops = XgbXferShrunk("itervar").fit(history)
    vectors = fitted.shrunk[0]
    said = {}
    for name, model in {
        "vectors": fitted,
        "loops": replace(fitted, shrunk=(loops,)),
        "both": replace(fitted, shrunk=(vectors, loops)),
        "no embedding": replace(fitted, processes=(without,)),
    }.items():
        adapted = model.adapt(target.task)
        adapted.update(told(target, np.arange(24)))
        said[name] = adapted.predict(target.indices).mean
    np.testing.assert_allclose(said["both"], (said["vectors"] + said["loops"]) / 2)
    assert spearman(said["vectors"], said["loops"]) < 1
    assert 0.5 < spearman(said["no embedding"], said["vectors"]) < 1


def test_trees_that_learn_order_speak_on_the_scale_of_throughput(history: list[MeasuredTask]) -> None:
    bases = fit_bases(history_of(history), objective="rank")
    target = layer(128, 56, 64, rows=200, seed=5)
    said = bases.predict(bases.history.standardised(target.task, target.vectors))
    assert spearman(target.label, said[:, 0]) > 0.3
    for crossed, label in zip(bases.crossed, bases.history.labels, strict=True):
        assert np.mean((crossed[:, 0] - label) ** 2) < np.mean(label**2)
    seen = bases.predict(bases.history.inputs[0])[:, 0]
    assert abs(seen.mean() - bases.history.labels[0].mean()) < 0.15
