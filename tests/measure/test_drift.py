"""Drift is told from what was measured twice: the first time against the last, failures aside."""

from __future__ import annotations

import math

import pytest

from workbench.data.store import Store
from workbench.measure.drift import drift, drift_of_times
from workbench.schema import Measurement, Status, Workload


def record(m: int, time_s: float | None, threads: int = 1, space: str = "eigen") -> Measurement:
    status = Status.OK if time_s is not None else Status.TIMEOUT
    return Measurement(Workload("mv", {"m": m}), "some-cpu", status, time_s, space=space, config={"threads": threads})


def test_drift_by_hand(tmp_path):
    with Store(tmp_path / "store.db") as store:
        store.add([record(1, 1.0), record(2, 1.0), record(3, 1.0), record(4, None), record(5, 1.0), record(1, 5.0, threads=2), record(1, 7.0, space="boost")])
        assert drift(store).pairs == 0
        assert math.isnan(drift(store).ratio)
        assert str(drift(store)) == "nothing was measured twice"
        store.add([record(1, 9.9), record(1, 1.1), record(2, 0.8), record(3, 1.02), record(4, 2.0), record(5, None)])
        found = drift(store, space="eigen")
    assert found.pairs == 3
    assert found.ratio == pytest.approx(1.02)
    assert found.spread == pytest.approx(0.1)
    assert found.worst == pytest.approx(0.8)
    assert str(found) == "3 measured again: +2.0% in the median, 10.0% apart, the worst -20.0%"


def test_drift_of_the_times_in_a_data_set() -> None:
    found = drift_of_times([[1.0, math.nan, 1.1], [2.0], [1.0, 0.9], [math.nan, 1.0], [1.0, math.nan]])
    assert (found.pairs, found.worst) == (2, pytest.approx(0.9))
    assert found.ratio == pytest.approx(math.sqrt(1.1 * 0.9))
