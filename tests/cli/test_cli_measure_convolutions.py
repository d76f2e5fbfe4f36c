"""`workbench measure convolutions`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from workbench.cli import build
from workbench.data.datasets import load_dataset
from workbench.data.store import Store


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build(), ["measure", "convolutions", *arguments])


@pytest.mark.skipif(find_spec("tvm") is None, reason="TVM is not installed")
def test_the_same_command_goes_on_and_what_it_measured_is_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    (tmp_path / "data").mkdir()
    store = str(tmp_path / "s.db")
    command = ("--network", "resnet-18", "--layer", "10", "--output", store)
    first = run(*command, "--trials", "2")
    assert first.exit_code == 0, first.output
    line, last = first.stdout.splitlines()
    assert line.startswith("resnet-18 layer 10 on ")
    assert ": 2 ok; best " in line
    assert " GFLOP/s with tile_f=(" in line
    assert "; drift: 1 measured again: " in line
    assert last == f"store: {store}"
    with Store(store) as opened:
        rows = list(opened.rows())
    assert [row.index for row in rows] == [rows[0].index, rows[1].index, rows[0].index]
    assert run(*command, "--trials", "4").exit_code == 0
    with Store(store) as opened:
        assert len(opened) == 5
        assert [row.index for row in opened.rows()][:3] == [row.index for row in rows]
    exported = CliRunner().invoke(build(), ["measure", "export", store, "--name", "here"])
    assert exported.stdout == f"{tmp_path / 'data' / 'raw' / 'here-conv2d'}: 4 rows\n"
    assert "--threads 1 --seed 0 --network resnet-18 --layer 10 --trials 4`" in load_dataset("here-conv2d").source


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "name the convolutions: --network NAME, with --layer N for some of its layers, or --set training"),
        (("--network", "resnet-18", "--set", "training"), "name the convolutions: --network NAME, with --layer N for some of its layers, or --set training"),
        (("--set", "all"), "name the convolutions: --network NAME, with --layer N for some of its layers, or --set training"),
        (("--set", "training", "--layer", "1"), "--layer is a layer of a network; name it with --network"),
        (("--network", "resnet-81"), "there is no network 'resnet-81'; close: resnet-18"),
        (("--network", "resnet-18", "--layer", "12"), "resnet-18 has no layer 12; its distinct convolutions have numbers from 1 to 11"),
        (("--network", "resnet-18", "--target", "rocm"), "--target 'rocm'; it is llvm or cuda"),
        (("--network", "resnet-18", "--pin", "first"), "--pin 'first'; it is the number of a CPU, or last"),
        (("--network", "resnet-18", "--pin", "4096"), "cannot pin to CPU 4096"),
        (("--network", "resnet-18", "--threads", "2", "--pin", "last"), "2 threads on 1 CPUs; use 1 or more, and as many CPUs to pin to"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arguments: tuple[str, ...], line: str) -> None:
    result = run(*arguments, "--output", str(tmp_path / "s.db"))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"workbench: {line}")
    assert result.stderr.count("\n") == 1


def test_help_has_an_example() -> None:
    assert "Example: workbench measure convolutions --network resnet-18" in " ".join(run("--help").stdout.split())
