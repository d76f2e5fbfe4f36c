"""Graphs of loop nests, after MetaTune (section 3, Figure 2): a root, a node `for` of each loop, and a node `iterval` that carries the loop's context vector.

Edges go from the root to the loops that are in none, from each loop to those directly in it, and from each loop to its `iterval`. Root and `for` nodes have no
features: they say where the vectors belong.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import MissingPackage, UsageError
from workbench.loopnest import LoopNest

if TYPE_CHECKING:
    import dgl

__all__ = ["KINDS", "Graph", "ast_graph", "to_dgl"]

# What a node is; its number is the position here.
KINDS = ("root", "for", "iterval")


@dataclass(frozen=True)
class Graph:
    """The graph of a tree of loops. Its nodes are the root, then the `for` nodes, then the `iterval` nodes, each in the order of the loops.

    Attributes:
        loops: names.
        parents: for each loop the position of the one around it, -1 where there is none.

    Raises:
        UsageError: names and parents are not as many, or a loop stands before the one around it.
    """

    loops: tuple[str, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.loops) != len(self.parents):
            raise UsageError(f"a graph has {len(self.loops)} loops and {len(self.parents)} parents; each loop has one")
        for place, (name, parent) in enumerate(zip(self.loops, self.parents, strict=True)):
            if not -1 <= parent < place:
                raise UsageError(f"loop {name!r} at {place} cannot be inside loop {parent}: loops stand after those around them")

    @property
    def size(self) -> int:
        """Number of nodes."""
        return 1 + 2 * len(self.loops)

    @cached_property
    def kinds(self) -> NDArray[np.int8]:
        """What each node is [nodes]: positions in KINDS."""
        return np.repeat(np.arange(3, dtype=np.int8), [1, len(self.loops), len(self.loops)])

    @property
    def itervals(self) -> slice:
        """Where the `iterval` nodes stand among the nodes."""
        return slice(1 + len(self.loops), self.size)

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """From and to of every edge [2, 2 loops]: those of the control flow, then those from each `for` to its `iterval`."""
        loops = np.arange(1, 1 + len(self.loops))
        return np.array([np.r_[np.array(self.parents, dtype=np.int64) + 1, loops], np.r_[loops, loops + len(self.loops)]], dtype=np.int64)

    @cached_property
    def adjacency(self) -> NDArray[np.float32]:
        """1 where an edge goes from a node to another, [nodes from, nodes to]. A model that passes messages both ways adds the transpose."""
        found = np.zeros((self.size, self.size), dtype=np.float32)
        found[tuple(self.edges)] = 1
        return found

    def restricted(self, present: ArrayLike) -> Graph:
        """The graph of some loops alone: each is inside the nearest loop around it that is one of them.

        Args:
            present: whether each loop stays [loops].

        Raises:
            UsageError: not one for each loop.
        """
        stays = np.asarray(present, dtype=bool)
        if stays.shape != (len(self.loops),):
            raise UsageError(f"a mask of shape {stays.shape} for a graph of {len(self.loops)} loops; it says for each of them whether it stays")
        places, around = np.cumsum(stays) - 1, np.full(len(self.loops), -1)
        for loop, parent in enumerate(self.parents):
            if parent >= 0:
                around[loop] = places[parent] if stays[parent] else around[parent]
        return Graph(tuple(np.array(self.loops)[stays].tolist()), tuple(around[stays].tolist()))


def ast_graph(nest: LoopNest) -> Graph:
    """The graph of a nest: that of every configuration of its structure."""
    return Graph(nest.names, tuple(loop.parent for loop in nest.loops))


def to_dgl(graph: Graph, vectors: ArrayLike, present: Sequence[bool] | NDArray[np.bool_] | None = None) -> dgl.DGLGraph:
    """A batch of graphs for DGL.

    Args:
        graph: that of every member.
        vectors: features of the `iterval` nodes [members, loops, columns], copied.
        present: which loops are there, [loops], or [members, loops] where members differ; None: all.

    Returns:
        The batch, with node data `feature` [nodes, columns] float32, zeros but for the `iterval` nodes that are there; `kind` [nodes], positions in KINDS; and
        `present` [nodes] bool, which the root always is.

    Raises:
        UsageError: an array of another shape.
        MissingPackage: DGL or torch is not installed.
    """
    given = np.asarray(vectors, dtype=np.float32)
    if given.ndim != 3 or given.shape[1] != len(graph.loops):
        raise UsageError(f"vectors of shape {given.shape} for a graph of {len(graph.loops)} loops; they are [members, {len(graph.loops)}, columns]")
    members = len(given)
    there = np.ones(len(graph.loops), dtype=bool) if present is None else np.asarray(present, dtype=bool)
    if there.shape not in ((len(graph.loops),), given.shape[:2]):
        raise UsageError(f"a mask of shape {there.shape} for {members} graphs of {len(graph.loops)} loops")
    dgl, torch = _dgl()
    there = np.broadcast_to(there, given.shape[:2])
    features = np.zeros((members, graph.size, given.shape[2]), dtype=np.float32)
    np.copyto(features[:, graph.itervals], given, where=there[..., None])
    offsets = graph.size * np.arange(members)[:, None]
    ends = [torch.from_numpy((side + offsets).ravel()) for side in graph.edges]
    batch = dgl.graph((ends[0], ends[1]), num_nodes=members * graph.size)
    batch.set_batch_num_nodes(torch.full((members,), graph.size))
    batch.set_batch_num_edges(torch.full((members,), graph.edges.shape[1]))
    batch.ndata["feature"] = torch.from_numpy(features.reshape(-1, given.shape[2]))
    batch.ndata["kind"] = torch.from_numpy(np.tile(graph.kinds, members))
    batch.ndata["present"] = torch.from_numpy(np.concatenate([np.ones((members, 1), dtype=bool), there, there], axis=1).ravel())
    return batch


def _dgl() -> tuple[Any, Any]:
    # Without a name in the environment DGL asks its settings file, and writes one where there is none.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        import dgl
        import torch
    except ModuleNotFoundError as error:
        raise MissingPackage.needed_by("a graph for DGL", error) from error
    return dgl, torch
