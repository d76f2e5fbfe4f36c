from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from workbench.cli import build
from workbench.data import registry
from workbench.data.catalogue import ENTRIES


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build(), ["data", *arguments])


def one_line(result: Result) -> str:
    """The only line of an error, which is all that stderr has."""
    assert result.exit_code != 0
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("workbench: ")
    return lines[0]


@pytest.fixture
def out_of_reach(tmp_path, monkeypatch):
    """The real catalogue with nothing at hand."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WORKBENCH_OFFLINE", "1")
    monkeypatch.delenv("WORKBENCH_MIRROR", raising=False)
    return tmp_path


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A project whose only data set is one of its own: mm on this machine, times that follow from the sizes."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 500, (400, 3))
    frame = pd.DataFrame(sizes, columns=["m", "n", "k"]).assign(d1=0.5, d2=0.5, threads=1, status="ok")
    frame["time_s"] = 1e-9 * sizes.prod(axis=1) * rng.uniform(0.99, 1.01, 400)
    folder = tmp_path / "data" / "raw" / "mm-here"
    folder.mkdir(parents=True)
    frame.to_parquet(folder / "a.parquet")
    head = 'kernel="mm"\ndriver=""\ncompiler=""\npolicy="p"\ncommand="c"\ndate="d"\nparameters=["m","n","k","d1","d2"]\nknobs=["threads"]\n'
    sha256 = hashlib.sha256((folder / "a.parquet").read_bytes()).hexdigest()
    (folder / "dataset.toml").write_text(head + f'[device]\nname="here"\nkind="cpu"\n[versions]\n[sha256]\n"a.parquet"="{sha256}"\n')
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    (tmp_path / "data" / "external.toml").write_text((Path(__file__).parents[2] / "data" / "external.toml").read_text())
    return folder


def test_list_shows_every_set_whether_or_not_it_is_at_hand(out_of_reach):
    result = run("list")
    assert result.exit_code == 0
    for name in ENTRIES:
        assert name in result.stdout
    records = json.loads(run("list", "--json").stdout)
    assert {record["name"] for record in records} >= set(ENTRIES)
    by_name = {record["name"]: record for record in records}
    assert by_name["titanxp-conv2d"]["rows"] == 29571
    assert by_name["titanxp-conv2d"]["available"] == "missing"
    assert by_name["titanxp-conv2d"]["licence"] == "MIT"


def test_fetch_says_what_is_out_of_reach_in_one_line(out_of_reach):
    result = run("fetch", "nnc-mm-i5-500", "halide-fft-gpu")
    assert result.stdout.splitlines() == ["nnc-mm-i5-500: out of reach", "halide-fft-gpu: out of reach"]
    message = one_line(result)
    assert "2 of 2 data sets are out of reach" in message
    assert "WORKBENCH_MIRROR" in message


def test_fetch_finds_what_the_mirror_has(out_of_reach, monkeypatch):
    file = registry.find("Naifeng/Variant-Selection", "Halide/FFT/fft_gpu/experiments/halide_FFT_gpu.csv")
    path = out_of_reach / "mirror" / file.key
    path.parent.mkdir(parents=True)
    path.write_bytes(b"other bytes")
    monkeypatch.setenv("WORKBENCH_MIRROR", str(out_of_reach / "mirror"))
    assert file.sha256 in one_line(run("fetch", "halide-fft-gpu"))
    result = run("verify")
    assert "halide-fft-gpu: WRONG" in result.stdout.splitlines()
    assert "nnc-mm-i5-500: missing" in result.stdout.splitlines()
    assert file.sha256 in one_line(result)


@pytest.mark.parametrize("arguments", [(), ("nnc-mm-i5-500", "--all")])
def test_fetch_wants_names_or_all(out_of_reach, arguments):
    assert "name data sets or give --all" in one_line(run("fetch", *arguments))


def test_verify_passes_over_absent_files_unless_named(out_of_reach):
    result = run("verify")
    assert result.exit_code == 0
    assert "nnc-mm-i5-500: missing" in result.stdout.splitlines()
    assert "run: workbench data fetch nnc-mm-i5-500" in one_line(run("verify", "nnc-mm-i5-500"))
    assert "did you mean nnc-mm-i5-500" in one_line(run("verify", "nnc-mm-i5-50"))


def test_our_own_sets_are_listed_verified_and_audited(own):
    assert "mm-here" in run("list").stdout
    assert run("verify", "mm-here").stdout == "mm-here: own\n"
    assert run("fetch", "mm-here").exit_code == 0
    result = run("audit", "mm-here", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["passed"] is True
    assert report["rows"] == 400
    assert "mm-here: passed" in run("audit", "mm-here").stdout
    pd.read_parquet(own / "a.parquet").head(10).to_parquet(own / "a.parquet")
    assert "mm-here: WRONG" in run("verify", "mm-here").stdout
    records = json.loads(run("list", "--json").stdout)
    assert next(r for r in records if r["name"] == "mm-here")["available"] == "WRONG"
    assert "sha256" in one_line(run("audit", "mm-here"))


def test_an_audit_that_fails_says_so_by_its_exit_code(own):
    frame = pd.read_parquet(own / "a.parquet")
    before = hashlib.sha256((own / "a.parquet").read_bytes()).hexdigest()
    frame["time_s"] = np.random.default_rng(0).permutation(frame["time_s"].to_numpy())
    frame.to_parquet(own / "a.parquet")
    header = own / "dataset.toml"
    header.write_text(header.read_text().replace(before, hashlib.sha256((own / "a.parquet").read_bytes()).hexdigest()))
    result = run("audit", "mm-here")
    assert result.exit_code == 1
    assert "mm-here: FAILED" in result.stdout
    assert "reason:" in result.stdout


def test_import_writes_parquet(tmp_path):
    source = tmp_path / "some.csv"
    source.write_text("0.002,10,20,30,1,1,3,6000\n0.004,64,64,64,1,0.5,1,262144\n")
    target = tmp_path / "out.parquet"
    result = run("import", str(source), "--format", "nnc", "--layout", "mm-cpu", "--output", str(target))
    assert (result.exit_code, result.stdout) == (0, f"{target}: 2 rows, 2 ok, 0 failed\n"), result.stderr
    assert list(pd.read_parquet(target)["time_s"]) == [0.002, 0.004]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "some.csv"]


def test_import_names_a_torn_line_on_stderr(tmp_path):
    source = tmp_path / "some.log"
    task = '"dense_x", [["TENSOR", [8, 4], "float32"], ["TENSOR", [16, 4], "float32"]], {}'
    record = '{"input": ["cuda", ' + task + '], "config": {"index": 1, "entity": []}, "result": [[0.1], 0, 1.0, 2.0]}\n'
    source.write_text(record + record[:40])
    result = run("import", str(source), "--format", "autotvm", "--output", str(tmp_path / "out.parquet"))
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: ")
    assert "left out the torn last line 2" in result.stderr
    assert len(pd.read_parquet(tmp_path / "out.parquet")) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("some.csv", "--format", "csv", "--output", "out.parquet"), "unknown format 'csv'"),
        (("some.csv", "--format", "nnc", "--output", "out.csv"), "ends in .parquet"),
        (("some.csv", "--format", "nnc", "--output", "nowhere/out.parquet"), "there is no folder"),
        (("some.csv", "--format", "nnc", "--output", "out.parquet"), "give the layout"),
        (("absent.csv", "--format", "nnc", "--layout", "mm-cpu", "--output", "out.parquet"), "cannot be read"),
        (("some.csv", "--format", "nnc", "--layout", "mm-cpu", "--output", "out.parquet"), "line 1 has 2 columns, expected 8"),
        (("some.csv", "--format", "flextensor", "--output", "out.parquet"), "some.csv: line 1"),
        (("some.csv", "--format", "kernel-tuner", "--output", "out.parquet"), "not JSON"),
        (("some.csv", "--output", "out.parquet"), "--format"),
    ],
)
def test_import_refuses_in_one_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.csv").write_text("1,2\n")
    assert message in one_line(run("import", *arguments))
    assert not list(tmp_path.glob("**/*.parquet*"))


@pytest.mark.parametrize("command", ["list", "fetch", "verify", "audit", "import"])
def test_help_has_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: workbench data {command}" in " ".join(result.stdout.split())


def test_help_loads_nothing_heavy():
    code = "import sys; from workbench.cli import build; build(); print([m for m in ('pandas', 'numpy', 'torch', 'sklearn', 'pooch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
