"""The store's contract, and its faults for real: killed writers, two writers, full disks, cut and damaged files."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data import store as store_module
from workbench.data.parquet import read_parquet, to_frame
from workbench.data.store import Key, Store, salvage
from workbench.errors import DataError, MissingData, StoreError
from workbench.schema import Measurement, Status, Workload

MM = Workload("mm", {"m": 8, "n": 4})
MV = Workload("mv", {"m": 8, "shape": (1, 2)})


def measured(index: int, *, workload: Workload = MM, device: str = "cpu", pad: int = 0) -> Measurement:
    return Measurement(workload, device, Status.OK, time_s=1e-3 * (index + 1), space="autotvm", index=index, config={"tile": (index, 2)}, error="x" * pad)


def failed(index: int) -> Measurement:
    return Measurement(MM, "gpu", Status.TIMEOUT, space="autotvm", index=index, error="over 10 s")


class TestContract:
    def test_records_come_back_equal_and_in_order(self, tmp_path: Path) -> None:
        full = Measurement(MV, "gpu", Status.OK, 0.5, "autotvm", 2**70, {"a": 1, "b": "x", "c": 0.5, "t": (1, 2)}, (0.5, 0.6), 1.5, "", "host", 1e9, 0.1)
        given = [measured(3), failed(4), full]
        with Store(tmp_path / "s.db") as store:
            assert store.add(given) == [1, 2, 3]
            assert list(store.rows()) == given
        with Store(tmp_path / "s.db") as store:
            assert len(store) == 3
            assert list(store.rows()) == given
            assert store.verify() == 3
            assert store.add([]) == []

    def test_conditions(self, tmp_path: Path) -> None:
        with Store(tmp_path / "s.db") as store:
            store.add([measured(0), measured(1, workload=MV), failed(2)])
            assert [m.index for m in store.rows(workload=MV)] == [1]
            assert [m.index for m in store.rows(kernel="mm", status=Status.OK)] == [0]
            assert [m.index for m in store.rows(device="gpu", status="timeout")] == [2]
            assert list(store.rows(space="workbench")) == []
            with pytest.raises(TypeError, match="no such condition: colour"):
                list(store.rows(colour="red"))  # type: ignore[call-arg]

    def test_done_says_what_a_resumed_run_leaves_out(self, tmp_path: Path) -> None:
        unnumbered = Measurement(MM, "cpu", Status.OK, 0.1, config={"b": 2, "a": (1, 2)})
        with Store(tmp_path / "s.db") as store:
            store.add([measured(5), measured(5), failed(6), unnumbered])
            done = store.done()
            assert len(done) == 3
            assert Key.of(MM, "cpu", "autotvm", 5) in done
            assert Key.of(MM, "cpu", "autotvm", np.int64(5)) in done
            assert Key.of(MM, "gpu", "autotvm", 6) in done
            assert Key.of(MM, "cpu", config={"a": [1, 2], "b": 2}) in done  # neither order nor list against tuple matters
            assert Key.of(MM, "gpu", "autotvm", 5) not in done
            # failures may be tried again
            assert Key.of(MM, "gpu", "autotvm", 6) not in store.done(status="ok")

    def test_more_records_than_are_read_at_once(self, tmp_path: Path) -> None:
        with Store(tmp_path / "s.db") as store:
            store.add(measured(i) for i in range(2500))
            assert [m.index for m in store.rows()] == list(range(2500))
            for _ in store.rows(device="cpu"):
                store.add([measured(9, device="other")])  # adding while reading neither blocks nor repeats
                break

    def test_nothing_is_stored_if_one_cannot_be(self, tmp_path: Path) -> None:
        with Store(tmp_path / "s.db") as store:
            store.add([measured(0)])
            with pytest.raises(DataError, match="cannot be stored"):
                store.add([measured(1), Measurement(MM, "cpu", Status.OK, 0.1, compile_s=float("nan"))])
            with pytest.raises(DataError, match="not a JSON value"):
                store.add([Measurement(MM, "cpu", Status.OK, 0.1, config={"bad": {1, 2}})])  # type: ignore[dict-item]
            with pytest.raises(DataError, match="finite"):
                store.add([Measurement(MM, "cpu", Status.OK, float("nan"))])
            assert len(store) == 1

    def test_numpy_values_are_stored_as_numbers(self, tmp_path: Path) -> None:
        with Store(tmp_path / "s.db") as store:
            store.add([Measurement(MM, "cpu", Status.OK, np.float64(0.5), "s", np.int64(3), {"a": np.int64(7)})])  # type: ignore[arg-type]
            assert list(store.rows()) == [Measurement(MM, "cpu", Status.OK, 0.5, "s", 3, {"a": 7})]

    def test_threads_share_one_store(self, tmp_path: Path) -> None:
        with Store(tmp_path / "s.db") as store:
            threads = [threading.Thread(target=lambda k=k: [store.add([measured(k * 100 + i)]) for i in range(20)]) for k in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(m.index or 0 for m in store.rows()) == sorted(k * 100 + i for k in range(4) for i in range(20))

    def test_closed(self, tmp_path: Path) -> None:
        store = Store(tmp_path / "s.db")
        store.close()
        store.close()
        for use in (lambda: store.add([measured(0)]), lambda: len(store), lambda: list(store.rows()), store.done, store.verify):
            with pytest.raises(StoreError, match="closed"):
                use()

    def test_durable_settings(self, tmp_path: Path) -> None:
        with Store(tmp_path / "s.db") as store:
            assert store._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
            assert store._db.execute("PRAGMA synchronous").fetchone()[0] == 2  # FULL

    def test_missing_folders_are_made_and_nothing_else_stays(self, tmp_path: Path) -> None:
        with Store(tmp_path / "a" / "b" / "s.db") as store:
            store.add([measured(0)])
        assert [p.name for p in (tmp_path / "a" / "b").iterdir()] == ["s.db"]


class TestFrame:
    def test_columns(self, tmp_path: Path) -> None:
        with Store(tmp_path / "s.db") as store:
            store.add([measured(3), failed(4)])
            frame = store.frame()
        assert list(frame.columns[:8]) == ["kernel", "m", "n", "device", "space", "index", "tile", "status"]
        assert frame["index"].tolist() == [3, 4]
        assert frame["tile"][0] == (3, 2)
        assert frame["time_s"][0] == pytest.approx(4e-3)
        assert np.isnan(frame["time_s"][1])
        assert frame["time_s"].dtype == np.float64
        assert frame["status"].tolist() == ["ok", "timeout"]

    def test_indices_beyond_64_bits_stay_exact(self) -> None:
        assert to_frame([measured(2**70)])["index"][0] == 2**70

    def test_empty(self) -> None:
        assert to_frame([]).empty

    def test_a_name_for_two_things_is_refused(self) -> None:
        with pytest.raises(DataError, match="'m' would stand for two things"):
            to_frame([Measurement(MM, "cpu", Status.OK, 0.1, config={"m": 3})])
        with pytest.raises(DataError, match="'index' would"):
            to_frame([Measurement(MM, "cpu", Status.OK, 0.1, config={"index": 3})])


values = st.one_of(
    st.integers(-(2**40), 2**40), st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False), st.tuples(st.integers(0, 9), st.integers(0, 9))
)
times = st.floats(1e-9, 1e3)


@st.composite
def measurements(draw: st.DrawFn) -> Measurement:
    status = draw(st.sampled_from(list(Status)))
    return Measurement(
        Workload(draw(st.sampled_from(["mm", "conv2d"])), draw(st.dictionaries(st.text("abc", min_size=1), values, max_size=3))),
        draw(st.text(max_size=5)),
        status,
        draw(times) if status is Status.OK else None,
        draw(st.text(max_size=5)),
        draw(st.none() | st.integers(0, 2**80)),
        draw(st.dictionaries(st.text(max_size=4), values, max_size=3)),
        tuple(draw(st.lists(times, max_size=3))),
        draw(st.none() | times),
        draw(st.text(max_size=10)),
        timestamp=draw(st.none() | times),
    )


class TestParquet:
    @settings(max_examples=25, deadline=None)
    @given(st.lists(measurements(), max_size=5))
    def test_store_and_file_lose_nothing(self, records: list[Measurement]) -> None:
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "a.db") as first, Store(Path(folder) / "b.db") as second:
            first.add(records)
            assert first.export(Path(folder) / "x.parquet") == len(records)
            assert second.load(Path(folder) / "x.parquet") == len(records)
            assert list(second.rows()) == list(first.rows()) == records

    def test_compressed_with_zstd_and_readable_by_others(self, tmp_path: Path) -> None:
        import pyarrow.parquet as pq

        with Store(tmp_path / "s.db") as store:
            store.add([measured(0), failed(1)])
            store.export(tmp_path / "x.parquet", status="ok")
        assert pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(0).column(0).compression == "ZSTD"
        assert pd.read_parquet(tmp_path / "x.parquet")["time_s"].tolist() == [1e-3]

    def test_a_failed_export_leaves_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with Store(tmp_path / "s.db") as store:
            store.add([measured(i) for i in range(3)])
            store.export(tmp_path / "x.parquet")
            before = (tmp_path / "x.parquet").read_bytes()
            # the second record is damaged on the disk: the export stops half-way
            store._db.execute("UPDATE measurement SET record = replace(record, '0.002', '0.003') WHERE id = 2")
            with pytest.raises(StoreError, match=r"record 2 cannot be read \(its checksum does not fit\); records up to id 1 were read"):
                store.export(tmp_path / "x.parquet")
            assert (tmp_path / "x.parquet").read_bytes() == before

            def full(descriptor: int) -> None:
                raise OSError(28, "No space left on device")

            store._db.execute("DELETE FROM measurement WHERE id = 2")
            monkeypatch.setattr(os, "fsync", full)
            with pytest.raises(StoreError, match=r"No space left on device\); what stood there before is unchanged"):
                store.export(tmp_path / "x.parquet")
            monkeypatch.undo()
        assert (tmp_path / "x.parquet").read_bytes() == before
        assert sorted(p.name for p in tmp_path.iterdir()) == ["s.db", "x.parquet"]

    def test_files_that_cannot_be_loaded(self, tmp_path: Path) -> None:
        with Store(tmp_path / "s.db") as store:
            store.add([measured(i) for i in range(5)])
            store.export(tmp_path / "x.parquet")
            whole = (tmp_path / "x.parquet").read_bytes()
            (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
            (tmp_path / "text.parquet").write_text("time_s,0.1\n")
            pd.DataFrame({"time_s": [1.0]}).to_parquet(tmp_path / "other.parquet")
            for name in ("cut", "text"):
                with pytest.raises(DataError, match=rf"{name}\.parquet: not a whole Parquet file"):
                    store.load(tmp_path / f"{name}.parquet")
            with pytest.raises(DataError, match="schema version none"):
                store.load(tmp_path / "other.parquet")
            with pytest.raises(MissingData, match="no such file"):
                store.load(tmp_path / "absent.parquet")
            with pytest.raises(StoreError, match="choose a folder that is there"):
                store.export(tmp_path / "absent" / "x.parquet")
            assert len(store) == 5

    def test_a_row_that_is_no_measurement_is_named_and_nothing_is_loaded(self, tmp_path: Path) -> None:
        import pyarrow.parquet as pq

        with Store(tmp_path / "s.db") as store:
            store.add([measured(i) for i in range(5)])
            store.export(tmp_path / "x.parquet")
            table = pq.read_table(tmp_path / "x.parquet")
            rows = table.to_pylist()
            rows[3]["time_s"] = None
            pq.write_table(type(table).from_pylist(rows, schema=table.schema), tmp_path / "bad.parquet")
            with pytest.raises(DataError, match="row 3 is not a measurement"):
                store.load(tmp_path / "bad.parquet")
            assert len(store) == 5
        assert next(read_parquet(tmp_path / "x.parquet")) == measured(0)


WRITER = """
import sys
from workbench.data.store import Store
from workbench.schema import Measurement, Status, Workload
path, start, count, batch = sys.argv[1], *map(int, sys.argv[2:])
work = Workload("mm", {"m": 8})
with Store(path) as store:
    print("open", flush=True)
    for first in range(start, start + count, batch):
        ids = range(first, first + batch)
        store.add(Measurement(work, "cpu", Status.OK, 1e-3, "autotvm", i, {"pad": "x" * 500}) for i in ids)
        print("".join(f"{i}\\n" for i in ids), end="", flush=True)
"""


def writer(path: Path, start: int, count: int, batch: int = 1) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(start), str(count), str(batch)], stdout=subprocess.PIPE, text=True)


def acknowledged(output: str) -> list[int]:
    lines = output.split("\n")
    return [int(line) for line in lines[:-1] if line != "open"]  # the last piece is no whole line


class TestKill:
    def test_nothing_acknowledged_is_lost(self, tmp_path: Path) -> None:
        path = tmp_path / "s.db"
        chance = random.Random(0)
        promised: list[int] = []
        written: list[int] = []
        for round_ in range(8):
            process = writer(path, round_ * 100_000, 50_000, batch=1 if round_ % 2 else 25)
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            time.sleep(chance.uniform(0.0, 0.6))
            process.send_signal(signal.SIGKILL)
            promised += acknowledged(process.stdout.read())
            assert process.wait() == -signal.SIGKILL
            process.stdout.close()
            with Store(path) as store:
                written = [m.index or 0 for m in store.rows()]
                assert len(store) == store.verify() == len(written)
            assert set(promised) <= set(written), f"round {round_}: {len(set(promised) - set(written))} acknowledged records are lost"
            assert len(written) == len(set(written))
        assert len(promised) > 100  # the writers did write before they were killed

    def test_batches_are_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "s.db"
        process = writer(path, 0, 10**7, batch=400)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        time.sleep(0.3)
        process.kill()
        process.communicate()
        with Store(path) as store:
            assert len(store) % 400 == 0

    def test_killed_while_the_store_is_made(self, tmp_path: Path) -> None:
        chance = random.Random(1)
        for round_ in range(4):
            path = tmp_path / f"s{round_}.db"
            process = writer(path, 0, 1)
            deadline = time.monotonic() + 20
            while not any(tmp_path.glob(f".s{round_}.db.*")) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.0005)
            time.sleep(chance.uniform(0.0, 0.004))
            process.kill()
            process.communicate()
            with Store(path) as store:  # whatever is there is a whole store or no store
                assert len(store) in (0, 1)

    def test_two_writers_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "s.db"
        writers = [writer(path, start, 150) for start in (0, 1000)]  # both may make the store
        outputs = [process.communicate(timeout=60)[0] for process in writers]
        assert [process.returncode for process in writers] == [0, 0]
        with Store(path) as store:
            indices = [m.index or 0 for m in store.rows()]
        assert sorted(indices) == sorted(i for output in outputs for i in acknowledged(output)) == [*range(150), *range(1000, 1150)]

    def test_a_writer_that_waits_too_long_says_so(self, tmp_path: Path) -> None:
        with Store(tmp_path / "s.db") as first, Store(tmp_path / "s.db", busy_timeout_s=0.1) as second:
            first.add([measured(0)])
            first._db.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match=r"another process has held it.*the 1 measurements acknowledged before are kept, none of this call's is"):
                second.add([measured(1)])
            first._db.execute("ROLLBACK")
            second.add([measured(1)])
            assert len(first) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, where this process may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True).returncode != 0:
        pytest.skip("this process may not mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class TestFullDisk:
    def test_on_a_full_file_system(self, small_disk: Path) -> None:
        with Store(small_disk / "s.db") as store:
            ids: list[int] = []

            def write_until_full() -> None:
                for i in range(10_000):
                    ids.extend(store.add([measured(i, pad=2000)]))

            with pytest.raises(StoreError, match="the disk is full") as caught:
                write_until_full()
            assert len(ids) > 20
            assert f"the {len(ids):,} measurements acknowledged before are kept, none of this call's is. Free space in {small_disk}" in str(caught.value)
            assert [m.index for m in store.rows()] == list(range(len(ids)))
        with Store(small_disk / "s.db") as store:
            assert store.verify() == len(ids)

    def test_a_limit_on_the_database(self, tmp_path: Path) -> None:
        with Store(tmp_path / "s.db") as store:
            store.add([measured(0)])
            store._db.execute("PRAGMA max_page_count = 12")
            with pytest.raises(StoreError, match="the disk is full; the 1 measurements acknowledged before are kept"):
                store.add(measured(i, pad=2000) for i in range(1, 100))
            assert len(store) == 1
            store._db.execute("PRAGMA max_page_count = 1000000")
            store.add(measured(i, pad=2000) for i in range(1, 100))  # the store goes on once there is space
            assert len(store) == store.verify() == 100

    def test_a_file_that_may_not_grow(self, tmp_path: Path) -> None:
        script = WRITER.replace("path, start", "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)); path, start", 1)
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "s.db"), "0", "100000", "1"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        kept = acknowledged(done.stdout)
        assert len(kept) > 5
        assert f"full; the {len(kept):,} measurements acknowledged before are kept" in done.stderr
        with Store(tmp_path / "s.db") as store:
            assert [m.index for m in store.rows()] == kept

    def test_no_space_for_a_new_store(self, small_disk: Path) -> None:
        (small_disk / "fill").write_bytes(b"\0" * (1 << 20))
        with pytest.raises(StoreError, match=r"s\.db"):
            Store(small_disk / "s.db")
        assert not (small_disk / "s.db").exists()


def filled(path: Path, count: int = 300) -> bytes:
    with Store(path) as store:
        store.add(measured(i, pad=300) for i in range(count))
    return path.read_bytes()


class TestDamage:
    @pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
    def test_cut_off(self, tmp_path: Path, share: float) -> None:
        path = tmp_path / "s.db"
        whole = filled(path)
        cut = int(len(whole) * share)
        path.write_bytes(whole[:cut])
        with pytest.raises(StoreError, match=rf"cut off at offset {cut:,} of {len(whole):,} bytes; [\d,]+ records can be read; nothing was changed\."):
            Store(path)
        assert path.read_bytes() == whole[:cut]

    def test_what_is_left_can_be_salvaged(self, tmp_path: Path) -> None:
        path = tmp_path / "s.db"
        whole = filled(path)
        path.write_bytes(whole[: len(whole) // 2])
        copied, lost = salvage(path, tmp_path / "new.db")
        assert copied + lost == 300
        assert copied > 50
        with Store(tmp_path / "new.db") as store:
            assert store.verify() == copied
            assert {m.index for m in store.rows()} <= set(range(300))
        assert path.read_bytes() == whole[: len(whole) // 2]
        with pytest.raises(StoreError, match="is there already"):
            salvage(path, tmp_path / "new.db")

    def test_notes_are_salvaged_with_the_records(self, tmp_path: Path) -> None:
        path = tmp_path / "s.db"
        with Store(path) as store:
            store.note("series", "by g++ 12")
            store.note("other", "by g++ 13")
        whole = filled(path)
        path.write_bytes(whole[: len(whole) // 2])
        copied, lost = salvage(path, tmp_path / "new.db")
        assert lost > 0
        with Store(tmp_path / "new.db") as store:
            assert len(store) == copied
            assert (store.note("series"), store.note("other")) == ("by g++ 12", "by g++ 13")

    @pytest.mark.parametrize("size", [0, 1, 50])
    def test_cut_off_in_the_header(self, tmp_path: Path, size: int) -> None:
        path = tmp_path / "s.db"
        whole = filled(path)
        path.write_bytes(whole[:size])
        with pytest.raises(StoreError, match=r"empty \(0 bytes\)" if size == 0 else f"cut off at offset {size}"):
            Store(path)
        assert path.stat().st_size == size  # never made anew in silence
        with pytest.raises(StoreError, match="no record can be read"):
            salvage(path, tmp_path / "new.db")

    def test_a_damaged_page_is_found_and_the_rest_salvaged(self, tmp_path: Path) -> None:
        path = tmp_path / "s.db"
        whole = bytearray(filled(path))
        where = whole.index(b'"index":150,') // 4096 * 4096
        whole[where : where + 4096] = b"\xff" * 4096
        path.write_bytes(whole)
        with Store(path) as store:
            with pytest.raises(StoreError, match=r"the file is damaged; nothing was changed.*salvage"):
                list(store.rows())
            with pytest.raises(StoreError, match="damaged"):
                store.verify()
        copied, lost = salvage(path, tmp_path / "new.db")
        assert copied + lost == 300
        assert 0 < lost < 30

    def test_a_changed_digit_is_found(self, tmp_path: Path) -> None:
        path = tmp_path / "s.db"
        whole = filled(path)
        assert whole.count(b'"time_s":0.151,') == 1
        path.write_bytes(whole.replace(b'"time_s":0.151,', b'"time_s":0.051,'))
        with Store(path) as store:
            with pytest.raises(StoreError, match=r"record 151 cannot be read \(its checksum does not fit\); records up to id 150 were read"):
                list(store.rows())
            with pytest.raises(StoreError, match="record 151"):
                store.verify()
        assert salvage(path, tmp_path / "new.db") == (299, 1)

    def test_a_torn_log_loses_only_what_was_not_acknowledged(self, tmp_path: Path) -> None:
        path = tmp_path / "s.db"
        store = Store(path)
        store.add([measured(0)])
        kept = Path(f"{path}-wal").read_bytes()
        # a crash in the middle of the next commit: half a frame follows what was acknowledged
        shutil.copy(path, tmp_path / "crashed.db")
        (tmp_path / "crashed.db-wal").write_bytes(kept + b"\x17" * 1000)
        store.close()
        with Store(tmp_path / "crashed.db") as crashed:
            assert list(crashed.rows()) == [measured(0)]

    @pytest.mark.parametrize("content", [b"time_s,m,n\n0.1,8,8\n" * 100, b"\x89PNG\r\n\x1a\n" + bytes(200), b"x"])
    def test_not_a_database(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "s.db"
        path.write_bytes(content)
        with pytest.raises(StoreError, match="not a measurement store"):
            Store(path)
        assert path.read_bytes() == content

    def test_another_program_s_database(self, tmp_path: Path) -> None:
        db = sqlite3.connect(tmp_path / "s.db")
        db.execute("CREATE TABLE measurement (id INTEGER)")
        db.close()
        before = (tmp_path / "s.db").read_bytes()
        with pytest.raises(StoreError, match=r"not a measurement store \(application id 0x0\)"):
            Store(tmp_path / "s.db")
        assert (tmp_path / "s.db").read_bytes() == before

    def test_a_newer_store(self, tmp_path: Path) -> None:
        filled(tmp_path / "s.db", 1)
        db = sqlite3.connect(tmp_path / "s.db")
        db.execute("PRAGMA user_version = 99")
        db.close()
        with pytest.raises(StoreError, match="a store of version 99; this workbench reads version 1"):
            Store(tmp_path / "s.db")

    def test_a_newer_record(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with Store(tmp_path / "s.db") as store:
            store.add([measured(0)])
            monkeypatch.setattr(Measurement, "to_json", lambda self: {"version": 99})
            store.add([measured(1)])
            with pytest.raises(StoreError, match=r"record 2 cannot be read .*schema version 99"):
                list(store.rows())

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="not a file"):
            Store(tmp_path)


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder of root's that this process, while the fixture lasts no longer root, may read and not write."""
    folder = Path(tempfile.mkdtemp())
    filled(folder / "old.db", 3)
    root = os.geteuid() == 0
    folder.chmod(0o555)
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


class TestReadOnlyFolder:
    def test_new_store(self, as_nobody: Path) -> None:
        with pytest.raises(StoreError, match=r"cannot be made \(Permission denied\); choose a folder that can be written"):
            Store(as_nobody / "new.db")

    def test_old_store(self, as_nobody: Path) -> None:
        with pytest.raises(StoreError, match=rf"{as_nobody}.* cannot be written.*Change the permissions or use another folder"):
            Store(as_nobody / "old.db")


def test_file_systems_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(store_module.os, "link", refuse)
    with Store(tmp_path / "s.db") as store:
        store.add([measured(0)])
    assert [p.name for p in tmp_path.iterdir()] == ["s.db"]


def test_a_note_stays_as_first_written(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store(path) as store:
        assert store.note("series") is None
        assert store.note("series", "by g++ 12") == "by g++ 12"
        assert store.note("series", "by g++ 13") == "by g++ 12"
        assert store.note("other") is None
        store.add([])
    with Store(path) as store:
        assert store.note("series") == "by g++ 12"
        assert store.verify() == 0
    with pytest.raises(StoreError, match="closed"):
        store.note("series")
