"""Who learns from whom: what is tuned is never in its own history, families stay together, and what is missing is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench.errors import MissingData
from workbench.reproduce.tuning import experiments
from workbench.reproduce.tuning.experiments import EXPERIMENTS, Experiment
from workbench.reproduce.tuning.measures import of_tasks


def made(name: str) -> Experiment:
    found = EXPERIMENTS[name]()
    if found.reason:
        pytest.skip(found.reason)
    return found


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_targets_are_not_in_their_histories(name: str) -> None:
    experiment = made(name)
    assert experiment.name == name
    assert len({split.target.name for split in experiment.splits}) == len(experiment.splits) >= 2
    for split in experiment.splits:
        target = split.target.measured.task
        assert split.history
        for pool in split.history:
            other = pool.measured.task
            assert (other.workload, other.device.name) != (target.workload, target.device.name)
        assert experiment.budget(split.target) <= (len(split.target.measured) if experiment.exhaustive else len(split.target.measured) // 2)
    again = experiment.source()
    assert [(s.target.name, [p.name for p in s.history]) for s in again.splits] == [(s.target.name, [p.name for p in s.history]) for s in experiment.splits]


def test_families_are_left_out_whole() -> None:
    experiment = made("titanxp-families")
    assert [split.target.name for split in experiment.splits] == [f"yolo{number}" for number in range(1, 14)]
    for split in experiment.splits:
        assert split.target.family not in {pool.family for pool in split.history}
    sizes = {split.target.name: len(split.history) for split in experiment.splits}
    assert (sizes["yolo10"], sizes["yolo5"], sizes["yolo2"]) == (8, 9, 12)
    assert of_tasks(experiment, "development") == ["yolo1", "yolo2", "yolo3", "yolo4"]
    assert of_tasks(experiment, "report") == [f"yolo{number}" for number in range(5, 14)]
    # Repeats of one configuration differ by 1.2 in the median (the set's notes).
    spread = experiment.splits[0].target.spread
    assert 1.1 < np.exp(np.median(np.abs(spread)) * np.sqrt(2)) < 1.4


def test_gpus_of_one_space() -> None:
    ten = made("convolution-10-knobs")
    assert (ten.splits[0].target.name, [pool.name for pool in ten.splits[0].history]) == ("A100", ["A4000", "W6600", "W7800"])
    assert {len(split.target.measured) for split in ten.splits} == {4362}
    assert of_tasks(ten, "development") == ["A4000"]
    assert of_tasks(made("convolution-8-knobs"), "development") == ["RTX 2080 Ti"]
    assert all(0 < split.target.spread.std() < 0.01 for split in ten.splits)


def test_the_network_runs_its_layers_seventeen_and_three_times() -> None:
    experiment = made("resnet-18-cpu")
    layers = [split.target for split in experiment.splits if not split.target.development]
    assert [pool.name for pool in layers] == [f"resnet-18 {number}" for number in range(1, 12)]
    assert sum(pool.count for pool in layers) == 20  # 17 convolutions and 3 shortcuts
    assert {pool.name.split(" ")[0] for split in experiment.splits for pool in split.history} == {"training"}


def test_what_is_out_of_reach_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> None:
        raise MissingData(f"{name} is nowhere; get it there")

    monkeypatch.setattr(experiments, "load_dataset", missing)
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    found = {name: make() for name, make in EXPERIMENTS.items()}
    assert found["titanxp-families"].missing == {"titanxp-conv2d": "titanxp-conv2d is nowhere; get it there"}
    assert found["resnet-18-cpu"].reason == "no layers of ResNet-18 and no training kernels measured on a CPU under data/raw"
    assert all(experiment.reason and not experiment.splits for experiment in found.values())
