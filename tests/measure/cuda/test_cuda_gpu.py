"""The GPU's process: what a kernel computes is checked, what it does wrong becomes a status, and the next one is measured. Kernels really run, emulated."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_bundle
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import workbench
from workbench.errors import BuildError, DeviceError, UsageError
from workbench.kernels import kernel
from workbench.kernels.conv_shape import shape_of
from workbench.kernels.matrix import KERNELS as MATRIX
from workbench.kernels.matrix.cuda import VARIANTS, source
from workbench.measure.cuda import convolutions, matrix
from workbench.measure.cuda.bundle import Candidate, Problem
from workbench.measure.cuda.compile import compilers
from workbench.measure.cuda.draft import REFERENCE
from workbench.measure.cuda.gpu import POLICY, Gpu, architecture, device_of, open_gpu
from workbench.measure.cuda.pool import Compiled, Pool
from workbench.measure.timing import Policy
from workbench.schema import Status, Workload

FAST = Policy(repeats=4, at_least=2, limit_s=0.01, warmup_s=0.0, batch_s=2e-5)


class Device:
    """The emulated device with what tests measure on it."""

    def __init__(self, folder: Path) -> None:
        self.gpu, self.pool, self.facts = open_gpu(folder, policy=FAST)
        self.reference = self.compile(REFERENCE.read_text())

    def compile(self, text: str) -> Path:
        compiled = self.pool.compile(text)
        assert compiled.path is not None, compiled.error
        return compiled.path

    def measure(self, candidate: Candidate, problem: Problem, text: str, limit_s: float = 20.0, **other: Any) -> dict[str, Any]:
        launches = [launch.request() for launch in candidate.launches]
        return self.gpu.measure(
            self.compile(text),
            problem.request(self.reference),
            launches,
            **{"scratch": candidate.scratch, "copied": candidate.copied, "limit_s": limit_s, **other},
        )

    def convolve(self, name: str, **other: Any) -> dict[str, Any]:
        return self.measure(small_bundle.convolution(name), small_bundle.problem(), small_bundle.SOURCE, **other)


@pytest.fixture(scope="module")
def device(emulation: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"WORKBENCH_CUDA_DRIVER": emulation, "WORKBENCH_NVRTC": emulation, "EMULATED_FOLDER": emulation.parent}.items():
            patch.setitem(os.environ, name, str(value))
        patch.setitem(os.environ, "EMULATED_MEMORY_BYTES", str(5 << 20))
        found = Device(tmp_path_factory.mktemp("cubins"))
        yield found
        found.gpu.close()
        found.pool.close()


def test_what_the_driver_says(device: Device) -> None:
    assert device.facts["model"] == "Emulated GPU (R) 9000"
    assert device.facts["compiler"] == "NVRTC 13.0"
    assert architecture(device.facts) == "sm_90"
    found = device_of(device.facts)
    assert (found.name, found.kind, found.max_threads) == ("emulated-gpu-9000", "gpu", 1024)
    assert found.peak_gflops == 4 * 128 * 2 * 1.5
    assert found.bandwidth_gb_s == 2 * 1.0 * 128
    bare = device_of({"model": "NVIDIA X (TM)", "compute_capability_major": 99, "compute_capability_minor": 0})
    assert (bare.name, bare.peak_gflops, bare.bandwidth_gb_s, bare.max_threads) == ("nvidia-x", None, None, None)
    assert 0 < device.gpu.floor_s < 1e-3


def test_a_right_kernel_is_timed(device: Device) -> None:
    answer = device.convolve("right")
    assert answer["status"] == "ok", answer
    assert 0 <= answer["relative_error"] < 1e-6
    assert 2 <= len(answer["times_s"]) <= 4
    assert all(0 < seconds < 0.1 for seconds in (*answer["times_s"], answer["first_s"]))
    assert answer["calls"] >= 1
    assert answer["functions"]["right"] == {"registers": 32, "shared_bytes": 64, "local_bytes": 0, "max_threads": 1024}
    assert "copied_times_s" not in answer
    copied = device.convolve("right", copied=True)
    assert min(copied["copied_times_s"]) > 0


def test_what_is_kept_between_two_kernels_and_what_is_not_timed(device: Device) -> None:
    answer = device.convolve("twice")
    assert answer["status"] == "ok", answer
    assert set(answer["functions"]) == {"first_half", "second_half"}


@pytest.mark.parametrize(
    ("name", "status", "said", "lost"),
    [
        ("lacks_a_channel", Status.WRONG_RESULT, "of 144 elements are wrong", False),
        ("lacks_an_element", Status.WRONG_RESULT, "1 of 144 elements are wrong, the first of them number 77; relative error inf", False),
        ("adds_up", Status.WRONG_RESULT, "after several runs", False),
        ("refused", Status.INVALID_CONFIG, "run: cuLaunchKernel: CUDA_ERROR_INVALID_VALUE (1)", False),
        ("memory", Status.RUN_ERROR, "prepare: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)", False),
        ("has_no_such_kernel", Status.RUN_ERROR, "CUDA_ERROR_NOT_FOUND (500)", False),
        ("illegal", Status.RUN_ERROR, "run: cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)", True),
        ("traps", Status.RUN_ERROR, "run: cuCtxSynchronize: CUDA_ERROR_ILLEGAL_INSTRUCTION (715)", True),
        ("hangs", Status.TIMEOUT, "the GPU's process: no answer in 0.5 s", True),
    ],
)
def test_a_fault_is_a_status_and_the_next_is_measured(device: Device, name: str, status: Status, said: str, lost: bool) -> None:
    device.convolve("right")  # what it needs is there
    starts = device.gpu.starts
    answer = device.convolve(name, limit_s=0.5 if name == "hangs" else 20.0)
    assert answer["status"] == status, answer
    assert said in answer["error"]
    assert device.gpu.alive != lost
    assert device.convolve("right")["status"] == "ok"
    assert device.gpu.starts == starts + lost


def test_a_process_that_dies_takes_nobody_along(device: Device) -> None:
    device.convolve("right")
    device.gpu.kill()
    answer = device.convolve("right")
    assert answer["status"] == "run_error"
    assert "it was ended by SIGKILL" in answer["error"]
    assert device.convolve("right")["status"] == "ok"


def test_an_input_that_one_spoils_is_made_anew_for_the_next(device: Device) -> None:
    assert device.convolve("spoils_its_input")["status"] == "wrong_result"
    assert device.convolve("right")["status"] == "ok"


def test_problems_make_room_for_others(device: Device) -> None:
    """A device with room for a few of them measures any number in turn."""
    wide = [MATRIX["mp"].workload({"m": 400, "n": 300 + i, "r": 2, "s": 2, "d1": 1.0}) for i in range(6)]
    for workload in (*wide, *wide[:2]):
        answer = device.measure(matrix.candidate(workload, "global", 0, 0), matrix.problem(workload), source("mp"))
        assert answer["status"] == "ok", answer


def test_a_short_kernel_is_timed_many_times_at_once_and_a_long_one_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.gpu, "policy", replace(FAST, batch_s=0.0))
    assert device.convolve("right")["calls"] == 1
    monkeypatch.setattr(device.gpu, "policy", replace(FAST, batch_s=1.0))
    assert device.convolve("right")["calls"] == 512 // FAST.repeats  # as many as the queue holds
    assert device.convolve("twice")["calls"] == 512 // FAST.repeats
    monkeypatch.setattr(device.gpu, "policy", FAST)
    slow = device.convolve("slow")
    assert slow["status"] == "ok", slow
    assert slow["times_s"] == [slow["first_s"]]
    assert slow["first_s"] > 0.25


def test_a_policy_that_a_queue_does_not_hold() -> None:
    with pytest.raises(UsageError, match="at most 32"):
        Gpu(Path("none"), policy=Policy(repeats=100))


def test_with_the_caches_emptied(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.gpu, "flush", True)
    answer = device.convolve("right")
    assert answer["status"] == "ok", answer
    assert answer["calls"] == 1
    assert len(answer["times_s"]) == 4


# ---------------------------------------------------------------------------------------------------- what is computed
SIDES = st.sampled_from((1, 2, 3, 7, 15, 16, 17, 31, 33, 40))


@st.composite
def instances(draw: st.DrawFn) -> Workload:
    name = draw(st.sampled_from(sorted(MATRIX)))
    r = {"mc": st.sampled_from((3, 5, 7)), "mp": st.integers(2, 5)}.get(name, st.just(1))
    params: dict[str, Any] = {"r": draw(r), "s": draw(st.integers(1, 2)), "k": draw(SIDES)}
    params |= {"m": max(params["r"], draw(SIDES)), "n": max(params["r"], draw(SIDES))}
    params |= {density: 2.0 ** -draw(st.integers(0, 6)) for density in ("d1", "d2")}
    return MATRIX[name].workload({parameter: params[parameter] for parameter in MATRIX[name].parameters})


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(workload=instances(), variant=st.sampled_from(VARIANTS))
def test_matrix_kernels_are_right_and_so_is_what_they_are_compared_with(device: Device, workload: Workload, variant: str) -> None:
    problem = matrix.problem(workload)
    assert device.gpu.verify(problem.request(device.reference), 30) == ""
    answer = device.measure(matrix.candidate(workload, variant, 0, 0), problem, source(workload.kernel), copied=False)
    assert answer["status"] == "ok", answer


@st.composite
def convolved(draw: st.DrawFn) -> Workload:
    kind = draw(st.sampled_from(("conv2d", "depthwise_conv2d", "conv1d", "conv1d_transpose", "conv2d_transpose")))
    axes = ("w",) if kind.startswith("conv1d") else ("h", "w")
    groups = draw(st.integers(1, 2)) if kind in ("conv1d", "conv2d") else 1
    ci = groups * draw(st.integers(1, 3))
    params: dict[str, Any] = {"n": draw(st.integers(1, 2)), "ci": ci, "co": (ci if kind == "depthwise_conv2d" else groups) * draw(st.integers(1, 2))}
    for axis in axes:
        params |= {axis: draw(st.integers(1, 7)), f"k{axis}": draw(st.integers(1, 3))}
    params |= {"stride": draw(st.tuples(*len(axes) * [st.integers(1, 3)])), "padding": draw(st.tuples(*2 * len(axes) * [st.integers(0, 2)]))}
    if not kind.endswith("transpose"):
        params |= {"dilation": draw(st.integers(1, 2)), "groups": groups}
    return kernel(kind).workload(params)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(workload=convolved())
def test_the_direct_convolutions_on_the_device_are_numpys(device: Device, workload: Workload) -> None:
    try:
        shape_of(workload)
    except UsageError:
        reject()
    assert device.gpu.verify(convolutions.problem(workload).request(device.reference), 30) == ""


def test_a_reference_that_is_not_numpys_is_told(device: Device) -> None:
    request = small_bundle.problem().request(device.reference)
    other = MATRIX["mm"].workload({"m": 9, "n": 10, "k": 16, "d1": 1.0, "d2": 1.0})
    wrong = {**request, "key": "other", "workload": kernel("conv2d").workload({**small_bundle.CONVOLUTION.params, "padding": (0, 1, 2, 1)}).key}
    assert "the device's expected result is not numpy's" in device.gpu.verify(wrong, 30)
    assert "cannot reshape" in device.gpu.verify({**request, "key": "another", "workload": other.key}, 30)
    assert device.gpu.verify(request, 30) == ""


# ---------------------------------------------------------------------------------------------------- what is not there
def test_no_driver_and_no_device_are_one_line(emulated: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATED_DEVICES", "2")
    with pytest.raises(DeviceError, match="there is no CUDA device 2; there are 2, numbered from 0"):
        open_gpu(tmp_path, device=2)
    monkeypatch.setenv("WORKBENCH_CUDA_DRIVER", str(tmp_path / "libcuda.so"))
    with pytest.raises(DeviceError, match=r"no CUDA driver here: WORKBENCH_CUDA_DRIVER names .*run this where nvidia-smi finds a device"):
        open_gpu(tmp_path)


def test_no_compiler_is_one_line(emulated: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_NVRTC", str(tmp_path / "libnvrtc.so"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("workbench.measure.cuda.compile._nvcc", lambda: None)
    with pytest.raises(BuildError, match=r"no compiler whose programs run on Emulated GPU \(R\) 9000: nvrtc: no NVRTC: .*; nvcc: no nvcc on PATH"):
        open_gpu(tmp_path)
    with pytest.raises(UsageError, match="there is no compiler 'gcc'; there are nvrtc, nvcc"):
        open_gpu(tmp_path, compiler="gcc")


# ---------------------------------------------------------------------------------------------------- compiling
@pytest.fixture
def pool(emulated: None, tmp_path: Path) -> Iterator[Pool]:
    with Pool("nvrtc", "NVRTC 13.0", "sm_90", tmp_path, workers=2, limit_s=60) as found:
        yield found


def test_what_does_not_compile_says_why_and_the_next_does(pool: Pool, tmp_path: Path) -> None:
    broken = pool.compile(small_bundle.BROKEN)
    assert broken.status is Status.COMPILE_ERROR
    assert broken.error.startswith("kernel.cu:1:")
    assert "nonsense" in broken.error
    assert broken.compile_s is not None
    os.mkfifo(tmp_path / "pipe")
    endless = pool.compile(small_bundle.ENDLESS.format(pipe=tmp_path / "pipe"), limit_s=1.0)
    assert endless == Compiled(Status.TIMEOUT, error="the compiler: no answer in 1 s")
    whole = pool.compile(small_bundle.SOURCE)
    assert whole.status is Status.OK
    assert whole.path is not None
    assert whole.path.read_bytes()[:8] == b"EMULATED"
    again = pool.compile(small_bundle.SOURCE)
    assert (again.path, again.compile_s) == (whole.path, None)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".cubin"]


FAKE_NVCC = """#!{python}
import ctypes, pathlib, sys
if "--version" in sys.argv:
    print("nvcc: NVIDIA (R) Cuda compiler driver\\nCuda compilation tools, release 12.4, V12.4.131\\nBuild cuda_12.4.r12.4")
    sys.exit()
from workbench.errors import BuildError
from workbench.measure.cuda.compile import Nvrtc
assert sys.argv[1:5] == ["-cubin", "-w", "-arch=sm_90", "--std=c++17"], sys.argv
try:
    pathlib.Path(sys.argv[6]).write_bytes(Nvrtc().compile(pathlib.Path(sys.argv[7]), "sm_90"))
except BuildError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""


def test_nvcc_does_where_there_is_no_nvrtc(emulated: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that calls the emulated compiler stands for nvcc."""
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text(FAKE_NVCC.format(python=sys.executable))
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with Pool("nvcc", "nvcc 12.4, V12.4.131", "sm_90", tmp_path, limit_s=60) as pool:
        whole, broken = pool.compile(small_bundle.SOURCE), pool.compile(small_bundle.BROKEN)
    assert compilers("nvcc")[0] == {"nvcc": "nvcc 12.4, V12.4.131"}
    assert whole.path is not None
    assert whole.path.read_bytes()[:8] == b"EMULATED"
    assert broken.status is Status.COMPILE_ERROR
    assert "nonsense" in broken.error
    assert [path.suffix for path in tmp_path.iterdir() if path.is_file()] == [".cubin"]


@pytest.mark.slow
@pytest.mark.skipif("nvcc" not in compilers("nvcc")[0], reason="no nvcc here")
def test_cuda_compiles_what_the_package_has(tmp_path: Path) -> None:
    sources = sorted(Path(workbench.__file__).parent.rglob("*.cu"))
    assert len(sources) == 6
    with Pool("nvcc", compilers("nvcc")[0]["nvcc"], "sm_80", tmp_path, limit_s=120) as pool:
        assert {path.name: pool.compile(path.read_text()).error for path in sources} == {path.name: "" for path in sources}


def test_a_pool_that_is_closed_leaves_no_work_behind(emulated: None, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pool = Pool("nvrtc", "NVRTC 13.0", "sm_90", tmp_path, workers=2, limit_s=60)
    futures = [pool.submit(lambda: small_bundle.ENDLESS.format(pipe=tmp_path / "pipe")) for _ in range(6)]
    pool.close()
    pool.close()
    assert all(future.done() for future in futures)
    assert POLICY.repeats == 10
