"""The engine of the tuning experiments on invented tasks: sessions, the cache, a kill, two runs at once, frameworks that cannot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_tuning import hills, small

import workbench
from workbench.errors import DataError, UsageError
from workbench.models.boosting import Xgb
from workbench.reproduce.tuning import archive, engine
from workbench.reproduce.tuning.engine import Cell, kept_sessions, run_experiment
from workbench.reproduce.tuning.sessions import SAMPLES, held_out
from workbench.tune.annealing import Annealing
from workbench.tune.code import code_digest, modules
from workbench.tune.policy import PolicySearch

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "fits"
    path.write_text("")
    monkeypatch.setenv("FITS", str(path))
    monkeypatch.delenv("KILL_AT", raising=False)
    return path


def run(cache: Path | None, frameworks: tuple[str, ...] = ("random", "averages"), seeds: tuple[int, ...] = (0, 1), **options: object) -> list[Cell]:
    return run_experiment(hills(), frameworks, seeds, cache=cache, lookup=small, **{"workers": 1, "samples": (0, 16, 64), **options})  # type: ignore[arg-type]


def without_times(cells: list[Cell]) -> list[object]:
    kept = ("rows", "label", "predicted", "round", "why", "failed")
    found = []
    for one in cells:
        accuracy = [(known.samples, known.spearman, known.mse) for known in one.session.accuracy]
        found.append((one.framework, one.task, one.seed, *(getattr(one.session, name) for name in kept), accuracy))
    return found


def test_sessions_are_what_the_table_says(tmp_path: Path) -> None:
    cells = run(tmp_path, ("random", "climber", "averages"))
    assert [(c.framework, c.task, c.seed) for c in cells[:3]] == [("random", "hill6", 0), ("random", "hill6", 1), ("random", "hill7", 0)]
    assert len(cells) == 3 * 4 * 2
    tables = {split.target.name: split.target.measured for split in hills().splits}
    for cell in cells:
        session, table = cell.session, tables[cell.task]
        assert len(session.rows) == len(set(session.rows)) == 40
        assert np.allclose(session.label, table.label[session.rows], atol=1e-6)
        assert session.round == sorted(session.round)
        assert len(session.seconds) == 5
        assert session.seconds[0][2] == pytest.approx(0.5 * 8)
        assert session.why == "40 trials"
        if cell.framework == "random":
            assert session.predicted == [None] * 40
            assert session.accuracy == []
        else:
            assert None not in session.predicted
            assert [found.samples for found in session.accuracy] == [0, 16, 64]
    climbers = [c.session for c in cells if c.framework == "climber"]
    assert all(session.accuracy[0].spearman is None for session in climbers)  # one value for all: nothing is ranked
    assert all((session.accuracy[2].spearman or 0) > 0.2 for session in climbers)
    assert all(session.fit_s is None for session in climbers)
    # The averages of hills with their tops nearby lead up at once; chance does not.
    best = {name: np.mean([max(c.session.label) for c in cells if c.framework == name]) for name in ("random", "averages")}
    assert best["averages"] > best["random"]


def test_held_out_rows_are_the_same_for_everyone() -> None:
    table = hills().splits[0].target.measured
    assert held_out(table, "hill6").tolist() == held_out(table, "hill6").tolist() != held_out(table, "hill7").tolist()
    assert len(set(held_out(table, "hill6").tolist())) == len(table) // 2


def test_a_history_is_learnt_once_for_all_frameworks_with_the_model(tmp_path: Path, fits: Path) -> None:
    run(tmp_path, ("averages", "averages again"))
    lines = fits.read_text().split("\n")[:-1]
    assert len(lines) == len(set(lines)) == 4 * 2  # tasks, each with its own history, by seeds
    assert "hill7,hill8,hill9 0" in lines
    again = run(tmp_path, ("averages", "averages again"))
    assert fits.read_text().split("\n")[:-1] == lines
    assert len(again) == 16


def test_what_changes_a_session_runs_it_again(tmp_path: Path, fits: Path) -> None:
    def fitted() -> int:
        return len(fits.read_text().splitlines())

    run(tmp_path, ("averages",), (0,))
    assert fitted() == 4
    run(tmp_path, ("averages",), (0,), trials=24)
    assert fitted() == 8
    run(tmp_path, ("averages",), (0,), batch=4)
    assert fitted() == 12
    run(tmp_path, ("averages",), (0,), tasks=["hill6"], samples=(0,))
    assert fitted() == 13
    run(tmp_path, ("averages",), (0, 1), tasks=["hill6"])
    assert fitted() == 14


def test_damage_is_repaired(tmp_path: Path, fits: Path) -> None:
    first = run(tmp_path, ("averages",), (0,))
    file = sorted(tmp_path.glob("hills/*.json"))[0]
    file.write_text(file.read_text()[:100])
    assert without_times(run(tmp_path, ("averages",), (0,))) == without_times(first)
    assert len(fits.read_text().splitlines()) == 5
    json.loads(file.read_text())


def test_a_framework_that_cannot_says_why(tmp_path: Path) -> None:
    cells = run(tmp_path, ("wrong",), (0,))
    assert {cell.session.failed for cell in cells} == {"there is nothing to see here"}
    assert cells == run(tmp_path, ("wrong",), (0,))


def test_unknown_tasks_and_experiments_without_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no task 'hill5'; there are hill6, hill7, hill8, hill9"):
        run(tmp_path, tasks=["hill5"])
    from workbench.reproduce.tuning.experiments import Experiment

    with pytest.raises(UsageError, match="out of reach"):
        run_experiment(Experiment("none", "None", hills, reason="data are out of reach"), ("random",), (0,), cache=tmp_path)


_PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from small_tuning import hills, small
from workbench.reproduce.tuning.engine import run_experiment
if __name__ == "__main__":
    run_experiment(hills(), ("averages",), (0, 1), cache=Path({cache!r}), lookup=small, workers={workers}, samples=(0, 16, 64))
"""


def start(tmp_path: Path, workers: int = 1, **variables: str) -> subprocess.Popen[bytes]:
    program = tmp_path / f"program{workers}.py"
    program.write_text(_PROGRAM.format(here=str(HERE), cache=str(tmp_path / "cache"), workers=workers))
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    return subprocess.Popen([sys.executable, str(program)], env=environment, stderr=subprocess.DEVNULL)


def test_a_run_that_was_killed_goes_on(tmp_path: Path, fits: Path) -> None:
    assert start(tmp_path, KILL_AT="6").wait(60) == -9
    assert len(list((tmp_path / "cache/hills").glob("*.json"))) == 5
    resumed = run(tmp_path / "cache", ("averages",))
    lines = fits.read_text().splitlines()
    assert len(lines) == 9  # five, the one that was killed, and what was left
    assert without_times(resumed) == without_times(run(tmp_path / "whole", ("averages",)))


def test_two_runs_at_once_share_what_they_find(tmp_path: Path, fits: Path) -> None:
    both = [start(tmp_path), start(tmp_path)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert len(fits.read_text().splitlines()) == 8
    assert without_times(run(tmp_path / "cache", ("averages",))) == without_times(run(tmp_path / "alone", ("averages",)))


@pytest.mark.slow
def test_processes_give_what_one_gives(tmp_path: Path, fits: Path) -> None:
    assert start(tmp_path, workers=2).wait(120) == 0
    assert len(fits.read_text().splitlines()) == 8
    assert without_times(run(tmp_path / "cache", ("averages",))) == without_times(run(tmp_path / "alone", ("averages",)))


def test_sessions_are_kept_while_only_what_they_do_not_need_changes() -> None:
    root = Path(workbench.__file__).parent
    needed = {path.relative_to(root).as_posix() for path in modules(*engine._CODE)}
    # Imported at the top, within a function, and by name.
    assert {"tune/loop.py", "models/hybrid.py", "data/flextensor.py", "kernels/networks.toml"} <= needed
    assert not {"tune/selector.py", "models/compact.py", "reproduce/tuning/rows.py", "measure/replay.py"} & needed


def test_what_another_framework_is_made_of_changes_no_session() -> None:
    root = Path(workbench.__file__).parent
    needed = {path.relative_to(root).as_posix() for path in modules(*engine._CODE, parts=(Xgb, Annealing))}
    assert {"models/boosting.py", "tune/annealing.py", "tune/frameworks.py", "tune/loop.py", "features/views.py", "kernels/networks.toml"} <= needed
    assert not {"models/hybrid.py", "models/metatune.py", "tune/bayes.py", "tune/policy.py"} & needed
    digests = {code_digest(*engine._CODE, parts=parts) for parts in ((Xgb, Annealing), (Xgb, PolicySearch), ())}
    assert len(digests) == 3


def test_what_is_kept_with_the_project_is_not_computed_again(tmp_path: Path, fits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    first = run(None, ("averages", "random"), (0,), samples=SAMPLES)
    kept = kept_sessions(hills(), ("averages", "random"), lookup=small)
    assert sorted((name, task, seed) for name, task, seed, _ in kept.values()) == sorted((cell.framework, cell.task, 0) for cell in first)
    path = archive.write("hills", kept)
    assert path == tmp_path / "data/sessions/hills.parquet"
    shutil.rmtree(tmp_path / "runs")
    fits.write_text("")
    # One seed is there, whole; the other is computed. With other settings nothing is there, and a cache of one's own knows nothing of it.
    assert run(None, ("averages", "random"), (0,), samples=SAMPLES) == first
    assert fits.read_text() == ""
    assert len(run(None, ("averages",), (0, 1), samples=SAMPLES)) == 8
    assert len(fits.read_text().splitlines()) == 4
    run(None, ("averages",), (0,), samples=SAMPLES, trials=16)
    run(tmp_path / "own", ("averages",), (0,), samples=SAMPLES)
    assert len(fits.read_text().splitlines()) == 12
    # Both seeds are kept now, from the archive and from the cache.
    assert len(kept_sessions(hills(), ("averages",), lookup=small)) == 8


def test_a_damaged_archive_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    path = archive.write("hills", {})
    whole = path.read_bytes()
    for damage in (whole[: len(whole) // 2], b"", b"no parquet"):
        path.write_bytes(damage)
        os.utime(path, ns=(len(damage), len(damage)))
        with pytest.raises(DataError, match=r"hills\.parquet: no archive of sessions .* delete it"):
            run(None, ("random",), (0,))
    assert [file.name for file in path.parent.iterdir()] == [path.name]
