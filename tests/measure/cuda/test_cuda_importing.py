"""Results become data sets that the catalogue reads, whether of one run or of several, of a bundle or of the series before there were bundles."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import small_bundle

from workbench.data.columns import config_of, workload_of
from workbench.data.datasets import load_dataset
from workbench.errors import DataError, MissingData, UsageError
from workbench.kernels import kernel, networks
from workbench.kernels.conv import GPU
from workbench.measure.cuda.importing import import_results
from workbench.measure.cuda.records import Results
from workbench.schema import Measurement, Status, Workload

HEADER: dict[str, Any] = {
    "made_by": "workbench measure bundle --kernels matrix",
    "policy": "time_s is the minimum of times_s",
    "compiler": "NVRTC 13.0",
    "driver": "580.1, CUDA 13.0",
    "device": {"name": "some-gpu", "kind": "gpu", "model": "Some GPU", "peak_gflops": 1000.0, "bandwidth_gb_s": None, "max_threads": 1024},
    "versions": {"python": "3.12.3", "numpy": "2.0"},
    "notes": {"": ["Of all."], "mm-global": ["Of one."], "other": ["Of none."]},
}


def entry(workload: Workload, space: str, status: Status = Status.OK, time_s: float = 1e-5, **more: Any) -> dict[str, Any]:
    ok = status is Status.OK
    fields = {"space": space, "timestamp": 1.9e9, "error": "" if ok else "run: it fell over"}
    fields |= {name: more.pop(name) for name in ("index", "config", "compile_s") if name in more}
    measurement = Measurement(workload, "some-gpu", status, time_s if ok else None, times_s=(time_s, 2 * time_s) if ok else (), **fields)
    return {**measurement.to_json(), "details": {"group": f"{workload.kernel}-{space}", "label": "", **more}}


def results(folder: Path, entries: list[dict[str, Any]], finish: bool = True, **header: Any) -> Path:
    folder.mkdir()
    written = Results(folder, {**HEADER, **header}, going_on=False)
    for one in entries:
        written.add(one)
    if finish:
        written.finish()
    return folder


def test_runs_are_joined_and_the_fastest_attempt_stands(root: Path, tmp_path: Path) -> None:
    mm, other, mv, _ = [small_bundle.small_instances()[i] for i in (0, 4, 1, 5)]
    first = [
        entry(mm, "global", time_s=3e-5, copied_s=5e-5, registers=30),
        entry(other, "global", Status.RUN_ERROR, stage="run"),
        entry(mv, "shared", compile_s=0.5),
    ]
    second = [entry(mm, "global", time_s=2e-5, copied_s=4e-5, registers=31), entry(other, "global", time_s=1e-6), entry(mm, "shared")]
    folders = [results(tmp_path / "one", first), results(tmp_path / "two", second, finish=False, versions={"python": "3.10"})]
    made = import_results(folders, "x", root, notes=["It rained."])
    assert made == {"matrix-gpu-x-mm-global": 2, "matrix-gpu-x-mm-shared": 1, "matrix-gpu-x-mv-shared": 1}
    data = load_dataset("matrix-gpu-x-mm-global")
    assert (data.kernel.name, data.device.name, data.device.kind, data.device.peak_gflops) == ("mm", "some-gpu", "gpu", 1000.0)
    assert data.inputs == ("m", "n", "k", "d1", "d2")
    frame = data.frame.set_index("m")
    assert frame.loc[9, ["time_s", "copied_s", "registers", "attempts"]].tolist() == [2e-5, 4e-5, 31, 2]
    assert frame.loc[9, "pass_s"].tolist() == [3e-5, 2e-5]
    assert frame.loc[1, "status"] == "ok"
    assert math.isnan(frame.loc[1, "pass_s"][0])
    assert "stage" not in frame  # of the attempt that failed
    assert data.notes[1:] == ("Of all.", "Of one.", "It rained.")
    assert "`workbench measure bundle --kernels matrix`" in data.source
    assert "registers" not in load_dataset("matrix-gpu-x-mm-shared").frame
    assert "compile_s" not in load_dataset("matrix-gpu-x-mv-shared").frame  # one program runs every instance
    text = (root / "matrix-gpu-x-mm-global" / "dataset.toml").read_text()
    assert 'driver = "580.1, CUDA 13.0"' in text
    assert "knobs = []" in text


def test_convolutions_have_plain_columns(root: Path, tmp_path: Path) -> None:
    workload = networks.layer("resnet-18", 2).workload
    space = kernel("conv2d").space(workload, GPU)
    entries = [
        entry(workload, GPU, index=index, config=space.config(index), label="valid", relative_error=1e-7, **({"compile_s": 0.1}))
        for index in (5, 123_456, space.size - 1)
    ]
    entries.append(entry(workload, GPU, Status.INVALID_CONFIG, index=77, config=space.config(77), label="invalid", stage="run"))
    assert import_results([results(tmp_path / "one", entries)], "x", root) == {"conv-gpu-x-conv2d": 4}
    data = load_dataset("conv-gpu-x-conv2d")
    assert [config_of(space, row) for _, row in data.frame.iterrows()] == [space.config(i) for i in (5, 123_456, space.size - 1, 77)]
    assert {workload_of("conv2d", row) for _, row in data.frame.iterrows()} == {workload}
    assert data.frame["label"].tolist() == ["valid", "valid", "valid", "invalid"]
    assert data.frame["gflop"].tolist() == 4 * [pytest.approx(networks.layer("resnet-18", 2).flop / 1e9)]
    assert all(dtype.kind == "i" for dtype in data.frame[list(data.inputs)].dtypes)
    assert data.frame["compile_s"].tolist()[:3] == 3 * [0.1]


def test_what_cannot_be_joined_and_what_is_not_there(root: Path, tmp_path: Path) -> None:
    mm = small_bundle.small_instances()[0]
    one = results(tmp_path / "one", [entry(mm, "global")])
    other = results(tmp_path / "other", [entry(mm, "global")], compiler="nvcc 12.4")
    with pytest.raises(UsageError, match=r"other: its compiler is 'nvcc 12\.4', that of .*one 'NVRTC 13\.0'; a data set has one"):
        import_results([one, other], "x", root)
    with pytest.raises(MissingData, match="neither results"):
        import_results([tmp_path], "x", root)
    with pytest.raises(UsageError, match="no candidate was measured"):
        import_results([results(tmp_path / "empty", [])], "x", root)
    with pytest.raises(UsageError, match="cannot be named 'X x'"):
        import_results([one], "X x", root)
    import_results([one], "x", root)
    with pytest.raises(UsageError, match="is there already"):
        import_results([one], "x", root)
    assert import_results([one], "x", root, replace=True) == {"matrix-gpu-x-mm-global": 1}


# ---------------------------------------------------------------------------------------------------- the series before there were bundles
def early_files(folder: Path, lines: bool = False) -> Path:
    """Files of that format with invented numbers."""
    folder.mkdir()
    attributes = {
        "max_threads_per_block": 1024,
        "sm_count": 10,
        "clock_khz": 1_000_000,
        "cc_major": 9,
        "cc_minor": 0,
        "mem_clock_khz": 500_000,
        "mem_bus_bits": 512,
    }
    told = {
        "python": "3.12.3",
        "started_unix": 1.9e9,
        "compilers": [["nvrtc-ctypes", "(13, 0)", "libnvrtc.so.13"], ["nvcc", "x", "nvcc"]],
        "compiler": "nvrtc-ctypes",
        "info": {"name": "NVIDIA H200", "driver_cuda": 13010, "attributes": attributes},
    }
    (folder / "device.json").write_text(json.dumps(told))
    rows = []
    for wid, indices in (("n_conv2d_02", (3, 70_000)), ("t_conv1d_01", (11,)), ("n_winograd_01", (5,)), ("n_depthwise_01", (9,))):
        space = kernel(networks.by_id()[wid].kernel).space(networks.by_id()[wid], GPU)
        for index in indices:
            config = json.dumps({name: list(value) if isinstance(value, tuple) else value for name, value in space.config(index).items()})
            rows.append({"kid": f"{wid}:{index}", "wid": wid, "index": index, "config": config, "cls": "valid", "status": "ok", "stage": None, "error": None})
            rows[-1] |= {
                "times_us": [12.5, 10.0, 11.0],
                "inner_k": 25,
                "median_us": 11.0,
                "min_us": 10.0,
                "first_us": 40.0,
                "rel_err": 1e-6,
                "regs": 64,
                "shared_bytes": 512,
            }
            rows[-1] |= {"local_bytes": 0, "max_threads": 1024, "compile_s": 0.25, "cubin_bytes": 9000, "t_s": 30.5, "gpu_process": 1}
    rows[1] |= {"status": "launch_error", "stage": "first", "error": "CUDA error 700", "times_us": None, "rel_err": 1e38, "cls": "invalid"}
    rows.append({**rows[0], "status": "skipped", "times_us": None})
    nnc = {
        "id": "mm_global_0000",
        "kernel": "mm",
        "variant": "global",
        "m": 3,
        "n": 4,
        "k": 5,
        "r": None,
        "s": None,
        "d1": 0.5,
        "d2": 1.0,
        "status": "ok",
        "error": None,
    }
    nnc |= {"rel_err": None, "kernel_us": [3.0, 2.0], "inner_k": 20, "copy_us": [9.0, 8.0], "t_s": 20.0}
    nncs = [
        nnc,
        {**nnc, "kernel": "mp", "variant": "shared", "r": 2, "s": 1},
        {**nnc, "kernel": "mv", "status": "launch_error", "error": "lost", "kernel_us": None},
    ]
    for name, part in (("conv", rows), ("nnc", nncs)):
        if lines:
            (folder / f"{name}_partial.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part) + '{"kid": "n_con')
        else:
            pd.DataFrame(part).to_parquet(folder / f"{name}_measurements.parquet")
    return folder


def test_operations_of_early_results_are_counted_anew(root: Path, tmp_path: Path) -> None:
    """That series counted a transposed convolution by the positions of its output, of which a stride of 2 leaves most without a product."""
    folder = early_files(tmp_path / "early", lines=True)
    (row, *_) = [json.loads(line) for line in (folder / "conv_partial.jsonl").read_text().splitlines()[:-1]]
    positions = {"t_conv1d_transpose_02": 285_802_080, "t_conv2d_transpose_02": 137_417_472}
    rows = []
    for wid, flop in positions.items():
        config = kernel(networks.by_id()[wid].kernel).space(networks.by_id()[wid], GPU).config(7)
        config = {name: list(value) if isinstance(value, tuple) else value for name, value in config.items()}
        rows.append({**row, "wid": wid, "index": 7, "config": json.dumps(config), "flop": flop, "gflop": flop / 1e9})
    (folder / "conv_partial.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_results([folder], "x", root)
    # A multiplication and an addition for each element of the input, channel of the output and element of the filter.
    for name, flop in {"conv1d_transpose": 2 * 568 * 86 * 488 * 3, "conv2d_transpose": 2 * 71 * 71 * 4 * 96 * 3 * 3}.items():
        frame = load_dataset(f"conv-gpu-x-{name}").frame
        assert frame["gflop"].tolist() == [pytest.approx(flop / 1e9, rel=1e-12)]
        assert "flop" not in frame


@pytest.mark.parametrize("lines", [False, True])
def test_early_results_become_the_same_data_sets(root: Path, tmp_path: Path, lines: bool) -> None:
    made = import_results([early_files(tmp_path / "early", lines)], "x", root)
    convolutions = {"conv-gpu-x-conv2d": 2, "conv-gpu-x-conv1d": 1, "conv-gpu-x-conv2d_winograd": 1, "conv-gpu-x-depthwise_conv2d": 1}
    assert made == {**convolutions, "matrix-gpu-x-mm-global": 1, "matrix-gpu-x-mp-shared": 1, "matrix-gpu-x-mv-global": 1}
    data = load_dataset("conv-gpu-x-conv2d")
    assert (data.device.name, data.device.peak_gflops, data.device.bandwidth_gb_s) == ("nvidia-h200", 10 * 128 * 2.0, 2 * 0.5 * 64)
    good, bad = data.frame.to_dict("records")
    workload = networks.by_id()["n_conv2d_02"]
    assert workload_of("conv2d", good) == workload
    assert config_of(kernel("conv2d").space(workload, GPU), bad) == kernel("conv2d").space(workload, GPU).config(70_000)
    assert (good["time_s"], good["calls"], good["registers"], good["first_s"], good["label"]) == (pytest.approx(1e-5), 25, 64, pytest.approx(4e-5), "valid")
    np.testing.assert_allclose(good["times_s"], [1.25e-5, 1e-5, 1.1e-5])
    assert good["timestamp"] == 1.9e9 + 30.5
    assert (bad["status"], bad["error"], bad["label"]) == ("run_error", "first: CUDA error 700", "invalid")
    assert math.isnan(bad["time_s"])
    assert math.isnan(bad["relative_error"])
    matrix = load_dataset("matrix-gpu-x-mm-global").frame
    assert matrix[["m", "n", "k", "d1", "d2", "time_s", "copied_s"]].to_numpy().tolist() == [pytest.approx([3, 4, 5, 0.5, 1.0, 2e-6, 8e-6])]
    assert "NVRTC" not in load_dataset("matrix-gpu-x-mm-global").source
    assert any("the filter of mc is not turned" in note.lower() for note in load_dataset("matrix-gpu-x-mp-shared").notes)


def test_early_results_that_are_not_whole_are_one_line(root: Path, tmp_path: Path) -> None:
    folder = early_files(tmp_path / "early", lines=True)
    rows = [json.loads(line) for line in (folder / "conv_partial.jsonl").read_text().splitlines()[:-1]]
    (folder / "conv_partial.jsonl").write_text(json.dumps({**rows[0], "index": 4}) + "\n")
    with pytest.raises(DataError, match=r"conv_partial\.jsonl: row 0 is not a measurement .*index 4 of n_conv2d_02 does not stand for"):
        import_results([folder], "x", root)
    (folder / "conv_partial.jsonl").write_text(json.dumps({**rows[0], "wid": "n_conv9d_02"}) + "\n")
    with pytest.raises(DataError, match="n_conv9d_02"):
        import_results([folder], "x", root)
    (folder / "conv_partial.jsonl").write_text("nothing\n")
    with pytest.raises(DataError, match="not lines of JSON"):
        import_results([folder], "x", root)
    (folder / "device.json").write_text("{}")
    with pytest.raises(DataError, match="does not say how the results were made"):
        import_results([folder], "x", root)
