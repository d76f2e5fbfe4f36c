"""A layer of a data set as something to tune. The data set has invented times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench.data.store import Store
from workbench.errors import MissingData, UsageError
from workbench.kernels import kernel
from workbench.kernels.conv import CPU
from workbench.kernels.networks import training_kernels
from workbench.measure.export import export
from workbench.measure.provenance import claim
from workbench.measure.runner import candidates
from workbench.measure.tvm import series
from workbench.reproduce.tuning.work import Work, recorded, tables
from workbench.schema import Measurement, Status
from workbench.tune.frameworks import framework
from workbench.tune.loop import Budget
from workbench.tune.results import Result

NAME = "conv-cpu-invented-conv1d"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "data" / "raw").mkdir(parents=True)
    device = '{"name": "invented-cpu", "kind": "cpu"}'
    with Store(folder / "s.db") as store:
        claim(store, series("conv1d", "invented-cpu"), "conv1d", {"compiler": "", "policy": "", "device": device, "seed": "0", "command": ""})
        for workload in [found for found in training_kernels() if found.kernel == "conv1d"][:3]:
            space = kernel("conv1d").space(workload, CPU)
            for index in candidates(space, 40):
                time_s = 1e-3 / (1 + space.config(index)["tile_x"][2])  # type: ignore[index, operator]
                store.add([Measurement(workload, "invented-cpu", Status.OK, time_s, CPU, index, space.config(index), timestamp=1.9e9)])
        export(store, "conv-cpu-invented", folder / "data" / "raw")
    return folder


@pytest.fixture
def work(project: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setenv("WORKBENCH_ROOT", str(project))
    return recorded(NAME, "training conv1d 2")


def test_the_layer_itself_is_not_learnt_from(work: Work) -> None:
    assert work.name == "training conv1d 2"
    assert [name for name, _, _ in tables(NAME)] == ["training conv1d 1", "training conv1d 2", "training conv1d 3"]
    assert [name for name, _ in work.history] == [f"{NAME}: training conv1d 1", f"{NAME}: training conv1d 3"]
    assert work.ranking_only
    assert recorded(NAME, "2").task.workload == work.task.workload
    with pytest.raises(UsageError, match="no families that are known"):
        recorded(NAME, "2", exclude_family=True)


def test_each_run_begins_anew_and_says_how_it_stands(work: Work) -> None:
    stands: list[Result] = []
    first = work.run(framework("xgb-Xfer-shrunk"), Budget(trials=24), batch=8, seed=1, on_round=stands.append)
    again = work.run(framework("xgb-Xfer-shrunk"), Budget(trials=24), batch=8, seed=1)
    assert first.outcome.trials.indices.tolist() == again.outcome.trials.indices.tolist()
    np.testing.assert_array_equal(first.outcome.predicted, again.outcome.predicted)
    assert [len(stand.outcome.trials) for stand in stands] == [8, 16, 24]
    assert [stand.outcome.why for stand in stands] == ["", "", "24 trials"]
    assert first.history == tuple(name for name, _ in work.history)
    assert first.settings == {"seed": 1, "batch": 8, "threads": 1, "trials": 24, "seconds": None, "no_improvement": None}
    assert work.table is not None
    assert first.table_best == work.table.best
    random = work.run(framework("random"), Budget(trials=100))
    assert (len(random.outcome.trials), random.outcome.why, random.history) == (40, "no candidates are left", ())
    assert random.outcome.trials.best == random.table_best


def test_kernel_tuners_tables_are_searched_where_they_are_whole() -> None:
    try:
        work = recorded("kt-convolution-rtx-2080-ti", history=["kt-convolution-rtx-3090"])
    except MissingData as error:
        pytest.skip(str(error))
    assert not work.ranking_only
    assert len(work.history) == 1  # the same workload, on another GPU
    assert "{" not in work.name
