"""Convolutions measured one after another on an emulated device, into a store, from where they become a data set; every fault is a measurement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from workbench.cli import build
from workbench.data.columns import config_of, workload_of
from workbench.data.datasets import load_dataset
from workbench.data.store import Store
from workbench.errors import DeviceError, SpaceError, UsageError, WorkbenchError
from workbench.kernels import kernel
from workbench.kernels.conv import GPU
from workbench.kernels.limits import exceeded
from workbench.measure.cuda import live
from workbench.measure.cuda.convolutions import draw
from workbench.measure.export import export
from workbench.measure.runner import measure_missing
from workbench.measure.timing import Policy
from workbench.schema import Status

FAST = Policy(repeats=4, at_least=2, limit_s=0.01, warmup_s=0.0, batch_s=2e-5)
SMALL = kernel("conv1d").workload({"n": 1, "ci": 4, "w": 12, "co": 8, "kw": 3, "stride": 1, "padding": 1})


@pytest.fixture
def session(emulated: None) -> Iterator[live.Session]:
    with live.Session(policy=FAST, workers=1) as found:
        yield found


def test_a_series_goes_on_and_becomes_a_data_set(session: live.Session, tmp_path: Path, root: Path) -> None:
    drawn = [one.index for one in draw(SMALL, 4)]
    with Store(tmp_path / "s.db") as store:
        with live.open_series(SMALL, session, seed=7) as runner:
            assert runner.device.name == "emulated-gpu-9000"
            first = next(iter(measure_missing(store, runner, drawn)))
            assert (first.status, first.index, first.space) == (Status.OK, drawn[0], GPU)
            assert first.time_s == min(first.times_s)
            assert first.compile_s is not None
            assert first.config == runner.space.config(drawn[0])
            assert runner.best_s == first.time_s
        with live.open_series(SMALL, session, seed=7) as runner:
            rest = list(measure_missing(store, runner, [*drawn, drawn[0]], times=1))
            assert [one.index for one in rest] == drawn[1:]
            assert {one.status for one in rest} == {Status.OK}
            assert runner.best_s == min(first.time_s, *(one.time_s for one in rest))
            with pytest.raises(SpaceError):
                list(runner.measure([runner.space.size]))
        with live.open_series(SMALL, session, seed=8) as other, pytest.raises(UsageError, match="use another store"):
            list(measure_missing(store, other, drawn))
        assert export(store, "conv-gpu-x", root) == {"conv-gpu-x-conv1d": 4}
    data = load_dataset("conv-gpu-x-conv1d")
    assert (data.device.name, data.device.kind) == ("emulated-gpu-9000", "gpu")
    assert [config_of(kernel("conv1d").space(SMALL, GPU), row) for _, row in data.frame.iterrows()] == [runner.space.config(index) for index in drawn]
    assert workload_of("conv1d", data.frame.iloc[0]) == SMALL
    assert "direct computation in double precision" in data.notes[1]
    assert "workbench measure convolutions --target cuda --seed 7" in data.source
    assert json.loads(runner.provenance["device"])["kind"] == "gpu"


@pytest.mark.slow
def test_what_cannot_run_is_a_measurement_and_a_slow_one_is_not_repeated(session: live.Session) -> None:
    wide = kernel("conv1d").workload({**SMALL.params, "co": 2048})
    indices = np.asarray(kernel("conv1d").space(wide, GPU).sample(2000, 0))
    broken = exceeded(wide, indices)
    refused = int(indices[np.flatnonzero(broken["threads"] & ~broken["virtual_threads"] & ~broken["shared_bytes"])[0]])
    with live.Runner(wide, session, ahead=0) as runner:
        (one,) = runner.measure([refused])
        assert one.status in (Status.INVALID_CONFIG, Status.COMPILE_ERROR), one
        assert one.time_s is None
    with live.Runner(SMALL, session, hopeless=0.001) as runner:
        drawn = [one.index for one in draw(SMALL, 2)]
        first, second = runner.measure(drawn)
        assert len(first.times_s) >= 2
        assert len(second.times_s) == 1  # by then there is a best one to be slower than


def test_a_device_that_computes_otherwise_is_told(session: live.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.gpu, "verify", lambda problem, limit_s: "the device's expected result is not numpy's")
    with pytest.raises(WorkbenchError, match=r"conv1d \{.*\}: the device's expected result is not numpy's"):
        live.Runner(SMALL, session)


def test_no_gpu_and_a_mistake_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    monkeypatch.setenv("WORKBENCH_CUDA_DRIVER", str(tmp_path / "libcuda.so"))
    with pytest.raises(DeviceError, match="no CUDA driver here"):
        live.Session(workers=1)
    command = ["measure", "convolutions", "--network", "resnet-18", "--layer", "2", "--output", str(tmp_path / "s.db"), "--target"]
    for arguments, said in (
        (["cuda"], "no CUDA driver here"),
        (["cuda", "--threads", "2"], "--threads and --pin are a CPU's"),
        (["rocm"], "it is llvm or cuda"),
    ):
        done = CliRunner().invoke(build(), command + arguments)
        assert done.exit_code == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
