"""Plain averages of other tasks' relative speeds, on invented numbers."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.errors import DataError, UsageError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.kernels import kernel
from workbench.kernels.networks import layer
from workbench.models.averages import Averages
from workbench.models.surrogate import Trials
from workbench.schema import Device


def measured(name: str, number: int, indices: list[int], throughput: list[float]) -> MeasuredTask:
    workload = layer("resnet-18", number).workload
    task = TuningTask(name, kernel("conv2d"), workload, Device(name, "cpu"), "workbench-cpu")
    speed = np.array(throughput)
    nothing = np.full(len(speed), np.nan)
    return MeasuredTask(task, np.array(indices), speed, speed > 0, nothing, nothing, nothing)


def test_averages_of_relative_speeds_with_failures_as_zeros() -> None:
    one, two = measured("one", 2, [3, 5, 7], [10.0, 5.0, 0.0]), measured("two", 2, [3, 7, 9], [2.0, 4.0, 1.0])
    fitted = Averages().fit([one, two])
    model = fitted.adapt(measured("three", 2, [3], [1.0]).task)
    found = model.predict([9, 3, 5, 7, 4])
    assert found.mean.tolist() == [0.125, 0.75, 0.25, 0.5, 0.0]
    assert found.std[1] == 0.25
    assert np.isnan(found.std[4])
    model.update(Trials(np.array([3]), np.array([1.0]), np.array([True])))
    assert model.predict([3]).mean.tolist() == [0.75]


def test_only_one_space_can_be_averaged() -> None:
    one, other = measured("one", 2, [3], [1.0]), measured("other", 3, [3], [1.0])
    with pytest.raises(DataError, match="tasks of 2 spaces"):
        Averages().fit([one, other])
    with pytest.raises(DataError, match="no tasks"):
        Averages().fit([])
    with pytest.raises(UsageError, match="not fitted"):
        Averages().adapt(one.task)
    with pytest.raises(UsageError, match="say nothing about other"):
        Averages().fit([one]).adapt(other.task)
