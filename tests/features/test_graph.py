"""Graphs of loop nests: by hand, what restriction keeps, and batches for DGL."""

from __future__ import annotations

import sys

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from workbench.errors import MissingPackage, UsageError
from workbench.features.graph import KINDS, Graph, ast_graph, to_dgl
from workbench.loopnest import Loop, LoopNest

# for i: for j: ..., for k: ...; for l: ...
GRAPH = Graph(("i", "j", "k", "l"), (-1, 0, 0, -1))


def pairs(graph: Graph) -> set[tuple[str, str]]:
    """Edges by the names of their ends."""
    names = ["root", *(f"for {name}" for name in graph.loops), *graph.loops]
    return {(names[start], names[end]) for start, end in graph.edges.T}


def test_by_hand() -> None:
    assert [KINDS[kind] for kind in GRAPH.kinds] == ["root", *["for"] * 4, *["iterval"] * 4]
    control = {("root", "for i"), ("for i", "for j"), ("for i", "for k"), ("root", "for l")}
    assert pairs(GRAPH) == control | {(f"for {name}", name) for name in "ijkl"}
    assert GRAPH.size == 9
    assert GRAPH.itervals == slice(5, 9)
    assert GRAPH.adjacency.sum() == 8
    assert np.argwhere(GRAPH.adjacency).tolist() == sorted(GRAPH.edges.T.tolist())
    loops = tuple(Loop(name, parent, 2) for name, parent in zip(GRAPH.loops, GRAPH.parents, strict=True))
    assert ast_graph(LoopNest(1, loops, (), ())) == GRAPH


def test_restriction_by_hand() -> None:
    assert GRAPH.restricted([True, False, True, True]) == Graph(("i", "k", "l"), (-1, 0, -1))
    assert GRAPH.restricted([False, True, True, False]) == Graph(("j", "k"), (-1, -1))
    chain = Graph(("a", "b", "c", "d"), (-1, 0, 1, 2))
    assert chain.restricted([True, False, False, True]) == Graph(("a", "d"), (-1, 0))
    assert GRAPH.restricted([False] * 4) == Graph((), ())
    assert Graph((), ()).edges.shape == (2, 0)


@given(st.data())
def test_restriction_keeps_what_is_inside_what(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    graph = Graph(tuple(f"l{i}" for i in range(count)), tuple(data.draw(st.integers(-1, i - 1)) for i in range(count)))

    def around(graph: Graph) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name, parent in zip(graph.loops, graph.parents, strict=True):
            found[name] = found[graph.loops[parent]] | {graph.loops[parent]} if parent >= 0 else set()
        return found

    stays = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    left = {name for name, stay in zip(graph.loops, stays, strict=True) if stay}
    assert around(graph.restricted(stays)) == {name: outer & left for name, outer in around(graph).items() if name in left}
    assert graph.restricted([True] * count) == graph


def test_a_batch_for_dgl() -> None:
    vectors = np.arange(1, 25, dtype=np.float32).reshape(2, 4, 3)
    present = np.array([[True, False, True, True], [True, True, True, True]])
    batch = to_dgl(GRAPH, vectors, present)
    assert batch.batch_size == 2
    assert batch.batch_num_nodes().tolist() == [9, 9]
    assert batch.batch_num_edges().tolist() == [8, 8]
    start, end = (side.numpy() for side in batch.edges())
    np.testing.assert_array_equal(np.stack([start, end]), np.concatenate([GRAPH.edges, GRAPH.edges + 9], axis=1))
    features = batch.ndata["feature"].numpy().reshape(2, 9, 3)
    assert not features[:, :5].any()
    np.testing.assert_array_equal(features[:, GRAPH.itervals], vectors * present[..., None])
    np.testing.assert_array_equal(batch.ndata["kind"].numpy(), np.tile(GRAPH.kinds, 2))
    there = batch.ndata["present"].numpy().reshape(2, 9)
    np.testing.assert_array_equal(there, np.concatenate([np.ones((2, 1)), present, present], axis=1))

    # A sum over incoming edges is the product with the adjacency.
    import dgl.function as messages

    batch.ndata["sent"] = batch.nodes()[:, None].float()
    batch.update_all(messages.copy_u("sent", "m"), messages.sum("m", "got"))
    sent = np.arange(18, dtype=np.float32).reshape(2, 9)
    np.testing.assert_array_equal(batch.ndata["got"].numpy().reshape(2, 9), sent @ GRAPH.adjacency)
    assert to_dgl(GRAPH, vectors).ndata["present"].all()


def test_a_graph_needs_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(MissingPackage, match="a graph for DGL needs the package 'dgl', which is not installed; run: pip install dgl"):
        to_dgl(GRAPH, np.zeros((1, 4, 3)))


def test_what_is_no_graph() -> None:
    with pytest.raises(UsageError, match="loop 'b' at 1 cannot be inside loop 1"):
        Graph(("a", "b"), (-1, 1))
    with pytest.raises(UsageError, match="1 loops and 2 parents"):
        Graph(("a",), (-1, 0))
    with pytest.raises(UsageError, match=r"a mask of shape \(3,\) for a graph of 4 loops"):
        GRAPH.restricted([True] * 3)
    with pytest.raises(UsageError, match=r"vectors of shape \(1, 3, 3\) for a graph of 4 loops"):
        to_dgl(GRAPH, np.zeros((1, 3, 3)))
    with pytest.raises(UsageError, match=r"a mask of shape \(5,\) for 1 graphs of 4 loops"):
        to_dgl(GRAPH, np.zeros((1, 4, 3)), [True] * 5)
