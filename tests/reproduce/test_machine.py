"""Models of a machine's matrix kernels and what they select, on invented times."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workbench.data.datasets import Dataset
from workbench.kernels.matrix import KERNELS
from workbench.reproduce.machine import learn, library_times, noise, selected, selection_us
from workbench.schema import Device
from workbench.tune.train import train_selector

LIBRARIES = ("eigen", "boost")


def invented(library: str, rows: int = 60, passes: int = 1) -> Dataset:
    """Synthetic: Eigen takes 1 us and 1 ns an operation, Boost half of the one and four times the other; a second pass is a tenth slower."""
    generator = np.random.default_rng(0)
    sizes = generator.integers(8, 1024, (rows, 2))
    start, step = (1e-6, 1e-9) if library == "eigen" else (5e-7, 4e-9)
    time = start + step * sizes.prod(axis=1)
    frame = pd.DataFrame({"m": sizes[:, 0], "n": sizes[:, 1], "d1": 1.0, "threads": 1, "space": library, "status": "ok", "time_s": time})
    frame["pass_s"] = [[seconds * (1 + 0.1 * p) for p in range(passes)] for seconds in time]
    return Dataset(f"mv in {library}", frame, KERNELS["mv"], Device("here", "cpu"), ("m", "n", "d1"), ("threads",))


def test_half_of_the_rows_train_and_the_others_judge() -> None:
    data = invented("eigen")
    found = learn(data)
    assert found.train.frame["time_s"].tolist() == data.frame["time_s"].tolist()[:30]
    assert found.test["time_s"].tolist() == data.frame["time_s"].tolist()[30:]
    assert len(learn(data, train=20).train.frame) == 20
    assert found.mape < 5
    assert np.abs(found.test["predicted"] / found.test["time_s"] - 1).mean() < 0.1
    assert 0 < found.n_parameters <= 74
    assert found.training_s > 0


def test_the_noise_or_why_it_is_not_known() -> None:
    assert noise(invented("eigen", passes=2)) == pytest.approx((100 / 11 + 10) / 2)
    assert "0 inputs were measured in two passes" in str(noise(invented("eigen")))


def test_what_is_selected_among_libraries_that_were_both_measured() -> None:
    learned = {library: learn(invented(library)) for library in LIBRARIES}
    # What only one library has held out is no fair question.
    tests = {"eigen": learned["eigen"].test, "boost": learned["boost"].test.iloc[5:]}
    times = library_times(tests, ("m", "n", "d1"))
    assert len(times) == 25
    assert (times["c"] == times["m"] * times["n"]).all()
    selector = train_selector([learned[library].train for library in LIBRARIES])
    found = selected(selector, times, LIBRARIES)
    assert (found["best_s"] == found[["eigen", "boost"]].min(axis=1)).all()
    assert (found["chosen_s"] == np.where(found["chosen"] == "eigen", found["eigen"], found["boost"])).all()
    assert found["chosen_s"].sum() <= 1.05 * found["best_s"].sum()
    # Loose: what it takes depends on what else the machine does.
    assert 0 < selection_us(selector, found, 8, rounds=20) < 1000
