from __future__ import annotations

import json
import math
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.data import flextensor
from workbench.errors import DataError

ORDER_1, ORDER_2 = "yrunfxcs", "ufcnyrxs"


def tiles(extent: int, parts: int, rng: np.random.Generator) -> list[int]:
    result = [1] * parts
    for factor in (2, 3, 5, 7):
        while extent % factor == 0:
            result[int(rng.integers(parts))] *= factor
            extent //= factor
    assert extent == 1
    return result


def vector(order: str, extents: dict[str, int], rng: np.random.Generator) -> list[int]:
    knobs = {name: tiles(extents[name], size, rng) for name, size in flextensor.KNOBS.items() if name != "u"}
    knobs["u"] = [int(rng.choice([0, 1, 512, 1500])), int(rng.integers(2))]
    return [part for name in order for part in knobs[name]]


def line(order: str, layer: int, rng: np.random.Generator, times: list[float]) -> str:
    return json.dumps([[vector(order, flextensor.EXTENTS[layer], rng) for _ in times], times])


def write(folder: Path, lines: list[str] | bytes, end: str = "\n") -> Path:
    path = folder / "some.txt"
    path.write_bytes(lines if isinstance(lines, bytes) else (end.join(lines) + end).encode())
    return path


@pytest.fixture
def two_blocks() -> list[str]:
    """Six lines of yolo1 in one order, then five of yolo4 in another."""
    rng = np.random.default_rng(5)
    return [line(ORDER_1, 0, rng, [2.0, math.inf, 4.0]) for _ in range(6)] + [line(ORDER_2, 3, rng, [8.0, 16.0]) for _ in range(5)]


def test_infers_layer_and_order(tmp_path, two_blocks):
    frame = flextensor.read(write(tmp_path, two_blocks))
    assert len(frame) == 6 * 3 + 5 * 2
    assert list(frame.groupby("block", sort=False)["layer"].first()) == ["yolo1", "yolo4"]
    assert list(frame.groupby("block", sort=False)["knob_order"].first()) == [ORDER_1, ORDER_2]
    assert list(frame["line"][[0, 17, 18, 27]]) == [0, 5, 6, 10]
    assert list(frame["slot"][:4]) == [0, 1, 2, 0]
    first = json.loads(two_blocks[0])[0][0]
    assert list(frame.loc[0, [f"tile_y_{i}" for i in range(4)]]) == first[:4]
    assert list(frame.loc[0, ["unroll_max_step", "unroll_explicit"]]) == first[7:9]
    assert list(frame.loc[0, [f"tile_s_{i}" for i in range(3)]]) == first[-3:]
    sizes = ["n", "ci", "h", "w", "co", "kh", "kw", "stride", "padding", "oh", "ow"]
    assert list(frame.loc[0, sizes]) == [1, 3, 448, 448, 64, 7, 7, 2, 3, 224, 224]
    assert list(frame.loc[27, sizes]) == [1, 128, 56, 56, 256, 3, 3, 1, 1, 56, 56]
    for axis, extent in {"f": "co", "y": "oh", "x": "ow", "c": "ci", "r": "kh", "s": "kw"}.items():
        parts = [name for name in frame.columns if name.startswith(f"tile_{axis}_")]
        assert (frame[parts].prod(axis=1) == frame[extent]).all()
    assert frame.attrs == {"vectors": 28}


def test_milliseconds_become_seconds_and_infinity_a_failure(tmp_path, two_blocks):
    frame = flextensor.read(write(tmp_path, two_blocks))
    np.testing.assert_array_equal(frame["time_s"][:3], [0.002, np.nan, 0.004])
    assert set(frame["status"][[0, 2]]) == {"ok"}
    threads = frame[["tile_f_2", "tile_y_2", "tile_x_2"]].prod(axis=1)
    failed = frame["time_s"].isna()
    assert failed.sum() == 6
    assert (frame["status"][failed & (threads > 1024)] == "invalid_config").all()
    assert (frame["status"][failed & (threads <= 1024)] == "run_error").all()
    assert (frame["error"][failed] != "").all()
    assert frame["gflop"][0] == 2 * 64 * 224 * 224 * 3 * 49 / 1e9


def test_too_many_threads_and_a_failure_is_an_invalid_configuration(tmp_path):
    knobs = {"n": [1] * 4, "f": [1, 1, 64, 1], "y": [7, 1, 32, 1], "x": [7, 32, 1, 1], "c": [3, 1, 1], "r": [7, 1, 1], "s": [7, 1, 1], "u": [512, 0]}
    text = json.dumps([[[part for name in ORDER_1 for part in knobs[name]]], [math.inf]])
    rng = np.random.default_rng(0)
    frame = flextensor.read(write(tmp_path, [text, *(line(ORDER_1, 0, rng, [2.0, 3.0]) for _ in range(6))]))
    assert list(frame["status"][:2]) == ["invalid_config", "ok"]


def test_short_blocks_and_unexplained_lines_are_left_out(tmp_path, two_blocks):
    odd = json.dumps([[[11] * 27], [1.0]])
    rng = np.random.default_rng(1)
    short = [line(ORDER_2, 9, rng, [1.0]) for _ in range(2)]
    frame = flextensor.read(write(tmp_path, [odd, *two_blocks[:6], odd, *short, odd, *two_blocks[6:]]))
    assert sorted(set(frame["layer"])) == ["yolo1", "yolo4"]
    assert list(frame.groupby("block", sort=False)["line"].min()) == [1, 11]
    assert frame.attrs["vectors"] == 28 + 5


def test_blocks_that_several_orders_explain_are_left_out(tmp_path, two_blocks):
    """A filter of 1 x 1 beside the batch of 1: ten ones, in which n, r and s could begin anywhere."""
    rng = np.random.default_rng(4)
    unsure = [line("nrsuyfxc", 2, rng, [1.0, 2.0]) for _ in range(6)]
    frame = flextensor.read(write(tmp_path, [*unsure, *two_blocks]))
    assert list(frame.groupby("block", sort=False)["layer"].first().items()) == [(1, "yolo1"), (2, "yolo4")]
    with pytest.raises(DataError, match="none of the 12 vectors"):
        flextensor.read(write(tmp_path, unsure))


def test_layers_with_the_same_loops_stay_unnamed(tmp_path):
    rng = np.random.default_rng(2)
    frame = flextensor.read(write(tmp_path, [line(ORDER_1, 13, rng, [1.0, 2.0]) for _ in range(12)]))
    assert set(frame["layer"]) == {"yolo14|yolo15"}
    assert (frame[["h", "w", "stride"]] == -1).all(axis=None)
    assert set(frame["oh"]) == {7}


def test_line_endings_byte_order_mark_and_blank_lines_do_not_matter(tmp_path, two_blocks):
    plain = flextensor.read(write(tmp_path, two_blocks))
    pd.testing.assert_frame_equal(flextensor.read(write(tmp_path, two_blocks, end="\r\n")), plain)
    pd.testing.assert_frame_equal(flextensor.read(write(tmp_path, b"\xef\xbb\xbf" + "\n".join(two_blocks).encode())), plain)


def test_a_torn_last_line_is_dropped_with_a_warning_that_names_it(tmp_path, two_blocks):
    whole = flextensor.read(write(tmp_path, two_blocks))
    data = "\n".join(two_blocks).encode()
    last = data.rfind(b"\n") + 1
    for cut in range(last + 1, len(data), 11):
        with pytest.warns(UserWarning, match="left out the torn last line 11"):
            frame = flextensor.read(write(tmp_path, data[:cut]))
        pd.testing.assert_frame_equal(frame, whole.head(len(frame)).astype(frame.dtypes))
        assert len(frame) == len(whole) - 2


def test_a_file_cut_anywhere_gives_no_row_that_the_whole_file_lacks(tmp_path, two_blocks):
    whole = flextensor.read(write(tmp_path, two_blocks))
    data = "\n".join(two_blocks).encode()
    read = 0
    for cut in range(0, len(data), 97):
        path = write(tmp_path, data[:cut])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                frame = flextensor.read(path)
            except DataError:
                continue
        read += 1
        pd.testing.assert_frame_equal(frame, whole.head(len(frame)).astype(frame.dtypes))
    assert read > 5


GOOD = [1] * 27


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[[1, 2, 3]], [1.0]]", "line 2, vector 0: 3 entries, expected 27"),
        ("[[5], [1.0]]", "line 2, vector 0: no entries, expected 27"),
        (json.dumps([[GOOD], [1.0, 2.0]]), "line 2: expected .* as many times as vectors"),
        (json.dumps([[GOOD], [0]]), "line 2, time 0: 0 is no positive number"),
        (json.dumps([[GOOD], [-1.0]]), "line 2, time 0: -1.0 is no positive"),
        (json.dumps([[GOOD], [math.nan]]), "line 2, time 0: nan is no positive"),
        (json.dumps([[GOOD], [None]]), "line 2, time 0: None is no positive"),
        (json.dumps([[GOOD], [2e7]]), "line 2, time 0: 20000000.0 ms would be 20000 s; the unit looks wrong"),
        (json.dumps([[[1.5, *GOOD[1:]]], [1.0]]), "line 2: a vector has whole numbers"),
        (json.dumps([[[-1, *GOOD[1:]]], [1.0]]), "line 2: a vector has whole numbers"),
        (json.dumps([[["a", *GOOD[1:]]], [1.0]]), "line 2: a vector has whole numbers"),
        (json.dumps([[[[1], *GOOD[1:]]], [1.0]]), "line 2: a vector has whole numbers"),
        ("{}", "line 2: expected"),
        ("[[[1, 2", "line 2, column [0-9]+: not JSON"),
    ],
)
def test_bad_lines_are_named(tmp_path, two_blocks, text, message):
    with pytest.raises(DataError, match=message) as caught:
        flextensor.read(write(tmp_path, [two_blocks[0], text, two_blocks[1]]))
    assert "some.txt" in str(caught.value)


def test_files_without_an_explanation_are_refused(tmp_path):
    with pytest.raises(DataError, match="no vectors"):
        flextensor.read(write(tmp_path, b"\n"))
    with pytest.raises(DataError, match="none of the 4 vectors"):
        flextensor.read(write(tmp_path, [json.dumps([[[11] * 27], [1.0]])] * 4))


NAMES = {"C": "ci", "H": "h", "W": "w", "K": "co", "R": "kh", "S": "kw", "N": "n", "OH": "oh", "OW": "ow", "pad": "padding"}


def test_equals_the_expected_table(one, expected):
    table = expected("titanxp_conv2d_yolo")
    path = one("pku-liang/FlexTensor/*/auto_schedule/train_data/TitanXp-conv2d-yolo-op1-cuda-perf-data.txt")
    start = time.process_time()
    frame = flextensor.read(path)
    assert time.process_time() - start < 10  # about 0.5 s alone
    assert len(frame) == len(table) == 29571
    assert frame.attrs["vectors"] == 35877
    assert ((frame["status"] == "ok") == table["valid"]).all()
    assert (frame["status"] == "invalid_config").sum() == 359
    for theirs in table.columns.drop(["gpu", "valid", "tflops", "time_s", "gflop"]):
        assert (frame[NAMES.get(theirs, theirs)] == table[theirs]).all(), theirs
    for name in ("time_s", "gflop"):
        np.testing.assert_allclose(frame[name], table[name], rtol=1e-15, atol=0)
