"""Convolutions become a data set for each kind, which the catalogue and the audit can read. All numbers are invented."""

from __future__ import annotations

import json
import math
import random

import pytest
from typer.testing import CliRunner

from workbench.cli import build
from workbench.data.columns import config_of, workload_of
from workbench.data.datasets import load_dataset
from workbench.data.store import Store
from workbench.kernels import kernel
from workbench.kernels.conv import CPU
from workbench.kernels.networks import layer, network, training_kernels
from workbench.measure.export import export
from workbench.measure.provenance import claim
from workbench.measure.runner import candidates
from workbench.measure.tvm import series
from workbench.schema import Measurement, Status, Workload

MADE_BY = "workbench measure convolutions --target llvm --threads 1 --seed 0 --pin 1"


def fill(store: Store, workload: Workload, *, trials: int = 4, passes: int = 1) -> None:
    """Configurations whose time depends on the tiles, the first of them once more at the end; the second has a wrong result."""
    device = json.dumps({"name": "some-cpu", "kind": "cpu", "model": "Some CPU", "peak_gflops": 100.0})
    provenance = {"compiler": "TVM 99.1, some target", "policy": "time_s is the minimum of times_s", "device": device, "seed": "0", "command": MADE_BY}
    claim(store, series(workload.kernel, "some-cpu"), workload.key, provenance)
    space = kernel(workload.kernel).space(workload, CPU)
    drawn = candidates(space, trials)
    gflop = kernel(workload.kernel).flop(workload.params) / 1e9  # type: ignore[misc]
    noise = random.Random(0)
    for turn in range(passes + 1):
        for place, index in enumerate(drawn if turn < passes else drawn[:1]):
            config = space.config(index)
            time_s = gflop / 50 * (1 + 0.2 * math.log2(config["tile_x"][2])) * (1 + 0.01 * noise.random())  # type: ignore[index]
            attempt = {"space": CPU, "index": index, "config": config, "timestamp": 1.9e9, "compile_s": 0.1}
            if place == 1:
                store.add([Measurement(workload, "some-cpu", Status.WRONG_RESULT, **attempt, error="running: an error of 1")])
            else:
                store.add([Measurement(workload, "some-cpu", Status.OK, time_s, **attempt, times_s=(2 * time_s, time_s))])


def test_each_kind_is_a_data_set_of_plain_columns(tmp_path, root) -> None:
    others = [next(workload for workload in training_kernels() if workload.kernel == kind) for kind in ("conv1d", "conv2d_winograd")]
    layers = [layer("resnet-18", 2).workload, layer("resnet-18", 7).workload]
    with Store(tmp_path / "s.db") as store:
        for workload in (*layers, *others):
            fill(store, workload)
        rows = {"conv-cpu-x-conv1d": 4, "conv-cpu-x-conv2d": 8, "conv-cpu-x-conv2d_winograd": 4}
        assert export(store, "conv-cpu-x", root, notes=["It was measured at night."]) == rows
        records = {(m.workload.key, m.index): m for m in store.rows()}
    for name in ("conv1d", "conv2d_winograd", "conv2d"):
        data = load_dataset(f"conv-cpu-x-{name}")
        assert (data.kernel.name, data.device.name) == (name, "some-cpu")
        assert all(dtype.kind == "i" for dtype in data.frame[list(data.inputs)].dtypes)
        for _, row in data.frame.iterrows():
            workload = workload_of(row["kernel"], row)
            record = records.pop((workload.key, row["index"]))
            assert (record.space, record.config) == (row["space"], config_of(kernel(name).space(workload, row["space"]), row))
            assert row["gflop"] == pytest.approx(kernel(name).flop(workload.params) / 1e9)  # type: ignore[misc]
            assert row["status"] == str(record.status)
            assert (row["time_s"] == pytest.approx(record.time_s)) if record.time_s else math.isnan(row["time_s"])
    assert not records
    assert f"`{MADE_BY} --network resnet-18 --layer 2 --layer 7 --trials 4`" in data.source
    assert f"`{MADE_BY} --set training --trials 4`" in load_dataset("conv-cpu-x-conv1d").source
    assert data.frame["attempts"].tolist() == [2, 1, 1, 1] * 2
    assert data.notes[-1] == "It was measured at night."
    assert "numpy" in data.notes[1]
    assert not any("weights" in note for note in data.notes)
    assert any("the transform of the weights" in note for note in load_dataset("conv-cpu-x-conv2d_winograd").notes)


def test_the_command_names_whole_networks_and_what_was_measured_otherwise(tmp_path, root) -> None:
    with Store(tmp_path / "s.db") as store:
        for number, found in enumerate(network("resnet-18"), 1):
            fill(store, found.workload, trials=4 if number == 3 else 3, passes=2 if number == 5 else 1)
        fill(store, layer("vgg-16", 1).workload, trials=2)
        export(store, "x", root)
        source = load_dataset("x-conv2d").source
    assert f"{MADE_BY} --network resnet-18 --layer 3 --trials 4 && " in source
    assert f"{MADE_BY} --network resnet-18 --layer 5 --trials 3 --passes 2 && " in source
    assert f"{MADE_BY} --network vgg-16 --layer 1 --trials 2`" in source
    with Store(tmp_path / "t.db") as store:
        for found in network("resnet-18"):
            fill(store, found.workload, trials=2)
        export(store, "y", root)
    assert f"`{MADE_BY} --network resnet-18 --trials 2`" in load_dataset("y-conv2d").source


def test_the_audit_finds_signal_and_peak(tmp_path, root) -> None:
    with Store(tmp_path / "s.db") as store:
        fill(store, layer("resnet-18", 2).workload, trials=64)
        export(store, "x", root)
    done = CliRunner().invoke(build(), ["data", "audit", "x-conv2d", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["passed"]
    assert 0.2 < report["peak"]["highest_share"] < 0.6
    assert report["tasks"][0]["signal_r2"] > 0.5
