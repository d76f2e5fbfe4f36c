"""The blur of NN+C on a GPU: the pipeline of section V-C in single precision, under a schedule with the three knobs of Table IV.

The paper prints no listing of its GPU schedule; its knobs say what it does, and this is a schedule with these knobs: a thread computes `vector` columns of
`y_split` rows, which are written out one after another, so that a row of the first pass is computed once and kept for the three rows that need it; a block has
`x_tile` threads side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.schema import Value

if TYPE_CHECKING:
    import halide as hl

__all__ = ["MARGIN", "compile_object"]

# Columns and rows that the input has more than the output.
MARGIN = 2

# Compute capabilities that Halide knows by name.
_CAPABILITIES = (30, 32, 35, 50, 61, 70, 75, 80, 86)


def compile_object(config: Mapping[str, Value], arch: str, path: Path) -> None:
    """Write an object file with `int pipeline(halide_buffer_t* input, halide_buffer_t* output)`, which has the device code in it. Needs no GPU.

    The input is an image of (n + MARGIN) x (n + MARGIN) pixels, the output one of n x n: each pixel the mean of 3 x 3. Both begin at 0, and n is a multiple of
    `y_split` and of `vector` times `x_tile`; nothing checks that. Raises what Halide raises.

    Args:
        config: the knobs.
        arch: architecture whose features may be used, such as "sm_80".
        path: the file.
    """
    import halide as hl

    blurred, image = _scheduled(config)
    capability = max(known for known in _CAPABILITIES if known <= int(arch.removeprefix("sm_")))
    target = hl.Target(f"{hl.get_host_target()}-cuda-cuda_capability_{capability}-no_runtime-no_asserts-no_bounds_query")
    blurred.compile_to_object(str(path), [image], "pipeline", target)


def _scheduled(config: Mapping[str, Value]) -> tuple[hl.Func, hl.ImageParam]:
    import halide as hl

    x, y, x_i, y_i, one = map(hl.Var, ("x", "y", "x_i", "y_i", "one"))
    image = hl.ImageParam(hl.Float(32), 2, "image")
    blur_x, blur_y = hl.Func("blur_x"), hl.Func("blur_y")
    blur_x[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) / hl.f32(3)
    blur_y[x, y] = (blur_x[x, y] + blur_x[x, y + 1] + blur_x[x, y + 2]) / hl.f32(3)
    # Whole tiles: no code for tiles that overhang, and no bounds to look after.
    whole = hl.TailStrategy.RoundUp
    blur_y.compute_root().vectorize(x, config["vector"], whole).split(y, y, y_i, config["y_split"], whole).reorder(y_i, x).unroll(y_i)
    blur_y.gpu_tile(x, y, x_i, one, config["x_tile"], 1, whole)
    blur_x.store_at(blur_y, x_i).compute_at(blur_y, y_i).vectorize(x, config["vector"], whole)
    for dimension in (0, 1):
        image.dim(dimension).set_min(0)
        blur_y.output_buffer().dim(dimension).set_min(0)
    return blur_y, image
