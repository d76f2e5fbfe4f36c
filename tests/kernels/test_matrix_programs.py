"""The programs in Eigen and uBLAS compute what numpy does: random shapes, densities and threads, sizes of 1, and sizes that divide by no tile."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import convolve2d

from workbench.kernels.matrix import INSTANCES, LIBRARIES
from workbench.kernels.matrix.reference import Run, difference, read_run, reference, shapes
from workbench.measure.isolation import Child
from workbench.measure.timing import Policy, fault

ONCE = {"warmup_s": 0, "batch_s": 0, "repeats": 1, "at_least": 1, "limit_s": 0}
KERNELS = tuple(INSTANCES)
# Nothing, one row or column, whole vectors of 4, 8 and 16 numbers and one more or less, and numbers without small factors.
SIDES = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 53, 64, 97, 130)


# ---------------------------------------------------------------------------------------------------- the reference
def pool(a: np.ndarray, r: int, s: int) -> np.ndarray:
    rows, columns = range(0, a.shape[0] - r + 1, s), range(0, a.shape[1] - r + 1, s)
    return np.array([[max(a[i + p, j + q] for p in range(r) for q in range(r)) for j in columns] for i in rows])


@pytest.mark.parametrize(("m", "n", "r", "s"), [(3, 3, 3, 1), (9, 7, 3, 1), (10, 9, 5, 1), (10, 9, 5, 2), (8, 5, 2, 2), (2, 9, 2, 2), (7, 7, 7, 1)])
def test_the_reference_by_other_means(m: int, n: int, r: int, s: int) -> None:
    generator = np.random.default_rng(m * n)
    a, b = generator.normal(size=(m, n)), generator.normal(size=(r, r))
    params = {"m": m, "n": n, "r": r, "s": s}
    if s == 1:
        np.testing.assert_allclose(reference("mc", params, a, b), convolve2d(a, b, mode="valid"), rtol=1e-12, atol=1e-12)
        assert shapes("mc", params)[2] == convolve2d(a, b, mode="valid").shape
    np.testing.assert_array_equal(reference("mp", params, a, b), pool(a, r, s))
    assert shapes("mp", params)[2] == pool(a, r, s).shape


def test_a_wrong_element_or_density_is_told() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(20, 30)), generator.normal(size=(30, 10))
    params = {"m": 20, "n": 30, "k": 10, "d1": 1.0, "d2": 1.0}
    right = a @ b
    assert difference("mm", params, Run(a, b, right.astype(np.float32).astype(np.float64))) == ""
    for wrong in (right[4, 7] + 1e-3, np.nan, np.inf):
        result = right.copy()
        result[4, 7] = wrong
        assert "1 of 200 elements are wrong; the first, (4, 7), is" in difference("mm", params, Run(a, b, result))
    assert "A has 600 elements that are not zero; a density of 0.5 of 600 makes 300" in difference("mm", {**params, "d1": 0.5}, Run(a, b, right))
    assert "B has 300" in difference("mm", {**params, "d2": 0.25}, Run(a, b, right))
    window = {"m": 20, "n": 30, "r": 2, "s": 1, "d1": 1.0}
    assert "elements are wrong" in difference("mp", window, Run(a, np.empty((0, 0)), np.nextafter(reference("mp", window, a, a), 9)))


# ---------------------------------------------------------------------------------------------------- the programs
@pytest.fixture(scope="module", params=sorted(LIBRARIES))
def served(request: pytest.FixtureRequest, program: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Child, Path]]:
    dump = tmp_path_factory.mktemp("dump") / "run.bin"
    with Child([str(program(request.param)), str(dump)], memory_bytes=4 << 30) as child:
        yield request.param, child, dump


def random_params(kernel: str, generator: random.Random) -> dict[str, int | float]:
    instances = INSTANCES[kernel]
    params: dict[str, int | float] = {}
    for name, values in instances.sizes.items():
        least = params.get(instances.at_least.get(name, ""), 1)
        params[name] = max(least, generator.choice(SIDES)) if name in "mnk" else generator.choice(values)
    for name, (rows, columns) in instances.densities.items():
        # Dense, just dense, sparse, and very sparse, down to a single element.
        params[name] = generator.choice([1.0, 0.5, 0.25, 0.125, 2.0 ** -generator.randint(0, int(np.log2(params[rows] * params[columns])))])
    return params


def check(served: tuple[str, Child, Path], kernel: str, params: dict[str, int | float], threads: int, seed: int) -> Run:
    _, child, dump = served
    answer = child.ask({"kernel": kernel, **params, "threads": threads, "seed": seed, **ONCE, "dump": 1}, 60)
    assert answer["status"] == "ok", (kernel, params, threads, answer)
    run = read_run(dump, kernel, params)
    assert difference(kernel, params, run) == "", (kernel, params, threads)
    return run


@pytest.mark.parametrize("kernel", KERNELS)
def test_random_instances_equal_numpy(served: tuple[str, Child, Path], kernel: str) -> None:
    generator = random.Random(f"{kernel} instances")
    for seed in range(80):
        check(served, kernel, random_params(kernel, generator), generator.randint(1, 5) if LIBRARIES[served[0]].threads else 1, seed)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_smallest_sizes_equal_numpy(served: tuple[str, Child, Path], kernel: str) -> None:
    for r in INSTANCES[kernel].sizes.get("r", (1,)):
        for s in INSTANCES[kernel].sizes.get("s", (1,)):
            for d1 in (1.0, 2.0**-3):
                params = {"m": r, "n": r, "k": 1, "r": r, "s": s, "d1": d1, "d2": d1}
                for threads in (1, 3) if LIBRARIES[served[0]].threads else (1,):
                    run = check(served, kernel, {name: params[name] for name in (*INSTANCES[kernel].sizes, *INSTANCES[kernel].densities)}, threads, 1)
                    assert run.result.size == 1


@pytest.mark.parametrize("kernel", KERNELS)
def test_instances_of_table_2_equal_numpy(served: tuple[str, Child, Path], kernel: str) -> None:
    for seed, params in enumerate(INSTANCES[kernel].draw(10, 11)):
        check(served, kernel, params, 1 + seed % 3 if LIBRARIES[served[0]].threads else 1, seed)


@pytest.mark.parametrize(("d1", "d2"), [(1.0, 1.0), (0.125, 1.0), (1.0, 0.125), (0.125, 0.125)])
def test_a_large_product_equals_numpy(served: tuple[str, Child, Path], d1: float, d2: float) -> None:
    for threads in (1, 2, 3) if LIBRARIES[served[0]].threads else (1,):
        check(served, "mm", {"m": 301, "n": 257, "k": 283, "d1": d1, "d2": d2}, threads, 5)


def test_contents_belong_to_the_seed_and_fill_the_matrix(served: tuple[str, Child, Path]) -> None:
    params = {"m": 97, "n": 130, "d1": 0.25}
    first, same, other = (check(served, "mv", params, 1, seed) for seed in (3, 3, 4))
    assert np.array_equal(first.a, same.a)
    assert not np.array_equal(first.a, other.a)
    filled = first.a != 0
    # Of about 32 elements a row and 24 a column none is empty, and values lie on both sides of zero.
    assert filled.any(axis=0).all()
    assert filled.any(axis=1).all()
    assert -1 <= first.a.min() < -0.9 < 0.9 < first.a.max() < 1


def test_a_maximum_of_negative_numbers_and_zeros(served: tuple[str, Child, Path]) -> None:
    """A window of a sparse matrix without an empty place may have a negative maximum, one with an empty place may not."""
    run = check(served, "mp", {"m": 64, "n": 64, "r": 2, "s": 1, "d1": 0.4}, 1, 0)
    assert (run.result < 0).any()
    assert (run.result == 0).any()


# ---------------------------------------------------------------------------------------------------- the protocol
def test_times_follow_the_policy(served: tuple[str, Child, Path]) -> None:
    _, child, _ = served
    ask = {"kernel": "mv", "m": 9, "n": 9, "d1": 1.0, "threads": 1, "seed": 0, "dump": 0}
    policy = Policy(warmup_s=0.0)
    answer = child.ask({**ask, **vars(policy)}, 60)
    assert len(answer["times"]) == 7
    assert fault(answer["times"], policy) == ""
    # A product of 81 numbers takes well under a microsecond, so that many are timed at once.
    assert answer["calls"] > 16
    assert min(answer["times"]) * answer["calls"] > 1e-5
    slow = {**ask, "m": 1000, "n": 1000, "repeats": 50_000, "at_least": 3, "batch_s": 0, "warmup_s": 0}
    assert len(child.ask({**slow, "limit_s": 0}, 60)["times"]) == 3
    start = time.monotonic()
    answer = child.ask({**slow, "limit_s": 0.05}, 60)
    assert 3 < len(answer["times"]) < 50_000
    assert 0.05 < sum(answer["times"]) < time.monotonic() - start


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kernel": "lu"}, "there is no kernel lu"),
        ({"m": 0}, "m is not a whole number"),
        ({"m": 2.5}, "m is not a whole number"),
        ({"kernel": "mm"}, "the request has no number k"),
        ({"kernel": "mc", "r": 7}, "the window r does not fit"),
        ({"m": 1e6, "n": 1e6}, "out of memory"),
    ],
)
def test_a_request_that_cannot_be_met_is_answered(served: tuple[str, Child, Path], change: dict[str, object], said: str) -> None:
    _, child, _ = served
    starts = child.starts
    answer = child.ask({"kernel": "mv", "m": 5, "n": 5, "d1": 1.0, "threads": 1, "seed": 0, **ONCE, "dump": 0} | change, 60)
    assert answer["status"] == "run_error"
    assert said in answer["error"]
    assert child.ask({"kernel": "ping"}, 10)["status"] == "ok"
    assert child.starts == starts


def test_ublas_has_one_thread(served: tuple[str, Child, Path]) -> None:
    library, child, _ = served
    answer = child.ask({"kernel": "mv", "m": 5, "n": 5, "d1": 1.0, "threads": 2, "seed": 0, **ONCE, "dump": 0}, 60)
    assert answer["status"] == ("ok" if LIBRARIES[library].threads else "run_error")


@pytest.mark.parametrize("line", ["", "{", "nonsense", '{"kernel": "mv", "m": }', '{"id": 4, "kernel": "mv'])
def test_a_line_that_is_no_request_gets_an_answer(program: Callable[[str], Path], line: str, tmp_path: Path) -> None:
    command = [str(program("boost")), str(tmp_path / "dump")]
    done = subprocess.run(command, input=f'{line}\n{{"id": 7, "kernel": "ping"}}\n', capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    assert '"status": "run_error"' in first
    assert second == '{"id": 7, "status": "ok"}'


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_a_killed_caller_leaves_no_program_running(program: Callable[[str], Path], tmp_path: Path) -> None:
    code = f"""
from workbench.measure.isolation import Child
child = Child([{str(program("boost"))!r}, {str(tmp_path / "dump")!r}])
child.ask({{"kernel": "ping"}}, 30)
print(child.pid, flush=True)
child.ask({{"kernel": "mv", "m": 1000, "n": 1000, "d1": 1.0, "threads": 1, "seed": 0, **{ONCE!r}, "dump": 0, "warmup_s": 0, "batch_s": 1e9}}, 600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        pid = int(caller.stdout.readline())
        time.sleep(0.3)
        assert Path(f"/proc/{pid}").exists()
        caller.send_signal(signal.SIGKILL)
    end = time.monotonic() + 10
    while time.monotonic() < end and Path(f"/proc/{pid}").exists():
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()
