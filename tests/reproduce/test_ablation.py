"""The ablation: what its variants are, and tables of invented sessions whose numbers are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_tuning import hills

from workbench.errors import UsageError
from workbench.models.hybrid import Hybrid
from workbench.models.metatune import MetaTune
from workbench.reproduce.tuning import ablation, studies
from workbench.reproduce.tuning.engine import Cell
from workbench.reproduce.tuning.measures import accuracies, failures, measures
from workbench.reproduce.tuning.rows import View
from workbench.reproduce.tuning.sessions import Accuracy, Session

PUBLISHED, PLAIN, FIRST = (f"MetaTune: {title}" for title in ("as published", "no super-graph", "first order"))
OURS, XGB = "workbench: as it is", "boosted trees: xgb"
# Rank correlation of each on each of four tasks; xgb ranks nothing before a sample.
RANKS = {PUBLISHED: (0.7, 0.7, 0.8, 0.8), PLAIN: (0.6, 0.6, 0.6, 0.6), FIRST: (0.6, 0.8, 0.8, 0.8), OURS: (0.8, 0.8, 0.8, 0.9), XGB: (0.9, 0.9, 0.9, 0.95)}


def view(tasks: int = 4) -> View:
    experiment, cells = hills(), []
    for key, ranks in RANKS.items():
        for task, rank in list(zip(("hill6", "hill7", "hill8", "hill9"), ranks, strict=True))[:tasks]:
            for seed in (0, 1):
                known = [Accuracy(samples, None if key == XGB and not samples else rank, 1 - rank, 0.1, 0.5) for samples in (0, 64)]
                seconds = None if key == XGB else 10.0 + seed
                cells.append(Cell("hills", key, task, seed, True, 1, Session([0], [1.0], [1.0], [0], [[0.0] * 4], "done", seconds, known)))
    study = studies.Study(experiment, tuple(cells), measures(experiment, cells), accuracies(experiment, cells), failures(cells))
    return View("hills", (study,))


def test_levels() -> None:
    table = ablation.levels(view()).set_index(["model", "variant", "samples"])
    one = table.loc[("MetaTune", "as published", 64)]
    assert one["rank"] == pytest.approx(0.75)
    assert one["mse"] == pytest.approx(0.25)
    assert 0.7 <= one["rank low"] < 0.75 < one["rank high"] <= 0.8
    assert one["seconds"] == pytest.approx(11.0)
    assert table.loc[("boosted trees", "xgb", 64), "seconds"] == pytest.approx(0.5)
    assert np.isnan(table.loc[("boosted trees", "xgb", 0), "rank"])


def test_effects_and_what_they_say() -> None:
    found = ablation.effects(view())
    after = found[found["samples"] == 64].set_index(["model", "variant"])
    assert after.loc[("MetaTune", "no super-graph"), "rank"] == pytest.approx(-0.15)
    assert after.loc[("MetaTune", "no super-graph"), "mse"] == pytest.approx(0.15)
    assert after.loc[("boosted trees", "xgb"), "base"] == OURS
    assert ("MetaTune", "as published") not in after.index
    assert "xgb" not in set(found.loc[found["samples"] == 0, "variant"])  # it ranks nothing then
    lines = ablation.said(found, 64)
    assert lines[0] == "MetaTune: no super-graph: lower, -0.150 [-0.200, -0.100] against MetaTune: as published"
    assert [line.split(": ")[2].split(",")[0] for line in lines] == ["lower", "not told apart", "higher"]
    panels = ablation.ranks(found, 64).groupby("panel", sort=False)["label"].agg(list).to_dict()
    assert panels == {'MetaTune variants minus "as published"': ["no super-graph", "first order"], f'boosted trees minus "{OURS}"': ["xgb"]}
    assert "one task tells no interval" in ablation.said(ablation.effects(view(tasks=1)), 64)[0]
    assert ablation.said(found, 16) == []


def test_every_variant_is_another_model_and_the_bases_are_the_frameworks_own() -> None:
    recipes = {key: repr(one.recipe()) for key, one in ablation.VARIANTS.items()}
    assert len(set(recipes.values())) == len(recipes)
    assert recipes[PUBLISHED] == repr(MetaTune())
    assert recipes[OURS] == repr(Hybrid())
    assert {one.base for one in ablation.VARIANTS.values()} - {""} <= set(recipes)
    with pytest.raises(UsageError, match="no variant 'nothing'; there are MetaTune: as published"):
        ablation.lookup("nothing")


def test_plans() -> None:
    smoke, hurried = ablation.plan("smoke", seed=3)
    assert (smoke.seeds, smoke.tasks, smoke.workers) == ((3,), 1, 1)
    quick, whole = (find(PUBLISHED).surrogate() for find in (hurried, ablation.lookup))
    assert isinstance(quick, MetaTune)
    assert isinstance(whole, MetaTune)
    assert quick.epochs < whole.epochs
    assert hurried("MetaTune: no meta-training").surrogate() == replace(quick, outer=0)
    assert ablation.cache(hurried) != ablation.cache(ablation.lookup)
    paper, _ = ablation.plan("paper", workers=1)
    assert (set(paper.frameworks), paper.seeds, paper.tasks, paper.workers) == (set(ablation.VARIANTS), (0, 1), None, 1)
    assert set(ablation.plan("standard")[0].frameworks) < set(paper.frameworks)
    assert ablation.plan("paper", seed=2, seeds=1)[0].seeds == (2,)
    with pytest.raises(UsageError, match="no profile 'quick'"):
        ablation.plan("quick")
