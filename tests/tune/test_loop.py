"""The loop of auto-tuning on a table of invented throughputs: what ends it, what it charges, and what it keeps when something fails."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import ArrayLike

from workbench.errors import DataError, SpaceError, UsageError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.kernels import kernel
from workbench.kernels.conv import CPU
from workbench.measure.answers import Answer
from workbench.measure.replay import Replay
from workbench.models.surrogate import Adapted, Estimate, Trials
from workbench.schema import Device
from workbench.tune.frameworks import NoModel
from workbench.tune.loop import Budget, Outcome, Tuner, tune
from workbench.tune.search import Candidates, Greedy, RandomSearch

WORKLOAD = kernel("conv2d").workload({"n": 1, "ci": 4, "h": 8, "w": 8, "co": 8, "kh": 3, "kw": 3, "stride": (1, 1), "padding": (1, 1)})
TASK = TuningTask("small", kernel("conv2d"), WORKLOAD, Device("invented-cpu", "cpu"), CPU)


@pytest.fixture(scope="module")
def table() -> MeasuredTask:
    """200 configurations, the first 20 failures."""
    indices = TASK.space.sample(200, 0)
    throughput = np.where(np.arange(200) < 20, 0.0, np.arange(200) + 1.0)
    valid = throughput > 0
    return MeasuredTask(TASK, indices, throughput, valid, np.where(valid, 1.0, np.nan), np.full(200, 0.5), np.where(valid, 0.25, np.nan))


class Knowing(Adapted):
    """Says what the table has, and fails at a number of trials."""

    def __init__(self, table: MeasuredTask, fails_at: int = 1 << 30, error: type[BaseException] = DataError) -> None:
        self.truth = dict(zip(table.indices.tolist(), table.label, strict=True))
        self.fails_at, self.error = fails_at, error

    def update(self, trials: Trials) -> None:
        if len(trials) >= self.fails_at:
            raise self.error("the loss is no number")

    def predict(self, indices: ArrayLike) -> Estimate:
        mean = np.array([self.truth[index] for index in np.asarray(indices).tolist()])
        return Estimate(mean, np.zeros(len(mean)))


def tuner(table: MeasuredTask, model: Adapted | None = None, **options: float) -> Tuner:
    found = model or Knowing(table)
    search = RandomSearch() if isinstance(found, NoModel) else Greedy()
    return Tuner(TASK, found, search, Candidates(TASK.space, table.indices), **{"epsilon": 0.0, **options})  # type: ignore[arg-type]


def test_a_tuning_asks_in_batches_until_the_trials_are_spent(table: MeasuredTask) -> None:
    stands: list[Outcome] = []
    found = tune(tuner(table), Replay(table), Budget(trials=40), batch=16, on_round=stands.append)
    assert found.why == "40 trials"
    assert found.round.tolist() == [0] * 16 + [1] * 16 + [2] * 8
    assert found.trials.throughput.tolist() == list(range(200, 160, -1))
    assert found.predicted.tolist() == (found.trials.throughput / 200).tolist()
    assert found.seconds.shape == (3, 4)
    assert found.seconds[:, 2].tolist() == [8.0, 8.0, 4.0]
    assert found.seconds[:, 3].tolist() == [4.0, 4.0, 2.0]
    assert [(len(stand.trials), stand.why) for stand in stands] == [(16, ""), (32, ""), (40, "40 trials")]


def test_seconds_are_charged_as_recorded_and_as_they_pass_where_not(table: MeasuredTask) -> None:
    found = tune(tuner(table), Replay(table), Budget(seconds=20.0), batch=16)
    assert len(found.trials) == 32  # 12 s a round
    assert found.why.startswith("2")
    assert found.why.endswith(" seconds")

    def silent(indices: np.ndarray) -> Answer:
        time.sleep(0.03)
        answer = Replay(table)(indices)
        return Answer(answer.throughput, answer.valid, np.full(len(indices), np.nan), np.full(len(indices), np.nan))

    found = tune(tuner(table), silent, Budget(trials=64, seconds=0.05), batch=4)
    assert np.isnan(found.seconds[:, 2:]).all()
    assert len(found.trials) in range(4, 12)


def test_it_ends_without_improvement_or_without_candidates(table: MeasuredTask) -> None:
    found = tune(tuner(table), Replay(table), Budget(trials=1000, no_improvement=30), batch=8)
    assert (len(found.trials), found.why) == (32, "31 trials without improvement")
    found = tune(tuner(table), Replay(table), Budget(trials=1000), batch=64)
    assert (len(found.trials), found.why) == (200, "no candidates are left")
    assert len(set(found.trials.indices.tolist())) == 200


def test_rounds_of_failures_alone_are_trials(table: MeasuredTask) -> None:
    failures = table.rows(np.arange(20))
    model = NoModel()
    found = tune(Tuner(TASK, model, RandomSearch(), Candidates(TASK.space, failures.indices)), Replay(failures), Budget(no_improvement=12), batch=8)
    assert (len(found.trials), found.trials.best, found.why) == (16, 0.0, "16 trials without improvement")
    assert np.isnan(found.predicted).all()


@pytest.mark.parametrize(("error", "why"), [(DataError, "the cost model failed: the loss is no number"), (KeyboardInterrupt, "interrupted")])
def test_a_model_that_fails_ends_it_and_nothing_measured_is_lost(table: MeasuredTask, error: type[BaseException], why: str) -> None:
    stands: list[Outcome] = []
    found = tune(tuner(table, Knowing(table, 32, error)), Replay(table), Budget(trials=64), batch=16, on_round=stands.append)
    assert (len(found.trials), len(found.round), len(found.seconds), found.why) == (32, 32, 2, why)
    assert stands[-1].why == why


def test_a_search_that_fails_ends_it(table: MeasuredTask) -> None:
    class Failing(Greedy):
        def propose(self, model, candidates, trials, count, rng):  # type: ignore[no-untyped-def]
            if len(trials):
                raise UsageError("nothing to walk to")
            return super().propose(model, candidates, trials, count, rng)

    found = tune(Tuner(TASK, Knowing(table), Failing(), Candidates(TASK.space, table.indices)), Replay(table), Budget(trials=64), batch=16)
    assert (len(found.trials), found.why) == (16, "the search failed: nothing to walk to")


def test_interrupted_while_measuring_it_gives_what_it_has(table: MeasuredTask) -> None:
    def stopping(indices: np.ndarray) -> Answer:
        if len(tuned.trials) >= 32:
            raise KeyboardInterrupt
        return Replay(table)(indices)

    tuned = tuner(table)
    found = tune(tuned, stopping, Budget(trials=64), batch=16)
    assert (len(found.trials), found.why) == (32, "interrupted")


def test_what_was_told_before_does_not_count(table: MeasuredTask) -> None:
    tuned = tuner(table)
    best = table.indices[-3:]
    tuned.tell(best, [198.0, 199.0, 200.0], [True] * 3)
    found = tune(tuned, Replay(table), Budget(trials=8), batch=8)
    assert found.round.tolist() == [-1] * 3 + [0] * 8
    assert found.trials.throughput.tolist() == [198.0, 199.0, 200.0, *range(197, 189, -1)]
    assert np.isnan(found.predicted[:3]).all()
    assert np.isfinite(found.predicted[3:]).all()


def test_a_share_of_each_batch_is_drawn_by_chance(table: MeasuredTask) -> None:
    tuned = tuner(table, epsilon=0.5, seed=1)
    asked = tuned.ask(100)
    assert len(set(asked.tolist())) == 100
    by_chance = np.sum(~np.isin(asked, table.indices[-100:]))
    assert 10 < by_chance < 45  # half of the half
    assert tuner(table, epsilon=0.5, seed=1).ask(100).tolist() == asked.tolist()
    assert tuner(table, epsilon=0.5, seed=2).ask(100).tolist() != asked.tolist()


def test_what_cannot_be_is_an_error_that_says_so(table: MeasuredTask) -> None:
    with pytest.raises(UsageError, match="without an end; give trials, seconds or no_improvement"):
        Budget()
    with pytest.raises(UsageError, match="budget: seconds is -1; it is above 0"):
        Budget(seconds=-1)
    with pytest.raises(UsageError, match="epsilon is 2"):
        tuner(table, epsilon=2)
    with pytest.raises(UsageError, match="0 configurations asked for"):
        tuner(table).ask(0)
    with pytest.raises(DataError, match="a failure with a throughput of 3"):
        tuner(table).tell(table.indices[:1], [3.0], [False])
    with pytest.raises(SpaceError):
        tuner(table).tell([TASK.space.size], [3.0], [True])
