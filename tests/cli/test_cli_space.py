"""`workbench space`, and what the command line makes of an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from workbench.cli import build
from workbench.errors import MissingData

LAYER = '{"n":1,"ci":64,"h":56,"w":56,"co":64,"kh":3,"kw":3,"stride":[1,1],"padding":[1,1]}'
CONV = ("--kind", "conv2d", "--workload", LAYER)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build(), list(arguments))


def failed(result: Result) -> str:
    """The one line that a failed command says."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("workbench: ")
    return lines[0]


def test_decode_prints_the_knobs_as_json() -> None:
    result = run("space", "decode", *CONV, "--index", "123456", "--json")
    assert result.exit_code == 0, result.output
    # 123456 = 60 + 84 (29 + 80 * 18): option 60 of 64 in four parts, 29 and 18 of 56 in four parts, and the first of everything else.
    assert json.loads(result.stdout) == {
        "tile_f": [1, 4, 4, 4],
        "tile_y": [1, 1, 56, 1],
        "tile_x": [8, 1, 7, 1],
        "tile_rc": [64, 1],
        "tile_ry": [3, 1],
        "tile_rx": [3, 1],
        "auto_unroll_max_step": 0,
        "unroll_explicit": 0,
    }


def test_decode_prints_a_table() -> None:
    result = run("space", "decode", *CONV, "--index", "123456")
    assert result.exit_code == 0
    assert "1x4x4x4" in result.stdout
    assert "90,316,800" in result.stdout


def test_size() -> None:
    result = run("space", "size", *CONV, "--json")
    document = json.loads(result.stdout)
    assert document["size"] == 84 * 80 * 80 * 7 * 2 * 2 * 3 * 2
    assert document["options"]["tile_f"] == 84
    table = run("space", "size", "--kind", "convolution", "--space", "convolution_milo", "--workload", '{"w":4096,"h":4096,"kw":15,"kh":15}').stdout
    assert "10,240" in table
    assert "48 KiB" in table


def test_sample_keeps_the_limit_and_repeats_with_its_seed() -> None:
    command = ("space", "sample", *CONV, "--count", "200", "--seed", "7", "--max-threads", "64", "--json")
    rows = json.loads(run(*command).stdout)
    assert len({row["index"] for row in rows}) == 200
    assert max(row["tile_f"][2] * row["tile_y"][2] * row["tile_x"][2] for row in rows) <= 64
    assert json.loads(run(*command).stdout) == rows
    one = json.loads(run("space", "decode", *CONV, "--index", str(rows[0]["index"]), "--json").stdout)
    assert {"index": rows[0]["index"], **one} == rows[0]
    table = run("space", "sample", *CONV, "--count", "3").stdout
    assert "index" in table
    assert run("space", "sample", *CONV, "--count", "0", "--json").stdout == "[]\n"


def test_networks() -> None:
    records = json.loads(run("space", "networks", "--json").stdout)
    assert {record["network"]: (record["convolutions"], record["distinct"], record["winograd"]) for record in records} == {
        "resnet-18": (20, 11, 4),
        "vgg-16": (13, 9, 4),
        "squeezenet-1.0": (26, 22, 0),
        "alexnet": (5, 5, 0),
        "mobilenet-v1": (13, 9, 0),
    }
    assert records[0]["gflop"] == pytest.approx(3.627122688)
    table = run("space", "networks").stdout
    assert all(text in table for text in ("squeezenet-1.0", "30.693"))


def test_a_network() -> None:
    records = json.loads(run("space", "network", "resnet-18", "--json").stdout)
    assert [record["layer"] for record in records] == list(range(1, 12))
    assert sum(record["count"] for record in records) == 20
    assert (records[0]["id"], records[0]["modules"], records[0]["gflop"]) == ("n_conv2d_01", ["conv1"], 0.236027904)
    # What it prints is what the other commands take: layer 2 is LAYER.
    workload = ("--kind", records[1]["kernel"], "--workload", json.dumps(records[1]["params"]))
    assert run("space", "size", *workload).stdout == run("space", "size", *CONV).stdout
    table = run("space", "network", "resnet-18").stdout
    assert "20 convolutions, 11 distinct, 3.627 GFLOP" in table
    assert all(text in table for text in ("3x224x224", "64x7x7", "0.236", "layer4.0.downsample.0"))


def test_winograd_layers_of_a_network() -> None:
    records = json.loads(run("space", "network", "vgg-16", "--winograd", "--json").stdout)
    assert [(record["kernel"], record["count"]) for record in records] == [("conv2d_winograd", count) for count in (1, 2, 2, 3)]
    assert "8 convolutions, 4 distinct" in run("space", "network", "vgg-16", "--winograd").stdout
    assert json.loads(run("space", "network", "alexnet", "--winograd", "--json").stdout) == []
    assert run("space", "network", "alexnet", "--winograd").stdout == "alexnet has no layer as conv2d_winograd in the set\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("decode", *CONV, "--index", "90316800"), "index 90316800 is out of range; it has 90316800 configurations"),
        (("decode", *CONV, "--index", "-1"), "index -1 is out of range"),
        (("decode", *CONV, "--index", "nan"), "--index is 'nan'"),
        (("decode", *CONV, "--index", "1.0"), "--index is '1.0'"),
        (("decode", *CONV), "Missing option '--index'"),
        (("decode", "--kind", "conv2d", "--workload", '{"n":1,', "--index", "1"), "--workload is not JSON"),
        (("decode", "--kind", "conv2d", "--workload", "[1]", "--index", "1"), "--workload is a JSON object"),
        (("decode", "--kind", "conv2d", "--workload", LAYER.replace('"n"', '"batch"'), "--index", "1"), "no parameter 'batch'"),
        (("decode", "--kind", "conv2d", "--workload", LAYER.replace('"n":1,', ""), "--index", "1"), "parameter 'n' is missing"),
        (("decode", "--kind", "conv2d", "--workload", LAYER.replace("64", '"64"'), "--index", "1"), "ci is '64'"),
        (("decode", "--kind", "conv9d", "--workload", LAYER, "--index", "1"), "no kernel 'conv9d'; there are conv2d"),
        (("decode", *CONV, "--index", "1", "--space", "none"), "no space 'none'; it has autotvm"),
        (("decode", *CONV, "--index", "1", "--colour", "red"), "No such option: --colour"),
        (("size", "--kind", "mm", "--workload", '{"m":1,"n":1,"k":1,"d1":1,"d2":1}'), "no configuration spaces"),
        (("sample", *CONV, "--count", "-1"), "cannot sample -1"),
        (("sample", *CONV, "--count", "90316801"), "fewer than the 90,316,801 asked for"),
        (("sample", *CONV, "--max-threads", "0"), "positive whole number"),
        (("network", "resnet18"), "no network 'resnet18'; close: resnet-18"),
        (("network",), "Missing argument 'name'"),
        (("sample", "--kind", "blur", "--workload", '{"n":1024}', "--max-threads", "64"), "no blocks of threads"),
    ],
)
def test_a_mistake_gives_one_line(arguments: tuple[str, ...], said: str) -> None:
    assert said in failed(run("space", *arguments))


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr("workbench.kernels.kernel", fail)
    result = run("space", "size", *CONV)
    assert isinstance(result.exception, RuntimeError)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MissingData("data.csv is out of reach;\nset WORKBENCH_MIRROR"), "data.csv is out of reach; set WORKBENCH_MIRROR"),
        (ModuleNotFoundError("No module named 'halide.imageio'", name="halide.imageio"), "pip install halide"),
    ],
)
def test_errors_of_other_kinds(monkeypatch: pytest.MonkeyPatch, error: Exception, said: str) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr("workbench.kernels.kernel", fail)
    assert said in failed(run("space", "size", *CONV))


def test_help_has_examples() -> None:
    for command in ((), *(("space", name) for name in ("decode", "size", "sample", "networks", "network"))):
        result = run(*command, "--help")
        assert result.exit_code == 0
        assert "Example: workbench" in result.stdout


def test_as_a_process() -> None:
    command = [str(Path(sys.executable).with_name("workbench")), "space", "decode", *CONV, "--index"]
    if not Path(command[0]).exists():
        command[:1] = [sys.executable, "-c", "from workbench.cli import main; main()"]
    good = subprocess.run([*command, "0", "--json"], capture_output=True, text=True, timeout=60, env={**os.environ, "NO_COLOR": "1"})
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["tile_f"] == [64, 1, 1, 1]
    bad = subprocess.run([*command, "-7", "--json"], capture_output=True, text=True, timeout=60)
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr.count("\n") == 1
    assert "index -7 is out of range" in bad.stderr


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom workbench.cli import build\nbuild()\n"
        "heavy = {'numpy', 'pandas', 'torch', 'sklearn', 'matplotlib', 'dask', 'numba'} & set(sys.modules)\nassert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
