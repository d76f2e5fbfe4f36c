"""Series measured with this package: found by their name, titled by it, and nothing of a development series among them. All numbers are invented."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from own_sets import write, write_laptop, write_matrix, write_server

from workbench.data.datasets import load_dataset
from workbench.errors import DataError, UsageError
from workbench.reproduce import nnc, own, preparing
from workbench.reproduce.cache import run_key
from workbench.reproduce.outputs import Outputs
from workbench.reproduce.schedules import title


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture
def out(root: Path) -> Outputs:
    return Outputs(root / "out", task="nnc-mape")


def test_a_series_is_found_by_its_name_alone_and_development_stays_out(root: Path, out: Outputs) -> None:
    write_laptop(root)
    write_matrix(root, "matrix-cpu-laptop-5000-mv-eigen", "mv")
    found = [d.name for d in own.matrix_sets("matrix-cpu-laptop", out)]
    assert found == [f"matrix-cpu-laptop-{k}-{lib}" for k in ("mm", "mv", "mc", "mp") for lib in ("eigen", "boost")]
    assert [d.name for d in own.matrix_sets("matrix-cpu-laptop", out, 5000)] == ["matrix-cpu-laptop-5000-mv-eigen"]
    assert [d.name for d in own.schedule_sets("halide-cpu-laptop", out)] == ["halide-cpu-laptop-blur", "halide-cpu-laptop-fft"]
    assert own.matrix_sets("", out) == own.schedule_sets("", out) == []
    # The failed row is gone, and c is there.
    first = own.matrix_sets("matrix-cpu-laptop", out)[0]
    assert len(first.frame) == 300
    assert (first.frame["c"] == first.frame["m"] * first.frame["n"] * first.frame["k"]).all()
    assert set(found) <= set(out.close().read_text().split('"'))


def test_a_gpu_s_series_is_found_with_and_without_the_copy_of_its_results(root: Path, out: Outputs) -> None:
    write_laptop(root)
    write_server(root)
    write_matrix(root, "matrix-gpu-server-5000-mv-global", "mv", rows=5, kind="gpu")
    assert own.gpu_series(own.TITLES) == ["matrix-gpu-server"]
    assert own.gpu_series(own.SCHEDULES) == ["halide-gpu-server"]
    assert own.gpu_series(own.TITLES, "matrix-gpu-h*") == own.gpu_series(own.TITLES, "") == []
    sets = own.matrix_sets("matrix-gpu-server", out)
    assert [d.name for d in sets[:4]] == [f"matrix-gpu-server-mm-{variant}{copy}" for variant in ("global", "shared") for copy in ("", "+copy")]
    assert [own.title(d.name) for d in sets[:4]] == ["CUDA global server", "CUDA global server with copy", "CUDA shared server", "CUDA shared server with copy"]
    assert [nnc.task_of(d.name) for d in sets[:4]] == ["mm global", "mm global", "mm shared", "mm shared"]
    assert len(sets) == 16
    bare, copied = sets[:2]
    assert copied.frame["time_s"].tolist() == bare.frame["copied_s"].tolist()
    assert (copied.frame["time_s"] > bare.frame["time_s"]).all()
    assert nnc.noise_floor(copied)[1] == nnc.noise_floor(bare)[1] == "no repeats"
    assert "+copy" not in out.close().read_text()  # what is read is one data set
    (schedules,) = own.schedule_sets("halide-gpu-server", out)
    assert title(schedules.name) == "Blur server"
    assert len(schedules.frame) == 2 * 196


def test_an_unknown_series_names_those_that_are_close(root: Path, out: Outputs) -> None:
    write_matrix(root, "matrix-cpu-laptop-mm-eigen", "mm", rows=5)
    with pytest.raises(UsageError, match=r"no data set of a series 'matrix-cpu-labtop'; close: matrix-cpu-laptop\. .*--name matrix-cpu-labtop"):
        own.matrix_sets("matrix-cpu-labtop", out)


def test_too_few_rows_are_an_error_that_says_what_to_do(root: Path, out: Outputs) -> None:
    write_matrix(root, "matrix-cpu-laptop-mm-eigen", "mm", rows=250)
    with pytest.raises(DataError, match="matrix-cpu-laptop-mm-eigen: 250 rows with a time; models train on 250"):
        own.matrix_sets("matrix-cpu-laptop", out)


def test_titles_come_from_names() -> None:
    assert own.machine("matrix-cpu-emr") == own.machine("halide-cpu-emr") == own.machine("matrix-cpu-emr-5000") == "Emerald Rapids"
    assert own.machine("matrix-cpu-laptop") == "laptop"
    assert own.machine("my-box") == "my-box"
    assert own.machine("matrix-gpu-h200") == own.machine("halide-gpu-h200") == "H200"
    assert own.machine("") == ""
    assert own.title("matrix-cpu-laptop-mm-boost") == "Boost laptop"
    assert nnc.short("matrix-cpu-emr-mm-eigen") == "Eigen Emerald Rapids"
    assert nnc.task_of("matrix-cpu-emr-5000-mm-eigen") == "mm eigen"
    assert [nnc.published(n) for n in ("nnc-mm-i5-500", "matrix-cpu-emr-mm-eigen")] == [True, False]


def test_autoschedulers_by_size_have_no_time_where_they_found_nothing(root: Path, out: Outputs) -> None:
    write_laptop(root)
    times = own.autoschedulers("halide-cpu-laptop-fft", out)
    assert times is not None
    assert list(times.columns) == ["Mullapudi2016", "Adams2019", "Li2018"]
    assert times["Mullapudi2016"].isna().all()
    measured = load_dataset("halide-cpu-laptop-fft").frame.groupby("n")["time_s"].mean()
    np.testing.assert_allclose(times["Li2018"], 2 * measured)
    assert own.autoschedulers("matrix-cpu-laptop-mm-eigen", out) is None


def test_an_autoscheduler_that_stands_twice_is_refused(root: Path, out: Outputs) -> None:
    write_laptop(root)
    frame = load_dataset("halide-cpu-laptop-blur-autoschedulers").frame.iloc[[0, 0]]
    write(root, "twice-blur-autoschedulers", frame, "blur", ("n",), ("scheduler",))
    with pytest.raises(DataError, match="1 rows repeat an autoscheduler and a size"):
        own.autoschedulers("twice-blur", out)


def test_measuring_time_is_from_start_to_start(root: Path, out: Outputs) -> None:
    write_matrix(root, "matrix-cpu-laptop-mv-eigen", "mv")
    data = own.matrix_sets("matrix-cpu-laptop", out)[0]
    # An instance a second, whatever the order of the rows.
    shuffled = data.frame.sample(frac=1, random_state=0)
    data.frame["timestamp"] = shuffled["timestamp"].to_numpy()
    assert own.measuring_s(data, 10) == pytest.approx(10)
    assert own.measuring_s(data, 300) == pytest.approx(300)
    later = replace(data, frame=data.frame.assign(timestamp=data.frame["timestamp"] + 1e5 * (data.frame["timestamp"] > data.frame["timestamp"].median())))
    assert own.measuring_s(later, 200) == pytest.approx(199), "a night's pause is no measuring"
    with pytest.raises(DataError, match="300 rows; the measuring time of 301"):
        own.measuring_s(data, 301)
    del data.frame["timestamp"]
    with pytest.raises(DataError, match="no column 'timestamp'"):
        own.measuring_s(data, 10)


def test_preparing_is_measuring_and_training(root: Path, out: Outputs, monkeypatch: pytest.MonkeyPatch) -> None:
    write_matrix(root, "matrix-cpu-laptop-5000-mp-boost", "mp")
    monkeypatch.setattr(preparing, "LIGHT", 20)
    monkeypatch.setattr(preparing, "UNCONSTRAINED", 60)
    monkeypatch.setattr(preparing, "_GENERATED", (40, 5000))
    data = own.matrix_sets("matrix-cpu-laptop", out, 5000)
    row = preparing.preparing_table(data, 0).iloc[0]
    assert row["device"] == "Boost laptop"
    assert row["kernel"] == "MP"
    assert row["wall_s_500"] == pytest.approx(40)
    assert row["wall_s_5000"] == pytest.approx(300), "all rows where there are fewer"
    assert row["light_s"] == pytest.approx(40 + row["training_light_s"])
    assert row["time_ratio"] == row["full_s"] / row["light_s"]
    assert row["size_ratio"] == pytest.approx(181 / 73)
    assert row["training_compact_s"] > 0
    paper, clean = preparing.compare(data, 0, 1, 0)
    assert paper.empty
    assert list(clean["model"]) == ["NN+C, log", "compact", "unconstrained NN+C, log"]
    assert np.isfinite(clean["mape"]).all()


def test_a_run_depends_on_the_files_of_our_own_sets(root: Path) -> None:
    write_matrix(root, "matrix-cpu-laptop-mm-eigen", "mm", rows=5)
    names = ["matrix-cpu-laptop-mm-eigen"]
    key = run_key(root, "none.ipynb", {}, names)
    assert run_key(root, "none.ipynb", {}, names) == key
    header = root / "data" / "raw" / names[0] / "dataset.toml"
    text = header.read_text()
    before, _ = text.split('.parquet" = "')
    header.write_text(f'{before}.parquet" = "{"0" * 64}" }}\n')
    assert run_key(root, "none.ipynb", {}, names) != key
    header.write_text("not toml")
    assert run_key(root, "none.ipynb", {}, names) != key


def test_sets_are_found_by_kernel_device_and_pattern(root: Path) -> None:
    assert own.measured_sets(("mm", "mv")) == []
    write_matrix(root, "matrix-cpu-laptop-mm-eigen", "mm", rows=5)
    write_matrix(root, "matrix-cpu-laptop-mv-eigen", "mv", rows=5)
    write_matrix(root, "gpu-server-mm-global", "mm", rows=5)
    header = root / "data" / "raw" / "gpu-server-mm-global" / "dataset.toml"
    header.write_text(header.read_text().replace('kind = "cpu"', 'kind = "gpu"'))
    assert own.measured_sets(("mm", "mv")) == ["gpu-server-mm-global", "matrix-cpu-laptop-mm-eigen", "matrix-cpu-laptop-mv-eigen"]
    assert own.measured_sets(("mm",), kind="cpu") == ["matrix-cpu-laptop-mm-eigen"]
    assert own.measured_sets(("mm", "mv"), kind="gpu") == ["gpu-server-mm-global"]
    assert own.measured_sets(("mm", "mv"), ("*-mv-*", "matrix-cpu-other-*")) == ["matrix-cpu-laptop-mv-eigen"]
    assert own.measured_sets(("conv2d",)) == []
