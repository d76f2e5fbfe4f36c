"""Blur and FFT as Halide programs: right under every schedule, and scheduled as they say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest

from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.kernels.halide import PROBLEMS, autoschedulers, problem_of
from workbench.kernels.halide.base import Problem, Program
from workbench.kernels.halide.blur import Blur
from workbench.kernels.halide.fft import FFT, radices
from workbench.schema import Value

PAPERS = {"s1": 8, "s2": 256, "s3": 128, "s4": 8}
PLAIN = {"group1": 2, "vector1": 1, "unroll1": 1, "group2": 2, "vector2": 1, "unroll2": 1, "vector_out": 1, "transpose": 0, "parallel": 0}


def error_of(problem: Problem, program: Program) -> float:
    problem.spoil()
    assert problem.error() > problem.tolerance  # what is left of the last program does not count
    program.run()
    return problem.error()


def drawn(name: str, n: int, count: int) -> list[Mapping[str, Value]]:
    space = kernel(name).space(kernel(name).workload({"n": n}), "workbench")
    return [space.config(int(index)) for index in space.sample(count, 0)]


def test_the_workbench_spaces() -> None:
    blur, fft = kernel("blur"), kernel("fft")
    large = blur.space(blur.workload({"n": 1024}), "workbench")
    papers = blur.space(blur.workload({"n": 1024}), "halide")
    assert (large.knobs, large.constraints) == (papers.knobs, papers.constraints)
    small = blur.space(blur.workload({"n": 48}), "workbench").decode(blur.space(blur.workload({"n": 48}), "workbench").members())
    assert {int(values.max()) for values in small.values()} == {32}
    space = fft.space(fft.workload({"n": 16}), "workbench")
    assert len(space.names) == 9
    values = space.decode(space.members())
    for i in "12":
        assert (values[f"vector{i}"] <= values[f"group{i}"]).all()
        assert (values[f"vector{i}"] * values[f"unroll{i}"] <= 64).all()
    assert {int(v) for v in values["group1"]} == {2, 4, 8, 16}
    with pytest.raises(UsageError, match="n is 1"):
        blur.space(blur.workload({"n": 1}), "workbench")
    with pytest.raises(UsageError, match="power of two"):
        fft.space(fft.workload({"n": 48}), "workbench")


def test_kernels_that_have_programs() -> None:
    assert {name: problem_of(name) for name in PROBLEMS} == dict(PROBLEMS)
    with pytest.raises(UsageError, match="'mm' has no Halide pipeline; there are blur, fft"):
        problem_of("mm")


def test_nothing_of_it_needs_halide_to_be_imported() -> None:
    code = (
        "import sys; sys.modules['halide'] = None\n"
        "import workbench.kernels.halide.blur, workbench.kernels.halide.fft, workbench.kernels.halide.autoschedulers, workbench.measure.halide\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_radices() -> None:
    assert {n: radices(n) for n in (4, 8, 16, 32, 128)} == {4: (4,), 8: (4, 2), 16: (4, 4), 32: (4, 4, 2), 128: (4, 4, 4, 2)}


class TestBlur:
    def test_the_reference_by_hand(self) -> None:
        problem = Blur(4, seed=3)
        image = problem.image[:, 1039:1045].tolist()  # the 4 x 4 image with a frame of 1
        rows = [[sum(row[x : x + 3]) // 3 for x in range(4)] for row in image]
        assert problem.reference.tolist() == [[sum(rows[y + d][x] for d in range(3)) // 3 for x in range(4)] for y in range(4)]

    def test_the_papers_schedule(self) -> None:
        problem = Blur(256)
        assert error_of(problem, problem.compile(PAPERS)) == 0

    def test_its_loops_are_those_of_the_listing(self, capfd: pytest.CaptureFixture[str]) -> None:
        Blur(256).schedule(PAPERS).output.print_loop_nest()
        lines = [line.strip() for line in "".join(capfd.readouterr()).splitlines()]
        loops = [line.split(" in ")[0].rstrip(":") for line in lines if line.startswith(("parallel", "for", "vectorized", "produce", "consume"))]
        second = ["parallel x.x_o", "parallel y.y_o", "for y.y_i", "for x.x_i.x_i_vo", "vectorized x.x_i.x_i_vi"]
        first = ["for y", "for x.x_vo", "vectorized x.x_vi"]
        # The first pass stands within x_o; the listing orders x_i, y_i, x_o, y_o from the inside, so y_o is outermost.
        order = [loop for loop in loops if not loop.startswith(("produce", "consume"))]
        assert order == [second[1], second[0], *first, *second[2:]], loops

    @pytest.mark.parametrize("config", [{"s1": 64, "s2": 2, "s3": 2, "s4": 2}, {"s1": 2, "s2": 64, "s3": 64, "s4": 64}, *drawn("blur", 64, 4)], ids=str)
    def test_schedules_are_right(self, config: Mapping[str, Value]) -> None:
        problem = Blur(64)
        assert error_of(problem, problem.compile(config)) == 0

    @pytest.mark.parametrize("config", [{"s1": 1024, "s2": 2, "s3": 2, "s4": 2}, {"s1": 1024, "s2": 1024, "s3": 2, "s4": 2}], ids=str)
    def test_the_margin_is_wide_enough(self, config: Mapping[str, Value]) -> None:
        problem = Blur(1024)
        assert error_of(problem, problem.compile(config)) == 0

    @pytest.mark.slow
    def test_many_schedules_are_right(self) -> None:
        for n in (96, 1024):
            problem = Blur(n)
            for config in drawn("blur", n, 40):
                assert error_of(problem, problem.compile(config)) == 0, config


class TestFFT:
    @pytest.mark.parametrize("n", [4, 8, 16, 32])
    def test_every_length(self, n: int) -> None:
        problem = FFT(n)
        assert problem.reference.shape == (problem.runs, n, n)
        assert error_of(problem, problem.compile(PLAIN)) < 1e-6

    @pytest.mark.parametrize("config", [*({**PLAIN, "transpose": 1, "vector_out": 4, "parallel": p} for p in (1, 2)), *drawn("fft", 16, 4)], ids=str)
    def test_schedules_are_right(self, config: Mapping[str, Value]) -> None:
        problem = FFT(16)
        assert error_of(problem, problem.compile(config)) < 1e-6

    def test_a_wrong_result_is_noticed(self) -> None:
        problem = FFT(16)
        problem.compile(PLAIN).run()
        problem.results[1][-1, 3, 5] += 1e-3 * np.abs(problem.reference).max()
        assert problem.error() > problem.tolerance

    @pytest.mark.slow
    def test_many_schedules_are_right(self) -> None:
        for n in (16, 32, 64, 128):
            problem = FFT(n)
            for config in drawn("fft", n, 12):
                assert error_of(problem, problem.compile(config)) < 1e-6, config


class TestAutoschedulers:
    @pytest.mark.parametrize("scheduler", autoschedulers.AUTOSCHEDULERS)
    def test_blur(self, scheduler: str) -> None:
        problem = Blur(64)
        program = problem.autoschedule(scheduler, 1)
        assert error_of(problem, program) == 0
        assert "vectorize" in program.schedule

    def test_mullapudis_choice_for_blur_has_the_shape_of_the_listing(self) -> None:
        text = re.sub(r"_\d+\b", "", "".join(Blur(1024).autoschedule("Mullapudi2016", 2).schedule.split()))  # Halide numbers functions of one name
        for call in (".compute_at(blur_y,x_o)", ".split(x,x_vo,x_vi,", ".vectorize(x_vi)", ".split(x,x_o,x_i,", ".split(x_i,x_i_vo,x_i_vi,", ".parallel("):
            assert call in text

    @pytest.mark.parametrize("scheduler", ["Mullapudi2016", pytest.param("Adams2019", marks=pytest.mark.slow), "Li2018"])
    def test_fft(self, scheduler: str) -> None:
        # Adams2019 searches for half a minute.
        problem = FFT(8)
        assert error_of(problem, problem.autoschedule(scheduler, 1)) < 1e-6

    def test_an_unknown_one(self) -> None:
        with pytest.raises(UsageError, match="no autoscheduler 'Nobody2020'; there are Mullapudi2016, Adams2019, Li2018"):
            Blur(64).autoschedule("Nobody2020", 1)
