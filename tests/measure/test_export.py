"""A store becomes data sets that the catalogue reads: a row an instance, and a dataset.toml that says how they came about."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime

import pytest

from workbench.data.datasets import describe, load_dataset
from workbench.data.local import read_header
from workbench.data.store import Store
from workbench.errors import DataError, StoreError, UsageError
from workbench.kernels import kernel
from workbench.measure.export import export
from workbench.measure.native import Instance, Runner
from workbench.schema import Device, Measurement, Status

DEVICE = Device("some-cpu", "cpu", 'Some "quick" CPU \\ 2', max_threads=4)


@pytest.fixture
def store(tmp_path, fake):
    """Five products in Eigen, one of them a failure, the first one measured again; two in Boost."""
    mv = kernel("mv")
    instances = [Instance(mv.workload({"m": m, "n": 2, "d1": 0.5}), 1 + m % 2) for m in range(1, 6)]
    with Store(tmp_path / "store.db") as opened:
        for library, count in (("eigen", 5), ("boost", 2)):
            made_by = f"workbench measure matrix --kernel mv --library {library} --seed 0"
            with Runner(library, opened, command=fake({4: "clock"}), device=DEVICE, made_by=made_by) as runner:
                list(runner.measure(instances[:count]))
                if library == "eigen":
                    list(runner.measure(instances[:1], times=2))
        yield opened


def test_a_series_becomes_a_data_set(store, root):
    assert export(store, "matrix-cpu-x", root) == {"matrix-cpu-x-mv-boost": 2, "matrix-cpu-x-mv-eigen": 5}
    data = load_dataset("matrix-cpu-x-mv-eigen")
    assert (data.kernel.name, data.device, data.parameters, data.knobs) == ("mv", DEVICE, ("m", "n", "d1"), ("threads",))
    assert data.frame["m"].tolist() == [1, 2, 3, 4, 5]
    assert data.frame["status"].tolist() == ["ok", "ok", "ok", "run_error", "ok"]
    assert data.valid["time_s"].tolist() == pytest.approx([1e-6, 2e-6, 3e-6, 5e-6])
    assert data.valid["median_s"].tolist() == pytest.approx([2e-6, 4e-6, 6e-6, 1e-5])
    assert data.valid["threads"].tolist() == [2, 1, 2, 2]
    assert [math.isnan(again) for again in data.frame["again_s"]] == [False, True, True, True, True]
    assert math.isnan(data.frame["median_s"][3])
    assert any("Drift: 1 measured again: +0.0%" in note for note in data.notes)
    assert "--library eigen --seed 0 --instances 5" in data.source
    assert "minimum of times_s" in data.source
    assert describe("matrix-cpu-x-mv-boost")["rows"] == 2


def test_the_date_is_that_of_the_last_row(store, root):
    mv = kernel("mv").workload({"m": 9, "n": 2, "d1": 0.5})
    late = datetime(2031, 5, 6, 23, 59, tzinfo=UTC).timestamp()
    store.add([Measurement(mv, "some-cpu", Status.OK, 9e-6, space="eigen", config={"threads": 1}, times_s=(9e-6,), timestamp=late)])
    export(store, "matrix-cpu-x", root)
    assert read_header(root / "matrix-cpu-x-mv-eigen")["date"] == date(2031, 5, 6)


def test_what_is_there_is_replaced_only_when_told_so(store, root):
    export(store, "matrix-cpu-x", root)
    before = (root / "matrix-cpu-x-mv-eigen" / "dataset.toml").read_text()
    with pytest.raises(UsageError, match="is there already"):
        export(store, "matrix-cpu-x", root)
    mv = kernel("mv").workload({"m": 9, "n": 2, "d1": 0.5})
    store.add([Measurement(mv, "some-cpu", Status.OK, 9e-6, space="eigen", config={"threads": 1}, times_s=(9e-6,))])
    assert export(store, "matrix-cpu-x", root, replace=True)["matrix-cpu-x-mv-eigen"] == 6
    assert (root / "matrix-cpu-x-mv-eigen" / "dataset.toml").read_text() != before
    assert len(load_dataset("matrix-cpu-x-mv-eigen").frame) == 6
    assert sorted(path.name for path in root.iterdir()) == ["matrix-cpu-x-mv-boost", "matrix-cpu-x-mv-eigen"]


@pytest.mark.parametrize("name", ["", "Matrix", "../x", "a b", "a--b", "-a"])
def test_a_name_that_cannot_be_used(store, root, name):
    with pytest.raises(UsageError, match="cannot be named"):
        export(store, name, root)
    assert list(root.iterdir()) == []


def test_a_store_that_makes_no_data_set(tmp_path, root):
    with Store(tmp_path / "other.db") as other:
        other.add([Measurement(kernel("blur").workload({"n": 1024}), "some-cpu", Status.TIMEOUT, space="halide")])
        with pytest.raises(UsageError, match="no measurements of matrix kernels"):
            export(other, "x", root)
        row = Measurement(kernel("mv").workload({"m": 9, "n": 2, "d1": 0.5}), "some-cpu", Status.OK, 9e-6, space="eigen", config={"threads": 1})
        other.add([row])
        with pytest.raises(DataError, match="does not say how mv in eigen was measured"):
            export(other, "x", root)
        other.add([Measurement(row.workload, "another-cpu", Status.OK, 9e-6, space="eigen", config={"threads": 1})])
        with pytest.raises(UsageError, match="several devices"):
            export(other, "x", root)


def test_a_place_that_cannot_be_written(store, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        export(store, "x", tmp_path / "file")
