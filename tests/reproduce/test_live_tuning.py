"""A live comparison, killed, resumed, twice at once and damaged. The runner has no programs, and all times are invented."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from invented_tuning import COMPARISON, DEVICE, TRAINING, Invented, project

from workbench.data.store import Store
from workbench.errors import UsageError
from workbench.kernels.networks import network, training_kernels
from workbench.reproduce.tuning import live
from workbench.reproduce.tuning.live import Comparison, Report
from workbench.tune.results import load_result, save_result

SESSIONS = len(COMPARISON.layers) * len(COMPARISON.frameworks) * len(COMPARISON.seeds)


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("project"))


@pytest.fixture(autouse=True)
def at(invented: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(invented))


def run(folder: Path, how: Comparison = COMPARISON) -> list[Report]:
    reports: list[Report] = []
    live.run(how, folder, Invented, processor="I 1", on_session=reports.append)
    return reports


def process(folder: Path, seconds: float, *pin: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).with_name("invented_tuning.py")), str(folder), str(seconds), *map(str, pin)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def said(out: str, kind: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith(kind)]


def sessions(folder: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Name of a session's file -> configurations in order, and their throughput."""
    # Of a file that is being written when it is killed a hidden part is left, which nothing reads.
    results = {path.name: load_result(path).outcome.trials for path in sorted((folder / "sessions").glob("*.json"))}
    return {name: (trials.indices.tolist(), trials.throughput.tolist()) for name, trials in results.items()}


@pytest.fixture(scope="module")
def whole(invented: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Report]]:
    folder = tmp_path_factory.mktemp("live")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_ROOT", str(invented))
        return folder, run(folder)


def test_every_framework_tunes_every_layer_and_the_first_seed_comes_first(whole: tuple[Path, list[Report]]) -> None:
    folder, reports = whole
    assert [report.result.settings["seed"] for report in reports] == [0] * (SESSIONS // 2) + [1] * (SESSIONS // 2)
    found = {(report.result.task, report.result.framework, report.result.settings["seed"]) for report in reports}
    assert found == {(f"resnet-18 {layer}", name, seed) for layer in COMPARISON.layers for name in COMPARISON.frameworks for seed in COMPARISON.seeds}
    assert [(report.done, report.of) for report in reports] == [(done, SESSIONS) for done in range(1, SESSIONS + 1)]
    for report in reports:
        result = load_result(report.path)
        assert result.outcome.why == "24 trials"
        assert not result.ranking_only
        assert len(result.history) == (2 if result.framework == "xgb-Xfer-shrunk" else 0)
    with Store(folder / live.STORE) as store:
        kept = [(row.workload, row.index) for row in store.rows()]
    assert len(set(kept)) == len(kept) == sum(report.measured for report in reports)
    assert len(kept) < sum(len(report.result.outcome.trials) for report in reports), "sessions share measurements"


def test_what_is_there_is_not_run_again_and_a_damaged_session_gives_the_same_without_measuring(whole: tuple[Path, list[Report]]) -> None:
    folder, reports = whole
    assert run(folder) == []
    before = sessions(folder)
    damaged, lost = reports[2].path, reports[5].path
    damaged.write_bytes(damaged.read_bytes()[:400])
    lost.unlink()
    again = run(folder)
    assert {report.path for report in again} == {damaged, lost}
    assert [report.measured for report in again] == [0, 0]
    assert sessions(folder) == before


def test_sessions_of_other_code_are_kept_unless_they_are_to_be_renewed(whole: tuple[Path, list[Report]]) -> None:
    folder, reports = whole
    before, path = sessions(folder), reports[1].path
    save_result(replace(load_result(path), code="another"), path)
    assert live.run(COMPARISON, folder, Invented, processor="I 1") == 1
    assert load_result(path).code == "another"
    again: list[Report] = []
    assert live.run(COMPARISON, folder, Invented, processor="I 1", renew=True, on_session=again.append) == 0
    assert [report.path for report in again] == [path]
    assert sessions(folder) == before


def test_sessions_made_otherwise_do_not_join(whole: tuple[Path, list[Report]]) -> None:
    folder, _ = whole
    with pytest.raises(UsageError, match=r"plan\.json: the folder's sessions have batch 8, these would have 16; use another folder"):
        run(folder, replace(COMPARISON, batch=16))
    more = run(folder, replace(COMPARISON, frameworks=(*COMPARISON.frameworks, "xgb"), layers=(10,), seeds=(0,)))
    assert [report.result.framework for report in more] == ["xgb"]
    for report in more:
        report.path.unlink()
    with pytest.raises(UsageError, match="a comparison with seeds 0, 0; give one or more, each once"):
        replace(COMPARISON, seeds=(0, 0))


@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_goes_on_and_measures_nothing_twice(tmp_path: Path, kills: int) -> None:
    chance = random.Random(kills)
    for _ in range(kills):
        running = process(tmp_path, 0.001)
        assert running.stdout is not None
        for _ in range(chance.randint(5, 40)):
            running.stdout.readline()
        time.sleep(chance.random() * 0.05)
        running.kill()
        running.communicate()
    with Store(tmp_path / live.STORE) as store:
        kept = [row.to_json() for row in store.rows()]
    assert kept
    out, _ = process(tmp_path, 0.001).communicate(timeout=120)
    assert said(out, "finished"), out
    found = sessions(tmp_path)
    assert len(found) == SESSIONS
    with Store(tmp_path / live.STORE) as store:
        rows = list(store.rows())
    assert [row.to_json() for row in rows[: len(kept)]] == kept
    assert len({(row.workload, row.index) for row in rows}) == len(rows)
    # Nothing of what was cut short is left in a session: with the store alone to answer they come out the same.
    for path in (tmp_path / "sessions").iterdir():
        path.unlink()
    out, _ = process(tmp_path, 0.001).communicate(timeout=120)
    assert said(out, "measured") == []
    assert sessions(tmp_path) == found


def test_two_at_once_share_the_sessions_and_search_where_nothing_is_timed(tmp_path: Path) -> None:
    both = [process(tmp_path, 0.002, 1) for _ in range(2)]
    outs = [one.communicate(timeout=120)[0] for one in both]
    assert all(said(out, "finished") for out in outs), outs
    done = [line for out in outs for line in said(out, "session")]
    assert len(set(done)) == len(done) == SESSIONS
    assert all(said(out, "session") for out in outs), "either does some"
    measured = [line for out in outs for line in said(out, "measured")]
    assert len(set(measured)) == len(measured)
    for out in outs:
        places = said(out, "on CPUs")
        assert set(places) == {"on CPUs 0", "on CPUs 0 1"}
        assert (places[0], places[-1]) == ("on CPUs 0", "on CPUs 0 1"), "it learns beside what is timed, and is let go at the end"


def test_without_a_cpu_to_search_on_a_second_process_is_refused(tmp_path: Path) -> None:
    first = process(tmp_path, 0.05)
    try:
        assert first.stdout is not None
        first.stdout.readline()
        with pytest.raises(UsageError, match=r"another process runs its sessions\. Two at once need CPUs to search on that nothing is timed on"):
            run(tmp_path)
    finally:
        first.kill()
        first.communicate()


def test_layers_of_the_network_are_not_learnt_from() -> None:
    assert live.training_sets(DEVICE, "I 1") == (TRAINING,)
    with pytest.raises(UsageError, match=r"no data set conv-\*-training-\* under data/raw was measured on Invented CPU, another; name those"):
        live.training_sets(DEVICE, "another")
    assert len(live.learnt_from(COMPARISON)) == 2
    assert not {layer.workload for layer in network("resnet-18")} & set(training_kernels())


def test_the_four_layers_are_of_four_kinds() -> None:
    shapes = [network("resnet-18")[number - 1].workload.params for number in live.LAYERS]
    assert len({(shape["kh"], shape["stride"]) for shape in shapes}) == len(live.LAYERS) == 4
