"""The blur of NN+C, section V-C: two passes of a 3 x 3 box filter over an n x n image of whole numbers, under the schedule of the paper's listing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from workbench.kernels.halide.base import HalideProblem, Pipeline
from workbench.schema import Value

if TYPE_CHECKING:
    import halide as hl

__all__ = ["Blur"]

# The first pass computes whole vectors of s1 <= 1024 columns: it reads up to s1 - 1 columns beyond what the filter needs, on one side or the other. Of rows one
# above and one below is all.
_MARGIN = 1024 + 16


class Blur(HalideProblem):
    """Blur of an n x n image of 32-bit whole numbers from 1 to 1023, drawn with `seed`."""

    tolerance = 0.0

    def __init__(self, n: int, seed: int = 0) -> None:
        import halide as hl

        self.n = n
        self.image = np.random.default_rng(seed).integers(1, 1024, (n + 2, n + 2 * _MARGIN)).astype(np.int32)
        # C order: Halide then has x contiguous. Any other makes every load a gather.
        buffer = hl.Buffer(self.image)
        buffer.set_min([-_MARGIN, -1])
        self.inputs = (buffer,)
        self.results = (np.zeros((n, n), np.int32),)

    def _define(self) -> tuple[hl.ImageParam, hl.Func, hl.Func]:
        import halide as hl

        x, y = hl.Var("x"), hl.Var("y")
        image = hl.ImageParam(hl.Int(32), 2, "image")
        blur_x, blur_y = hl.Func("blur_x"), hl.Func("blur_y")
        blur_x[x, y] = (image[x - 1, y] + image[x, y] + image[x + 1, y]) / 3
        blur_y[x, y] = (blur_x[x, y - 1] + blur_x[x, y] + blur_x[x, y + 1]) / 3
        return image, blur_x, blur_y

    def define(self) -> Pipeline:
        """See `HalideProblem.define`."""
        image, _, blur_y = self._define()
        image.set_estimates([(-1, self.n + 2), (-1, self.n + 2)])
        blur_y.set_estimates([(0, self.n), (0, self.n)])
        return Pipeline(blur_y, (image,))

    def schedule(self, config: Mapping[str, Value]) -> Pipeline:
        """The listing of section V-C with its four split factors, knobs s1 to s4."""
        import halide as hl

        s1, s2, s3, s4 = (config[name] for name in ("s1", "s2", "s3", "s4"))
        image, blur_x, blur_y = self._define()
        x, y = blur_y.args()
        x_o, x_i, y_o, y_i, x_vo, x_vi, x_i_vo, x_i_vi = map(hl.Var, ("x_o", "x_i", "y_o", "y_i", "x_vo", "x_vi", "x_i_vo", "x_i_vi"))
        blur_x.compute_at(blur_y, x_o).split(x, x_vo, x_vi, s1).vectorize(x_vi)
        blur_y.compute_root().split(x, x_o, x_i, s2).split(y, y_o, y_i, s3).reorder(x_i, y_i, x_o, y_o)
        blur_y.split(x_i, x_i_vo, x_i_vi, s4).vectorize(x_i_vi).parallel(y_o).parallel(x_o)
        return Pipeline(blur_y, (image,))

    @cached_property
    def reference(self) -> np.ndarray:
        """The result by numpy, [n, n]."""
        seen = self.image[:, _MARGIN - 1 : _MARGIN + self.n + 1]
        rows = (seen[:, :-2] + seen[:, 1:-1] + seen[:, 2:]) // 3
        return (rows[:-2] + rows[1:-1] + rows[2:]) // 3

    def error(self) -> float:
        """See `Problem.error`; whole numbers are equal or wrong."""
        return float(np.abs(self.results[0] - self.reference).max() / self.reference.max())
