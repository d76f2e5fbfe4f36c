"""`workbench measure bundle | run-bundle | import-bundle`: from a kernel's name to a data set, over an emulated device."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from workbench.cli import build
from workbench.data.datasets import load_dataset
from workbench.kernels.matrix import INSTANCES
from workbench.measure.cuda.bundle import read_bundle

ROOT = Path(__file__).resolve().parents[2]
# The first instance of each kernel that belongs to this seed is small: the emulation takes its time.
SEED = "4278"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build(), list(arguments))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    shutil.copy(ROOT / "data" / "external.toml", tmp_path / "data")
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    return tmp_path


def test_from_a_bundle_to_data_sets(emulated: None, project: Path) -> None:
    path, out = project / "matrix.bundle", project / "results"
    made = run("measure", "bundle", "--kernels", "matrix", "--instances", "1", "--seed", SEED, "--output", str(path))
    assert made.exit_code == 0, made.output
    assert f"{path}: 8 candidates (matrix 8), 0.0 MB" in made.stdout
    assert "python -m workbench.measure.cuda.run matrix.bundle --out RESULTS --budget-s 540" in made.stdout
    bundle = read_bundle(path)
    assert bundle.made_by == f"workbench measure bundle --kernels matrix --instances 1 --seed {SEED}"
    assert dict(bundle.problems[0].workload.params) == INSTANCES["mm"].draw(1, int(SEED))[0]
    first = run("measure", "run-bundle", str(path), "--out", str(out), "--group", "mm-global", "--group", "mp-global", "--workers", "1", "--budget-s", "100")
    assert first.exit_code == 0, first.output
    assert "2 of 2 measured; 2 records in" in first.stdout
    again = run("measure", "run-bundle", str(path), "--out", str(out), "--workers", "1", "--budget-s", "100")
    assert again.exit_code == 2
    assert "go on with them by --skip-done" in again.stderr
    rest = project / "rest"
    second = run("measure", "run-bundle", str(path), "--out", str(rest), "--skip-done", str(out), "--workers", "1", "--budget-s", "100")
    assert "6 of 6 measured; 6 records in" in second.stdout
    imported = run("measure", "import-bundle", str(out), str(rest), "--name", "here", "--note", "Emulated.")
    assert imported.exit_code == 0, imported.output
    assert len(imported.stdout.splitlines()) == 8
    data = load_dataset("matrix-gpu-here-mp-shared")
    assert data.frame["status"].tolist() == ["ok"]
    assert data.notes[-1] == "Emulated."
    assert run("measure", "import-bundle", str(out), "--name", "here").exit_code == 2


def test_blur_from_a_bundle_to_a_data_set(emulated: None, project: Path) -> None:
    pytest.importorskip("halide")
    path, out = project / "blur.bundle", project / "results"
    made = run("measure", "bundle", "--kernels", "blur", "--size", "32", "--configurations", "2", "--workers", "1", "--output", str(path))
    assert made.exit_code == 0, made.output
    assert f"{path}: 2 candidates (blur 2), 0.0 MB" in made.stdout
    assert read_bundle(path).made_by == "workbench measure bundle --kernels blur --configurations 2 --arch sm_80 --size 32 --seed 0"
    assert run("measure", "run-bundle", str(path), "--out", str(out), "--workers", "1", "--budget-s", "100").exit_code == 0
    imported = run("measure", "import-bundle", str(out), "--name", "here")
    assert imported.exit_code == 0, imported.output
    data = load_dataset("halide-gpu-here-blur_gpu")
    assert (data.kernel.name, data.device.kind, data.knobs) == ("blur_gpu", "gpu", ("y_split", "x_tile", "vector"))
    assert data.frame["status"].tolist() == ["ok", "ok"]
    assert "compile_s" not in data.frame
    assert any("PTX by Halide" in note for note in data.notes)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bundle", "--kernels", "fft", "--output", "x"), "--kernels 'fft'; it is matrix, blur or convolutions"),
        (("bundle", "--kernels", "convolutions", "--network", "lenet", "--output", "x"), "there is no network 'lenet'"),
        (("bundle", "--kernels", "blur", "--size", "33", "--output", "x"), "blur_gpu: n is 33; a thread computes at least 2 columns"),
        (("bundle", "--kernels", "matrix", "--output", "no/such/x"), "is not there; make it first"),
        (("bundle", "--output", "x"), "Missing option '--kernels'"),
        (("run-bundle", "no.bundle", "--out", "x"), "'no.bundle' does not exist"),
        (("import-bundle", "data", "--name", "x"), "neither results.parquet nor results.jsonl"),
    ],
)
def test_a_mistake_is_one_line(project: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str) -> None:
    monkeypatch.chdir(project)
    result = run("measure", *arguments)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr


def test_help_has_examples() -> None:
    for command in ("bundle", "run-bundle", "import-bundle"):
        assert f"Example: workbench measure {command}" in run("measure", command, "--help").stdout
