from __future__ import annotations

import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.data import autotvm
from workbench.errors import DataError

TARGET = "cuda -model=invented"
DENSE = ["dense_large_batch.cuda", [["TENSOR", [8, 4], "float32"], ["TENSOR", [16, 4], "float32"], None, "float32"]]
BATCH = ["batch_matmul.cuda", [["TENSOR", [3, 8, 4], "float32"], ["TENSOR", [3, 16, 4], "float32"]]]
CONV = ["conv2d_nchw.cuda", [["TENSOR", [1, 6, 14, 14], "float32"], ["TENSOR", [12, 6, 3, 3], "float32"], [1, 1], [1, 1, 1, 1], [1, 1], "float32"]]
OLD_CONV = ["topi_nn_conv2d", [["TENSOR", [1, 6, 14, 14], "float32"], ["TENSOR", [12, 6, 3, 3], "float32"], [2, 2], [1, 1], "NCHW", "float32"]]
DEPTHWISE = ["topi_nn_depthwise_conv2d_nchw", [["TENSOR", [1, 6, 14, 14], "float32"], ["TENSOR", [6, 2, 3, 3], "float32"], [2, 1], [1, 0], "float32"]]


def new(task: list, index: int, entity: list, costs: list, error_no: int = 0) -> str:
    config = {"index": index, "code_hash": None, "entity": entity}
    return json.dumps({"input": [TARGET, *task, {}], "config": config, "result": [costs, error_no, 1.5, 1700000000.25], "version": 0.2, "tvm_version": "0.0"})


def old(task: list, index: int, entity: list, costs: list, template: str = "direct") -> str:
    config = {"i": index, "c": None, "e": entity, "t": template}
    return json.dumps({"i": [TARGET, *task, {}, ["conv2d"], config], "r": [costs, 0, 2.5, 1600000000.5], "v": 0.1})


X = [["tile_x", "sp", [-1, 4]], ["unroll_explicit", "ot", 1]]
LOG = [
    new(DENSE, 7, X, [0.002, 0.004]),
    new(DENSE, 8, X, [1e9], 1),
    new(BATCH, 9, [["tile_k", "sp", [2, 2]], ["layout", "re", [1, 0]]], [0.001]),
    new(CONV, 10, [["tile_x", "sp", [7, 2]]], [["TVMError", "out of memory"]], 4),
    old(OLD_CONV, 11, [["tile_b", "sp", [36, 1]]], [0.003], "winograd"),
    old(DEPTHWISE, 12, X, [0.005]),
]


def write(folder: Path, lines: list[str] | bytes, end: str = "\n") -> Path:
    path = folder / "some.log"
    path.write_bytes(lines if isinstance(lines, bytes) else (end.join(lines) + end).encode())
    return path


def test_reads_both_versions(tmp_path):
    frame = autotvm.read(write(tmp_path, ["# a comment", *LOG]))
    assert list(frame["line"]) == [1, 2, 3, 4, 5, 6]
    assert list(frame["index"]) == [7, 8, 9, 10, 11, 12]
    assert list(frame["status"]) == ["ok", "invalid_config", "ok", "run_error", "ok", "ok"]
    assert list(frame["error"]) == ["", "INSTANTIATION_ERROR", "", "RUNTIME_DEVICE: ['TVMError', 'out of memory']", "", ""]
    np.testing.assert_array_equal(frame["time_s"], [0.003, np.nan, 0.001, np.nan, 0.003, 0.005])
    np.testing.assert_array_equal(frame["time_s_min"], [0.002, np.nan, 0.001, np.nan, 0.003, 0.005])
    assert list(frame["n_rep"]) == [2, 0, 1, 0, 1, 1]
    assert list(frame["template"]) == ["", "", "", "", "winograd", "direct"]
    assert list(frame["elapsed_s"]) == [1.5] * 4 + [2.5] * 2
    assert frame["timestamp"][0] == 1700000000.25
    assert (frame["target"] == TARGET).all()
    assert json.loads(frame["args"][0]) == DENSE[1]


def test_workloads_become_columns(tmp_path):
    frame = autotvm.read(write(tmp_path, LOG))
    assert list(frame.loc[0, ["batch", "m", "n", "k"]]) == [1, 8, 16, 4]
    assert list(frame.loc[2, ["batch", "m", "n", "k"]]) == [3, 8, 16, 4]
    assert list(frame["gflop"][[0, 2]]) == [2 * 8 * 16 * 4 / 1e9, 2 * 3 * 8 * 16 * 4 / 1e9]
    sizes = [
        "n",
        "ci",
        "h",
        "w",
        "co",
        "kh",
        "kw",
        "stride_h",
        "stride_w",
        "pad_top",
        "pad_left",
        "pad_bottom",
        "pad_right",
        "dilation_h",
        "dilation_w",
        "groups",
    ]
    assert list(frame.loc[3, sizes]) == [1, 6, 14, 14, 12, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert list(frame.loc[4, sizes]) == [1, 6, 14, 14, 12, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    assert list(frame.loc[5, sizes]) == [1, 6, 14, 14, 12, 3, 3, 2, 1, 1, 0, 1, 0, 1, 1, 6]
    assert frame["batch"].isna().tolist() == [False, False, False, True, True, True]


def test_knobs_become_columns_and_those_of_other_tasks_are_empty(tmp_path):
    frame = autotvm.read(write(tmp_path, LOG))
    assert list(frame.loc[0, ["tile_x_0", "tile_x_1", "unroll_explicit"]]) == [-1, 4, 1]
    assert list(frame.loc[2, ["tile_k_0", "tile_k_1", "layout"]]) == [2, 2, "[1, 0]"]
    assert str(frame["tile_k_0"].dtype) == "Int64"
    assert frame["tile_k_0"].isna().tolist() == [True, True, False, True, True, True]
    alone = autotvm.read(write(tmp_path, LOG[:2]))
    assert str(alone["tile_x_1"].dtype) == "int64"


def test_every_error_number_has_a_status(tmp_path):
    frame = autotvm.read(write(tmp_path, [new(DENSE, n, X, [0.001] if n == 0 else [1e9], n) for n in range(9)]))
    assert list(frame["status"]) == [
        "ok",
        "invalid_config",
        "compile_error",
        "compile_error",
        "run_error",
        "wrong_result",
        "timeout",
        "timeout",
        "run_error",
    ]
    assert frame["time_s"].notna().tolist() == [True] + [False] * 8
    assert list(frame["error_no"]) == list(range(9))


def test_line_endings_byte_order_mark_and_blank_lines_do_not_matter(tmp_path):
    plain = autotvm.read(write(tmp_path, LOG))
    pd.testing.assert_frame_equal(autotvm.read(write(tmp_path, LOG, end="\r\n")), plain)
    pd.testing.assert_frame_equal(autotvm.read(write(tmp_path, b"\xef\xbb\xbf" + "\n".join(LOG).encode())), plain)
    spaced = autotvm.read(write(tmp_path, [LOG[0], "", *LOG[1:], ""]))
    assert list(spaced["index"]) == list(plain["index"])


def test_a_torn_last_line_is_dropped_with_a_warning_that_names_it(tmp_path):
    whole = autotvm.read(write(tmp_path, LOG))
    data = "\n".join(LOG).encode()
    starts = [0, *(i + 1 for i, byte in enumerate(data) if byte == ord("\n"))]
    for cut in range(starts[1], len(data), 3):
        path = write(tmp_path, data[:cut])
        line = sum(start < cut for start in starts)
        torn = cut not in starts and cut < len(data) and data[cut : cut + 1] != b"\n"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frame = autotvm.read(path)
        assert len(frame) == line - torn
        assert list(frame["index"]) == list(whole["index"][: len(frame)])
        assert [f"{path}: left out the torn last line {line}" in str(w.message) for w in caught] == [True] * torn


def test_a_torn_line_elsewhere_or_alone_is_refused(tmp_path):
    for lines, number in (([LOG[0], LOG[1][:-9], LOG[2]], 2), ([LOG[0][:50]], 1)):
        with pytest.raises(DataError, match=f"some.log: line {number}, column [0-9]+: not JSON"):
            autotvm.read(write(tmp_path, lines))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (new(DENSE, 1, X, [0.0]), "cost 0.0 is not a positive, finite"),
        (new(DENSE, 1, X, [float("nan")]), "cost nan is not a positive"),
        (new(DENSE, 1, X, [float("inf")]), "cost inf is not a positive"),
        (new(DENSE, 1, X, [-1.0]), "cost -1.0 is not a positive"),
        (new(DENSE, 1, X, ["x"]), "cost 'x' is not a positive"),
        (new(DENSE, 1, X, [20000.0]), "the unit looks wrong"),
        (new(DENSE, 1, X, []), "a success without costs"),
        (new(DENSE, 1, X, [0.1], 9), "error number 9"),
        (new(DENSE, -1, X, [0.1]), "the index of the configuration is -1"),
        (new(["dense_x", [["TENSOR", [8], "float32"]]], 1, X, [0.1]), "expected a tensor of 2 dimensions"),
        ('{"input": ["cuda"]}', "not a record of AutoTVM"),
        ('{"i": [], "r": []}', "not a record of AutoTVM"),
        ('{"v": 0.1}', "no 'i'"),
        ("[1, 2]", "a record is a mapping"),
        ("5", "a record is a mapping"),
    ],
)
def test_bad_records_are_named(tmp_path, line, message):
    with pytest.raises(DataError, match=message) as caught:
        autotvm.read(write(tmp_path, [LOG[0], line, LOG[2]]))
    assert "some.log: line 2: " in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"# only a comment\n", b"\n\n"])
def test_a_file_without_records_is_refused(tmp_path, data):
    with pytest.raises(DataError, match="no records"):
        autotvm.read(write(tmp_path, data))


# Against the published files.

T4 = {"row_in_file": "line", "op": "task", "M": "m", "K": "k", "N": "n", "config_index": "index", "all_cost_s": "elapsed_s"}
T4 |= {"cost_s_mean": "time_s", "cost_s_min": "time_s_min"}
NOT_OURS = {"source_file", "gpu", "valid", "tflops"}


def test_a_tuner_trajectory_equals_the_expected_table(one, expected):
    table = expected("t4_autotvm_bert_gemm")
    path = one("tlc-pack/TLCBench/*/saved_logs/2020_01_01/autotvm/t4/bert-B1-float32.kernel.log")
    start = time.process_time()
    frame = autotvm.read(path)
    assert time.process_time() - start < 5  # about 0.2 s alone
    assert len(frame) == len(table)
    assert ((frame["status"] == "ok") == table["valid"]).all()
    for theirs in set(table.columns) - NOT_OURS:
        compare(frame[T4.get(theirs, theirs)], table[theirs])


CONVOLUTIONS = {"config_index": "index", "cost_s_mean": "time_s", "all_cost_s": "elapsed_s"}
CONVOLUTIONS |= {"N": "n", "C": "ci", "H": "h", "W": "w", "K": "co", "R": "kh", "S": "kw"}


def test_best_only_logs_equal_the_expected_table(mirror, expected):
    table = expected("tophub_cuda_decoded").rename(columns=CONVOLUTIONS)
    paths = sorted(mirror.glob("tlc-pack/tophub/*/tophub/cuda_v0.0?.log"))
    if len(paths) < 4:
        pytest.skip(f"the mirror has {len(paths)} of 4 TopHub files")
    frame = pd.concat([autotvm.read(path) for path in paths], ignore_index=True)
    key = ["target", "index", "time_s", "timestamp"]
    frame = frame.drop_duplicates(key)
    assert len(frame) == len(table) == 723
    both = table.merge(frame, on=key, suffixes=("_expected", ""))
    assert len(both) == 723
    shared = [name for name in table.columns if name in frame.columns and name not in key]
    assert {"args", "template", "task", "ci", "tile_f_3", "tile_rc_1", "tile_b_0", "unroll_explicit", "dilation_h", "groups"} <= set(shared)
    for name in shared:
        compare(both[name], both[f"{name}_expected"])


def compare(ours: pd.Series, theirs: pd.Series) -> None:
    if pd.api.types.is_numeric_dtype(theirs):
        a, b = (column.to_numpy(dtype=float, na_value=np.nan) for column in (ours, theirs))
        np.testing.assert_allclose(a, b, rtol=1e-14, atol=0, err_msg=str(theirs.name))
    else:
        assert ours.tolist() == theirs.tolist(), theirs.name
