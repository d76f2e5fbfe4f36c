"""`workbench measure halide`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from workbench.cli import build
from workbench.data.datasets import load_dataset
from workbench.data.store import Store


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build(), ["measure", "halide", *arguments])


def test_the_same_command_goes_on_and_more_schedules_add_to_it(tmp_path: Path) -> None:
    command = ("--kernel", "blur", "--n", "64", "--check", "1", "--output", str(tmp_path / "s.db"))
    first = run(*command, "--schedules", "2", "--autoschedulers")
    assert first.exit_code == 0, first.output
    assert "blur n=64 threads=1 on" in first.stdout
    assert "6 ok; best " in first.stdout
    assert all(f"  {name}: " in first.stdout for name in ("Mullapudi2016", "Adams2019", "Li2018"))
    with Store(tmp_path / "s.db") as store:
        rows = list(store.rows())
    # Three autoschedulers, two schedules, and one of the two again.
    assert [row.config.get("scheduler") for row in rows] == ["Mullapudi2016", "Adams2019", "Li2018", None, None, None]
    assert rows[5].index == rows[3].index != rows[4].index
    assert run(*command, "--schedules", "2", "--autoschedulers").exit_code == 0
    with Store(tmp_path / "s.db") as store:
        assert len(store) == 6
    assert run(*command, "--schedules", "4").exit_code == 0
    with Store(tmp_path / "s.db") as store:
        assert len(store) == 8
        frame = store.frame()
    assert set(frame["threads"]) == {1}
    assert {"n", "s1", "s2", "s3", "s4", "scheduler", "time_s", "times_s", "load", "host"} <= set(frame)


def test_passes_are_exported_as_one_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    (tmp_path / "data").mkdir()
    store = str(tmp_path / "s.db")
    measured = run("--kernel", "blur", "--n", "32", "--n", "64", "--schedules", "2", "--passes", "2", "--output", store)
    assert measured.exit_code == 0, measured.output
    assert measured.stdout.count("5 ok; best ") == 2
    exported = CliRunner().invoke(build(), ["measure", "export", store, "--name", "here"])
    assert exported.exit_code == 0, exported.output
    assert exported.stdout == f"{tmp_path / 'data' / 'raw' / 'here-blur'}: 4 rows\n"
    data = load_dataset("here-blur")
    assert data.frame["n"].tolist() == [32, 32, 64, 64]
    assert data.frame["attempts"].tolist() == [3, 2, 3, 2]
    assert "--n 32 --n 64 --schedules 2 --passes 2`" in data.source


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--kernel", "mm", "--n", "64"), "kernel 'mm' has no Halide pipeline; there are blur, fft"),
        (("--kernel", "fft", "--n", "48"), "fft: n is 48; it is a power of two, at least 4"),
        (("--kernel", "blur", "--n", "64", "--threads", "2", "--pin", "0"), "--threads 2 on the 1 CPUs of --pin would wait for each other; pin to 2 CPUs"),
        (("--kernel", "blur", "--n", "2", "--schedules", "9"), 'blur {"n":2,"threads":1} has 1 schedules, fewer than --schedules 9'),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arguments: tuple[str, ...], line: str) -> None:
    result = run(*arguments, "--output", str(tmp_path / "s.db"))
    assert result.exit_code == 2
    assert result.stderr == f"workbench: {line}\n"


def test_help_has_an_example() -> None:
    assert "Example: workbench measure halide --kernel blur" in " ".join(run("--help").stdout.split())
