"""Halide's blur for a GPU: PTX and launches of the schedules, which the emulated device executes and compares as it does any other candidate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.errors import BuildError, MissingPackage, UsageError
from workbench.kernels import kernel
from workbench.measure.build import find_compiler
from workbench.measure.cuda import blur, compile
from workbench.measure.cuda.bundle import Bundle, Candidate, Input, Launch, read_bundle
from workbench.measure.cuda.draft import Draft
from workbench.measure.cuda.expected import expected
from workbench.measure.cuda.measuring import DONE
from workbench.measure.cuda.records import read_results
from workbench.measure.cuda.run import Options, run_bundle

pytest.importorskip("halide")

SCHEDULES = [dict(zip(("y_split", "x_tile", "vector"), knobs, strict=True)) for knobs in ((1, 1, 2), (2, 4, 8), (8, 2, 4), (4, 16, 2), (16, 1, 16))]


@pytest.fixture(scope="module", autouse=True)
def cxx() -> None:
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def programs() -> dict[tuple[int, ...], tuple[str, Any]]:
    """PTX and launches of the schedules, for two sizes."""
    with blur.halide_crew(1) as crew:
        futures = {tuple(config.values()): blur.recorded(crew, config, [32, 96], "sm_80") for config in SCHEDULES}
        return {schedule: future.result() for schedule, future in futures.items()}  # type: ignore[misc]


def bundle_of(path: Path, programs: dict[tuple[int, ...], tuple[str, Any]], sizes: tuple[int, ...] = (32, 96)) -> Bundle:
    draft = Draft()
    for n in sizes:
        workload = kernel("blur_gpu").workload({"n": n})
        space, number = kernel("blur_gpu").space(workload, "workbench"), draft.problem(blur.problem(workload))
        for config in SCHEDULES:
            source, launches = programs[tuple(config.values())]
            draft.candidates.append(Candidate("blur_gpu", number, draft.program(source), "workbench", space.index(config), config, (launches[n],)))
    draft.end_stage("blur", 1.0)
    draft.write(path, "a test")
    return read_bundle(path)


def test_launches_are_the_knobs(programs: dict[tuple[int, ...], tuple[str, Any]]) -> None:
    for (y_split, x_tile, vector), (source, launches) in programs.items():
        assert compile.is_ptx(source)
        assert ".target sm_80" in source
        assert source.count(".visible .entry blur(") == 1
        for n, launch in launches.items():
            grid = (n // (x_tile * vector), n // y_split, 1)
            assert launch == Launch("blur", grid, (x_tile, 1, 1), ("blurred", "image", n, n + 2))
    assert len({source for source, _ in programs.values()}) == len(SCHEDULES)
    assert not compile.is_ptx("// .version\n__global__ void blur() {}")


def test_every_schedule_computes_the_blur(emulated: None, programs: dict[tuple[int, ...], tuple[str, Any]], tmp_path: Path) -> None:
    bundle_of(tmp_path / "b.zip", programs)
    assert run_bundle(tmp_path / "b.zip", tmp_path / "out", Options(budget_s=200.0, workers=1)) == DONE
    _, records = read_results(tmp_path / "out")
    assert Counter(entry["status"] for entry in records) == {"ok": 2 * len(SCHEDULES)}
    for entry in records:
        assert entry["details"]["relative_error"] < 1e-6
        assert entry["time_s"] == min(entry["times_s"]) > 0
        assert entry["compile_s"] is None
        assert "cubin_bytes" not in entry["details"]
    assert {entry["workload"] for entry in records} == {'blur_gpu {"n":32}', 'blur_gpu {"n":96}'}


def test_wrong_ptx_and_wrong_launches_are_found_out(emulated: None, programs: dict[tuple[int, ...], tuple[str, Any]], tmp_path: Path) -> None:
    faulty = dict(programs)
    launches = programs[1, 1, 2][1]
    (third,) = {"0f3EAAAAAB"} & set(programs[1, 1, 2][0].replace(";", " ").split())  # one over three
    faulty[1, 1, 2] = (programs[1, 1, 2][0].replace(third, "0f3EAAAA00"), launches)
    faulty[2, 4, 8] = (programs[2, 4, 8][0].replace("ld.param", "ld.nothing"), programs[2, 4, 8][1])
    faulty[8, 2, 4] = (programs[8, 2, 4][0], {n: Launch("blur", (n // 8, n // 8 - 1, 1), (2, 1, 1), ("blurred", "image", n, n + 2)) for n in (32, 96)})
    bundle_of(tmp_path / "b.zip", faulty, sizes=(32,))
    assert run_bundle(tmp_path / "b.zip", tmp_path / "out", Options(budget_s=200.0, workers=1)) == DONE
    ended = {tuple(entry["config"].values()): (entry["status"], entry["error"]) for entry in read_results(tmp_path / "out")[1]}
    assert [ended[tuple(config.values())][0] for config in SCHEDULES] == ["wrong_result", "compile_error", "wrong_result", "ok", "ok"]
    assert "CUDA_ERROR_INVALID_PTX (218)" in ended[2, 4, 8][1]
    assert "elements are wrong" in ended[1, 1, 2][1]


def test_a_bundle_of_schedules(tmp_path: Path) -> None:
    draft, told = Draft(), []
    assert blur.add(draft, [64, 32], 3, seed=1, told=lambda: told.append(1)) == {}
    assert [stage.name for stage in draft.stages] == ["blur"]
    assert "PTX by Halide" in draft.notes["blur_gpu"][-1]
    draft.write(tmp_path / "b.zip", "a test")
    bundle = read_bundle(tmp_path / "b.zip")
    assert [bundle.problems[one.problem].workload.params["n"] for one in bundle.candidates] == [32, 32, 32, 64, 64, 64]
    for one in bundle.candidates:
        space = kernel("blur_gpu").space(bundle.problems[one.problem].workload, "workbench")
        assert one.config == space.config(one.index or 0)
        assert one.launches[0].block[0] == one.config["x_tile"]
    # Schedules that two sizes share have one program.
    assert len({one.program for one in bundle.candidates}) == len(told) == len({tuple(one.config.values()) for one in bundle.candidates})


def test_the_problem_and_what_it_expects() -> None:
    workload = kernel("blur_gpu").workload({"n": 4})
    problem = blur.problem(workload, seed=3)
    assert problem.inputs == (Input("image", 36, 36, blur.problem(workload).inputs[0].seed + 3),)
    assert (problem.output, problem.count) == ("blurred", 16)
    image = np.arange(36, dtype=np.float32)
    assert expected(workload, [image]).tolist() == [[7 + 6 * y + x for x in range(4)] for y in range(4)]


def test_sizes_without_schedules() -> None:
    with pytest.raises(UsageError, match="n is 33; a thread computes at least 2 columns"):
        blur.add(Draft(), [33], 1)


def test_without_halide_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **more: object) -> Path:
        raise MissingPackage("building needs the headers of the package 'halide', which is not installed; run: pip install halide", name="halide")

    monkeypatch.setattr(blur, "build", missing)
    with pytest.raises(MissingPackage, match="pip install halide"):
        blur.add(Draft(), [32], 1)
