"""`workbench train` makes a file of models, `workbench select` answers from it, and every mistake is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from workbench.cli import build
from workbench.data.registry import sha256_of
from workbench.measure.halide import Limits, Runner
from workbench.schema import Device, Workload
from workbench.tune import trial
from workbench.tune.select import Selector, Variant
from workbench.tune.variants import Source


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build(), list(arguments))


def put(root: Path, name: str, kernel: str, frame: pd.DataFrame, knobs: list[str]) -> None:
    folder = root / "data" / "raw" / name
    folder.mkdir(parents=True)
    frame.to_parquet(folder / "rows.parquet")
    parameters = {"mv": ["m", "n", "d1"], "blur": ["n"]}[kernel]
    (folder / "dataset.toml").write_text(
        f'kernel = "{kernel}"\nparameters = {json.dumps(parameters)}\nknobs = {json.dumps(knobs)}\ndriver = ""\ncompiler = ""\npolicy = ""\ncommand = ""\n'
        f'date = 2026-01-31\ndevice = {{ name = "invented-cpu", kind = "cpu" }}\nversions = {{}}\n'
        f'sha256 = {{ "rows.parquet" = "{sha256_of(folder / "rows.parquet")}" }}\n'
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Invented times: Eigen is quicker on large matrices, Boost on small ones; blur runs faster the larger s4 is."""
    root = tmp_path_factory.mktemp("project")
    (root / "data").mkdir()
    (root / "data" / "external.toml").write_text("")
    rng = np.random.default_rng(0)
    mv = pd.DataFrame({"m": rng.integers(1, 1025, 80), "n": rng.integers(1, 1025, 80), "d1": 2.0 ** -rng.integers(0, 4, 80), "threads": 1, "status": "ok"})
    work = (mv["m"] * mv["n"]).astype(float)
    put(root, "here-mv-eigen", "mv", mv.assign(time_s=5e-6 + 1e-10 * work), ["threads"])
    put(root, "here-mv-boost", "mv", mv.assign(time_s=1e-7 + 1e-9 * work), ["threads"])
    blur = pd.DataFrame({"n": rng.choice([64, 128], 80), **{k: 2 ** rng.integers(1, 6, 80) for k in ("s1", "s2", "s3", "s4")}, "space": "workbench"})
    put(root, "here-blur", "blur", blur.assign(status="ok", threads=1, time_s=1e-9 * blur["n"] ** 2 * (1 + 16 / blur["s4"])), ["s1", "s2", "s3", "s4"])
    return root


@pytest.fixture(autouse=True)
def inside(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(project))
    monkeypatch.setenv("WORKBENCH_CACHE", str(project / "cache"))


def test_select_without_anything_else(project: Path) -> None:
    done = run("select", "--kernel", "mv", "--m", "1000", "--n", "1000")
    assert done.exit_code == 0, done.output
    assert "mv m=1000 n=1000 d1=1 · 2 variants" in done.stdout
    assert "run: eigen, 1 thread on invented-cpu" in done.stdout
    assert "note: No data set of 'mv' was measured on this machine" in done.stdout
    assert len(list((project / "cache" / "selectors").glob("mv-*.json"))) == 1
    assert "run: boost, 1 thread on invented-cpu" in run("select", "--kernel", "mv", "--m", "1", "--n=2").stdout


def test_json(project: Path) -> None:
    done = run("select", "--kernel", "mv", "--m", "1000", "--n", "1000", "--density", "0.5", "--json", "--data", "here-mv-eigen", "--data", "here-mv-boost")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["kernel"] == "mv"
    assert answer["inputs"] == {"m": 1000, "n": 1000, "d1": 0.5}
    assert answer["variant"] == {"data_set": "here-mv-eigen", "device": "invented-cpu", "library": "eigen", "threads": 1, "schedule": {}}
    assert [entry["library"] for entry in answer["ranking"]] == ["eigen", "boost"]
    assert answer["ranking"][0]["predicted_s"] == answer["predicted_s"]
    assert [note.split()[0] for note in answer["notes"]] == ["here-mv-eigen", "here-mv-boost"]
    assert answer["sources"] == [{"data_set": name, "trained": 80, "mape": None} for name in ("here-mv-eigen", "here-mv-boost")]
    assert 0 < answer["cost_s"] < 1


def test_train_then_select_from_the_file(project: Path, tmp_path: Path) -> None:
    path = tmp_path / "mv.json"
    done = run("train", "--kernel", "mv", "--rows", "50", "--output", str(path))
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("here-mv-boost: 50 of 80 rows trained a model of ")
    assert "% on the 30 others (MAPE without the fastest 30%)" in lines[0]
    assert lines[1].startswith("here-mv-eigen: 50 of 80 rows")
    assert lines[-1].startswith("trained in ")
    assert lines[-1].endswith(str(path))
    shown = run("select", "--kernel", "mv", "--m", "1000", "--n", "1000", "--models", str(path)).stdout
    assert "predicted from: here-mv-eigen, whose model errs by " in shown
    chosen = run("select", "--kernel", "mv", "--m", "1000", "--n", "1000", "--models", str(path), "--json")
    assert json.loads(chosen.stdout)["variant"]["library"] == "eigen"
    assert "its models are of kernel 'mv', not 'blur'" in run("select", "--kernel", "blur", "--n", "64", "--models", str(path)).stderr


def test_schedules(project: Path) -> None:
    done = run("select", "--kernel", "blur", "--n", "128", "--count", "3")
    assert done.exit_code == 0, done.output
    assert "schedules" not in done.stderr
    (chosen,) = [line for line in done.stdout.splitlines() if line.startswith("run: ")]
    assert "s4=" in chosen
    assert chosen.endswith("1 thread on invented-cpu")
    answer = json.loads(run("select", "--kernel", "blur", "--n", "128", "--json").stdout)
    assert answer["variants"] > 300
    assert answer["variant"]["schedule"]["s4"] >= 16
    assert len(answer["ranking"]) == 5


def test_trying_a_few_for_real() -> None:
    pytest.importorskip("halide")
    done = run("select", "--kernel", "blur", "--n", "64", "--try", "2", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    found = answer["trial"]
    assert [attempt["status"] for attempt in found["attempts"]] == ["ok", "ok"]
    assert [attempt["by"] for attempt in found["attempts"]] == ["network", "process"]
    assert found["chosen"]["measured_s"] == min(attempt["measured_s"] for attempt in found["attempts"])
    assert [entry["schedule"] for entry in answer["ranking"]] == [attempt["schedule"] for attempt in found["attempts"]]
    assert answer["variant"]["schedule"] == found["attempts"][0]["schedule"]
    assert found["gain_s"] >= 0
    assert (found["runs_to_pay"] is None) == (found["gain_s"] == 0)
    assert 0 < answer["cost_s"] < found["cost_s"]
    assert found["notes"][0].startswith("The models were trained elsewhere, on measurements of invented-cpu")


def test_a_trial_is_shown_with_its_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "measure"))

    def open_series(workload: Workload, **options: Any) -> Runner:
        return Runner(workload, device=Device("here", "cpu"), limits=Limits(build_s=1.0, run_s=1.0), problem="faulty_problem:Faulty", **options)

    def ranking(selector: Selector, inputs: Any, count: int = 5) -> list[tuple[Variant, float]]:
        return [(Variant("here-blur", "invented-cpu", "", 1, {"s1": s1, "s2": 2, "s3": 2, "s4": 2}), 2e-3) for s1 in order][:count]

    monkeypatch.setattr(trial, "open_series", open_series)
    monkeypatch.setattr(Selector, "ranking", ranking)
    monkeypatch.setattr(Source, "measurements", lambda source, kernel: None)  # the ranking alone counts
    order = [128, 512, 4]  # a wrong result, a good schedule, a crash of the compiler
    done = run("select", "--kernel", "blur", "--n", "1024", "--try", "3")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert any(line.startswith("wrong_result: s1=128 ") and line.endswith("relative error 1.0") for line in lines)
    assert any(line.startswith("compile_error: s1=4 ") for line in lines)
    assert any(line.startswith("run: s1=512 ") for line in lines)
    assert sum(" network " in line for line in lines) == 3
    assert any(line.startswith("the first choice fails here (wrong_result), which only trying tells; trying cost ") for line in lines)
    # The failure alone is no answer.
    failed = run("select", "--kernel", "blur", "--n", "1024", "--try", "1")
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert "none of the 1 schedules that were tried runs here (1 wrong_result; the first: " in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kernel", "mv", "--m", "4"), "parameter 'n' is missing; it takes m, n, d1"),
        (("--kernel", "mv", "--m", "4", "--n", "4", "--q", "1"), "has no parameter 'q'; it takes m, n, d1"),
        (("--kernel", "mv", "--m", "four", "--n", "4"), "--m is 'four'; it is a number"),
        (("--kernel", "mv", "--m", "4", "--n"), "--n has no value"),
        (("--kernel", "mv", "--m", "4", "--m", "5", "--n", "3"), "--m is given twice"),
        (("--kernel", "mv", "4"), "'4' is no option"),
        (("--kernel", "mv", "--m", "4", "--n", "4", "--d1", "2"), "d1 is 2; a density is at most 1"),
        (("--kernel", "blur", "--n", "64", "--density", "1"), "kernel 'blur' has no density left for --density"),
        (("--kernel", "blur", "--n", "1"), "blur: n is 1; the image has at least 2 x 2 points"),
        (("--kernel", "mc", "--m", "9", "--n", "9", "--r", "3"), "no measurements of 'mc' under data/raw"),
        (
            (
                "--kernel",
                "mx",
            ),
            "there is no kernel 'mx'",
        ),
        (("--kernel", "conv2d"), "no variants of kernel 'conv2d' can be selected; it works for the matrix kernels mm, mv, mc, mp, and for blur and fft"),
        (("--kernel", "mv", "--m", "4", "--n", "4", "--data", "here-blur"), "data set 'here-blur' is of kernel 'blur', not 'mv'"),
        (("--kernel", "mv", "--m", "4", "--n", "4", "--models", "none.json"), "none.json: no such file"),
        (("--kernel", "mv", "--m", "4", "--n", "4", "--models", "x", "--data", "y"), "give one of the two"),
        (("--kernel", "mv", "--m", "4", "--n", "4", "--try", "5"), "trying is for Halide's schedules (blur, fft), and kernel 'mv' has none"),
        (("--kernel", "blur", "--n", "64", "--pin", "0"), "--pin says where --try runs its schedules; without --try nothing is run"),
        (("--kernel", "blur", "--n", "64", "--try", "2", "--pin", "4096"), "cannot pin to CPU 4096"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = run("select", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_mistakes_in_training() -> None:
    assert "no measurements of 'mc'" in run("train", "--kernel", "mc").stderr
    assert "5 training rows; use at least 20" in run("train", "--kernel", "mv", "--rows", "5").stderr
    assert "data set 'here-blur' is of kernel 'blur', not 'mv'" in run("train", "--kernel", "mv", "--data", "here-blur").stderr
