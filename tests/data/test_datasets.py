from __future__ import annotations

import datetime
import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.data import datasets, registry
from workbench.data.catalogue import ENTRIES
from workbench.errors import DataError, MissingData, UsageError
from workbench.kernels import names as kernel_names
from workbench.schema import Status
from workbench.space import Split


def test_the_catalogue_has_every_set():
    names = datasets.names()
    assert len(names) == len(set(names))
    for kernel in ("mm", "mv", "mc"):
        for device in ("i5", "i7", "xeon", "tesla", "quadro"):
            for size in (500, 5000):
                assert f"nnc-{kernel}-{device}-{size}" in names
    others = "halide-blur-i5 halide-blur-xeon halide-blur-quadro halide-fft-cpu halide-fft-gpu titanxp-conv2d autotvm-t4-bert tophub-cuda "
    others += "kt-convolution-rtx-2080-ti kt-convolution-titan-rtx kt-convolution-rtx-3090 kt-gemm-rtx-2080-ti kt-gemm-titan-rtx "
    others += "kt-convolution-milo-a100 kt-convolution-milo-a4000 kt-convolution-milo-w6600 kt-convolution-milo-w7800"
    assert set(others.split()) == {name for name in ENTRIES if not name.startswith("nnc-")}


def test_every_entry_is_described_without_reading_it(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("WORKBENCH_MIRROR", raising=False)
    used = set()
    for name in ENTRIES:
        facts = datasets.describe(name)
        assert set(facts) == {"name", "kernel", "device", "rows", "parameters", "knobs", "licence", "notes", "files"}
        assert facts["kernel"] in (*kernel_names(), "batch_matmul")
        assert facts["rows"] > 0
        assert facts["files"]
        licences = {file.licence for file in datasets.files_of(name)}
        assert licences == {facts["licence"]}
        used |= {file["key"] for file in facts["files"]}
    assert used == set(registry.external_files())  # no registered file without a data set


def test_an_unknown_name_has_close_matches():
    with pytest.raises(UsageError, match="unknown data set 'nnc-mm-i5-50'; did you mean nnc-mm-i5-500"):
        datasets.load_dataset("nnc-mm-i5-50")
    for use in (datasets.load_dataset, datasets.describe, datasets.files_of):
        with pytest.raises(UsageError, match="`workbench data list` shows the names"):
            use("???")


def test_without_cache_mirror_or_network_the_message_names_the_set(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("WORKBENCH_OFFLINE", "1")
    monkeypatch.delenv("WORKBENCH_MIRROR", raising=False)
    with pytest.raises(MissingData, match="workbench data fetch halide-blur-i5"):
        datasets.load_dataset("halide-blur-i5")


def test_an_unknown_format_or_a_layout_without_use_is_refused(tmp_path):
    with pytest.raises(UsageError, match="unknown format 'csv'; use nnc, halide"):
        datasets.read_file(tmp_path / "a", "csv")
    with pytest.raises(UsageError, match="format 'autotvm' has no layouts"):
        datasets.read_file(tmp_path / "a", "autotvm", "mm-cpu")


@pytest.mark.parametrize("name", ENTRIES)
def test_every_set_loads_as_the_catalogue_says(mirror, name):
    if not all((mirror / file.key).is_file() for file in datasets.files_of(name)):
        pytest.skip(f"the mirror lacks a file of {name}")
    dataset = datasets.load_dataset(name)
    frame = dataset.frame
    assert len(frame) == ENTRIES[name].rows
    assert set(dataset.inputs) <= set(frame.columns)
    assert set(frame["status"]) <= {str(status) for status in Status}
    ok = (frame["status"] == "ok").to_numpy()
    times = frame["time_s"].to_numpy()
    assert np.isfinite(times[ok]).all()
    assert (times[ok] > 0).all()
    assert np.isnan(times[~ok]).all()
    assert len(dataset.valid) == ok.sum() > 0
    assert all(dataset.sha256[file.key] == file.sha256 for file in datasets.files_of(name))
    if dataset.kernel.name in kernel_names() and name != "tophub-cuda":
        assert set(dataset.parameters) <= {*dataset.kernel.parameters, *dataset.kernel.optional}
        if dataset.kernel.complexity is not None:
            work = dataset.kernel.complexity({p: frame[p].to_numpy() for p in dataset.parameters})
            assert np.shape(work) == (len(frame),)
    if dataset.kernel.spaces and name != "tophub-cuda":
        row = frame.iloc[0]
        workload = dataset.kernel.workload({parameter: int(row[parameter]) for parameter in dataset.parameters})
        assert sorted(dataset.knobs) in [sorted(columns_of(dataset.kernel.space(workload, space))) for space in dataset.kernel.spaces]


def columns_of(space):
    """Knob columns of a tidy frame: a part a column for a Split."""
    for knob in space.knobs:
        yield from [f"{knob.name}_{i}" for i in range(knob.parts)] if isinstance(knob, Split) else [knob.name]


def test_what_the_notes_say_of_recurring_inputs_is_so(mirror):
    """Where the notes say that all inputs of the small file recur in the large one, they do, and nowhere else."""
    for kernel in ("mm", "mv", "mc"):
        for device in ("i5", "i7", "xeon", "tesla", "quadro"):
            names = [f"nnc-{kernel}-{device}-{size}" for size in (500, 5000)]
            if not all((mirror / file.key).is_file() for name in names for file in datasets.files_of(name)):
                pytest.skip("the mirror lacks a matrix file")
            small, large = (datasets.load_dataset(name) for name in names)
            known = set(map(tuple, large.frame[list(large.inputs)].to_numpy()))
            recurs = all(row in known for row in map(tuple, small.frame[list(small.inputs)].to_numpy()))
            assert recurs == any(note.startswith("Every input of the 500-row file recurs") for note in small.notes)


# Data sets of our own: a folder under data/raw.

TOML = """
kernel = "mm"
driver = "none"
compiler = "some compiler 1"
policy = "median of 7"
command = "workbench measure mm"
date = 2026-01-02
parameters = ["m", "n", "k", "d1", "d2"]
knobs = ["threads"]
notes = ["Invented."]

[device]
name = "here"
kind = "cpu"
model = "Some processor"
peak_gflops = 100.0

[versions]
python = "3.11"

[sha256]
"""


def frame_of(rows: int = 4) -> pd.DataFrame:
    data = {name: np.arange(1, rows + 1) for name in ("m", "n", "k", "threads")}
    frame = pd.DataFrame({**data, "d1": 0.5, "d2": 0.5, "time_s": 0.25, "status": "ok"})
    frame.loc[1, ["time_s", "status"]] = [np.nan, "timeout"]
    return frame


@pytest.fixture
def root(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "external.toml").write_text("version = 1\n")
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    return tmp_path


def own(root: Path, *frames: pd.DataFrame, name: str = "mm-here", text: str = TOML) -> Path:
    folder = root / "data" / "raw" / name
    folder.mkdir(parents=True, exist_ok=True)
    for i, frame in enumerate(frames):
        frame.to_parquet(folder / f"part{i}.parquet", compression="zstd")
        text += f'"part{i}.parquet" = "{hashlib.sha256((folder / f"part{i}.parquet").read_bytes()).hexdigest()}"\n'
    (folder / "dataset.toml").write_text(text)
    return folder


def test_a_folder_is_a_data_set_of_its_name(root):
    own(root, frame_of(), frame_of(3))
    assert datasets.names()[-1] == "mm-here"
    assert datasets.files_of("mm-here") == []
    facts = datasets.describe("mm-here")
    assert facts["rows"] == 7
    assert facts["device"]["model"] == "Some processor"
    assert facts["licence"] == "Apache-2.0"
    assert [file["key"] for file in facts["files"]] == ["part0.parquet", "part1.parquet"]
    dataset = datasets.load_dataset("mm-here")
    pd.testing.assert_frame_equal(dataset.frame, pd.concat([frame_of(), frame_of(3)], ignore_index=True))
    assert dataset.kernel.name == "mm"
    assert dataset.inputs == ("m", "n", "k", "d1", "d2", "threads")
    assert dataset.device.peak_gflops == 100.0
    assert dataset.notes == ("Invented.",)
    assert "workbench measure mm" in dataset.source
    assert str(datetime.date(2026, 1, 2)) in dataset.source
    assert len(dataset.valid) == 5


def test_a_frame_is_the_callers_own(root):
    own(root, frame_of())
    first = datasets.load_dataset("mm-here").frame
    first.loc[0, "time_s"] = 77.0
    first["more"] = 1
    again = datasets.load_dataset("mm-here").frame
    assert again["time_s"][0] == 0.25
    assert "more" not in again


def test_a_changed_file_is_refused_with_both_sums(root):
    folder = own(root, frame_of())
    before = hashlib.sha256((folder / "part0.parquet").read_bytes()).hexdigest()
    frame_of(5).to_parquet(folder / "part0.parquet")
    after = hashlib.sha256((folder / "part0.parquet").read_bytes()).hexdigest()
    with pytest.raises(DataError) as caught:
        datasets.load_dataset("mm-here")
    assert before in str(caught.value)
    assert after in str(caught.value)


def test_a_missing_or_broken_file_is_refused(root):
    folder = own(root, frame_of())
    (folder / "part0.parquet").unlink()
    with pytest.raises(DataError, match="it is not there"):
        datasets.load_dataset("mm-here")
    (folder / "part0.parquet").write_bytes(b"no parquet")
    (folder / "dataset.toml").write_text(TOML + f'"part0.parquet" = "{hashlib.sha256(b"no parquet").hexdigest()}"\n')
    for use in (datasets.load_dataset, datasets.describe):
        with pytest.raises(DataError, match=r"part0\.parquet: not a"):
            use("mm-here")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('driver = "none"\n', "", "the key 'driver' is missing"),
        ('kernel = "mm"', "kernel = 5", "kernel = 5; it must be text"),
        ('knobs = ["threads"]', "knobs = [1]", r"knobs = \[1\]; it must be a list of texts"),
        ('kind = "cpu"', 'kind = "tpu"', "kind is 'tpu'"),
        ('kind = "cpu"', 'kind = "cpu"\ncolour = "red"', "colour"),
        ('policy = "median of 7"', 'policy = "median of 7"\ncolour = "red"', "unknown key 'colour'"),
        ("[sha256]", '[sha256]\n"../escape.parquet" = "0"', "sha256 lists '../escape.parquet'"),
        ("[versions]", "[versions", "cannot be read"),
    ],
)
def test_a_bad_header_is_refused(root, old, new, message):
    assert old in TOML
    own(root, frame_of(), text=TOML.replace(old, new))
    with pytest.raises(DataError, match=message) as caught:
        datasets.load_dataset("mm-here")
    assert "dataset.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("time_s", 0.0, "row 0: status 'ok' with time 0.0"),
        ("time_s", np.nan, "row 0: status 'ok' with time nan"),
        ("time_s", np.inf, "row 0: status 'ok' with time inf"),
        ("status", "run_error", "row 0: status 'run_error' with time 0.25"),
        ("status", "fine", "row 0: unknown status 'fine'"),
    ],
)
def test_bad_rows_are_refused(root, column, value, message):
    frame = frame_of()
    frame.loc[0, column] = value
    own(root, frame)
    with pytest.raises(DataError, match=message):
        datasets.load_dataset("mm-here")


def test_a_missing_column_a_taken_name_and_an_unknown_kernel_are_refused(root):
    folder = own(root, frame_of().drop(columns="threads"))
    with pytest.raises(DataError, match="no column 'threads'"):
        datasets.load_dataset("mm-here")
    own(root, frame_of(), text=TOML.replace('"mm"', '"mmm"'))
    with pytest.raises(UsageError, match="no kernel 'mmm'"):
        datasets.load_dataset("mm-here")
    folder.rename(folder.with_name("tophub-cuda"))
    with pytest.raises(DataError, match="rename the folder"):
        datasets.names()
