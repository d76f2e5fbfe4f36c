"""Choosing among schedules, on invented times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from workbench.metrics import spearman
from workbench.models.choice import ChoiceModel, ScheduleChoice

Invent = Callable[..., Any]


def separable(invent: Invent, rows: int = 320) -> Any:
    """Synthetic: a schedule costs the same multiple of n^2 at each of the sizes 16, 32, 64 and 128."""
    data = invent("fft", "cpu", rows=rows, seed=3)
    frame = data.frame
    multiple = 1 + 4 / frame["s1"] + 0.05 * frame["s2"] + 0.02 * frame["s3"]
    noise = np.exp(0.02 * np.random.default_rng(0).standard_normal(rows))
    return replace(data, frame=frame.assign(time_s=1e-9 * frame["n"] ** 2 * multiple * noise))


def test_schedules_of_a_size_never_seen_are_ranked_and_its_seconds_follow_the_power_law(invent: Invent) -> None:
    data = separable(invent)
    seen, left = np.flatnonzero(data.frame["n"] != 128), data.frame[data.frame["n"] == 128]
    (model,) = ScheduleChoice().fit([(data, seen)])
    assert isinstance(model, ChoiceModel)
    predicted = model.predict_time_s(left)
    assert spearman(left["time_s"], predicted) > 0.97
    assert model.law.law[1] == pytest.approx(2, abs=0.15)
    assert np.abs(np.log(predicted / left["time_s"])).mean() < 0.25
    assert all(member.n_parameters <= 74 for member in model.members)
    assert model.n_parameters == sum(member.n_parameters for member in model.members) + 2
    assert {t.column for member in model.members for t in member.terms} == set(data.knobs)  # type: ignore[attr-defined]


def test_one_size_is_predicted_in_seconds(invent: Invent) -> None:
    data = separable(invent, 600)
    data = replace(data, frame=data.frame[data.frame["n"] == 64].reset_index(drop=True))
    rows = np.arange(len(data.frame) - 40)
    (model,) = ScheduleChoice().fit([(data, rows)])
    test = data.frame.iloc[len(rows) :]
    assert np.abs(np.log(model.predict_time_s(test) / test["time_s"])).mean() < 0.06


def test_only_training_rows_count_and_seeds_repeat(invent: Invent) -> None:
    data = separable(invent, 160)
    rows = np.arange(100)
    spoilt = replace(data, frame=data.frame.assign(time_s=np.where(data.frame.index < 100, data.frame["time_s"], 1.0)))
    first, again, other = (ScheduleChoice().fit([(d, rows)], seed)[0].predict_time_s(data.frame) for d, seed in ((data, 0), (spoilt, 0), (data, 1)))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
