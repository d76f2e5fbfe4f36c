"""What the parts of two cost models contribute: variants that lack a part, or have another in its place, judged on development tasks alone.

A variant learns from the other tasks, then from random samples of its own, and ranks held-out rows of the task; nothing is tuned but the one batch that a
session has at least.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.errors import UsageError
from workbench.meta.maml import Inner
from workbench.models.boosting import Xgb, XgbXfer, XgbXferShrunk
from workbench.models.hybrid import Hybrid
from workbench.models.metatune import MetaTune
from workbench.models.surrogate import Surrogate
from workbench.paths import project_root
from workbench.reproduce.tuning import comparisons
from workbench.reproduce.tuning.engine import Lookup
from workbench.reproduce.tuning.rows import OURS, View
from workbench.reproduce.tuning.sessions import SAMPLES
from workbench.reproduce.tuning.studies import Plan
from workbench.tune.frameworks import Framework
from workbench.tune.search import Greedy

__all__ = ["BESIDE", "EXPERIMENTS", "METATUNE", "VARIANTS", "Variant", "cache", "effects", "levels", "lookup", "plan", "ranks", "said"]

# Experiments whose development tasks are ranked -> what these are, and random samples after which parts are compared, which all of them have rows enough for.
EXPERIMENTS = {"titanxp-families": ("YOLO's first four layers on a TITAN Xp", 64), "resnet-18-cpu": ("SqueezeNet on one thread of a CPU", 16)}
METATUNE, BESIDE = "MetaTune", "boosted trees"
_BATCH = 16


@dataclass(frozen=True)
class Variant:
    """A cost model, or one that differs from it in one part.

    Attributes:
        model: whose variant it is.
        title: in what it differs.
        recipe: makes it before it has learnt anything.
        base: key of the variant that it is compared with, "" for one that is compared with none.
        transfers: whether it learns from other tasks.
    """

    model: str
    title: str
    recipe: Callable[[], Surrogate]
    base: str
    transfers: bool = True

    @property
    def key(self) -> str:
        """Unlike that of any other."""
        return f"{self.model}: {self.title}"


def _metatune(title: str, base: str = f"{METATUNE}: as published", **options: object) -> Variant:
    return Variant(METATUNE, title, partial(MetaTune, **options), base)  # type: ignore[arg-type]


def _ours(title: str, base: str = f"{OURS}: as it is", **options: object) -> Variant:
    return Variant(OURS, title, partial(Hybrid, **options), base)  # type: ignore[arg-type]


def _beside(title: str, recipe: Callable[[], Surrogate], transfers: bool = True) -> Variant:
    return Variant(BESIDE, title, recipe, f"{OURS}: as it is", transfers)


VARIANTS = {
    one.key: one
    for one in (
        _metatune("as published", base=""),
        _metatune("no super-graph", template=False),
        _metatune("clean few-shot tasks", protocol="clean"),
        _metatune("embedding of 64", embedding=64),
        _metatune("embedding of 32", embedding=32),
        _metatune("no meta-training", outer=0),
        _metatune("first order", inner=Inner(second_order=False)),
        _metatune("last layer adapts alone (ANIL)", inner=Inner(last_layer=True)),
        _metatune("learned step sizes (Meta-SGD)", inner=Inner(learned_rates=True)),
        _metatune("5 inner steps", inner=Inner(steps=5)),
        _ours("as it is", base=""),
        _ours("bases alone", ensemble=0, corrected=()),
        _ours("bases and corrected trees, no process", ensemble=0),
        _ours("bases and processes, no corrected trees", corrected=()),
        _ours("corrected trees also of loop features", corrected=("vectors", "itervar")),
        _ours("no embedding in the kernel", embedding=False),
        _ours("two processes averaged", ensemble=2),
        _ours("no base for feasibility", feasibility=False),
        _ours("tree base learns order", objective="rank"),
        _beside("xgb-Xfer-shrunk", XgbXferShrunk),
        _beside("xgb-Xfer", XgbXfer),
        _beside("xgb", Xgb, transfers=False),
    )
}
# What shows that everything runs, and a part of it that is worth its time.
_SMOKE = (f"{METATUNE}: as published", f"{METATUNE}: no meta-training")
_STANDARD = (
    *_SMOKE,
    f"{METATUNE}: no super-graph",
    f"{OURS}: as it is",
    f"{OURS}: bases and corrected trees, no process",
    f"{BESIDE}: xgb-Xfer-shrunk",
)


def lookup(key: str) -> Framework:
    """A framework that has the variant for a cost model. Raises UsageError for a key that no variant has."""
    if key not in VARIANTS:
        raise UsageError(f"no variant {key!r}; there are {', '.join(VARIANTS)}")
    one = VARIANTS[key]
    return Framework(key, one.title, one.recipe, Greedy, one.transfers)


def _in_a_hurry(key: str) -> Framework:
    # So little learning that it only shows that everything runs.
    found = lookup(key)
    recipe = found.surrogate()
    return replace(found, surrogate=lambda: replace(recipe, rows=40, epochs=2, outer=min(recipe.outer, 5), steps=5)) if isinstance(recipe, MetaTune) else found


def plan(profile: str, seed: int = 0, workers: int = 0, seeds: int = 0) -> tuple[Plan, Lookup]:
    """What a profile runs, and how its variants are looked up: "smoke" two of MetaTune's on one task, which hardly learn, "standard" a handful on two tasks,
    "paper" all on every task with two seeds.

    Args:
        profile: name.
        seed: the first of the seeds.
        workers: processes; 0 is the profile's.
        seeds: how many; 0 is the profile's.

    Raises:
        UsageError: an unknown profile.
    """
    known = {
        "smoke": Plan(_SMOKE, (seed,), 1, _BATCH, SAMPLES[:3], 1),
        "standard": Plan(tuple(key for key in VARIANTS if key in _STANDARD), (seed,), 2, _BATCH, SAMPLES, 2),
        "paper": Plan(tuple(VARIANTS), (seed, seed + 1), None, _BATCH, SAMPLES, 2),
    }
    if profile not in known:
        raise UsageError(f"no profile {profile!r}; use one of {', '.join(known)}")
    chosen = known[profile]
    many = tuple(range(seed, seed + seeds)) or chosen.seeds
    return replace(chosen, seeds=many, workers=workers or chosen.workers), _in_a_hurry if profile == "smoke" else lookup


def cache(find: Lookup) -> Path:
    """Cache of the sessions of variants, whose keys do not say how they are made."""
    made = repr([(key, find(key).surrogate()) for key in VARIANTS])
    return project_root() / "runs" / "cache" / f"ablation-{hashlib.sha256(made.encode()).hexdigest()[:12]}"


def levels(view: View) -> pd.DataFrame:
    """How good each variant is after random samples.

    Returns:
        A row a variant and number of samples: model, variant, samples, rank (correlation, on held-out rows) and mse, means over tasks with 95% intervals over
        them (low, high; NaN for a single task), and seconds, of learning from the other tasks and from the samples, the median of tasks and seeds.
    """
    before = view.frame.groupby("framework", sort=False)["fit_s"].median().fillna(0.0)  # who starts anew has learnt nothing before
    rows = []
    for (key, samples), part in view.accuracies.groupby(["framework", "samples"], sort=False):
        one = VARIANTS[key]
        rank, error = (comparisons.level(part, key, column) for column in ("spearman", "mse"))
        row: dict[str, object] = {"model": one.model, "variant": one.title, "samples": samples}
        row |= {"rank": rank.estimate, "rank low": rank.low, "rank high": rank.high, "mse": error.estimate, "mse low": error.low, "mse high": error.high}
        rows.append({**row, "seconds": before[key] + part["update_s"].median()})
    return pd.DataFrame(rows)


def effects(view: View) -> pd.DataFrame:
    """Each variant beside the one that it is compared with, by task and seed.

    Returns:
        A row a variant and number of samples: model, variant, base (its key), samples, then rank and mse, differences variant minus base as means over tasks
        with 95% intervals over them (low, high). A variant whose base did not run is left out, and so is one that ranks nothing.
    """
    rows = []
    for samples, part in view.accuracies.groupby("samples", sort=False):
        there = set(part["framework"])
        for key, one in VARIANTS.items():
            if not {key, one.base} <= there:
                continue
            rank, error = (comparisons.difference(part, key, one.base, column) for column in ("spearman", "mse"))
            row: dict[str, object] = {"model": one.model, "variant": one.title, "base": one.base, "samples": samples}
            row |= {"rank": rank.estimate, "rank low": rank.low, "rank high": rank.high, "mse": error.estimate, "mse low": error.low, "mse high": error.high}
            rows.append(row)
    columns = ["model", "variant", "base", "samples", "rank", "rank low", "rank high", "mse", "mse low", "mse high"]
    return pd.DataFrame(rows, columns=columns).dropna(subset="rank").reset_index(drop=True)


def ranks(found: pd.DataFrame, samples: int) -> pd.DataFrame:
    """Differences in rank correlation of `effects` after so many samples, for `plots.forest`, with a panel for each model."""
    part = found[found["samples"] == samples].rename(columns={"variant": "label", "rank": "value", "rank low": "low", "rank high": "high"})
    bases = [
        f'{model} variants minus "{VARIANTS[base].title}"' if VARIANTS[base].model == model else f'{model} minus "{base}"'
        for model, base in zip(part["model"], part["base"], strict=True)
    ]
    return part.assign(panel=bases)[["panel", "label", "value", "low", "high"]]


def said(found: pd.DataFrame, samples: int) -> list[str]:
    """What `effects` say after so many samples, a line a variant: its rank correlation is higher, lower, or not told apart, by whether the interval has 0."""
    lines = []
    for row in found[found["samples"] == samples].to_dict("records"):
        low, high = row["rank low"], row["rank high"]
        verdict = "one task tells no interval" if np.isnan(low) else "higher" if low > 0 else "lower" if high < 0 else "not told apart"
        interval = "" if np.isnan(low) else f" [{low:+.3f}, {high:+.3f}]"
        lines.append(f"{row['model']}: {row['variant']}: {verdict}, {row['rank']:+.3f}{interval} against {row['base']}")
    return lines
