"""Whatever happens while a data set is written, what is found under data/raw is whole. All numbers are invented."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.data import local
from workbench.data.datasets import load_dataset
from workbench.data.store import Store
from workbench.errors import DataError, StoreError, UsageError
from workbench.kernels import kernel
from workbench.measure.export import export
from workbench.measure.native import series
from workbench.measure.provenance import claim
from workbench.schema import Measurement, Status

PROVENANCE = {
    "compiler": "g++ 99",
    "headers": "cmeel-eigen 9.9",
    "policy": "time_s is the minimum of times_s",
    "device": json.dumps({"name": "some-cpu", "kind": "cpu", "model": "Some CPU"}),
    "processor": "family 6 model 207",
    "seed": "0",
    "command": "workbench measure matrix --kernel mv --library eigen",
}


def fill(store: Store, count: int, passes: int = 1) -> None:
    claim(store, series("mv", "eigen", "some-cpu"), "mv in eigen", PROVENANCE)
    generator, mv = np.random.default_rng(0), kernel("mv")
    for _ in range(passes):
        times = generator.lognormal(-9, 2, (count, 7))
        store.add(
            Measurement(
                mv.workload({"m": m, "n": 2, "d1": 1.0}),
                "some-cpu",
                Status.OK,
                float(times[m - 1].min()),
                space="eigen",
                config={"threads": 1},
                times_s=tuple(times[m - 1].tolist()),
                host="some-host",
                timestamp=1.9e9 + float(generator.random()),
                load=float(generator.random()),
            )
            for m in range(1, count + 1)
        )


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.db") as opened:
        fill(opened, 20, passes=2)
        yield opened


def test_a_large_data_set_is_a_small_file(tmp_path, root):
    with Store(tmp_path / "large.db") as large:
        fill(large, 5000, passes=2)
        assert export(large, "x", root) == {"x-mv-eigen": 5000}
    assert (root / "x-mv-eigen" / "rows.parquet").stat().st_size < 3e6
    data = load_dataset("x-mv-eigen")
    assert "--instances 5000 --passes 2`" in data.source
    assert data.device.model == "Some CPU, family 6 model 207"


def test_a_file_that_was_cut_off_is_not_kept(store, root, monkeypatch):
    export(store, "x", root)
    before = (root / "x-mv-eigen" / "rows.parquet").read_bytes()
    whole = pd.DataFrame.to_parquet

    def cut(frame: pd.DataFrame, path: Path, **options: object) -> None:
        whole(frame, path, **options)
        path.write_bytes(path.read_bytes()[:-100])

    monkeypatch.setattr(pd.DataFrame, "to_parquet", cut)
    with pytest.raises(DataError, match="not a Parquet file"):
        export(store, "x", root, replace=True)
    assert (root / "x-mv-eigen" / "rows.parquet").read_bytes() == before
    with pytest.raises(DataError, match="not a Parquet file"):
        export(store, "y", root)
    assert [path.name for path in root.iterdir()] == ["x-mv-eigen"]


def test_a_success_without_a_time_is_not_kept(store, root, monkeypatch):
    whole = pd.DataFrame.to_parquet
    monkeypatch.setattr(pd.DataFrame, "to_parquet", lambda frame, path, **options: whole(frame.assign(time_s=float("nan")), path, **options))
    with pytest.raises(DataError, match="row 0: status 'ok' with time nan"):
        export(store, "x", root)
    assert list(root.iterdir()) == []


def test_a_full_disk_leaves_what_was_there(store, root, monkeypatch):
    export(store, "x", root)
    before = (root / "x-mv-eigen" / "dataset.toml").read_bytes()

    def full(frame: pd.DataFrame, path: Path, **options: object) -> None:
        path.write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    with pytest.raises(StoreError, match=r"cannot be written \(No space left on device\)"):
        export(store, "x", root, replace=True)
    assert [path.name for path in root.iterdir()] == ["x-mv-eigen"]
    assert (root / "x-mv-eigen" / "dataset.toml").read_bytes() == before


def test_a_damaged_store_makes_no_data_set(tmp_path, root):
    path = tmp_path / "damaged.db"
    with Store(path) as opened:
        fill(opened, 300)
    whole = path.read_bytes()
    record = whole.index(b'"m\\":150,')
    path.write_bytes(whole[:record] + b'"m\\":151,' + whole[record + 9 :])
    with Store(path) as opened, pytest.raises(StoreError, match="record 150 cannot be read"):
        export(opened, "x", root)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="cut off"):
        Store(path)
    assert list(root.iterdir()) == []


def test_of_two_at_once_one_wins(tmp_path, store, root):
    said: list[object] = []
    barrier = threading.Barrier(2)

    def make() -> None:
        with Store(store.path) as own:
            barrier.wait()
            try:
                said.append(export(own, "x", root))
            except (UsageError, StoreError) as error:
                said.append(str(error))

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {"x-mv-eigen": 20} in said
    assert len(said) == 2
    assert all(isinstance(outcome, dict) or "x-mv-eigen" in str(outcome) for outcome in said)
    assert [path.name for path in root.iterdir()] == ["x-mv-eigen"]
    assert len(load_dataset("x-mv-eigen").frame) == 20


SCRIPT = """
import sys
from pathlib import Path
from workbench.data.store import Store
from workbench.measure.export import export

with Store(sys.argv[1]) as store:
    while True:
        export(store, "x", Path(sys.argv[2]), replace=True)
        print("written", flush=True)
"""


def test_killed_at_random_moments_it_leaves_no_half_of_a_data_set(store, root):
    generator = random.Random(3)
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", SCRIPT, str(store.path), str(root)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "written\n"
            try:
                process.wait(generator.random() * 0.1)
            except subprocess.TimeoutExpired:
                process.kill()
        assert set(local.folders()) <= {"x-mv-eigen"}
        for name in local.folders():
            assert len(load_dataset(name).frame) == 20
    assert export(store, "x", root, replace=True) == {"x-mv-eigen": 20}
    assert list(local.folders()) == ["x-mv-eigen"]
