from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.data import nnc_csv
from workbench.data.catalogue import HALIDE, MATRIX
from workbench.errors import DataError, UsageError

# Invented measurements of every layout.
ROWS = {
    "mm-cpu": ["0.0021,10,20,30,0.25,6.10E-05,3,6000", "0.0042,64,64,64,1,0.5,1,262144", "1.5,1,1,1,1,1,4,1"],
    "mm-gpu": ["0.0021,10,20,30,0.25,0.125,6000", "4.2E-05,64,64,64,1,0.5,262144"],
    "mv-cpu": ["0.0021,10,20,0.25,3,200", "0.0042,64,64,1,1,4096"],
    "mv-gpu": ["2.1e-05,10,20,0.25,200", "4.2e-05,64,64,1,4096"],
    "mc-cpu": ["0.0021,10,20,3,0.25,2,2376", "0.0042,64,32,5,1,1,61200"],
    "mc-gpu": ["0.0021,10,20,3,0.25,2376", "0.0042,64,32,5,1,61200"],
    "blur-cpu-i5": ["0.25,512,8,4,2,1024,1048576", "0.5,16,16,2,2,2048,4194304"],
    "blur-cpu-xeon": ["0.25,1024,512,8,4,2", "0.5,2048,16,16,2,2", "0.75,,,,,"],
    "blur-gpu": ["0.25,1024,8,1,16,1048576", "0.5,2048,64,2,2,4194304"],
    "fft-cpu": ["2.5,16,2,4,8,16,2,4,256", "7.25,32,16,32,2,4,8,8,1024"],
    "fft-gpu": ["2.5,16,2,4,8,16,2,4,", "7.25,16,8,16,2,4,8,8,"],
}
FILE_NAMES = {
    "mm-cpu": "matrix_matrix_cpu_500_points_I5.csv",
    "mm-gpu": "matrix_matrix_gpu_5000_points_Tesla.csv",
    "mv-cpu": "matrix_vector_cpu_500_points_Xeon.csv",
    "mv-gpu": "matrix_vector_gpu_500_points_Quadro.csv",
    "mc-cpu": "matrix_conv_cpu_500_points_I7.csv",
    "mc-gpu": "matrix_conv_gpu_500_points_Tesla.csv",
    "blur-cpu-i5": "halide_blur_cpu.csv",
    "blur-cpu-xeon": "halide_blur_cpu_Xeon.csv",
    "blur-gpu": "halide_blur_3x3_gpu_quadro.csv",
    "fft-cpu": "halide_FFT.csv",
    "fft-gpu": "halide_FFT_gpu.csv",
}


def write(folder: Path, lines: list[str] | bytes, name: str = "some.csv", end: str = "\n") -> Path:
    path = folder / name
    path.write_bytes(lines if isinstance(lines, bytes) else end.join(lines).encode())
    return path


@pytest.mark.parametrize("layout", ROWS)
def test_reads_every_layout(tmp_path, layout):
    frame = nnc_csv.read(write(tmp_path, ROWS[layout]), layout)
    columns = nnc_csv.LAYOUTS[layout].columns
    assert list(frame.columns) == ["time_s", *(c for c in columns[1:] if c != "-"), "status"]
    assert len(frame) == len(ROWS[layout])  # the first line is a measurement
    assert (frame["status"] == "ok").all()
    scale = 1e6 if layout.startswith("fft") else 1.0
    for i, line in enumerate(ROWS[layout]):
        cells = line.split(",")
        assert frame["time_s"][i] == float(cells[0]) / scale
        for name, cell in zip(columns[1:], cells[1:], strict=True):
            if name != "-":
                assert (np.isnan(frame[name][i]) and cell == "") or frame[name][i] == float(cell)


@pytest.mark.parametrize("layout", FILE_NAMES)
def test_infers_the_layout_from_the_authors_file_names(tmp_path, layout):
    assert nnc_csv.layout_of(Path(FILE_NAMES[layout])) == layout
    assert len(nnc_csv.read(write(tmp_path, ROWS[layout], FILE_NAMES[layout]))) == len(ROWS[layout])


def test_sizes_are_integers_and_densities_are_not(tmp_path):
    frame = nnc_csv.read(write(tmp_path, ROWS["mm-cpu"]), "mm-cpu")
    assert {name: str(frame[name].dtype) for name in ("m", "threads", "c", "d1", "time_s")} == {
        "m": "int64",
        "threads": "int64",
        "c": "int64",
        "d1": "float64",
        "time_s": "float64",
    }


@pytest.mark.parametrize("layout", ROWS)
def test_line_endings_byte_order_mark_and_blank_end_do_not_matter(tmp_path, layout):
    plain = nnc_csv.read(write(tmp_path, ROWS[layout]), layout)
    text = "\r\n".join(ROWS[layout])
    for other in (text.encode(), b"\xef\xbb\xbf" + text.encode(), (text + "\r\n\r\n").encode(), b"\xef\xbb\xbf" + "\n".join(ROWS[layout]).encode() + b"\n"):
        pd.testing.assert_frame_equal(nnc_csv.read(write(tmp_path, other), layout), plain)


@pytest.mark.parametrize("layout", ROWS)
def test_a_file_cut_anywhere_is_refused_or_gives_the_rows_before_the_cut(tmp_path, layout):
    """A cut through the last number of a line can leave a shorter number only where no work column follows from the others."""
    whole = nnc_csv.read(write(tmp_path, ROWS[layout]), layout)
    data = "\n".join(ROWS[layout]).encode()
    refusals = []
    for cut in range(len(data)):
        path = write(tmp_path, data[:cut])
        try:
            frame = nnc_csv.read(path, layout)
        except DataError as error:
            refusals.append(str(error))
            continue
        same = whole.head(len(frame)).astype(frame.dtypes)
        if nnc_csv.LAYOUTS[layout].work is None and not frame.equals(same):
            frame, same = frame.iloc[:-1], same.iloc[:-1]
        pd.testing.assert_frame_equal(frame, same)
    assert len(refusals) > len(data) * 0.6
    assert all("some.csv: " in refusal for refusal in refusals)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0.1,64,64,64,1,0.5,1", r"line 2 has 7 columns, expected 8"),
        ("0.1,64,64,64,1,0.5,1,262144,9", r"line 2 has 9 columns, expected 8"),
        ("0.1,64,sixty,64,1,0.5,1,262144", r"line 2, column 3 \(n\): 'sixty' is not a number"),
        ("0.1,64,64,64,1,,1,262144", r"line 2, column 6 \(d2\): '' is not a number"),
        ("nan,64,64,64,1,0.5,1,262144", r"line 2, column 1 \(time\): nan is not a positive, finite time"),
        ("inf,64,64,64,1,0.5,1,262144", r"line 2, column 1 \(time\): inf is not a positive"),
        ("-0.1,64,64,64,1,0.5,1,262144", r"line 2, column 1 \(time\): -0.1 is not a positive"),
        ("0,64,64,64,1,0.5,1,262144", r"line 2, column 1 \(time\): 0.0 is not a positive"),
        ("20000,64,64,64,1,0.5,1,262144", r"line 2, column 1 \(time\): 20000.0 would be 20000 s; the unit looks wrong"),
        ("0.1,64,64,64,1.5,0.5,1,262144", r"line 2, column 5 \(d1\): 1.5; a density"),
        ("0.1,64,64,64,1,nan,1,262144", r"line 2, column 6 \(d2\): nan; a density"),
        ("0.1,64,64,64,1,0.5,0,262144", r"line 2, column 7 \(threads\): 0; expected a whole number"),
        ("0.1,64,64.5,64,1,0.5,1,262144", r"line 2, column 3 \(n\): 64.5; expected a whole number"),
        ("0.1,64,inf,64,1,0.5,1,262144", r"line 2, column 3 \(n\): inf; expected a whole number"),
        ("0.1,64,64,64,1,0.5,1,26214", r"line 2, column 8 \(c\): 26214; it does not follow"),
        ("", r"line 2 has 1 columns, expected 8"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message):
    path = write(tmp_path, [ROWS["mm-cpu"][0], line, ROWS["mm-cpu"][1]])
    with pytest.raises(DataError, match=message) as caught:
        nnc_csv.read(path, "mm-cpu")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("layout", "factor"), [("mv-gpu", 1e6), ("mm-gpu", 1e9), ("fft-cpu", 1e-6), ("blur-gpu", 1e6), ("mc-cpu", 1e-9)])
def test_a_wrong_unit_is_suspected(tmp_path, layout, factor):
    lines = [",".join([repr(float(line.split(",")[0]) * factor), *line.split(",")[1:]]) for line in ROWS[layout]]
    with pytest.raises(DataError, match="unit"):
        nnc_csv.read(write(tmp_path, lines), layout)


@pytest.mark.parametrize("data", [b"", b"\n\r\n", b"\xef\xbb\xbf", b"  \n"])
def test_an_empty_file_is_refused(tmp_path, data):
    with pytest.raises(DataError, match="the file is empty"):
        nnc_csv.read(write(tmp_path, data), "mm-cpu")


def test_bytes_that_are_no_text_are_refused_with_their_offset(tmp_path):
    with pytest.raises(DataError, match="byte 9 is not UTF-8"):
        nnc_csv.read(write(tmp_path, b"0.1,64,64\xff,64"), "mm-cpu")


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            nnc_csv.read(path, "mm-cpu")


def test_an_unknown_name_or_layout_is_refused(tmp_path):
    path = write(tmp_path, ROWS["mm-cpu"])
    with pytest.raises(UsageError, match="give the layout, one of mm-cpu"):
        nnc_csv.read(path)
    with pytest.raises(UsageError, match="unknown layout 'mm'"):
        nnc_csv.read(path, "mm")


def test_only_the_last_line_may_lack_its_inputs(tmp_path):
    first, second, torn = ROWS["blur-cpu-xeon"]
    with pytest.raises(DataError, match=r"line 2, column 2 \(n\): '' is not a number"):
        nnc_csv.read(write(tmp_path, [first, torn, second]), "blur-cpu-xeon")
    with pytest.raises(DataError, match=r"line 2, column 3 \(s1\): ''"):
        nnc_csv.read(write(tmp_path, [first, "0.75,1024,,,,"]), "blur-cpu-xeon")
    with pytest.raises(DataError, match=r"line 2, column 1 \(time\): 0.0"):
        nnc_csv.read(write(tmp_path, [first, "0,,,,,"]), "blur-cpu-xeon")


def test_a_value_after_the_last_comma_is_refused(tmp_path):
    with pytest.raises(DataError, match="'7', expected nothing after the last comma"):
        nnc_csv.read(write(tmp_path, ["2.5,16,2,4,8,16,2,4,7"]), "fft-gpu")


def test_reads_five_thousand_rows_in_a_blink(tmp_path):
    path = write(tmp_path, ROWS["mm-cpu"][:1] * 5000)
    start = time.process_time()
    assert len(nnc_csv.read(path, "mm-cpu")) == 5000
    assert time.process_time() - start < 1.0


# Against the published files.

MATRIX_KEYS = {"matrix_matrix": "mm", "matrix_vector": "mv", "matrix_conv": "mc"}


def test_all_thirty_matrix_files_hold_what_a_plain_reader_finds(mirror):
    paths = sorted(mirror.glob(f"{MATRIX}/*/Datasets/*.csv"))
    if len(paths) < 30:
        pytest.skip(f"the mirror has {len(paths)} of 30 matrix files")
    for path in paths:
        frame = nnc_csv.read(path)
        plain = pd.read_csv(path, header=None)
        assert len(plain) in ((501, 5001) if "vector_gpu" in path.name else (500, 5000))
        assert np.array_equal(frame.drop(columns="status").to_numpy(dtype=float), plain.to_numpy(dtype=float))


def compare(frame: pd.DataFrame, table: pd.DataFrame, names: dict[str, str], scale: float = 1.0) -> None:
    assert len(frame) == len(table)
    for ours, theirs in names.items():
        factor = scale if ours == "time_s" else 1.0
        np.testing.assert_allclose(frame[ours].to_numpy(dtype=float), table[theirs].to_numpy(dtype=float) / factor, rtol=1e-15, atol=0, err_msg=ours)


KNOBS = {"s1": "v1_vec_split", "s2": "v2_split_x", "s3": "v3_split_y", "s4": "v4_inner_vec"}


@pytest.mark.parametrize(("device", "rows"), [("I5", 6000), ("Xeon", 5032)])
def test_blur_on_cpus_equals_the_expected_table(one, expected, device, rows):
    table = expected("halide_blur_cpu")
    table = table[table["cpu"] == device]
    frame = nnc_csv.read(one(f"{HALIDE}/*/Halide/blur_cpu/{device}/experiment/*.csv"))
    assert len(frame) == rows
    compare(frame, table, {"time_s": "runtime_s", "n": "image_size", **KNOBS, **({"c": "augmented_constant"} if device == "I5" else {})})


def test_blur_on_a_gpu_equals_the_expected_table(one, expected):
    frame = nnc_csv.read(one(f"{HALIDE}/*/Halide/blur_gpu/Quadro/experiment/*.csv"))
    names = {
        "time_s": "runtime_s",
        "n": "image_size",
        "y_split": "split_y_v1",
        "x_tile": "gpu_tile_x_v2",
        "vector": "vector_width_v3",
        "c": "augmented_constant",
    }
    compare(frame, expected("halide_blur_gpu_quadro"), names)


@pytest.mark.parametrize(
    ("pattern", "table"), [("Halide/fft_cpu/experiment/*.csv", "halide_fft_cpu"), ("Halide/FFT/fft_gpu/experiments/*.csv", "halide_fft_gpu")]
)
def test_fft_equals_the_expected_table_in_seconds(one, expected, pattern, table):
    frame = nnc_csv.read(one(f"{HALIDE}/*/{pattern}"))
    names = {"time_s": "runtime_us", "n": "size", **{f"s{i}": f"v{i}" for i in range(1, 7)}}
    compare(frame, expected(table), names | ({"c": "augmented_constant"} if table == "halide_fft_cpu" else {}), scale=1e6)
