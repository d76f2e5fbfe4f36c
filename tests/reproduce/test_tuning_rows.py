"""Scorecard rows and tables of the tuning experiments, from invented sessions whose numbers are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_tuning import hills

from workbench.errors import UsageError
from workbench.reproduce.claims import Row, load_claims
from workbench.reproduce.outputs import Outputs
from workbench.reproduce.tuning import rows, studies, tables
from workbench.reproduce.tuning.engine import Cell
from workbench.reproduce.tuning.experiments import Experiment
from workbench.reproduce.tuning.measures import accuracies, failures, measures
from workbench.reproduce.tuning.sessions import Accuracy, Session

TASKS = ("hill6", "hill7", "hill8", "hill9")
# Framework -> throughput that every session of it ends with, and the error of its model.
ENDS = {"xgb": (0.80, 0.2), "meta-BO-T": (0.88, 0.1), "RL": (0.80, 0.2), "meta-BO": (0.84, 0.1), "workbench": (0.96, 0.05), "xgb-Xfer-shrunk": (0.9, 0.1)}


def session(end: float, error: float) -> Session:
    label = [0.4] * 8 + [end] * 32
    rounds = [number // 8 for number in range(40)]
    accuracy = [Accuracy(samples, end, error, error, 0.0) for samples in (0, 16, 64, 256)]
    said: list[float | None] = [float(value) / end + error for value in label]
    return Session(list(range(40)), label, said, rounds, [[6.0, 12.0, 30.0, 12.0]] * 5, "done", 60.0, accuracy)


def study(ends: dict[str, tuple[float, float]] = ENDS, tasks: Iterable[str] = TASKS, failed: str = "") -> studies.Study:
    experiment = replace(hills(), note="invented")
    cells = [Cell("hills", name, task, seed, False, 40, session(*end)) for name, end in ends.items() for task in tasks for seed in (0, 1)]
    cells += [Cell("hills", failed, task, 0, False, 40, Session.none("it has no hands")) for task in tasks if failed]
    return studies.Study(experiment, tuple(cells), measures(experiment, cells), accuracies(experiment, cells), failures(cells))


def empty() -> studies.Study:
    nothing = Experiment("none", "Nothing", hills, reason="data are out of reach")
    return studies.Study(nothing, (), measures(nothing, []), accuracies(nothing, []), {})


def rows_of(out: Outputs) -> dict[tuple[str, str], Row]:
    return out._rows


def test_the_area_that_is_lost_is_shared_among_the_parts_of_a_session() -> None:
    found = {"hills": study(failed="clumsy"), "none": empty()}
    table = tables.lost_table(rows.views(found, ["hills", "none"])).set_index("framework")
    assert "clumsy" not in table.index
    assert (table["families"] == 2).all()
    parts = ["first batch", "to trial 64", "later"]
    np.testing.assert_allclose(table.loc["xgb", parts].to_numpy(dtype=float), [(8 * 0.6 + 8 * 0.2) / 40, 24 * 0.2 / 40, 0])
    areas = found["hills"].measures.groupby("framework")["area"].mean()
    np.testing.assert_allclose(1 - table[parts].sum(axis=1), areas[table.index])


def test_gains_are_over_the_rival_and_what_did_not_run_is_said(tmp_path: Path) -> None:
    found = {"hills": study(), "none": empty()}
    out = Outputs(tmp_path, task="metatune-output-performance")
    rows.performance_rows(out, rows.views(found, ["hills", "none"]))
    rows.area_rows(out, rows.views(found, ["hills"]))
    made = rows_of(out)
    first = made["metatune.figure06", "Invented hills"]
    assert first.effect == pytest.approx(10.0)
    assert (first.effect_low, first.effect_high) == pytest.approx((10.0, 10.0))
    assert (first.n_tasks, first.data_sets, first.devices, first.note) == (4, ("invented",), ("invented device",), "invented")
    assert made["metatune.figure06", "Nothing"].reason == "data are out of reach"
    assert ("metatune.claim.over_xgb", "Nothing") not in made  # said once, beside the figure
    assert made["metatune.claim.supergraph", "Invented hills"].effect == pytest.approx(100 * (0.88 / 0.84 - 1))
    assert made["metatune.claim.meta_rl_over_rl", "Invented hills"].reason == "meta-RL did not run (profile or parameter)"
    assert made["metatune.claim.xgb_best_reached", "Invented hills"].value == pytest.approx(100 * 9 / 40)
    assert made["own.metatune.area_xgb", "Invented hills"].effect == pytest.approx(0.16 * 32 / 40)
    assert made["own.metatune.area_xfer", "Invented hills"].reason == "xgb-Xfer did not run (profile or parameter)"
    assert made["own.metatune.trials90", "Invented hills"].value is not None
    claims = {claim.id for claim in load_claims().values() if claim.task == "metatune-output-performance"}
    assert claims - {"metatune.figure05"} == {claim for claim, _ in made}


def test_searches_are_not_compared_where_all_rank_one_pool(tmp_path: Path) -> None:
    ranked = study({**ENDS, "meta-RL": (0.9, 0.1)})
    ranked = replace(ranked, experiment=replace(ranked.experiment, exhaustive=False))
    out = Outputs(tmp_path, task="metatune-output-performance")
    rows.performance_rows(out, rows.views({"hills": ranked}, ["hills"]))
    made = {claim: row.reason for (claim, _), row in rows_of(out).items()}
    for claim in ("over_rl", "meta_bo_over_rl", "meta_rl_over_rl", "meta_rl_over_t"):
        assert made[f"metatune.claim.{claim}"] == "ranking only: no search goes its way here, and RL ranks as xgb does"
    assert not made["metatune.claim.over_xgb"]


def test_all_meta_models_together_are_their_geometric_mean(tmp_path: Path) -> None:
    ends = {name: (value, 0.1) for name, value in {"meta-BO": 0.8, "meta-BO-T": 0.8, "meta-RL": 0.9, "meta-RL-T": 0.9, "xgb-Xfer": 0.75}.items()}
    out = Outputs(tmp_path, task="metatune-output-performance")
    rows.performance_rows(out, rows.views({"hills": study(ends)}, ["hills"]))
    assert rows_of(out)["metatune.claim.over_xfer", "Invented hills"].effect == pytest.approx(100 * (np.sqrt(0.8 * 0.9) / 0.75 - 1))


def test_errors_and_accuracies(tmp_path: Path) -> None:
    found = {"hills": study()}
    out = Outputs(tmp_path, task="metatune-model-error")
    (view,) = rows.views(found, ["hills"])
    rows.error_rows(out, [view], tables.early_errors)
    rows.accuracy_rows(out, [view], view)
    made = {claim: row for (claim, _), row in rows_of(out).items()}
    assert made["metatune.table04"].effect == pytest.approx(0.2**2 - 0.1**2)
    assert made["metatune.claim.mse_top"].effect == pytest.approx(0.2**2 - 0.1**2)
    assert made["own.metatune.rank64"].effect == pytest.approx(0.06)
    assert made["own.metatune.mse16"].effect == pytest.approx(0.05)
    assert made["own.metatune.rank_aim"].value == pytest.approx(0.96)
    assert {claim.id for claim in load_claims().values() if claim.task == "metatune-model-error"} == set(made)
    table = tables.error_table([view]).set_index(["tasks", "framework"])
    assert table.loc[("Invented hills", "meta-BO"), "MSE"] == pytest.approx(0.01)
    assert table.loc[("paper: ResNet-18", "xgb"), "MSE(D)"] == 0.6318
    assert ("paper: ResNet-18", "meta-BO-T") not in table.index  # not legible
    accuracy = tables.accuracy_table([view]).set_index(["framework", "samples"])
    assert accuracy.loc[("workbench", 64), "rank"] == pytest.approx(0.96)
    assert tables.error_curves(view)["trials"].unique().tolist() == [8, 16, 24, 32, 40]


def test_other_devices(tmp_path: Path) -> None:
    found = {"hills": study({**ENDS, "xgb-Xfer": (0.85, 0.1)})}
    out = Outputs(tmp_path, task="metatune-cross-platform")
    (view,) = rows.views(found, ["hills"])
    rows.cross_rows(out, [view])
    rows.amd_rows(out, "no AMD", "none")
    rows.gpu_rows(out, view)
    made = {claim: row for (claim, _), row in rows_of(out).items()}
    assert made["metatune.claim.titanxp_xfer"].effect == pytest.approx(100 * (0.88 / 0.85 - 1))
    assert made["metatune.figure08"].reason == "no AMD"
    assert made["own.metatune.gpus20"].value == pytest.approx(0.96)
    assert made["own.metatune.gpus50"].reason == "sessions of fewer than 50 trials"
    assert {claim.id for claim in load_claims().values() if claim.task == "metatune-cross-platform"} == set(made)
    table = tables.best_table(view).set_index(["task", "framework"])
    assert table.loc[("hill6", "xgb"), "after 20"] == pytest.approx(0.8)
    assert "after 50" not in table.columns
    gains = tables.final_gains(view).set_index("framework")["value"]
    assert gains.loc["xgb"] == 1.0
    assert gains.loc["meta-BO"] == pytest.approx(1.05)
    assert tables.task_curves(found["hills"], "hill99") == "not among the tasks of this run"
    assert len(tables.task_curves(found["hills"], "hill6")) == 7 * 40


def test_times(tmp_path: Path) -> None:
    found = {"hills": study()}
    out = Outputs(tmp_path, task="metatune-tuning-time")
    (view,) = rows.views(found, ["hills"])
    rows.time_rows(out, [view], tables.minutes)
    made = {claim: row for (claim, _), row in rows_of(out).items()}
    assert made["metatune.table03"].effect == 1.0
    assert made["metatune.claim.meta_bo_fastest"].effect == 1.0
    assert set(made) == {claim.id for claim in load_claims().values() if claim.task == "metatune-tuning-time"}
    phases = tables.phase_table(view).set_index(["framework", "phase"])["value"]
    assert phases["xgb", "build"] == pytest.approx(4 * 5 * 30 / 60)
    assert phases["xgb", "learning before"] == pytest.approx(1.0)  # once for all four tasks


def test_a_framework_that_cannot_is_named(tmp_path: Path) -> None:
    (view,) = rows.views({"hills": study(failed="meta-BO-T")}, ["hills"])
    assert view.lacks(["meta-BO-T", "xgb"]) == "meta-BO-T cannot tune here: it has no hands"
    joined = rows.merged({"hills": study(), "none": empty()}, ["hills", "none"], "both")
    assert not joined.reason
    assert rows.merged({"none": empty()}, ["none"], "none").lacks(["xgb"]) == "data are out of reach"


def test_marks_are_where_the_rival_s_line_is_reached() -> None:
    panel = tables.network_panel(study({"xgb": (0.8, 0.1), "RL": (0.9, 0.1), "random": (0.5, 0.1)}))
    assert tables.reached_marks(panel) == {"RL": 9.0}
    assert tables.reached_marks(panel[panel["framework"] != "xgb"]) == {}


def test_plans() -> None:
    smoke = studies.plan("smoke", seed=3)
    assert (smoke.frameworks, smoke.seeds, smoke.workers) == (("random", "xgb"), (3,), 1)
    assert studies.plan("paper", 3, seeds=2).seeds == (3, 4)
    paper = studies.plan("paper", frameworks=["XGB", "averages"], workers=4)
    assert (paper.frameworks, len(paper.seeds), paper.workers) == (("xgb", "averages"), 3, 4)
    assert studies.timed_plan("paper").samples == ()
    assert [len(studies.timed_plan("paper", seeds=seeds).seeds) for seeds in (0, 1, 3)] == [2, 1, 2]
    with pytest.raises(UsageError, match="no profile 'quick'"):
        studies.plan("quick")
    with pytest.raises(UsageError, match="no framework 'magic'"):
        studies.plan("paper", frameworks=["magic"])
