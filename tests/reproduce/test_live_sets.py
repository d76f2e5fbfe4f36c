"""A live comparison as a data set, and its sessions once more with the data set answering. All times are invented."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from invented_tuning import COMPARISON, DEVICE, TRAINING, Invented, project
from typer.testing import CliRunner

from workbench.cli import build
from workbench.data import local
from workbench.data.datasets import load_dataset
from workbench.data.store import Store
from workbench.errors import DataError, UsageError
from workbench.kernels.conv import KERNELS as CONVOLUTIONS
from workbench.measure.tvm import series
from workbench.reproduce import own
from workbench.reproduce.outputs import Outputs
from workbench.reproduce.tuning import live, rows, studies
from workbench.reproduce.tuning.engine import run_experiment
from workbench.reproduce.tuning.experiments import EXPERIMENTS
from workbench.reproduce.tuning.live_sets import export, load_live, replay

NAME = "tuning-invented-resnet-18-conv2d"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a live comparison of it exported; the session that is not whole is not in it."""
    root = project(tmp_path_factory.mktemp("project"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_ROOT", str(root))
        live.run(COMPARISON, root / "live", Invented, processor="I 1")
        live.session_path(root / "live", "resnet-18 10", "random", 1).unlink()
        export(root / "live", "invented", root / "data" / "raw", notes=["All of it is invented."])
    return root


@pytest.fixture(autouse=True)
def at(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_ROOT", str(recorded))
    return recorded


def test_measurements_and_sessions_become_a_data_set(at: Path) -> None:
    found = load_live(NAME)
    with Store(at / "live" / live.STORE) as store:
        assert len(found.dataset.frame) == len(store)
    assert len(found.sessions) == 7
    assert list(found.tables) == ["resnet-18 7", "resnet-18 10"]
    assert list(found.data) == [TRAINING]
    header = local.read_header(at / "data" / "raw" / NAME)
    frameworks = "--framework random --framework xgb-Xfer-shrunk"
    assert header["command"] == f"workbench measure tuning --network resnet-18 --layer 7 --layer 10 {frameworks} --seeds 2 --trials 24 --batch 8 --threads 1"
    assert "no random sample" in " ".join(header["notes"])
    assert header["notes"][-1] == "All of it is invented."
    for result in live.results_of(at / "live"):
        kept = found.sessions
        (row,) = kept[(kept["task"] == result.task) & (kept["framework"] == result.framework) & (kept["seed"] == result.settings["seed"])].to_dict("records")
        np.testing.assert_array_equal(row["index"], result.outcome.trials.indices)
        np.testing.assert_array_equal(row["predicted"], result.outcome.predicted)
        np.testing.assert_array_equal(np.stack([row[phase] for phase in live.PHASES], axis=1), result.outcome.seconds)
        assert tuple(row["history"]) == result.history


def test_what_tuners_chose_is_not_taken_for_a_sample(at: Path) -> None:
    assert own.measured_sets(CONVOLUTIONS) == [TRAINING]
    assert own.tuned_sets() == [NAME]


def test_sessions_replay_bit_for_bit_and_nothing_is_measured(at: Path) -> None:
    found = list(replay(load_live(NAME)))
    assert [(one.task, one.framework, one.seed, one.fault) for one in found] == [
        ("resnet-18 7", "random", 0, ""),
        ("resnet-18 10", "random", 0, ""),
        ("resnet-18 7", "xgb-Xfer-shrunk", 0, ""),
        ("resnet-18 10", "xgb-Xfer-shrunk", 0, ""),
        ("resnet-18 7", "random", 1, ""),
        ("resnet-18 7", "xgb-Xfer-shrunk", 1, ""),
        ("resnet-18 10", "xgb-Xfer-shrunk", 1, ""),
    ]


def test_a_session_that_goes_another_way_is_told(at: Path) -> None:
    recorded = load_live(NAME)
    sessions = recorded.sessions.copy()
    learnt = sessions["framework"] == "xgb-Xfer-shrunk"
    first, second = sessions.index[learnt][:2]
    sessions.at[first, "index"] = sessions.at[first, "index"][::-1]
    sessions.at[second, "predicted"] = np.nextafter(sessions.at[second, "predicted"], 1.0)
    faults = [one.fault for one in replay(replace(recorded, sessions=sessions), ["xgb-Xfer-shrunk"], [0])]
    assert faults == ["trial 1 is another one", "the cost model says something else of the same trials"]
    other = sessions.assign(seed=sessions["seed"] + 5)
    assert all("was not measured" in one.fault for one in replay(replace(recorded, sessions=other), ["random"]))
    older = sessions.assign(code="another")
    (fault,) = [one.fault for one in replay(replace(recorded, sessions=older), ["xgb-Xfer-shrunk"], [0]) if "trial 1" in one.fault]
    assert fault == "trial 1 is another one (spaces, features, models or searches are not of the code that ran it)"
    with pytest.raises(UsageError, match=r"no such session; it has random, xgb-Xfer-shrunk with seeds 0, 1"):
        list(replay(recorded, ["xgb"]))


def test_the_command_says_what_is_the_same() -> None:
    done = CliRunner().invoke(build(), ["measure", "replay-tuning", NAME, "--framework", "random", "--seed", "0"])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == "2 of 2 sessions are the same, trial by trial"


def test_what_was_learnt_from_must_be_what_it_was(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = load_live(NAME)
    sessions = recorded.sessions.assign(data=[[f"{TRAINING} {'0' * 64}"]] * len(recorded.sessions))
    with pytest.raises(UsageError, match=rf"data set {TRAINING} is not the one that {NAME} learnt from"):
        list(replay(replace(recorded, sessions=sessions)))


def test_damaged_records_are_errors_of_one_line(at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(at / "data", tmp_path / "data")
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    path = tmp_path / "data" / "raw" / NAME / "sessions.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"sessions\.parquet: sha256 is"):
        load_dataset(NAME)
    with pytest.raises(UsageError, match="has no records of tunings"):
        load_live(TRAINING)


def test_a_session_without_its_measurements_is_not_exported(at: Path, tmp_path: Path) -> None:
    shutil.copytree(at / "live", tmp_path / "live")
    (tmp_path / "live" / live.STORE).unlink()
    with Store(at / "live" / live.STORE) as store, Store(tmp_path / "live" / live.STORE) as less:
        name = series("conv2d", DEVICE.name)
        less.note(name, store.note(name))
        less.add(list(store.rows())[:-1])
    with pytest.raises(DataError, match=r"has 1 trials that the store lacks, the first one \d+: remove its file"):
        export(tmp_path / "live", "invented", tmp_path)
    shutil.rmtree(tmp_path / "live" / "sessions")
    with pytest.raises(UsageError, match="it has no whole session"):
        export(tmp_path / "live", "invented", tmp_path)


def test_the_experiment_is_what_was_recorded_with_the_seeds_that_are_whole(at: Path, tmp_path: Path) -> None:
    experiment = EXPERIMENTS["resnet-18-live"]()
    assert not experiment.reason
    assert (experiment.trials, experiment.batch, experiment.exhaustive) == (24, 8, True)
    assert experiment.data_sets == [NAME, TRAINING]
    assert [pool.name for pool in experiment.splits[0].history] == ["training conv2d 1", "training conv2d 2"]
    how = studies.plan("smoke", frameworks=["xgb-Xfer-shrunk", "random", "xgb"])
    study = studies.run_studies(["resnet-18-live"], how, "report", Outputs(tmp_path, task="metatune-output-performance"))["resnet-18-live"]
    names = ["xgb-Xfer-shrunk", "random"]
    layers = ["resnet-18 10", "resnet-18 7"]
    assert sorted((cell.framework, cell.task, cell.seed) for cell in study.cells) == [(name, task, 0) for name in names[::-1] for task in layers]
    assert study.frameworks == names
    best = {name: table.best for name, table in load_live(NAME).tables.items()}
    frame = study.measures.set_index(["framework", "task"])
    for result in live.results_of(at / "live"):
        if result.settings["seed"] == 0:
            row = frame.loc[(result.framework, result.task)]
            assert row["final"] == pytest.approx(result.outcome.trials.best / best[result.task], abs=1e-6)
            assert row[["search_s", "model_s", "build_s", "run_s"]].tolist() == pytest.approx(result.outcome.seconds.sum(axis=0), abs=1e-5)
            assert np.isnan(row["fit_s"]) == (result.framework == "random")
    (view,) = rows.views({"resnet-18-live": study}, ["resnet-18-live"])
    assert view.title == "ResNet-18 on one thread of Invented CPU, live"
    assert "every proposal was measured, seeds 0; labels are over the best that any session has measured" in view.note
    with pytest.raises(UsageError, match="experiment resnet-18-live: its sessions were recorded"):
        run_experiment(experiment, ["random"], [0])


def test_without_a_recording_the_commands_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    assert EXPERIMENTS["resnet-18-live"]().reason.startswith("not measured yet: workbench measure tuning")
