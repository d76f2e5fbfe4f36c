"""Super-graphs: what is left of one without its null slots is the graph of the nest, with the same vectors, for every kind on both targets."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from workbench.errors import SpaceError, UsageError
from workbench.features.graph import ast_graph, to_dgl
from workbench.features.loops import HEAD, TOUCH, LoopVectors, context_vectors, touched
from workbench.features.supergraph import COLUMNS, SUPERGRAPH, SuperGraphs, slots, touches
from workbench.kernels import kernel
from workbench.loopnest import Access, Buffer, Loop, LoopNest, NestBatch, Statement
from workbench.schema import Workload

KINDS = ("conv2d", "depthwise_conv2d", "conv1d", "conv1d_transpose", "conv2d_transpose", "conv2d_winograd")
CASES = [(name, space) for name in KINDS for space in ("workbench-cpu", "workbench-gpu")]
RECORDED = [("flextensor_conv2d", "flextensor"), ("convolution", "convolution"), ("convolution", "convolution_milo")]
each_case = pytest.mark.parametrize(("name", "space"), CASES)


def of(name: str, **params: Any) -> Workload:
    shape = {"n": 2, "ci": 8, "h": 10, "w": 12, "co": 8, "kh": 3, "kw": 3, "stride": 1, "padding": 1, **params}
    if name.startswith("conv1d"):
        shape = {key: value for key, value in shape.items() if key not in ("h", "kh")}
    return kernel(name).workload(shape)


def check_round_trip(workload: Workload, space: str, indices: np.ndarray) -> None:
    found = kernel(workload.kernel)
    graphs = SuperGraphs(found, workload, space)
    features, there = graphs.of(indices)
    assert features.shape == (len(indices), len(SUPERGRAPH.loops), len(COLUMNS))
    assert not features[~there].any()
    nests = found.loop_nest(workload, indices, space)
    places = touches(nests)
    for structure, (rows, nest) in enumerate(nests.parts):
        slot = slots(nest)
        assert len(set(slot.values())) == len(slot) == graphs.present[structure].sum()
        # The same edges: every loop is in the slot of the loop around it.
        left = graphs.ast(structure)
        around = {name: left.loops[parent] if parent >= 0 else "" for name, parent in zip(left.loops, left.parents, strict=True)}
        assert around == {SUPERGRAPH.loops[slot[loop.name]]: SUPERGRAPH.loops[slot[nest.names[loop.parent]]] if loop.parent >= 0 else "" for loop in nest.loops}
        assert left.edges.shape == ast_graph(nest).edges.shape
        order = [left.loops.index(SUPERGRAPH.loops[slot[name]]) for name in nest.names]
        # The same vectors, with the buffers in the places that they have for all; no loop has two in one.
        batch = NestBatch(nest.batch, ((np.arange(nest.batch), nest),))
        vectors = context_vectors(batch)
        expected = np.zeros((nest.batch, len(nest.loops), len(COLUMNS)), dtype=np.float32)
        expected[..., : len(HEAD)] = vectors[..., : len(HEAD)]
        for own, name in enumerate(touched(batch)):
            start, place = len(HEAD) + len(TOUCH) * own, len(HEAD) + len(TOUCH) * places[name]
            expected[..., place : place + len(TOUCH)] += vectors[..., start : start + len(TOUCH)]
        for loop in range(len(nest.loops)):
            inside = {f"{part.name}.{access.buffer}" for part in nest.statements if loop in nest.paths[part.loop] for access in part.accesses}
            assert len({places[name] for name in inside}) == len(inside)
        np.testing.assert_array_equal(features[rows][:, graphs.present[structure]][:, order], expected)
        assert (there[rows] == graphs.present[structure]).all()


def recorded(name: str) -> Workload:
    return kernel(name).workload({"w": 64, "h": 48, "kw": 5, "kh": 3}) if name == "convolution" else of(name)


@pytest.mark.parametrize(("name", "space"), RECORDED)
def test_programs_of_others_go_there_and_back(name: str, space: str) -> None:
    workload = recorded(name)
    check_round_trip(workload, space, kernel(name).space(workload, space).sample(40, 0))


@each_case
def test_without_null_slots_it_is_the_graph_of_the_nest(name: str, space: str) -> None:
    workload = of(name)
    check_round_trip(workload, space, kernel(name).space(workload, space).sample(40, 0))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_workload_goes_there_and_back(data: st.DataObject) -> None:
    name, space = data.draw(st.sampled_from(CASES))
    drawn = {key: data.draw(st.integers(*ends)) for key, ends in (("n", (1, 3)), ("ci", (1, 12)), ("h", (3, 16)), ("w", (3, 16)))}
    filters = {} if name == "conv2d_winograd" else {key: data.draw(st.integers(1, 3)) for key in ("kh", "kw", "stride")}
    channels = drawn["ci"] if name == "depthwise_conv2d" else data.draw(st.integers(1, 12))
    workload = of(name, **drawn, **filters, co=channels)
    size = kernel(name).space(workload, space).size
    check_round_trip(workload, space, np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=8))))


@pytest.mark.parametrize(
    ("kind", "name", "space"),
    [(LoopVectors, "conv2d_transpose", "workbench-gpu"), (SuperGraphs, "conv1d", "workbench-cpu"), (SuperGraphs, "conv2d", "workbench-gpu")],
)
def test_logarithms(kind: type[LoopVectors | SuperGraphs], name: str, space: str) -> None:
    """A transposed convolution has strides below 0."""
    workload = of(name, n=1, ci=2, co=2)
    # More than one chunk of the smallest.
    indices = np.arange(4_200 if name == "conv1d" else 600) % kernel(name).space(workload, space).size
    plain, logarithms = kind(kernel(name), workload, space), kind(kernel(name), workload, space, logarithms=True)
    for (places, _, numbers), (again, _, found) in zip(plain.stream(indices, 500), logarithms.stream(indices, 500), strict=True):
        np.testing.assert_array_equal(places, again)
        assert numbers.min() < 0
        np.testing.assert_allclose(found, np.sign(numbers) * np.log2(1 + np.abs(numbers)), rtol=1e-6)


def test_the_super_graph_is_a_union() -> None:
    """Every slot is some convolution's, every place for a buffer too, and one slot is one loop's of a structure."""
    used = np.zeros(len(SUPERGRAPH.loops), dtype=bool)
    columns: set[int] = set()
    for name, space in (*CASES, *RECORDED):
        graphs = SuperGraphs(kernel(name), recorded(name), space)
        used |= graphs.present.any(axis=0)
        columns |= set(touches(kernel(name).loop_nest(recorded(name), [], space)).values())
    assert used.all()
    assert len(COLUMNS) == len(HEAD) + len(TOUCH) * len(columns)
    assert len(set(SUPERGRAPH.loops)) == len(SUPERGRAPH.loops)
    # Kinds share what plays the same part: a depthwise convolution has all slots of a direct one but those of the input channels' sum.
    direct, depthwise = (SuperGraphs(kernel(name), of(name), "workbench-gpu").present[0] for name in ("conv2d", "depthwise_conv2d"))
    assert [SUPERGRAPH.loops[i] for i in np.flatnonzero(direct != depthwise)] == ["step.rc", "inner.rc"]


def test_by_hand() -> None:
    """A convolution of one output channel and row: ten outputs in two blocks of five threads, two channels at once of four."""
    workload = kernel("conv1d").workload({"n": 1, "ci": 4, "w": 12, "co": 1, "kw": 3, "stride": 1, "padding": 0})
    space = kernel("conv1d").space(workload, "workbench-gpu")
    tiles = {"tile_f": (1, 1, 1, 1), "tile_x": (2, 1, 5, 1), "tile_rc": (2, 2), "tile_rx": (1, 3)}
    index = space.index({**tiles, "auto_unroll_max_step": 0, "unroll_explicit": 0})
    features, there = SuperGraphs(kernel("conv1d"), workload, "workbench-gpu").of([index])

    def numbers(slot: str, *names: str) -> list[float]:
        return [float(features[0, SUPERGRAPH.loops.index(slot), COLUMNS.index(name)]) for name in names]

    assert numbers("block.x", "length", "nest_level", "topdown", "blockIdx.x", "threadIdx.x") == [2, 2, 2, 1, 0]
    assert numbers("thread.x", "length", "topdown", "threadIdx.x") == [5, 10, 1]
    # 2 channels of 7 elements are fetched by 5 threads, 3 each.
    assert numbers("fetch_data.run", "length", "fetch_data.target.stride", "fetch_data.target.count") == [3, 1, 3]
    # Two steps over two channels and three elements of the filter: the sum of a thread is at one place, 12 times; the filter's 6 elements of a step twice.
    assert numbers("step.rc", "length", "update.sums.count", "update.sums.reuse", "update.weight.count", "update.weight.reuse") == [2, 1, 12, 6, 2]
    assert numbers("inner.x", "length", "add", "mul", "update.data.stride") == [1, 1, 1, 0]
    absent = [SUPERGRAPH.loops[i] for i in np.flatnonzero(~there[0])]
    assert {"outer", "middle.x", "block.y", "step.ry", "pack_data.block", "around.f"} <= set(absent)
    assert not features[0, ~there[0]].any()


def test_a_batch_for_dgl() -> None:
    graphs = SuperGraphs(kernel("conv2d"), of("conv2d"), "workbench-cpu")
    indices = graphs.kernel.space(graphs.workload, graphs.space).sample(6, 0)
    features, there = graphs.of(indices)
    batch = to_dgl(SUPERGRAPH, features, there)
    assert batch.batch_size == 6
    assert batch.num_nodes() == 6 * SUPERGRAPH.size
    nodes = batch.ndata["feature"].numpy().reshape(6, SUPERGRAPH.size, len(COLUMNS))
    np.testing.assert_array_equal(nodes[:, SUPERGRAPH.itervals], features)
    # The graphs of the nests alone have the rows that are there.
    structure = int(np.flatnonzero((graphs.present == there[0]).all(axis=1))[0])
    alone = to_dgl(graphs.ast(structure), features[:1, there[0]])
    assert alone.num_nodes() == 1 + 2 * there[0].sum()


def test_a_stream_gives_all() -> None:
    graphs = SuperGraphs(kernel("conv2d"), of("conv2d", n=1), "workbench-cpu")
    indices = graphs.kernel.space(graphs.workload, graphs.space).sample(5_000, 1)
    whole, there = graphs.of(indices)
    seen: list[int] = []
    for places, structure, piece in graphs.stream(indices, rows=300):
        assert 0 < len(places) == len(piece) <= 300
        np.testing.assert_array_equal(piece, whole[places])
        assert (there[places] == graphs.present[structure]).all()
        seen += places.tolist()
    assert sorted(seen) == list(range(5_000))
    assert graphs.of(indices[:0])[0].shape == (0, *whole.shape[1:])


def test_what_has_no_super_graph() -> None:
    with pytest.raises(UsageError, match="the space 'autotvm' of kernel 'conv2d' have no loop nests"):
        SuperGraphs(kernel("conv2d"), of("conv2d"), "autotvm")
    other = LoopNest(1, (Loop("rows", -1, 3),), (Buffer("a", "global", (3,)),), (Statement("double", 0, 0, 1, 0, (Access("a", True, (1,), (-1,)),)),))
    with pytest.raises(UsageError, match="loop 'rows' has no slot in the super-graph"):
        slots(other)
    with pytest.raises(UsageError, match=r"'double\.a' has no columns in the super-graph"):
        touches(NestBatch(1, ((np.arange(1), other),)))
    graphs = SuperGraphs(kernel("conv2d"), of("conv2d"), "workbench-gpu")
    with pytest.raises(SpaceError, match="index -1 is out of range"):
        graphs.of([-1])
    with pytest.raises(UsageError, match="at least one row, not 0"):
        next(graphs.stream([0], rows=0))
