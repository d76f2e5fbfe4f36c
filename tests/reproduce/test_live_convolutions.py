"""Convolutions measured into a store by a runner that only says so, and what is made of them layer by layer. All times are invented."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.data.columns import config_of, workload_of
from workbench.data.datasets import Dataset
from workbench.data.store import Key, Store
from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.kernels.conv import CPU
from workbench.kernels.networks import layer, training_kernels
from workbench.measure import runner, tvm
from workbench.reproduce import convolutions
from workbench.reproduce.live import measure_convolutions
from workbench.schema import Device, Measurement, Status, Workload

FIRST, SECOND = layer("resnet-18", 2).workload, layer("resnet-18", 7).workload
HERE = Device("here", "cpu")


def seconds(workload: Workload, index: int) -> float | None:
    """As the inner tile of the output channels says; none where it is one channel wide."""
    width = kernel(workload.kernel).space(workload, CPU).config(index)["tile_f"][2]  # type: ignore[index]
    return None if width == 1 else 0.01 / width


class Saying(runner.Runner[int]):
    """Every further attempt of a configuration takes a tenth more than the first."""

    best_s = None
    series = "fake"
    provenance: dict[str, str] = {"policy": "none"}  # noqa: RUF012
    measured: int = 0

    def __init__(self, workload: Workload, **_: Any) -> None:
        self.workload, self.device, self.space = workload, HERE, kernel(workload.kernel).space(workload, CPU)
        self.seen: set[int] = set()

    def key(self, candidate: int) -> Key:
        return Key.of(self.workload, self.device.name, self.space.name, candidate)

    def close(self) -> None: ...

    def measure(self, wanted: Iterable[int]) -> Iterator[Measurement]:
        for index in wanted:
            time_s = seconds(self.workload, index)
            again = 1.1 if index in self.seen else 1.0
            self.seen.add(index)
            Saying.measured += 1
            common: dict[str, Any] = {"space": self.space.name, "index": index, "config": self.space.config(index), "compile_s": 0.5}
            common["timestamp"] = 1000.0 + 2 * Saying.measured
            if time_s is None:
                yield Measurement(self.workload, "here", Status.TIMEOUT, **common, error="running: too long")
            else:
                times = (3 * again * time_s, 1.5 * again * time_s, again * time_s)
                yield Measurement(self.workload, "here", Status.OK, again * time_s, **common, times_s=times)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    with pytest.MonkeyPatch.context() as patch, Store(tmp_path_factory.mktemp("store") / "s.db") as store:
        patch.setattr(tvm, "open_series", lambda workload, **options: Saying(workload, **options))
        found = measure_convolutions(store, [FIRST, SECOND], 80)
        assert len(store) == 2 * (80 + 3)
        pd.testing.assert_frame_equal(measure_convolutions(store, [FIRST, SECOND], 80).frame, found.frame)
        few = measure_convolutions(store, [SECOND], 10).frame
        assert few["index"].tolist() == found.frame["index"].tolist()[80:90]
        assert len(store) == Saying.measured == 2 * (80 + 3)  # nothing twice
    return found


def test_every_configuration_is_a_row_failures_too(measured: Dataset) -> None:
    assert (measured.kernel.name, measured.device, len(measured.frame)) == ("conv2d", HERE, 160)
    assert all(dtype.kind == "i" for dtype in measured.frame[list(measured.inputs)].dtypes)
    for _, row in measured.frame.iterrows():
        workload = workload_of("conv2d", row)
        time_s = seconds(workload, row["index"])
        assert row["status"] == ("timeout" if time_s is None else "ok")
        assert math.isnan(row["time_s"]) if time_s is None else row["time_s"] == time_s
        assert row["gflop"] == kernel("conv2d").flop(workload.params) / 1e9  # type: ignore[misc]
    assert measured.frame["attempts"].value_counts().to_dict() == {1: 154, 2: 6}


def test_the_table_of_layers_by_hand(measured: Dataset) -> None:
    table = convolutions.layer_table(measured).set_index("layer")
    assert list(table.index) == ["resnet-18 2", "resnet-18 7"]
    for workload, rows in convolutions.layers(measured):
        found = table.loc[convolutions.name_of(workload)]
        failed = int((rows["status"] == "timeout").sum())
        assert failed > 0
        assert (found["tried"], found["ok"], found["failed"]) == (80, 80 - failed, f"{failed} timeout")
        fastest = rows.loc[rows["time_s"].idxmin()]
        assert found["best"] == pytest.approx(fastest["gflop"] / fastest["time_s"])
        assert found["worst"] == pytest.approx(fastest["gflop"] / rows["time_s"].max())
        assert found["worst"] < found["median"] < found["best"]
        config = config_of(kernel("conv2d").space(workload, CPU), fastest)
        assert f"tile_f {'x'.join(map(str, config['tile_f']))}, " in found["best_config"]  # type: ignore[arg-type]
        assert (found["median_repeat"], found["slowest_repeat"]) == pytest.approx((50, 200))
        both = [seconds(workload, index) is not None for index in rows.loc[rows["attempts"] > 1, "index"]]
        assert found["again"] == sum(both) > 0
        assert (found["drift"], found["apart"]) == pytest.approx((10, 10))
        assert found["signal_r2"] > 0.9
        assert found["build_s"] == pytest.approx(80 * 0.5)
        assert found["timed_s"] == pytest.approx(5.5 * rows["time_s"].sum())
        assert found["wall_s"] == pytest.approx(80 * 2)


def test_a_layer_of_which_nothing_ran_and_one_too_small_to_audit(measured: Dataset) -> None:
    small = convolutions.first_layers(measured, 1)
    assert [workload for workload, _ in convolutions.layers(small)] == [FIRST]
    assert convolutions.first_layers(measured, None) is measured
    failed = small.frame[small.frame["status"] != "ok"].head(5)
    (row,) = convolutions.layer_table(replace(small, frame=failed)).to_dict("records")
    assert (row["tried"], row["ok"], row["failed"], row["best_config"]) == (5, 0, "5 timeout", "")
    assert np.isnan([row["best"], row["median"], row["worst"], row["median_repeat"], row["drift"], row["signal_r2"]]).all()
    assert np.isnan(convolutions.speeds(failed)).all()


def test_recorded_configurations_are_those_of_the_workload_and_the_space(measured: Dataset) -> None:
    other = replace(measured, name="other", kernel=kernel("depthwise_conv2d"))
    found = convolutions.recorded([other, measured], SECOND, CPU)
    rows = measured.frame.iloc[80:]
    assert found["index"].tolist() == rows[rows["status"] == "ok"].sort_values("time_s")["index"].tolist()
    assert set(found["data_set"]) == {measured.name}
    assert found["speed"].is_monotonic_decreasing
    for nothing in (convolutions.recorded([measured], SECOND, "workbench-gpu"), convolutions.recorded([], SECOND, CPU)):
        assert len(nothing) == 0
        assert list(nothing) == list(found)


def test_convolutions_have_names_in_print() -> None:
    assert convolutions.name_of(layer("vgg-16", 4).workload) == "vgg-16 4"
    third = [workload for workload in training_kernels() if workload.kernel == "conv1d"][2]
    assert convolutions.name_of(third) == "training conv1d 3"
    other = kernel("conv1d").workload({**third.params, "ci": 7})
    assert convolutions.name_of(other) == other.key


def test_kinds_are_not_mixed(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        with pytest.raises(UsageError, match="convolutions of conv2d and depthwise_conv2d; one kind makes a data set"):
            measure_convolutions(store, [FIRST, layer("mobilenet-v1", 1).workload], 4)
        with pytest.raises(UsageError, match="convolutions of no kind"):
            measure_convolutions(store, [], 4)
