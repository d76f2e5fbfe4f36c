"""Measures and comparisons of tuning sessions on invented sessions whose numbers are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from small_tuning import hills, pool

from workbench.reproduce.tuning import comparisons, measures
from workbench.reproduce.tuning.engine import Cell
from workbench.reproduce.tuning.experiments import Experiment, Split
from workbench.reproduce.tuning.sessions import Accuracy, Session


def session(label: list[float], predicted: list[float | None], rounds: list[int], rows: list[int] | None = None) -> Session:
    seconds = [[0.1, 0.2, None, 0.5] for _ in set(rounds)]
    accuracy = [Accuracy(16, 0.5, 0.01, 0.02, 0.3), Accuracy(0, None, 0.1, 0.2, 0.0)]
    return Session(rows or list(range(len(label))), label, predicted, rounds, seconds, "done", 3.0, accuracy)


def cell(framework: str, found: Session, task: str = "hill6", seed: int = 0, budget: int = 6) -> Cell:
    return Cell("hills", framework, task, seed, False, budget, found)


def test_curves_and_areas() -> None:
    found = session([0.0, 0.4, 0.2, 0.8], [0.1, 0.1, 0.5, 0.4], [0, 0, 1, 1])
    assert measures.curve(found, 6).tolist() == [0.0, 0.4, 0.4, 0.8, 0.8, 0.8]
    row = measures.measures(hills(), [cell("a", found)]).iloc[0]
    assert row["area"] == pytest.approx(np.mean([0.0, 0.4, 0.4, 0.8, 0.8, 0.8]))
    assert (row["final"], row["family"], row["fit_s"]) == (0.8, "family3", 3.0)
    assert math.isnan(row["best10"])
    assert row["search_s"] == pytest.approx(0.2)
    assert math.isnan(row["build_s"])
    long = session([0.1] * 9 + [0.5] + [0.7] * 119 + [1.0], [None] * 130, [0] * 130)
    row = measures.measures(hills(), [cell("a", long, budget=130)]).iloc[0]
    assert (row["best10"], row["best100"], row["final"]) == (0.5, 0.7, 1.0)
    assert row["area"] == pytest.approx((9 * 0.1 + 0.5 + 118 * 0.7) / 128)  # what came after 128 trials does not count
    assert math.isnan(row["best200"])
    assert math.isnan(row["mse"])


def test_errors_are_of_the_model_that_proposed_from_the_second_round_on() -> None:
    found = session([0.2, 0.4, 0.0, 0.8, 0.6, 0.4], [0.0, 0.0, 0.3, 0.7, None, 0.5], [0, 0, 1, 1, 2, 2])
    # True in round 1: 0 / 0.8 and 0.8 / 0.8; in round 2: 0.4 / 0.8. The trial without a prediction (asked for by no model) does not count.
    row = measures.measures(hills(), [cell("a", found)]).iloc[0]
    assert row["mse"] == pytest.approx((0.3**2 + 0.3**2 + 0.0) / 3)
    assert row["mse_top"] == pytest.approx(0.3**2)  # one of the two valid trials
    by_round = measures.round_errors([cell("a", found)])
    assert by_round["trials"].tolist() == [2, 4, 6]
    assert by_round["mse"].tolist() == pytest.approx([(0.5**2 + 1.0) / 2, 0.09, 0.0])


def test_trials_to_a_share_of_the_best_are_those_of_perturbed_times() -> None:
    target = replace(pool(6), spread=np.empty(0))
    exact = Experiment("exact", "", hills, (Split(target, ()),))
    table = target.measured
    order = np.argsort(table.label)
    rows = [int(order[0]), int(order[len(order) // 2]), int(order[-1]), int(order[-2])]
    found = session([float(table.label[row]) for row in rows], [None] * 4, [0] * 4, rows)
    assert measures.measures(exact, [cell("a", found)])["trials90"].iloc[0] == 3
    late = session([0.0] * 4, [None] * 4, [0] * 4, [int(row) for row in order[:4]])
    assert measures.measures(exact, [cell("a", late)])["trials90"].iloc[0] == 6  # never: the budget
    noisy = replace(target, spread=np.linspace(-0.5, 0.5, 101))
    found_noisy = measures.measures(Experiment("noisy", "", hills, (Split(noisy, ()),)), [cell("a", found)])["trials90"].iloc[0]
    assert 3 < found_noisy <= 6  # by chance another row is the best
    assert measures.measures(Experiment("noisy", "", hills, (Split(noisy, ()),)), [cell("b", found)])["trials90"].iloc[0] == found_noisy


def test_a_network_runs_each_layer_as_often_as_it_has_it() -> None:
    experiment = hills()
    cells = [cell("a", session([0.0, 0.5, 1.0], [None] * 3, [0] * 3), task, budget=3) for task in ("hill6", "hill7")]
    (curves,) = measures.network_curves(experiment, cells).values()
    tables = {split.target.name: split.target for split in experiment.splits}
    # The invented kernel has n GFLOP, and runs n times: 36 and 49 GFLOP in all.
    seconds = sum(n * n / tables[f"hill{n}"].measured.best for n in (6, 7))
    assert curves[0].tolist() == pytest.approx([0.0, 85 / seconds / 2, 85 / seconds])


def test_tasks_and_failures() -> None:
    assert measures.of_tasks(hills(), "report") == ["hill6", "hill7", "hill8", "hill9"]
    assert measures.of_tasks(hills(), "development") == []
    assert measures.of_tasks(hills(), "all") == measures.of_tasks(hills(), "report")
    failed = cell("a", Session.none("cannot"))
    assert measures.failures([failed, cell("b", session([1.0], [None], [0]))]) == {"a": "cannot"}
    assert measures.measures(hills(), [failed]).empty
    assert measures.accuracies(hills(), [failed]).empty
    found = measures.accuracies(hills(), [cell("b", session([1.0], [None], [0]))])
    assert found["samples"].tolist() == [16, 0]
    assert found["spearman"].isna().tolist() == [False, True]


def scores() -> pd.DataFrame:
    rows = []
    for t in range(8):
        for seed in range(3):
            for framework, value in {"good": 0.9 + 0.01 * t, "bad": 0.8 + 0.005 * t, "same": 0.9 + 0.01 * t}.items():
                rows.append({"experiment": "e", "framework": framework, "task": f"t{t}", "seed": seed, "area": value})
    return pd.DataFrame(rows)


def test_comparisons_pair_tasks_and_adjust_for_the_rivals() -> None:
    frame = scores()
    found = comparisons.difference(frame, "good", "bad", "area")
    assert found.estimate == pytest.approx(0.1 + 0.005 * 3.5)
    assert 0.1 <= found.low < found.estimate < found.high <= 0.135
    assert comparisons.ratio(frame, "good", "same", "area").estimate == 1
    assert comparisons.gain(frame, "good", "bad", "area").estimate == pytest.approx(100 * (comparisons.ratio(frame, "good", "bad", "area").estimate - 1))
    assert comparisons.level(frame, "good", "area").estimate == pytest.approx(0.935)
    table = comparisons.against(frame, "good", ["bad", "same", "absent"], "area")
    assert table["rival"].tolist() == ["bad", "same"]
    assert table["wins"].tolist() == [8, 0]
    assert table["p"].tolist() == pytest.approx([1 / 256, 1.0])
    assert table["p_holm"].tolist() == pytest.approx([2 / 256, 1.0])
    assert comparisons.against(frame, "bad", ["good"], "area", higher=False)["p"].iloc[0] == pytest.approx(1 / 256)


def test_one_task_has_no_interval_and_a_search_that_found_nothing_no_ratio() -> None:
    frame = scores()
    alone = comparisons.difference(frame[frame["task"] == "t0"], "good", "bad", "area")
    assert alone.estimate == pytest.approx(0.1)
    assert math.isnan(alone.low)
    assert math.isnan(comparisons.difference(frame, "good", "absent", "area").estimate)
    frame.loc[(frame["task"] == "t0") & (frame["framework"] == "bad"), "area"] = 0.0
    assert comparisons.ratio(frame, "good", "bad", "area").estimate < 1.2
