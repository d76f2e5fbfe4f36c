"""MetaTune's cost model (section 4, Figure 3): graph convolution, ReLU, weighted sum and maximum over the nodes, and a fully connected head.

The convolution is that of Kipf & Welling, one layer: relu(A X W + b), where A is the adjacency with edges both ways and a loop at each node, each edge over the
square root of the degrees of both its ends (`norm="both"` of DGL's GraphConv). Edges go both ways because an `iterval` node, which has the features, has
incoming edges alone: along the edges of the AST nothing would ever leave it, and no node would see more than it does without a graph.

Since only `iterval` nodes have features and each hangs on its `for` node alone, all that the product with A gives is, of z = x W of a loop,

    iterval node    z / 2                                 its degree is 2
    for node        z / sqrt(2 d)                         d = 3 + the loops directly inside: itself, its iterval node, the node around it
    others          0                                     the root, and placeholders of the super-graph

so the dense path multiplies the vectors of loops once and never touches A, and the maximum over the nodes is that of the `iterval` nodes or of the root.
The paper does not say how many columns the sum and the maximum have; here each is half of the embedding, which is then what the head takes in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workbench.errors import UsageError
from workbench.features.graph import Graph
from workbench.features.supergraph import SUPERGRAPH, SuperGraphs

if TYPE_CHECKING:
    import dgl

__all__ = ["HEADS", "GraphEmbedding", "GraphModel", "for_weights", "reference", "shares"]

# Columns of the embedding -> those of the fully connected layers after it.
HEADS = {128: (128, 64, 1), 64: (64, 32, 1), 32: (64, 32, 1)}


def for_weights(graph: Graph) -> NDArray[np.float32]:
    """How much of a loop's vector its `for` node gets, 1 / sqrt(2 d) [loops]."""
    inside = np.zeros(len(graph.loops), dtype=np.float32)
    np.add.at(inside, [parent for parent in graph.parents if parent >= 0], 1)
    return (1 / np.sqrt(2 * (3 + inside))).astype(np.float32)


def shares(graphs: SuperGraphs, structure: int, template: bool) -> NDArray[np.float32]:
    """`for_weights` of a structure's loops by slot [slots], 0 where null, in the whole super-graph (`template`) or in the structure's own AST."""
    present = graphs.present[structure]
    found = np.zeros(len(present), dtype=np.float32)
    found[present] = for_weights(SUPERGRAPH)[present] if template else for_weights(graphs.ast(structure))
    return found


class GraphEmbedding(nn.Module):
    """Graph convolution, ReLU, weighted sum and maximum.

    Inputs are [n, loops, columns + 1]: vectors of loops, and last the weight of `for_weights`; zeros for a loop that is not there.

    Args:
        columns: numbers of a loop's vector.
        embedding: numbers that come out; half are sums, half are maxima.
        template: whether a member is the whole super-graph, with a placeholder for each node that is not there; else its own AST.
        mean, std: of each column [columns], subtracted and divided by; a column whose `std` is 0 is left out. None: vectors are taken as they are.
    """

    def __init__(
        self, columns: int, embedding: int = 128, template: bool = True, mean: NDArray[np.float64] | None = None, std: NDArray[np.float64] | None = None
    ) -> None:
        super().__init__()
        if embedding % 2 or embedding < 2:
            raise UsageError(f"an embedding of {embedding} columns; half of them are sums and half are maxima, so they are even")
        self.template = template
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(columns, embedding // 2)))
        self.bias = nn.Parameter(torch.zeros(embedding // 2))
        self.gate = nn.Linear(embedding // 2, 1)
        scale = np.ones(columns) if std is None else np.divide(1, std, out=np.zeros(columns), where=std > 0)
        self.register_buffer("centre", torch.tensor(np.zeros(columns) if mean is None else mean, dtype=torch.float32))
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32))

    centre: Tensor
    scale: Tensor

    @property
    def nodes(self) -> int | None:
        """Nodes of every member, None where each has those of its own AST."""
        return SUPERGRAPH.size if self.template else None

    def forward(self, graphs: Tensor) -> Tensor:
        """Embeddings [n, embedding] of graphs [n, loops, columns + 1]."""
        weight = self.scale[:, None] * self.weight
        there = (graphs[..., -1:] > 0).to(graphs.dtype)
        z = graphs @ torch.cat([weight, torch.zeros_like(weight[:1])]) - there * (self.centre @ weight)
        iterval = torch.relu(torch.add(self.bias, z, alpha=0.5))
        around = torch.relu(torch.addcmul(self.bias, z, graphs[..., -1:]))
        bare = torch.relu(self.bias)
        loops = there.sum((1, 2))
        others = torch.ones_like(loops) if self.nodes is None else self.nodes - 2 * loops
        total = self._sum(iterval, there) + self._sum(around, there) + others[:, None] * (self._share(bare) * bare)
        # A node gets z / 2, a smaller positive share of it, or 0, which the root gets: the largest of all these is half of the largest z, or 0.
        return torch.cat([total, torch.relu(self.bias + torch.relu(z.amax(1)) / 2)], dim=1)

    def _share(self, nodes: Tensor) -> Tensor:
        return torch.sigmoid(self.gate(nodes))

    def _sum(self, nodes: Tensor, there: Tensor) -> Tensor:
        return ((self._share(nodes) * there).mT @ nodes)[:, 0]


class GraphModel(nn.Module):
    """The whole model: `embedding`, and `head`, which meta-training and adaptation move.

    Args:
        embedding: its convolution and readout.

    Raises:
        UsageError: an embedding of a size that the paper has no head for.
    """

    def __init__(self, embedding: GraphEmbedding) -> None:
        super().__init__()
        size = 2 * len(embedding.bias)
        if size not in HEADS:
            raise UsageError(f"an embedding of {size} columns; the heads are for {', '.join(map(str, HEADS))}")
        self.embedding = embedding
        layers: list[nn.Module] = []
        for given, out in zip((size, *HEADS[size]), HEADS[size], strict=False):
            layers += [nn.Linear(given, out), nn.ReLU()]
        self.head = nn.Sequential(*layers[:-1])

    def forward(self, graphs: Tensor) -> Tensor:
        """Predictions [n] for graphs [n, loops, columns + 1]."""
        return self.head(self.embedding(graphs))[..., 0]


def reference(embedding: GraphEmbedding, batch: dgl.DGLGraph) -> Tensor:
    """Embeddings [members, embedding] of a batch from `workbench.features.graph.to_dgl`, by DGL's GraphConv and readouts over all nodes and edges.

    Node data `feature` are vectors of loops as `GraphEmbedding` takes them, not standardised. The batch's nodes are those of every member: of the super-graph
    for an embedding with `template`, else of the AST, without nodes that are not there.
    """
    import dgl
    from dgl.nn.pytorch import GraphConv

    both = dgl.add_self_loop(dgl.add_reverse_edges(batch))
    # Neither reverse edges nor loops know what belongs to which member.
    both.set_batch_num_nodes(batch.batch_num_nodes())
    both.set_batch_num_edges(2 * batch.batch_num_edges() + batch.batch_num_nodes())
    featured = (batch.ndata["kind"] == 2) & batch.ndata["present"]
    given = (batch.ndata["feature"] - embedding.centre) * embedding.scale * featured[:, None]
    convolution = GraphConv(*embedding.weight.shape, norm="both")
    with both.local_scope():
        both.ndata["h"] = torch.relu(torch.func.functional_call(convolution, {"weight": embedding.weight, "bias": embedding.bias}, (both, given)))
        both.ndata["share"] = torch.sigmoid(embedding.gate(both.ndata["h"]))
        return torch.cat([dgl.sum_nodes(both, "h", "share"), dgl.max_nodes(both, "h")], dim=1)
