from __future__ import annotations

import gzip
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.data import kernel_tuner
from workbench.errors import DataError

KNOBS = ["block", "tile"]


def entry(block: int, tile: int, value: object, times: list[float] | None = None, **more: object) -> dict[str, object]:
    return {"block": block, "tile": tile, "time": value, **({"times": times} if times is not None else {}), "compile_time": 250.0, **more}


def document(*entries: dict[str, object]) -> dict[str, object]:
    return {
        "device_name": "Invented 1",
        "kernel_name": "invented",
        "problem_size": [64, 64],
        "tune_params_keys": KNOBS,
        "tune_params": {"block": [16, 32, 64], "tile": [1, 2]},
        "cache": {f"{e.get('block')},{e.get('tile')}": e for e in entries},
    }


GOOD = document(
    entry(16, 1, 3.0, [1.0, 2.0, 6.0]),
    entry(16, 2, "CompilationFailedConfig"),
    entry(32, 1, 4.5, [4.0, 5.0]),
    entry(32, 2, "RuntimeFailedConfig"),
    entry(64, 1, "InvalidConfig"),
    entry(64, 2, 7.0),
)


def text_of(document: dict[str, object]) -> str:
    """As Kernel Tuner writes it: an entry a line."""
    head = {k: v for k, v in document.items() if k != "cache"}
    rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in document["cache"].items())  # type: ignore[attr-defined]
    return json.dumps(head, indent=0)[:-2] + ',\n"cache": {\n' + rows + "}\n}"


def write(folder: Path, text: str | bytes, name: str = "cache.json") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_times_become_seconds_and_failures_statuses(tmp_path):
    frame = kernel_tuner.read(write(tmp_path, text_of(GOOD)))
    assert list(frame.columns) == [*KNOBS, "time_s", "time_s_median", "time_s_min", "time_s_std", "n_rep", "compile_s", "status", "error"]
    assert list(frame["status"]) == ["ok", "compile_error", "ok", "run_error", "invalid_config", "ok"]
    assert list(frame["error"]) == ["", "CompilationFailedConfig", "", "RuntimeFailedConfig", "InvalidConfig", ""]
    np.testing.assert_array_equal(frame["time_s"], [0.003, np.nan, 0.0045, np.nan, np.nan, 0.007])
    np.testing.assert_array_equal(frame["time_s_median"], [0.002, np.nan, 0.0045, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(frame["time_s_min"], [0.001, np.nan, 0.004, np.nan, np.nan, np.nan])
    np.testing.assert_allclose(frame["time_s_std"], [np.sqrt(14 / 3) / 1e3, np.nan, 0.0005, np.nan, np.nan, np.nan])
    assert list(frame["n_rep"]) == [3, 0, 2, 0, 0, 0]
    assert (frame["compile_s"] == 0.25).all()
    assert list(frame["block"]) == [16, 16, 32, 32, 64, 64]
    assert frame.attrs == {"device_name": "Invented 1", "kernel_name": "invented", "problem_size": [64, 64]}


def test_gzip_crlf_and_byte_order_mark_do_not_matter(tmp_path):
    text = text_of(GOOD)
    plain = kernel_tuner.read(write(tmp_path, text))
    for data in (gzip.compress(text.encode()), b"\xef\xbb\xbf" + text.encode(), text.replace("\n", "\r\n").encode(), json.dumps(GOOD, indent=2).encode()):
        pd.testing.assert_frame_equal(kernel_tuner.read(write(tmp_path, data)), plain)


def test_the_old_number_for_a_failure_is_a_failure(tmp_path):
    frame = kernel_tuner.read(write(tmp_path, text_of(document(entry(16, 1, 1e20), entry(16, 2, 3.0)))))
    assert list(frame["status"]) == ["run_error", "ok"]
    assert np.isnan(frame["time_s"][0])


@pytest.mark.parametrize("tail", ["", ",", ",\n", "}", "}\n"])
def test_missing_closing_brackets_are_added(tmp_path, tail):
    whole = kernel_tuner.read(write(tmp_path, text_of(GOOD)))
    body = text_of(GOOD).removesuffix("}\n}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pd.testing.assert_frame_equal(kernel_tuner.read(write(tmp_path, body + tail)), whole)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_file_cut_anywhere_is_refused_or_gives_the_entries_before_the_cut(tmp_path, indent):
    text = text_of(GOOD) if indent is None else json.dumps(GOOD, indent=indent)
    whole = kernel_tuner.read(write(tmp_path, text))
    start = text.index('"16,1"')
    read = 0
    for cut in range(0, len(text), 4):
        path = write(tmp_path, text[:cut])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frame, refusal = None, ""
            try:
                frame = kernel_tuner.read(path)
            except DataError as error:
                refusal = str(error)
        if frame is None:
            assert str(path) in refusal
            assert cut <= text.index("}", start)
            continue
        read += 1
        assert cut > start
        pd.testing.assert_frame_equal(frame, whole.head(len(frame)).astype(frame.dtypes))
        torn = text[:cut].rstrip()[text[:cut].rfind("}") + 1 :].strip(" ,\r\n\t")
        assert bool(caught) == bool(torn)
        assert all("torn last entry" in str(w.message) and str(path) in str(w.message) for w in caught)
    assert read > 40


def test_a_cut_gzip_stream_is_refused(tmp_path):
    data = gzip.compress(text_of(GOOD).encode())
    for cut in range(2, len(data), 7):
        with pytest.raises(DataError, match="gzip stream is cut or damaged"):
            kernel_tuner.read(write(tmp_path, data[:cut]))
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 0xFF
    with pytest.raises(DataError):
        kernel_tuner.read(write(tmp_path, bytes(damaged)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (entry(16, 1, None), r"entry '16,1', time: None is not a positive, finite number of milliseconds"),
        (entry(16, 1, 0), r"entry '16,1', time: 0 is not a positive"),
        (entry(16, 1, -2.0), r"entry '16,1', time: -2.0 is not a positive"),
        (entry(16, 1, float("nan")), r"entry '16,1', time: nan is not a positive"),
        (entry(16, 1, float("inf")), r"entry '16,1', time: inf is not a positive"),
        (entry(16, 1, True), r"entry '16,1', time: True is not a positive"),
        (entry(16, 1, 2e7), r"entry '16,1', time: 20000000.0 ms would be 20000 s; the unit looks wrong"),
        (entry(16, 1, "Burnt"), r"entry '16,1', time: 'Burnt' is no failure of Kernel Tuner"),
        (entry(16, 1, 2.0, [2.0, 0.0]), r"entry '16,1', times: 0.0 is not a positive"),
        (entry(16, 1, 2.0, [2.0, float("nan")]), r"entry '16,1', times: nan is not a positive"),
        (entry(16, 1, 2.0, ["x"]), r"entry '16,1', times: 'x' is not a positive"),
        (entry(16, 1, 2.0, {"a": 1}), r"entry '16,1', times: \{'a': 1\}; expected a list"),
        (entry(16, 1, 2.0, compile_time="long"), r"entry '16,1', compile_time: 'long' is not a number"),
        (entry(16, [1], 2.0), r"knob 'tile': \[1\]; expected a number or text"),
        ({"block": 16, "time": 2.0}, r"entry '16,None' lacks the knob 'tile'"),
    ],
)
def test_bad_entries_are_named(tmp_path, bad, message):
    path = write(tmp_path, text_of(document(entry(64, 1, 3.0), bad, entry(64, 2, 3.0))))
    with pytest.raises(DataError, match=message) as caught:
        kernel_tuner.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("[1, 2]", "the top level is list"),
        ('{"tune_params_keys": ["a"], "cache": {}}', "no entries under 'cache'"),
        ('{"tune_params_keys": ["a"]}', "no entries under 'cache'"),
        ('{"cache": {"1": {"a": 1, "time": 2.0}}}', "tune_params_keys is None"),
        ('{"tune_params_keys": ["a"], "cache": {"1": 5}}', "entry '1' is 5"),
        ('{"tune_params_keys": ["a"], "cache": {"1": {"a" 1, "time": 2.0}, "2": {"a": 2, "time": 2.0}}}', "line 1, column 49"),
        ("time,block\n1,2\n", "not JSON"),
        (b"\xff\xfe\x00", "byte 0 is not UTF-8"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        kernel_tuner.read(write(tmp_path, text))


TABLES = {
    "convolution__RTX_2080_Ti": "AutoTuningAssociation/*/*/currently_unused/cachefiles/KernelTuner data/convolution/RTX_2080_Ti.json.gz",
    "convolution_milo__A100": "AutoTuningAssociation/*/*/cachefiles/convolution_milo/A100.json.gz",
    "gemm__RTX_2080_Ti": "AutoTuningAssociation/*/*/currently_unused/cachefiles/KernelTuner data/gemm/RTX_2080_Ti.json.gz",
}


@pytest.mark.parametrize("name", TABLES)
def test_equals_the_expected_table(one, expected, name):
    table = expected(name)
    path = one(TABLES[name])
    start = time.process_time()
    frame = kernel_tuner.read(path)
    assert time.process_time() - start < 10  # about 0.5 s alone
    knobs = list(table.columns[1 : list(table.columns).index("valid")])
    assert list(frame.columns[: len(knobs)]) == knobs
    assert (frame[knobs].to_numpy() == table[knobs].to_numpy()).all()
    assert ((frame["status"] == "ok") == table["valid"]).all()
    assert (frame["error"] == table["invalid_reason"].fillna("")).all()
    names = {"time_s": "time_field_s", "time_s_median": "time_s_median", "time_s_min": "time_s_min", "n_rep": "n_rep", "compile_s": "compile_time_s"}
    for ours, theirs in names.items():
        np.testing.assert_allclose(frame[ours], table[theirs], rtol=1e-15, atol=0, err_msg=ours)
    np.testing.assert_allclose(frame["time_s_std"], table["time_s_std"], rtol=1e-11, atol=0)
