"""The FFT of variant selection in Halide: a two-dimensional forward transform, complex to complex, by Stockham's algorithm in radix 4 and 2.

Each pass transforms the columns of what it is given, vectorised across columns, and hands its result on transposed; two passes make the two dimensions. A pass
is a chain of stages. A stage of radix R, after stages of S points together, turns the N values in[x, i] into

    out[x, m, r, q] = sum over k of in[x, q S + m + k N / R] exp(-2 pi i k m / (R S)) exp(-2 pi i k r / R)

where m < S, r < R, q < N / (R S), and where m + S r + R S q counts the values for the next stage. Their order in memory is that of this count, so the next
stage reads runs; no permutation is needed. The loop over r is unrolled: all R outputs then share the loads and the additions of one butterfly.

The knobs are schedule only: every configuration computes the same numbers. A call transforms a batch of images, one after the other: a single small transform
takes less time than the call itself, about 1 us.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.kernels.halide.base import HalideProblem, Pipeline
from workbench.schema import Value

if TYPE_CHECKING:
    import halide as hl

__all__ = ["FFT", "radices"]

Complex = tuple[Any, Any]

POINTS = 2**15  # of a batch: its input and output, 256 KiB each, stay in the second cache of a core


def radices(n: int) -> tuple[int, ...]:
    """Radices of the stages of a transform of n = 2^p points: fours, and a two at the end where p is odd."""
    power = n.bit_length() - 1
    return (4,) * (power // 2) + (2,) * (power % 2)


@dataclass(frozen=True)
class _Stage:
    """A stage of a pass: its function of (x, m, r, q, image), the radix R, the number S of points that stages before it have put together, and N / (R S)."""

    func: hl.Func
    radix: int
    points: int
    blocks: int

    def __call__(self, x: Any, run: Any, block: Any, image: Any) -> Complex:
        """Value number `run` + R S `block`, `run` < R S."""
        value = self.func[x, run % self.points, run / self.points, block, image]
        return value[0], value[1]


def _times(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _plus(a: Complex, b: Complex) -> Complex:
    return a[0] + b[0], a[1] + b[1]


def _minus(a: Complex, b: Complex) -> Complex:
    return a[0] - b[0], a[1] - b[1]


def _butterfly(v: list[Complex]) -> list[Complex]:
    """The discrete Fourier transform of 2 or 4 values."""
    if len(v) == 2:
        return [_plus(*v), _minus(*v)]
    even, odd, low, high = _plus(v[0], v[2]), _plus(v[1], v[3]), _minus(v[0], v[2]), _minus(v[1], v[3])
    turned = (high[1], -high[0])  # times -i
    return [_plus(even, odd), _plus(low, turned), _minus(even, odd), _minus(low, turned)]


class FFT(HalideProblem):
    """Transform of n x n images of normally distributed complex numbers in single precision, drawn with `seed`; n is a power of two, at least 4."""

    tolerance = 1e-5

    def __init__(self, n: int, seed: int = 0) -> None:
        import halide as hl

        self.n = n
        self.runs = max(1, POINTS // n**2)
        self.images = np.random.default_rng(seed).standard_normal((2, self.runs, n, n)).astype(np.float32)
        self.inputs = (hl.Buffer(self.images[0]), hl.Buffer(self.images[1]))
        self.results = (np.zeros((self.runs, n, n), np.float32), np.zeros((self.runs, n, n), np.float32))
        self._twiddles = {(radix, points): _twiddles(radix, points) for radix, points in _steps(n) if points > 1}

    def _pass(self, name: str, source: Callable[[Any, Any, Any], Complex]) -> list[_Stage]:
        """The stages that transform source(x, i, image) along i."""
        import halide as hl

        stages: list[_Stage] = []
        for radix, points in _steps(self.n):
            x, m, r, q, image = map(hl.Var, ("x", "m", "r", "q", "image"))
            blocks = self.n // (radix * points)
            values = [stages[-1](x, m, q + k * blocks, image) if stages else source(x, q + k * blocks, image) for k in range(radix)]
            if points > 1:
                real, imaginary = self._twiddles[radix, points]
                values = [values[0]] + [_times(value, (real[m, k], imaginary[m, k])) for k, value in enumerate(values) if k]
            outputs = _butterfly(values)
            func = hl.Func(f"{name}_{points}")
            func[x, m, r, q, image] = tuple(hl.mux(r, list(parts)) for parts in zip(*outputs, strict=True))
            stages.append(_Stage(func, radix, points, blocks))
        return stages

    def _define(self) -> tuple[tuple[hl.ImageParam, ...], list[_Stage], hl.Func, list[_Stage], hl.Func]:
        import halide as hl

        x, y, image = map(hl.Var, ("x", "y", "image"))
        inputs = (hl.ImageParam(hl.Float(32), 3, "real"), hl.ImageParam(hl.Float(32), 3, "imaginary"))
        for part in inputs:
            for dimension, extent in enumerate((self.n, self.n, self.runs)):
                part.dim(dimension).set_bounds(0, extent)
        first = self._pass("first", lambda column, i, image: (inputs[0][column, i, image], inputs[1][column, i, image]))
        transposed = hl.Func("transposed")
        transposed[x, y, image] = first[-1](y, x, 0, image)
        second = self._pass("second", lambda column, i, image: (transposed[column, i, image][0], transposed[column, i, image][1]))
        output = hl.Func("output")
        output[x, y, image] = second[-1](y, x, 0, image)
        output.bound(x, 0, self.n).bound(y, 0, self.n).bound(image, 0, self.runs)
        return inputs, first, transposed, second, output

    def define(self) -> Pipeline:
        """See `HalideProblem.define`."""
        inputs, _, _, _, output = self._define()
        estimates = [(0, self.n), (0, self.n), (0, self.runs)]
        for part in inputs:
            part.set_estimates(estimates)
        output.set_estimates(estimates)
        return Pipeline(output, inputs)

    def schedule(self, config: Mapping[str, Value]) -> Pipeline:
        """The schedule of nine knobs.

        group1, group2: columns that a task of the first and second pass takes through all stages; vector1, vector2: columns of a vector within them;
        unroll1, unroll2: butterflies side by side; vector_out: width of the copies that transpose; transpose: whether the first transpose is stored (1) or each
        read of the second pass is a gather (0); parallel: nothing (0), the tasks of a pass (1) or the images (2).
        """
        inputs, first, transposed, second, output = self._define()
        image = output.args()[2]
        knob = {name: value for name, value in config.items() if isinstance(value, int)}
        for stages, number in ((first, 1), (second, 2)):
            tile = _Tile(*(knob[f"{name}{number}"] for name in ("group", "vector", "unroll")))
            tile.schedule(stages, output, image, parallel=knob["parallel"] == 1)
        if knob["transpose"]:
            transposed.compute_at(output, image)
        for func in (transposed, output)[1 - knob["transpose"] :]:
            if knob["vector_out"] > 1:
                func.vectorize(func.args()[0], knob["vector_out"])
        if knob["parallel"] == 2:
            output.parallel(image)
        return Pipeline(output, inputs)

    @cached_property
    def reference(self) -> np.ndarray:
        """The result by numpy in double precision, [runs, n, n]."""
        return np.fft.fft2(self.images[0].astype(np.float64) + 1j * self.images[1])

    def error(self) -> float:
        """See `Problem.error`."""
        return float(np.abs(self.results[0] + 1j * self.results[1] - self.reference).max() / np.abs(self.reference).max())


def _steps(n: int) -> list[tuple[int, int]]:
    """Radix of each stage, and the points put together before it."""
    steps, points = [], 1
    for radix in radices(n):
        steps.append((radix, points))
        points *= radix
    return steps


def _twiddles(radix: int, points: int) -> tuple[hl.Buffer, hl.Buffer]:
    """exp(-2 pi i k m / (radix points)) as buffers of (m, k), computed in double precision."""
    import halide as hl

    angle = -2 * np.pi * np.arange(radix)[:, None] * np.arange(points) / (radix * points)
    return hl.Buffer(np.cos(angle).astype(np.float32)), hl.Buffer(np.sin(angle).astype(np.float32))


@dataclass(frozen=True)
class _Tile:
    """How a pass goes over its columns: `group` of them through all stages, `vector` at a time, with `unroll` butterflies side by side."""

    group: int
    vector: int
    unroll: int

    def schedule(self, stages: list[_Stage], output: hl.Func, image: hl.Var, *, parallel: bool) -> None:
        """Schedule the stages of a pass: the last is computed for each image of the output, those before it for each task of the last."""
        import halide as hl

        last = stages[-1].func
        task, column, lane = map(hl.Var, ("task", "column", "lane"))
        for stage in stages:
            func = stage.func
            x, m, r, q, _ = func.args()
            if func is last:
                func.compute_at(output, image).split(x, task, column, self.group).split(column, column, lane, self.vector)
                func.reorder(lane, r, column, m, q, task)
            else:
                func.compute_at(last, task).split(x, column, lane, self.vector).reorder(lane, r, column, m, q)
            # Loops of known extent unroll without a remainder. Only here, as Mullapudi2016 refuses bounds of any function but the output.
            func.bound(m, 0, stage.points).bound(r, 0, stage.radix).bound(q, 0, stage.blocks)
            func.unroll(r)
            if self.vector > 1:
                func.vectorize(lane)
            # Butterflies to spare are along the longer of m and q.
            var, extent = (m, stage.points) if stage.points >= stage.blocks else (q, stage.blocks)
            if min(self.unroll, extent) > 1:
                func.unroll(var, min(self.unroll, extent))
        if parallel:
            last.parallel(task)
