"""Held-out choices of schedules, timed again in turns: invented times, and a small blur for real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from workbench.cli import build
from workbench.data.datasets import Dataset
from workbench.data.store import Store
from workbench.errors import DataError
from workbench.kernels import kernel
from workbench.measure.halide import Candidate, halide_workload, open_series
from workbench.models.base import CostModel, Problem, Recipe
from workbench.models.compact import CompactSchedule, Options
from workbench.reproduce import retiming
from workbench.reproduce.live import measure_schedules
from workbench.reproduce.retiming import LEFT_OUT, WITHIN, bars, cases, choose, ratio, retime, settle, time_ratios, trying_s
from workbench.schema import Device
from workbench.tune.tries import Tries

TRIED = {"tried": ("chosen", 5)}
FAST_FIT = {"chosen": CompactSchedule(Options(hidden=0, terms=2, restarts=2, steps=15, inputs="schedule"))}


def invented(sizes: Sequence[int] = (64, 128), schedules: int = 40) -> Dataset:
    """Synthetic: the time of a schedule is n^2 / s4, nothing else counts."""
    frames = []
    for n in sizes:
        space = kernel("blur").space(halide_workload("blur", n), "workbench")
        index = space.sample(schedules, np.random.default_rng(n))
        knobs = pd.DataFrame(space.decode(index))
        frames.append(knobs.assign(n=n, index=index, time_s=1e-9 * n**2 / knobs["s4"], status="ok"))
    return Dataset("invented", pd.concat(frames, ignore_index=True), kernel("blur"), Device("here", "cpu"), ("n",), ("s1", "s2", "s3", "s4"))


class Fake:
    """Gives every candidate the times that it is told, and notes what was asked for."""

    def __init__(self, seconds: dict[Candidate, float]) -> None:
        self.seconds = seconds
        self.asked: list[Candidate] = []
        self.races: list[list[Candidate]] = []

    def race(self, wanted: Sequence[Candidate], repeats: int = 15) -> list[list[float]]:
        self.asked = list(wanted)
        self.races.append(self.asked)
        # A turn in three is disturbed: it must not count.
        return [[self.seconds[candidate] * (3 if turn % 3 == 1 else 1) for turn in range(repeats)] for candidate in wanted]


class Labels:
    """Gives every schedule its label of the least size (or of one) as the time of every turn: of any size the order is the same."""

    def __init__(self, data: Dataset, size: int | None = None) -> None:
        rows = data.frame if size is None else data.frame[data.frame["n"] == size]
        self.seconds = rows.set_index("index")["time_s"].groupby(level=0).min()

    def race(self, wanted: Sequence[Candidate], repeats: int = 15) -> list[list[float]]:
        return [[float(self.seconds[candidate])] * repeats for candidate in wanted]


def test_what_is_chosen_among_was_never_trained_on() -> None:
    data = invented()
    found = cases(data, train=250, splits=2)
    assert [(case.way, case.size, case.split) for case in found] == [
        (way, size, split) for size in (64, 128) for way, split in ((WITHIN, 0), (WITHIN, 1), (LEFT_OUT, 0))
    ]
    sizes = data.frame["n"].to_numpy()
    for case in found:
        assert set(sizes[case.candidates]) == {case.size}
        if case.way == WITHIN:
            assert (len(case.train), len(case.candidates)) == (24, 16)
            assert sorted([*case.train, *case.candidates]) == np.flatnonzero(sizes == case.size).tolist()
        else:
            assert len(case.candidates) == 40
            assert case.size not in sizes[case.train]
    assert not np.array_equal(found[0].train, found[1].train)
    assert [len(case.train) for case in cases(data, train=10) if case.way == WITHIN] == [10] * 6
    assert {case.way for case in cases(invented((64,)))} == {WITHIN}
    with pytest.raises(DataError, match="3 schedules of n = 64 have a time"):
        cases(invented((64,), 3))


def test_choices_and_what_they_were_chosen_from() -> None:
    data = invented()
    wanted = cases(data, splits=1)
    picks = settle(choose(data, FAST_FIT, wanted, tried=TRIED), Labels(data))
    assert picks["choice"].tolist() == ["chosen", "tried", "best", "random"] * 4
    times = data.frame.set_index(["n", "index"])["time_s"]
    for case, (_, group) in zip(wanted, picks.groupby(np.arange(len(picks)) // 4), strict=True):
        candidates = data.frame.iloc[case.candidates]
        of = group.set_index("choice")
        assert set(of["index"]) <= set(candidates["index"])
        assert of.loc["best", "measured_s"] == candidates["time_s"].min()
        # The law is simple enough for a short fit: what it takes for fastest is.
        assert of.loc["chosen", "measured_s"] == candidates["time_s"].min()
        assert of.loc["tried", "measured_s"] <= of.loc["chosen", "measured_s"]
        if case.way == WITHIN:  # one other size does not tell how times grow with n
            assert of.loc["chosen", "predicted_s"] == pytest.approx(of.loc["chosen", "measured_s"], rel=0.2)
        assert (of["candidates"] == len(candidates)).all()
        assert all(times[case.size, row["index"]] == row["measured_s"] for row in of.to_dict("records"))
    assert (picks["training_s"] > 0).all()


def test_every_recipe_has_a_choice_of_its_own() -> None:
    class Slowest(Recipe):
        """Takes the slowest schedules for the fastest."""

        name = "slowest"

        def fit(self, problems: Sequence[Problem], seed: int = 0) -> list[CostModel]:
            return [SlowestModel() for _ in problems]

    class SlowestModel(CostModel):
        name, n_parameters = "slowest", 0

        def predict_time_s(self, frame: pd.DataFrame) -> np.ndarray:
            return 1 / frame["time_s"].to_numpy()

    data = invented((64,))
    wanted = cases(data, splits=1)
    of = settle(choose(data, {**FAST_FIT, "worst": Slowest()}, wanted, tried={**TRIED, "least bad": ("worst", 5)}), Labels(data)).set_index("choice")
    assert list(of.index) == ["chosen", "worst", "tried", "least bad", "best", "random"]
    times = data.frame["time_s"].to_numpy()[wanted[0].candidates]
    assert of.loc["worst", "measured_s"] == times.max()
    assert of.loc["worst", "predicted_s"] == 1 / times.max()
    assert of.loc["best", "measured_s"] == of.loc["chosen", "measured_s"] == times.min()
    # The ranking misleads the first of five tries and the fourth; the process has the others. The prediction is that recipe's.
    assert of.loc["least bad", "measured_s"] < np.median(times)
    assert of.loc["least bad", "predicted_s"] == 1 / of.loc["least bad", "measured_s"]
    assert list(choose(data, FAST_FIT, wanted)["choice"]) == ["chosen", "best", "random"]


def test_who_tries_has_one_measurement_of_each_and_never_takes_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = invented((64,))
    wanted = cases(data, splits=1)
    candidates = wanted[0].candidates
    # The ranking alone counts: the process has no schedule to choose.
    monkeypatch.setattr(retiming, "Tries", lambda ranked, groups: Tries(ranked))
    first = choose(data, FAST_FIT, wanted).set_index("choice").loc["chosen", "index"]
    times = data.frame["time_s"].to_numpy()
    # At first every schedule took 1 s and the first choice failed; one of the others that are ranked first was lucky, and so was the slowest of all.
    (model,) = FAST_FIT["chosen"].fit([(data, wanted[0].train)], 0)
    ranked = candidates[np.argsort(model.predict_time_s(data.frame.assign(c=data.frame["n"] ** 2).iloc[candidates]), kind="stable")]
    assert data.frame["index"].iloc[ranked[0]] == first
    once = np.ones(len(times))
    once[ranked[0]], once[ranked[3]], once[ranked[-1]] = np.nan, 0.5, 0.1
    of = choose(replace(data, frame=data.frame.assign(pass_s=[[a, b] for a, b in zip(once, times, strict=True)])), FAST_FIT, wanted, tried=TRIED)
    of = of.set_index("choice")
    assert of.loc["tried", "index"] == data.frame["index"].iloc[ranked[3]]
    assert of.loc["tried", "measured_s"] == times[ranked[3]]
    assert (of.loc["chosen", "index"], of.loc["best", "measured_s"]) == (first, times[candidates].min())
    # Where all fail the first is left.
    failed = data.frame.assign(pass_s=[[np.nan, time] for time in times])
    assert choose(replace(data, frame=failed), FAST_FIT, wanted, tried=TRIED).set_index("choice").loc["tried", "index"] == first


def test_tries_learn_from_the_size_that_was_left_out() -> None:
    """Synthetic: the schedules of 128 are in the reverse order of what the ranking takes them for; the process finds the best from other sizes' times."""
    data = invented((64, 128), 60)
    frame = data.frame.assign(time_s=1e-9 * data.frame["n"] ** 2 * (1 + np.abs(np.log2(data.frame["s4"]) - 4)))
    data = replace(data, frame=frame)
    wanted = [case for case in cases(data) if case.way == LEFT_OUT and case.size == 128]

    class Backwards(Recipe):
        name = "backwards"

        def fit(self, problems: Sequence[Problem], seed: int = 0) -> list[CostModel]:
            return [BackwardsModel() for _ in problems]

    class BackwardsModel(CostModel):
        name, n_parameters = "backwards", 0

        def predict_time_s(self, frame: pd.DataFrame) -> np.ndarray:
            return 1 / frame["time_s"].to_numpy()

    of = settle(choose(data, {"first": Backwards()}, wanted, tried={"tried": ("first", 5)}), Labels(data, 128)).set_index("choice")
    assert of.loc["first", "measured_s"] > 2 * of.loc["best", "measured_s"]
    assert of.loc["tried", "measured_s"] == of.loc["best", "measured_s"]


def test_between_the_three_that_were_fastest_once_turns_decide() -> None:
    data = invented((64,))
    wanted = cases(data, splits=1)
    candidates = wanted[0].candidates
    # All but four took far longer when they were measured once; by turns the third is the fastest of the first three, which alone take some.
    once = np.full(len(data.frame), 9.0)
    once[candidates[:4]] = 1.0, 1.1, 1.2, 1.3
    data = replace(data, frame=data.frame.assign(pass_s=[[seconds] for seconds in once]))
    picks = choose(data, FAST_FIT, wanted, tried={"tried": ("chosen", len(candidates)), "also": ("chosen", len(candidates))})
    index = data.frame["index"].iloc[candidates[:4]].tolist()
    assert picks.loc[picks["choice"] == "tried", "index"].tolist() == index[:3]
    fake = Fake({index[0]: 5.0, index[1]: 3.0, index[2]: 2.0, index[3]: 1.0})
    settled = settle(picks, fake, 9).set_index("choice")
    assert list(settled.index) == ["chosen", "tried", "also", "best", "random"]
    assert (settled.loc["tried", "index"], settled.loc["also", "index"]) == (index[2], index[2])
    assert settled.loc["tried", "measured_s"] == data.frame["time_s"].iloc[candidates[2]]
    assert (settled.loc[["tried", "also"], "settling_s"] > 0).all()
    assert (settled.loc[["chosen", "best", "random"], "settling_s"] == 0).all()
    assert fake.races == [index[:3]]  # once for both, and never of one alone


def test_what_trying_costs_is_from_one_start_to_the_next() -> None:
    data = invented((64, 128), 4)
    frame = data.frame.assign(timestamp=[0.0, 2.0, 4.0, 900.0, 1000.0, 1001.0, 1002.0, 1003.0])
    # A pause counts for nothing.
    assert [trying_s(replace(data, frame=frame), n) for n in (64, 128)] == [24.0, 12.0]
    assert np.isnan(trying_s(replace(data, frame=frame.iloc[:1]), 64))


def picks_of(size: int, chosen: Sequence[int], best: Sequence[int]) -> pd.DataFrame:
    rows = [("chosen", split, index) for split, index in enumerate(chosen)] + [("best", split, index) for split, index in enumerate(best)]
    return pd.DataFrame([{"way": WITHIN, "size": size, "split": split, "choice": choice, "index": index} for choice, split, index in rows])


def test_each_schedule_is_timed_once_a_turn_and_the_least_counts() -> None:
    fake = Fake({1: 2.0, 2: 1.0, 3: 1.0, "Adams2019": 4.0})
    retimed = retime(picks_of(64, [1, 3], [2, 2]), fake, ["Adams2019"], repeats=9)
    assert fake.asked == ["Adams2019", 1, 3, 2]
    assert retimed.groupby("choice").size().to_dict() == {"Adams2019": 2, "best": 2, "chosen": 2}
    found = time_ratios(retimed, "chosen", "best")
    assert [list(ratios) for ratios in found["ratios"]] == [[2.0] * 3, [1.0] * 3]
    assert [list(ratios) for ratios in time_ratios(retimed, "Adams2019", "chosen")["ratios"]] == [[2.0] * 3, [4.0] * 3]


def test_ratios_over_sizes_with_their_interval() -> None:
    retimed = pd.concat(
        [
            retime(picks_of(64, [1], [2]), Fake({1: 2.0, 2: 1.0, "Adams2019": 3.0}), ["Adams2019"]),
            retime(picks_of(128, [1], [1]), Fake({1: 1.0}), []),
        ],
        ignore_index=True,
    )
    found = ratio(retimed, "chosen", "best")
    assert found.estimate == pytest.approx(2**0.5)
    assert (found.low, found.high) == (pytest.approx(1.0), pytest.approx(2.0))
    # One size has a baseline: the interval is over its turns.
    assert ratio(retimed, "Adams2019", "chosen").estimate == pytest.approx(1.5)
    with pytest.raises(DataError, match="no size has both a schedule 'Li2018' and a schedule 'chosen'"):
        ratio(retimed, "Li2018", "chosen")
    drawn = bars(retimed, ["chosen", "Adams2019", "Li2018"])
    assert drawn[["size", "choice", "ratio"]].round(9).values.tolist() == [[64, "chosen", 2.0], [128, "chosen", 1.0], [64, "Adams2019", 3.0]]


def test_a_small_blur_for_real(tmp_path: Path) -> None:
    pytest.importorskip("halide")
    with Store(tmp_path / "s.db") as store:
        found = measure_schedules(store, "blur", [64, 128], 6)
        before = len(store)
        assert len(found.data.frame) == 12
        assert found.data.frame.groupby("n").size().to_dict() == {64: 6, 128: 6}
        assert found.baselines.groupby("size")["scheduler"].apply(list).to_dict() == {n: ["Mullapudi2016", "Adams2019", "Li2018"] for n in (64, 128)}
        # A second look measures nothing, and a shorter one sees a part.
        assert measure_schedules(store, "blur", [64], 4).data.frame["index"].tolist() == found.data.frame["index"].tolist()[:4]
        assert len(store) == before
    # The command line takes the same series for its own.
    command = ["measure", "halide", "--kernel", "blur", "--n", "64", "--schedules", "6", "--autoschedulers", "--output", str(tmp_path / "s.db")]
    assert CliRunner().invoke(build(), command).exit_code == 0
    with Store(tmp_path / "s.db") as store:
        assert len(store) == before
    picks = choose(found.data, FAST_FIT, cases(found.data, splits=1))
    with open_series(halide_workload("blur", 64)) as runner:
        retimed = retime(picks[picks["size"] == 64], runner, ["Mullapudi2016"], repeats=3)
    assert [len(turns) for turns in retimed["turns_s"]] == [3] * len(retimed)
    assert ratio(retimed, "chosen", "best").estimate > 0
    assert set(retimed["way"]) == {WITHIN, LEFT_OUT}
