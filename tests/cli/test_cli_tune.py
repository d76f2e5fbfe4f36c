"""`workbench tune`: on a data set of invented times, on published ones, and live."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from workbench.cli import build
from workbench.data.store import Store
from workbench.errors import DataError, WorkbenchError
from workbench.kernels import kernel
from workbench.kernels.conv import CPU, GPU
from workbench.kernels.networks import network
from workbench.measure.export import export
from workbench.measure.provenance import claim
from workbench.measure.replay import Replay
from workbench.measure.runner import candidates
from workbench.measure.tvm import series
from workbench.models.surrogate import Trials
from workbench.schema import Measurement, Status
from workbench.tune.frameworks import NoModel
from workbench.tune.results import load_result


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build(), ["tune", *arguments])


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a data set of two layers, whose times follow one tile; one configuration in seven fails."""
    project = tmp_path_factory.mktemp("project")
    (project / "data" / "raw").mkdir(parents=True)
    device = '{"name": "invented-cpu", "kind": "cpu"}'
    provenance = {"compiler": "none", "policy": "invented", "device": device, "seed": "0", "command": "a test"}
    with Store(project / "s.db") as store:
        claim(store, series("conv2d", "invented-cpu"), "conv2d", provenance)
        for layer in network("resnet-18")[1:3]:
            space = kernel("conv2d").space(layer.workload, CPU)
            for place, index in enumerate(candidates(space, 60)):
                config = space.config(index)
                named = {"space": CPU, "index": index, "config": config, "timestamp": 1.9e9, "compile_s": 0.1}
                if place % 7 == 3:
                    store.add([Measurement(layer.workload, "invented-cpu", Status.TIMEOUT, **named, error="running: no answer in 10 s")])
                else:
                    time_s = 1e-3 / (1 + config["tile_x"][2])  # type: ignore[index, operator]
                    store.add([Measurement(layer.workload, "invented-cpu", Status.OK, time_s, **named, times_s=(time_s, time_s))])
        export(store, "conv-cpu-invented", project / "data" / "raw")
    return project


@pytest.fixture
def project(invented: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_ROOT", str(invented))
    return invented


@pytest.mark.parametrize("name", ["xgb-xfer-shrunk", "random"])
def test_a_table_is_tuned_and_the_result_is_a_file(project: Path, name: str) -> None:
    done = run("--dataset", "conv-cpu-invented-conv2d", "--layer", "2", "--framework", name, "--trials", "24", "--batch", "8")
    assert done.exit_code == 0, done.output
    path = project / "runs" / "tune" / f"conv-cpu-invented-conv2d-resnet-18-3-{name}-0.json"
    result = load_result(path)
    assert (result.task, result.source, result.ranking_only) == ("resnet-18 3", "conv-cpu-invented-conv2d", True)
    assert result.history == (() if name == "random" else ("conv-cpu-invented-conv2d: resnet-18 2",))
    assert len(result.outcome.trials) == 24
    assert result.outcome.why == "24 trials"
    assert result.outcome.seconds[:, 2] == pytest.approx([0.8] * 3)
    best = result.outcome.trials.best
    assert result.table_best is not None
    assert best <= result.table_best
    lines = done.stdout.splitlines()
    assert lines[1].startswith("ranking only: 60 of ")
    assert [line.partition(":")[0] for line in lines[2:5]] == ["trial 8", "trial 16", "trial 24"]
    assert lines[-3].startswith(f"best: {best:,.4g} GFLOP/s ({best / result.table_best:.1%} of the table's best), trial ")
    assert " with tile_f=(" in lines[-3]
    failures = int((~result.outcome.trials.valid).sum())
    assert lines[-2].startswith(f"24 trials, {failures} of them failures; ended: 24 trials; learning from others ")
    assert lines[-1] == f"result: {path}"


def test_limits_end_it_and_the_same_command_gives_the_same(project: Path, tmp_path: Path) -> None:
    command = ("--dataset", "conv-cpu-invented-conv2d", "--layer", "resnet-18 2", "--framework", "xgb", "--batch", "8")
    for name, limits, why in [
        ("a", ("--no-improvement", "9", "--trials", "50"), "without improvement"),
        ("b", ("--no-improvement", "9", "--trials", "50"), "without improvement"),
        ("c", ("--trials", "500"), "no candidates are left"),
        ("d", ("--seconds", "1.2"), " seconds"),
    ]:
        done = run(*command, *limits, "--out", str(tmp_path / f"{name}.json"))
        assert done.exit_code == 0, done.output
        assert why in load_result(tmp_path / f"{name}.json").outcome.why
    first, again, whole, seconds = (load_result(tmp_path / f"{name}.json").outcome.trials for name in "abcd")
    assert first.indices.tolist() == again.indices.tolist()
    assert len(whole) == 60
    assert len(seconds) < 60


def test_stopped_it_keeps_what_it_has_and_the_exit_code_says_so(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("--dataset", "conv-cpu-invented-conv2d", "--layer", "1", "--framework", "random", "--batch", "8", "--out", str(tmp_path / "r.json"))
    answering = Replay.__call__
    asked: list[int] = []

    def interrupted(self: Replay, indices: Any) -> Any:
        asked.extend(indices)
        if len(asked) > 16:
            raise KeyboardInterrupt
        return answering(self, indices)

    with monkeypatch.context() as patch:
        patch.setattr(Replay, "__call__", interrupted)
        done = run(*command, "--trials", "40")
    assert done.exit_code == 130
    outcome = load_result(tmp_path / "r.json").outcome
    assert (len(outcome.trials), outcome.why) == (16, "interrupted")

    def failing(self: NoModel, trials: Trials) -> None:
        if len(trials) > 8:
            raise DataError("the loss is no number")

    monkeypatch.setattr(NoModel, "update", failing)
    done = run(*command, "--trials", "40")
    assert done.exit_code == 1
    assert "ended: the cost model failed: the loss is no number" in done.stdout
    outcome = load_result(tmp_path / "r.json").outcome
    assert (len(outcome.trials), outcome.why) == (16, "the cost model failed: the loss is no number")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "say what to tune: --dataset NAME replays recorded measurements, --network NAME measures here; give one of the two"),
        (("--dataset", "conv-cpu-invented-conv2d"), "data set 'conv-cpu-invented-conv2d' has 2 layers; choose one with --layer: resnet-18 2, resnet-18 3"),
        (("--dataset", "conv-cpu-invented-conv2d", "--layer", "3"), "no layer '3'; it has resnet-18 2, resnet-18 3, by name or by number from 1"),
        (("--dataset", "conv-cpu-inventd-conv2d"), "conv-cpu-inventd-conv2d"),
        (("--dataset", "conv-cpu-invented-conv2d", "--layer", "1", "--exclude-family"), "--exclude-family: the layers of 'conv-cpu-invented-conv2d'"),
        (("--dataset", "conv-cpu-invented-conv2d", "--layer", "1", "--pin", "last"), "--threads, --pin and --store belong to measuring"),
        (("--dataset", "conv-cpu-invented-conv2d", "--layer", "1", "--framework", "magic"), "no framework 'magic'; there are xgb, "),
        (("--dataset", "conv-cpu-invented-conv2d", "--layer", "1", "--history", "none"), "none"),
        (("--network", "resnet-18", "--layer", "x"), "resnet-18 has 11 distinct convolutions; choose one with --layer N, from 1 to 11"),
        (("--network", "resnet-18", "--layer", "12"), "resnet-18 has no layer 12"),
        (("--network", "resnet-81", "--layer", "1"), "there is no network 'resnet-81'"),
        (("--network", "resnet-18", "--layer", "1", "--target", "rocm"), "--target 'rocm'; it is llvm or cuda"),
        (("--network", "resnet-18", "--layer", "1", "--target", "cuda", "--threads", "2"), "--threads and --pin are a CPU's"),
    ],
)
def test_bad_input_is_one_line(project: Path, arguments: tuple[str, ...], line: str) -> None:
    done = run(*(("--framework", "random") if "--framework" not in arguments else ()), *arguments)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert line in done.stderr
    assert not isinstance(done.exception, WorkbenchError)


def test_flextensors_layers_with_and_without_their_near_twins(tmp_path: Path) -> None:
    command = ("--dataset", "titanxp-conv2d", "--layer", "yolo10", "--framework", "xgb-xfer-shrunk", "--trials", "32")
    histories = []
    for number, more in enumerate([(), ("--exclude-family",)]):
        path = tmp_path / f"{number}.json"
        done = run(*command, *more, "--out", str(path))
        if "out of reach" in done.output:
            pytest.skip(done.output)
        assert done.exit_code == 0, done.output
        histories.append([name.removeprefix("titanxp-conv2d: ") for name in load_result(path).history])
    assert histories[0] == [f"yolo{number}" for number in (*range(1, 10), 11, 12, 13)]
    assert histories[1] == [f"yolo{number}" for number in (1, 2, 3, 4, 5, 7, 9, 11)]


needs_tvm = pytest.mark.skipif(find_spec("tvm") is None, reason="TVM is not installed")
LIVE = ("--network", "resnet-18", "--layer", "10", "--framework", "random", "--batch", "2")


@needs_tvm
def test_live_it_measures_into_a_store_and_learns_from_sets_of_the_same_knobs(project: Path, tmp_path: Path) -> None:
    store, out = tmp_path / "s.db", tmp_path / "r.json"
    command = ("--network", "resnet-18", "--layer", "10", "--framework", "xgb-xfer-shrunk", "--batch", "2", "--trials", "2")
    done = run(*command, "--store", str(store), "--out", str(out))
    assert done.exit_code == 0, done.output
    result = load_result(out)
    assert result.history == tuple(f"conv-cpu-invented-conv2d: resnet-18 {number}" for number in (2, 3))
    assert (result.source, result.task, result.table_best, result.ranking_only) == ("llvm", "resnet-18 10", None, False)
    assert np.isfinite(result.outcome.seconds).all()
    with Store(store) as opened:
        assert [row.index for row in opened.rows()] == result.outcome.trials.indices.tolist()


@needs_tvm
@pytest.mark.slow
@pytest.mark.usefixtures("emulated")
def test_live_on_an_emulated_gpu_nothing_is_proposed_that_cannot_run_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    (tmp_path / "data" / "raw").mkdir(parents=True)
    store, out = tmp_path / "s.db", tmp_path / "r.json"
    command = ("--network", "mobilenet-v1", "--layer", "8", "--target", "cuda", "--framework", "random", "--batch", "2", "--trials", "2")
    done = run(*command, "--store", str(store), "--out", str(out))
    assert done.exit_code == 0, done.output
    result = load_result(out)
    assert (result.source, result.space, result.device) == ("cuda", GPU, "emulated-gpu-9000")
    with Store(store) as opened:
        assert [row.index for row in opened.rows()] == result.outcome.trials.indices.tolist()
        assert {row.status for row in opened.rows()} <= {Status.OK, Status.TIMEOUT}  # an emulated GPU is slow


@needs_tvm
@pytest.mark.slow
def test_live_it_goes_on_after_a_kill_and_measures_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    env = {**os.environ, "WORKBENCH_ROOT": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    store, out = tmp_path / "s.db", tmp_path / "r.json"
    main = "from workbench.cli import main; main()"
    command = [sys.executable, "-c", main, "tune", *LIVE, "--trials", "6", "--store", str(store), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)
    deadline = time.monotonic() + 120
    while not out.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    stopped = load_result(out).outcome
    assert 2 <= len(stopped.trials) < 6
    assert stopped.why == ""
    done = subprocess.run(command, capture_output=True, env=env, text=True, check=True, timeout=200)
    outcome = load_result(out).outcome
    assert outcome.why == "6 trials"
    assert outcome.trials.indices[: len(stopped.trials)].tolist() == stopped.trials.indices.tolist()
    assert outcome.trials.throughput[: len(stopped.trials)].tolist() == stopped.trials.throughput.tolist()
    assert outcome.trials.valid.any()
    assert done.stdout.splitlines()[-1] == f"result: {out}"
    with Store(store) as opened:
        assert [row.index for row in opened.rows()] == outcome.trials.indices.tolist()
