"""The process over schedules and sizes, on synthetic times: it is what a dense solve gives, learns from each measurement, and finds what was fast elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from workbench.data.datasets import Dataset
from workbench.errors import DataError
from workbench.kernels import kernel
from workbench.models import process as module
from workbench.models.process import ScheduleProcess, fit_process
from workbench.schema import Device

KNOBS = ("s1", "s2", "s3", "s4")


def synthetic(sizes: tuple[int, ...] = (1000, 2000), schedules: int = 40, level: float = 1.0) -> Dataset:
    """Blur's schedules: the same of every size, of which that with s1 = s4 = 16 is the best; n = 2000 is slower than n^2 by the factor `level`."""
    space = kernel("blur").space(kernel("blur").workload({"n": 1000}), "workbench")
    frame = pd.DataFrame(space.decode(space.sample(schedules, 0)))
    frame = pd.concat([frame.assign(n=n) for n in sizes], ignore_index=True)
    time = 1e-9 * frame["n"] ** 2 * np.exp(0.2 * np.abs(np.log2(frame["s1"]) - 4) + 0.1 * np.abs(np.log2(frame["s4"]) - 4))
    time *= np.exp(0.01 * np.random.default_rng(1).standard_normal(len(frame))) * np.where(frame["n"] == 2000, level, 1.0)
    return Dataset("synthetic", frame.assign(time_s=time, status="ok"), kernel("blur"), Device("invented", "cpu"), ("n",), KNOBS)


def trained(data: Dataset, n: int | None = None) -> ScheduleProcess:
    """On all rows, or on those of one size."""
    return fit_process((data, np.arange(len(data.frame)) if n is None else np.flatnonzero(data.frame["n"] == n)))


def of(data: Dataset, n: int) -> pd.DataFrame:
    return data.frame[data.frame["n"] == n].reset_index(drop=True)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic(level=1.5)


@pytest.fixture(scope="module")
def process(data: Dataset) -> ScheduleProcess:
    return trained(data, 1000)


def dense(process: ScheduleProcess, frame: pd.DataFrame, told: dict[int, float]) -> tuple[Any, Any]:
    """Mean and standard deviation by one solve with all that is known."""
    at, places = process.scaled(frame), list(told)
    known = torch.cat([process.inputs, at[places]])
    median = process.log_median(frame)
    labels = np.concatenate([process.labels.numpy(), [np.log(told[place]) - median[place] for place in places]])
    with torch.no_grad():
        matrix, across, own = (process.kernel(a, b).to_dense().numpy() for a, b in ((known, known), (known, at), (at, at)))
    solved = np.linalg.solve(matrix + process.noise * np.eye(len(labels)), np.column_stack([labels, across]))
    return across.T @ solved[:, 0] + median, np.sqrt(np.maximum(np.diag(own) - np.einsum("ij,ij->j", across, solved[:, 1:]), 1e-9))


def test_each_measurement_leaves_what_a_dense_solve_gives(data: Dataset, process: ScheduleProcess) -> None:
    rows = of(data, 2000)
    asked = process.ask(rows)
    told: dict[int, float] = {}
    for place in (None, 3, 17, 3, 30):
        if place is not None:
            told[place] = float(rows["time_s"][place])
        if place is not None and list(told).index(place) == len(told) - 1:
            asked.tell(place, told[place])
        mean, std = dense(process, rows, told)
        np.testing.assert_allclose(asked.mean, mean, atol=1e-6)
        np.testing.assert_allclose(asked.std, std, atol=1e-6)


def test_one_try_tells_the_level_of_a_size_that_was_not_measured(data: Dataset, process: ScheduleProcess) -> None:
    rows = of(data, 2000)
    asked = process.ask(rows)
    true = np.log(rows["time_s"].to_numpy())
    assert asked.std.min() > 1  # seconds are as good as unknown
    assert np.abs(asked.mean - true).mean() > 0.5  # one size does not tell how times grow with n
    asked.tell(5, float(rows["time_s"][5]))
    assert np.abs(asked.mean - true).mean() < 0.1
    assert asked.std.max() < 1
    # What was told is known but for noise.
    assert asked.std[5] < 1.1 * np.sqrt(process.noise)
    assert asked.std[5] == asked.std.min()
    assert asked.mean[5] == pytest.approx(true[5], abs=0.02)


def test_the_best_of_one_size_is_found_at_once_on_another(data: Dataset, process: ScheduleProcess) -> None:
    rows = of(data, 2000)
    asked = process.ask(rows)
    slow, best = int(rows["time_s"].argmax()), int(rows["time_s"].argmin())
    asked.tell(slow, float(rows["time_s"][slow]))
    found = int(asked.improvement(float(rows["time_s"][slow])).argmax())
    assert rows["time_s"][found] <= 1.05 * rows["time_s"][best]
    asked.tell(found, float(rows["time_s"][found]))
    gains = asked.improvement(float(rows["time_s"][found]))
    assert (gains >= 0).all()
    assert gains[slow] == gains.min()


def test_a_size_that_was_measured_is_predicted_from_its_own_median() -> None:
    """No power law: of three sizes the second is four times slower than the others would have it."""
    data = synthetic((1000, 2000, 4000), level=4.0)
    asked = trained(data).ask(of(data, 2000))
    true = np.log(of(data, 2000)["time_s"].to_numpy())
    assert np.abs(asked.mean - true).max() < 0.1
    assert asked.std.max() < 0.1
    asked.tell(2, float(np.exp(true[2])))
    assert np.abs(asked.mean - true).max() < 0.1


def test_seeds_repeat_and_leave_the_callers_generator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FITTED", 50)  # fewer than there are rows
    data = synthetic()
    rows, everything = of(data, 2000), np.arange(len(data.frame))
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    first, again, other = (fit_process((data, everything), seed).ask(rows).mean for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not any(parameter.requires_grad for parameter in trained(data).kernel.parameters())


@pytest.mark.filterwarnings("ignore:.*added jitter.*")
def test_a_step_far_out_leaves_every_prior_a_density() -> None:
    # An optimizer's step may go so far that rounding makes 0 of a length or a variance, and there the priors have none.
    kernel = module._kernel([0, 1], [2])
    for name, parameter in kernel.named_parameters():
        if parameter.requires_grad:
            parameter.data.fill_(-1e4)
            assert "raw" in name
    for _, owner, prior, closure, _ in kernel.named_priors():
        assert torch.isfinite(prior.log_prob(closure(owner))).all()


def test_rows_that_are_alike_and_knobs_that_never_vary() -> None:
    data = synthetic((1000,), 12)
    frame = pd.concat([data.frame] * 20, ignore_index=True).assign(s2=3, s3=3)
    process = trained(replace(data, frame=frame))
    asked = process.ask(data.frame.assign(n=3000, s2=3, s3=[*[3] * 6, *[6] * 6]))
    assert np.isfinite(asked.mean).all()
    assert np.isfinite(asked.std).all()
    for place in (0, 0, 0, 1):
        asked.tell(place, 1.0)
    assert asked.mean[0] == pytest.approx(0.0, abs=0.05)
    assert np.isfinite(asked.improvement(1.0)).all()


@pytest.mark.parametrize("seconds", [0.0, -1.0, np.nan, np.inf])
def test_what_is_no_time_is_not_learnt(seconds: float, data: Dataset, process: ScheduleProcess) -> None:
    asked = process.ask(of(data, 2000))
    before = asked.mean
    with pytest.raises(DataError, match=r"schedule 4 took .* s, which is no time; a failure is not told"):
        asked.tell(4, seconds)
    np.testing.assert_array_equal(asked.mean, before)


def test_rows_that_cannot_be_learnt_from(data: Dataset) -> None:
    for column, value in (("time_s", np.nan), ("s1", np.nan)):
        frame = data.frame.astype({column: float})
        frame.loc[3, column] = value
        with pytest.raises(DataError):
            trained(replace(data, frame=frame))
