"""Loop context vectors: numbers by hand, what holds for every nest, and streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.errors import SpaceError, UsageError
from workbench.features.loops import LoopVectors, context_vectors
from workbench.kernels import kernel
from workbench.loopnest import ANNOTATIONS, Access, Buffer, Loop, LoopNest, NestBatch, Statement

HEAD = ("length", "nest_level", "topdown", "bottomup")
TOUCH = ("stride", "mod", "count", "reuse", "thread_count", "thread_reuse")


def by_hand() -> LoopNest:
    """Blocks of 8 threads fetch numbers together, a run of 2 or of 4 each, and sum up some of what they fetched."""
    run = np.array([2, 4])
    loops = (
        Loop("block", -1, 5, "blockIdx.x"),
        Loop("thread", 0, 8, "threadIdx.x"),
        Loop("fetch.thread", 1, 8, "threadIdx.x"),
        Loop("fetch.run", 2, run),
        Loop("sum", 1, 6),
        Loop("tail", 0, 7, "unroll"),
    )
    fetch = (
        Access("a", False, (16, 0, run, 1), (-1, -1, -1, -1)),
        Access("shared", True, (0, 0, run, 1), (-1, -1, -1, -1)),
    )
    # The row of what was fetched stays for three iterations; every thread has a sum of its own.
    total = Access("sums", False, (0, 1, 0), (-1, -1, -1))
    add = (total, Access("shared", False, (0, 1, 0), (-1, -1, 3)), Access("sums", True, total.strides, total.mods))
    statements = (Statement("fetch", 3, 0, 0, 0, fetch), Statement("add", 4, 1, 2, 3, add))
    buffers = (Buffer("a", "global", (80,)), Buffer("shared", "shared", (16,)), Buffer("sums", "local", (1,)))
    return LoopNest(2, loops, buffers, statements)


def test_vectors_by_hand() -> None:
    nest = by_hand()
    vectors = context_vectors(NestBatch(2, ((np.array([1, 0]), nest),)))
    touched = ("fetch.a", "fetch.shared", "add.sums", "add.shared")
    columns = (*HEAD, *ANNOTATIONS, "add", "mul", "div", *(f"{buffer}.{number}" for buffer in touched for number in TOUCH))
    assert vectors.dtype == np.float32
    assert vectors.shape == (2, 6, len(columns)) == (2, 6, 18 + 24)
    for row, n in ((1, 2), (0, 4)):
        table = {
            (loop, column): float(value)
            for loop, values in zip(nest.names, vectors[row], strict=True)
            for column, value in zip(columns, values, strict=True)
            if value
        }
        expected: dict[tuple[str, str], float] = {}

        def loop(name: str, annotation: str, length: int, level: int, topdown: int, bottomup: int, into: dict[tuple[str, str], float] = expected) -> None:
            into |= {(name, annotation): 1, **{(name, column): value for column, value in zip(HEAD, (length, level, topdown, bottomup), strict=True)}}

        # Threads that fetch are those of the block: 5 x 8 of them, whose runs are n long. From the inside the longer statement counts.
        loop("block", "blockIdx.x", 5, 1, 5, 5 * 8 * 6)
        loop("thread", "threadIdx.x", 8, 2, 40, 8 * 6)
        loop("fetch.thread", "threadIdx.x", 8, 3, 40, 8 * n)
        loop("fetch.run", "none", n, 4, 40 * n, n)
        loop("sum", "none", 6, 3, 240, 6)
        loop("tail", "unroll", 7, 2, 35, -1)
        expected |= {("sum", "add"): 1, ("sum", "mul"): 2, ("sum", "div"): 3}

        def touch(name: str, buffer: str, *numbers: int, into: dict[tuple[str, str], float] = expected) -> None:
            into |= {(name, f"{buffer}.{column}"): value for column, value in zip(TOUCH, numbers, strict=True) if value}

        touch("fetch.run", "fetch.a", 1, -1, n, 1, 0, 0)
        touch("fetch.thread", "fetch.a", n, -1, 8 * n, 1, 8, 1)
        touch("thread", "fetch.a", 0, -1, 8 * n, 1, 8, 1)
        touch("block", "fetch.a", 16, -1, 40 * n, 1, 5, 1)
        touch("fetch.run", "fetch.shared", 1, -1, n, 1, 0, 0)
        touch("fetch.thread", "fetch.shared", n, -1, 8 * n, 1, 8, 1)
        touch("thread", "fetch.shared", 0, -1, 8 * n, 1, 8, 1)
        touch("block", "fetch.shared", 0, -1, 8 * n, 5, 1, 5)
        touch("sum", "add.sums", 0, -1, 1, 6, 0, 0)
        touch("thread", "add.sums", 1, -1, 8, 6, 8, 1)
        touch("block", "add.sums", 0, -1, 8, 30, 1, 5)
        # Six iterations stay three at each of two places.
        touch("sum", "add.shared", 0, 3, 2, 3, 0, 0)
        touch("thread", "add.shared", 1, -1, 16, 3, 8, 1)
        touch("block", "add.shared", 0, -1, 16, 15, 1, 5)
        assert table == expected


def vectors_of(name: str, space: str, **params: Any) -> LoopVectors:
    found = kernel(name)
    shape = {"n": 2, "ci": 8, "h": 10, "w": 12, "co": 12, "kh": 3, "kw": 3, "stride": 1, "padding": 1, **params}
    if name.startswith("conv1d"):
        shape = {key: value for key, value in shape.items() if key not in ("h", "kh")}
    return LoopVectors(found, found.workload(shape), space)


KINDS = ("conv2d", "conv1d", "conv1d_transpose", "conv2d_transpose", "conv2d_winograd")
each_space = pytest.mark.parametrize(("name", "space"), [(name, space) for name in KINDS for space in ("workbench-cpu", "workbench-gpu")])


@each_space
def test_what_holds_for_every_nest(name: str, space: str) -> None:
    vectors = vectors_of(name, space, stride=2 if "transpose" in name else 1)
    indices = vectors.kernel.space(vectors.workload, space).sample(64, 0)
    table = vectors.of(indices)
    assert table.shape == (64, len(vectors.nodes), len(vectors.columns))
    at = {column: i for i, column in enumerate(vectors.columns)}
    for places, nest in vectors.kernel.loop_nest(vectors.workload, indices, space).parts:
        for loop, node in enumerate(nest.names):
            numbers = table[places, vectors.nodes.index(node)]
            np.testing.assert_array_equal(numbers[:, at["length"]], nest.loops[loop].extent)
            np.testing.assert_array_equal(numbers[:, at[nest.loops[loop].annotation]], 1)
            np.testing.assert_array_equal(numbers[:, len(HEAD) : len(HEAD) + len(ANNOTATIONS)].sum(axis=1), 1)
            # What is inside the loop is touched, and count times reuse is how often.
            products = []
            for column in [column for column in at if column.endswith(".count")]:
                statement, _, buffer = column.removesuffix(".count").partition(".")
                count, reuse = numbers[:, at[column]], numbers[:, at[f"{statement}.{buffer}.reuse"]]
                inside = [part for part in nest.statements if part.name == statement and loop in nest.paths[part.loop]]
                assert (count > 0).all() if inside else (count == 0).all()
                if inside:
                    products.append(count * reuse)
            np.testing.assert_allclose(np.max(products, axis=0), numbers[:, at["bottomup"]], rtol=1e-6)
        # A loop that the structure does not have has no numbers.
        absent = [i for i, node in enumerate(vectors.nodes) if node not in nest.names]
        assert not table[np.ix_(places, absent)].any()


@pytest.mark.parametrize(("name", "space"), [("conv2d", "workbench-cpu"), ("conv2d_transpose", "workbench-gpu")])
def test_a_stream_gives_all_vectors(name: str, space: str) -> None:
    vectors = vectors_of(name, space)
    indices = vectors.kernel.space(vectors.workload, space).sample(5_000, 1) if space == "workbench-gpu" else np.arange(5_000)
    whole = context_vectors(vectors.kernel.loop_nest(vectors.workload, indices, space))
    np.testing.assert_array_equal(vectors.of(indices), whole)
    seen: list[int] = []
    for places, structure, piece in vectors.stream(indices, rows=300):
        assert 0 < len(places) == len(piece) <= 300
        part, _ = vectors.kernel.loop_nest(vectors.workload, indices[places], space).parts[structure]
        assert len(part) == len(places)
        np.testing.assert_array_equal(piece, whole[places])
        seen += places.tolist()
    assert sorted(seen) == list(range(5_000))


def test_a_batch_does_not_change_a_vector() -> None:
    vectors = vectors_of("conv2d", "workbench-cpu")
    indices = vectors.kernel.space(vectors.workload, "workbench-cpu").sample(20, 2)
    whole = vectors.of(indices)
    for place in range(0, 20, 3):
        np.testing.assert_array_equal(vectors.of(indices[place : place + 1])[0], whole[place])
    assert vectors.of(indices[:0]).shape == (0, *whole.shape[1:])


def test_what_has_no_vectors() -> None:
    with pytest.raises(UsageError, match="the space 'autotvm' of kernel 'conv2d' have no loop nests"):
        vectors_of("conv2d", "autotvm")
    vectors = vectors_of("conv2d", "workbench-gpu")
    with pytest.raises(SpaceError, match="index -1 is out of range"):
        vectors.of([-1])
    with pytest.raises(UsageError, match="at least one row, not 0"):
        next(vectors.stream([0], rows=0))
