"""Loop nests of the recorded convolutions, against our own template's and against the index arithmetic of the published program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from nest_child import rows

from workbench.errors import SpaceError, UsageError
from workbench.features.loops import LoopVectors
from workbench.kernels import kernel
from workbench.kernels.recorded import YOLO
from workbench.loopnest import LoopNest, pattern
from workbench.schema import Value
from workbench.space import Split


def flextensor(layer: str, config: Mapping[str, Value]) -> LoopNest:
    found = kernel("flextensor_conv2d")
    return found.loop_nest(YOLO[layer], [found.space(YOLO[layer]).index(config)]).parts[0][1]


# yolo14: 1,024 channels of 14 x 14 to 1,024 of 7 x 7, filters of 3 x 3, stride 2.
CONFIG: dict[str, Value] = {
    "tile_f": (8, 2, 16, 4),
    "tile_y": (1, 1, 7, 1),
    "tile_x": (1, 7, 1, 1),
    "tile_c": (64, 8, 2),
    "tile_r": (1, 3, 1),
    "tile_s": (1, 1, 3),
    "unroll_max_step": 512,
    "unroll_explicit": 1,
}


def test_flextensor_by_hand() -> None:
    nest = flextensor("yolo14", CONFIG)
    extents = {loop.name: int(np.ravel(loop.extent)[0]) for loop in nest.loops}
    # Channels 64 x 8 x 2, rows of the filter 1 x 3 x 1, columns 1 x 1 x 3; the innermost of them are fetched at once, below the two outer ones.
    steps = {"step.rc": 64, "step.ry": 1, "step.rx": 1, "middle.rc": 8, "middle.ry": 3, "middle.rx": 1}
    assert {name: extents[name] for name in steps} == steps
    shapes = {buffer.name: tuple(int(np.ravel(extent)[0]) for extent in buffer.shape) for buffer in nest.buffers}
    # 128 filters of 2 channels and 1 x 3; of these channels (7 - 1) x 2 + 1 rows and (7 - 1) x 2 + 3 columns.
    assert shapes["weight.shared"] == (128, 2, 1, 3)
    assert shapes["data.shared"] == (1, 2, 13, 15)
    assert shapes["sums"] == (1, 4, 1, 1)
    # 16 x 7 threads: 768 numbers of the filters in 7 passes, 390 of the input in 4; in a pass neighbouring threads fetch neighbouring numbers.
    assert (extents["fetch_weight.run"], extents["fetch_data.run"]) == (7, 4)
    (fetch,) = [statement for statement in nest.statements if statement.name == "fetch_weight"]
    path = [nest.names[loop] for loop in nest.paths[fetch.loop]]
    assert path[9:] == [*steps, "fetch_weight.run", "fetch_weight.f", "fetch_weight.y", "fetch_weight.x"]
    load = {name: (int(np.ravel(s)[0]), int(np.ravel(m)[0])) for name, s, m in zip(path, fetch.accesses[0].strides, fetch.accesses[0].mods, strict=True)}
    # A step of 112 numbers is 18 filters (9,216 numbers of the array) and 4 numbers: one channel (9) and 1; the carry comes with the third.
    assert load["fetch_weight.run"] == (18 * 9216 + 9 + 1, 2)
    # 7 numbers are one filter and 1 number; threads along y are 7, whose last is 42 + 7, and z is 16.
    assert load["fetch_weight.f"] == (9216 + 1, 3)
    assert load["fetch_weight.y"] == (1, 3)
    assert load["middle.rc"] == (2 * 9, -1)
    assert load["step.rc"] == (16 * 9, -1)


@pytest.mark.parametrize("layer", ["yolo3", "yolo6", "yolo14"])
def test_flextensor_with_two_tiles_is_our_template(layer: str) -> None:
    """Where the middle tiles are 1, all but the order in which threads fetch is the nest of workbench-gpu."""
    theirs, ours = kernel("flextensor_conv2d"), kernel("conv2d")
    workload, twin = YOLO[layer], ours.workload(YOLO[layer].params)
    space = theirs.space(workload)
    knobs = space.decode(space.sample(2_000, 0))
    middle = np.prod([knobs[f"tile_{axis}"][:, 1] for axis in "crs"], axis=0)
    knobs = {name: values[middle == 1] for name, values in knobs.items()}
    assert len(knobs["tile_c"]) > 20
    names = {"tile_c": "tile_rc", "tile_r": "tile_ry", "tile_s": "tile_rx"}
    renamed = {names.get(name, name): values[:, [0, 2]] if name in names else values for name, values in knobs.items() if name.startswith("tile_")}
    zeros = np.zeros(len(knobs["tile_c"]), dtype=np.int64)
    indices = ours.space(twin, "workbench-gpu").encode({**renamed, "auto_unroll_max_step": zeros, "unroll_explicit": zeros})
    left = theirs.loop_nest(workload, space.encode(knobs)).parts[0][1]
    right = ours.loop_nest(twin, indices, "workbench-gpu").parts[0][1]

    def told(nest: LoopNest, row: int) -> list[Any]:
        # Without the middle loops, which do nothing, and the loops that fetch.
        def here(loop: int) -> bool:
            return not nest.names[loop].startswith(("middle", "fetch"))

        found = [(loop.name, loop.annotation, int(np.broadcast_to(loop.extent, nest.batch)[row])) for i, loop in enumerate(nest.loops) if here(i)]
        for statement in nest.statements:
            for access in statement.accesses:
                numbers = zip(nest.paths[statement.loop], access.strides, access.mods, strict=True)
                values = [tuple(int(np.broadcast_to(number, nest.batch)[row]) for number in pair) for loop, *pair in numbers if here(loop)]
                found.append((statement.name, access.buffer, access.store, values))
        return found

    for row in range(min(left.batch, 60)):
        assert told(left, row) == told(right, row)
        assert [line for line in rows(left, row) if line[0] == "buffer"] == [line for line in rows(right, row) if line[0] == "buffer"]


def test_what_did_not_run_was_too_large(expected_tables: Path) -> None:
    """The record knows nothing of this nest, and agrees with it: where a block's shared arrays are over 48 KiB, next to nothing ran."""
    found = kernel("flextensor_conv2d")
    table = pd.read_parquet(expected_tables / "titanxp_conv2d_yolo.parquet")
    over, ran = [], []
    for name, group in table[(table["line"] >= 600) & ~table["layer"].str.contains("|", regex=False)].groupby("layer"):
        space = found.space(YOLO[str(name)])
        knobs = {k.name: group[[f"{k.name}_{i}" for i in range(k.parts)] if isinstance(k, Split) else k.name].to_numpy() for k in space.knobs}
        ((_, nest),) = found.loop_nest(YOLO[str(name)], space.encode(knobs)).parts
        shared = sum(np.prod(np.broadcast_arrays(*buffer.shape), axis=0) for buffer in nest.buffers if buffer.scope == "shared")
        threads = np.prod([np.broadcast_to(loop.extent, nest.batch) for loop in nest.loops if loop.name.startswith("thread.")], axis=0)
        over.append(4 * shared[threads <= 1024] > 48 * 1024)
        ran.append(group["valid"].to_numpy()[threads <= 1024])
    too_large, valid = np.concatenate(over), np.concatenate(ran)
    assert too_large.sum() > 1_000
    assert valid[too_large].mean() < 0.01
    assert valid[~too_large].mean() > 0.9


IMAGE = {"w": 200, "h": 90, "kw": 5, "kh": 7}


def places(config: Mapping[str, Any], at: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Where the statements of Kernel Tuner's program are for numbers of blocks, threads, and iterations, as its source has it."""
    bx, by, tx, ty = (config[name] for name in ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y"))
    image_width, width = IMAGE["w"], bx * tx + IMAGE["kw"] - 1
    input_width = image_width + IMAGE["kw"] - 1
    if config["use_padding"] and bx % 32 and (width - bx) % 32:
        width += (32 - (width - bx)) & 31
    y0, x0 = at["block.y"] * by * ty, at["block.x"] * bx * tx
    i, j = at["thread.y"] + at["fetch_data.y"] * by, at["thread.x"] + at["fetch_data.x"] * bx
    row, column = at["thread.y"] + at["inner.y"] * by + at["inner.ry"], at["thread.x"] + at["inner.x"] * bx + at["inner.rx"]
    y, x = y0 + at["thread.y"] + at["write.y"] * by, x0 + at["thread.x"] + at["write.x"] * bx
    return {
        ("fetch_data", "data"): (y0 + i) * input_width + x0 + j,
        ("fetch_data", "data.shared"): i * width + j,
        ("init", "sums"): at["init.y"] * tx + at["init.x"],
        ("update", "sums"): at["inner.y"] * tx + at["inner.x"],
        ("update", "data.shared"): row * width + column,
        ("update", "data"): (y0 + row) * input_width + x0 + column,
        ("update", "weight"): at["inner.ry"] * IMAGE["kw"] + at["inner.rx"],
        ("write", "sums"): at["write.y"] * tx + at["write.x"],
        ("write", "output"): y * image_width + x,
    }


@pytest.mark.parametrize("space_name", ["convolution", "convolution_milo"])
def test_kernel_tuner_is_where_the_program_is(space_name: str) -> None:
    found = kernel("convolution")
    workload = found.workload(IMAGE)
    space = found.space(workload, space_name)
    indices = space.sample(60, 4)
    batch = found.loop_nest(workload, indices, space_name)
    assert len(batch.parts) == (2 if space_name == "convolution_milo" else 1)
    seen = 0
    for here, nest in batch.parts:
        for row, place in enumerate(here):
            config = space.config(int(indices[place]))
            extents = {loop.name: int(np.broadcast_to(loop.extent, nest.batch)[row]) for loop in nest.loops}
            assert extents["block.x"] == -(-IMAGE["w"] // (config["block_size_x"] * config["tile_size_x"]))
            assert extents["thread.y"] == config["block_size_y"]
            assert ("fetch_data.x" in extents) == config.get("use_shmem", 1)
            names = {"block.y", "block.x", "thread.y", "thread.x", *(f"{level}.{axis}" for level in ("fetch_data", "init", "inner", "write") for axis in "yx")}
            first = dict.fromkeys([*names, "inner.ry", "inner.rx"], 0)
            for statement in nest.statements:
                for access in statement.accesses:
                    for loop, stride, mod in zip(nest.paths[statement.loop], access.strides, access.mods, strict=True):
                        name = nest.names[loop]
                        gone = [places(config, {**first, name: k})[statement.name, access.buffer] for k in range(extents[name])]
                        numbers = tuple(int(np.broadcast_to(number, nest.batch)[row]) for number in (stride, mod))
                        assert numbers == pattern(np.array(gone)), (config, statement.name, access.buffer, name)
                        seen += 1
    assert seen > 60 * 50


def test_kernel_tuner_by_hand() -> None:
    """Blocks of 48 x 4 threads with 2 x 3 outputs each: 100 columns of a row (52 and 48), so 12 more make 52 a multiple of 32; 18 rows."""
    found = kernel("convolution")
    workload = found.workload(IMAGE)
    space = found.space(workload)
    config = {"block_size_x": 48, "block_size_y": 4, "filter_height": 7, "filter_width": 5, "read_only": 0, "tile_size_x": 2, "tile_size_y": 3}
    (_, nest) = found.loop_nest(workload, space.encode({name: [value, value] for name, value in {**config, "use_padding": 0}.items()}), "convolution").parts[0]
    padded = found.loop_nest(workload, [space.index({**config, "use_padding": 1})], "convolution").parts[0][1]
    shapes = [{buffer.name: tuple(int(np.ravel(extent)[0]) for extent in buffer.shape) for buffer in each.buffers} for each in (nest, padded)]
    assert [shape["data.shared"] for shape in shapes] == [(18, 100), (18, 112)]
    assert shapes[0] == {"data": (96, 204), "weight": (7, 5), "output": (90, 200), "data.shared": (18, 100), "sums": (3, 2)}
    assert [(loop.name, loop.annotation, int(np.ravel(loop.extent)[0])) for loop in nest.loops] == [
        ("block.y", "blockIdx.y", 8),
        ("block.x", "blockIdx.x", 3),
        ("thread.y", "threadIdx.y", 4),
        ("thread.x", "threadIdx.x", 48),
        ("fetch_data.y", "unroll", 5),
        ("fetch_data.x", "unroll", 3),
        ("init.y", "unroll", 3),
        ("init.x", "unroll", 2),
        ("inner.ry", "unroll", 7),
        ("inner.rx", "unroll", 5),
        ("inner.y", "unroll", 3),
        ("inner.x", "unroll", 2),
        ("write.y", "unroll", 3),
        ("write.x", "unroll", 2),
    ]


def test_vectors_of_the_recorded_kernels() -> None:
    """Every space with a nest has loop context vectors."""
    image, yolo = kernel("convolution"), kernel("flextensor_conv2d")
    for found, workload, space_name in (
        (image, image.workload(IMAGE), "convolution"),
        (image, image.workload(IMAGE), "convolution_milo"),
        (yolo, YOLO["yolo6"], "flextensor"),
    ):
        vectors = LoopVectors(found, workload, space_name)
        table = vectors.of(found.space(workload, space_name).sample(40, 0))
        assert table.shape == (40, len(vectors.nodes), len(vectors.columns))
        assert np.isfinite(table).all()
        assert len(np.unique(table.reshape(40, -1), axis=0)) > 30


def test_what_has_no_nest() -> None:
    gemm = kernel("gemm")
    with pytest.raises(UsageError, match=r"the space 'clblast' of kernel 'gemm' have no loop nests$"):
        gemm.loop_nest(gemm.workload({"m": 8, "n": 8, "k": 8}), [0])
    image = kernel("convolution")
    with pytest.raises(UsageError, match="w is 0"):
        image.loop_nest(image.workload({**IMAGE, "w": 0}), [0])
    with pytest.raises(SpaceError, match="index 16896 is out of range"):
        image.loop_nest(image.workload(IMAGE), [16_896])
    yolo = kernel("flextensor_conv2d")
    with pytest.raises(UsageError, match="no loop nest for 2 groups"):
        yolo.loop_nest(yolo.workload({**YOLO["yolo6"].params, "groups": 2}), [0])
