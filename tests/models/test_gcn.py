"""MetaTune's model: by hand, the dense path against DGL over all nodes and edges, and what does not matter. All vectors here are invented."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from workbench.errors import UsageError
from workbench.features.graph import Graph, to_dgl
from workbench.features.supergraph import SUPERGRAPH
from workbench.models.gcn import HEADS, GraphEmbedding, GraphModel, for_weights, reference

COLUMNS, LOOPS = 9, len(SUPERGRAPH.loops)


def embedding(template: bool, size: int = 128, seed: int = 0) -> GraphEmbedding:
    """With a bias, and standardisation that leaves out the last column."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    found = GraphEmbedding(COLUMNS, size, template, rng.normal(size=COLUMNS), np.r_[0.5 + rng.random(COLUMNS - 1), 0])
    torch.nn.init.normal_(found.bias)
    return found


def invented(template: bool, members: int = 7, seed: int = 0, share: float = 0.5) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """Vectors, which loops are there, and both as the model takes them."""
    rng = np.random.default_rng(seed)
    there = rng.random((members, LOOPS)) < share
    vectors = (rng.normal(size=(members, LOOPS, COLUMNS)) * there[..., None]).astype(np.float32)
    shares = np.zeros((members, LOOPS, 1), dtype=np.float32)
    for member, present in enumerate(there):
        shares[member, present, 0] = for_weights(SUPERGRAPH)[present] if template else for_weights(SUPERGRAPH.restricted(present))
    return vectors, there, torch.from_numpy(np.concatenate([vectors, shares], axis=2))


def by_dgl(model: GraphEmbedding, vectors: np.ndarray, there: np.ndarray) -> Tensor:
    if model.template:
        return reference(model, to_dgl(SUPERGRAPH, vectors, there))
    return torch.cat([reference(model, to_dgl(SUPERGRAPH.restricted(p), v[None, p])) for v, p in zip(vectors, there, strict=True)])


@pytest.mark.parametrize("size", HEADS)
@pytest.mark.parametrize("template", [True, False])
def test_dense_is_what_dgl_says(template: bool, size: int) -> None:
    vectors, there, graphs = invented(template)
    there[0] = False  # a member without loops: root and placeholders alone
    graphs[0], vectors[0] = 0, 0
    model = embedding(template, size)
    dense, slow = model(graphs), by_dgl(model, vectors, there)
    assert dense.shape == (7, size)
    torch.testing.assert_close(dense, slow, rtol=1e-5, atol=1e-5)
    # and so do gradients
    ours, theirs = (torch.autograd.grad(out.square().mean(), list(model.parameters())) for out in (dense, slow))
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4 * float(right.abs().max()))


def test_by_hand() -> None:
    """for i: for j. One column, one sum and one maximum; every share is sigmoid(0) = 1/2."""
    graph = Graph(("i", "j"), (-1, 0))
    np.testing.assert_allclose(for_weights(graph), [1 / np.sqrt(8), 1 / np.sqrt(6)])
    model = GraphEmbedding(1, 2, template=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.weight.fill_(2)
        model.bias.fill_(0.25)
    given = torch.tensor([[[3.0, 8**-0.5], [-5.0, 6**-0.5]]])
    # z is 6 and -10; nodes: root .25, i: 3.25 and 6/sqrt(8) + .25, j: 0 and 0
    total, largest = model(given)[0].tolist()
    assert total == pytest.approx(0.5 * (0.25 + 3.25 + 6 / 8**0.5 + 0.25))
    assert largest == pytest.approx(3.25)


@pytest.mark.parametrize("template", [True, False])
def test_what_does_not_matter(template: bool) -> None:
    """Order of members, order of loops, null loops left out, and a column that has no deviation."""
    _, there, graphs = invented(template)
    there[:, :20] = False
    graphs[:, :20] = 0
    model = embedding(template)
    said = model(graphs)
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4])
    torch.testing.assert_close(model(graphs[order]), said[order])
    torch.testing.assert_close(model(graphs[:, torch.randperm(LOOPS, generator=torch.Generator().manual_seed(0))]), said)
    torch.testing.assert_close(model(graphs[:, 20:]), said)
    noise = graphs.clone()
    noise[..., COLUMNS - 1] += 3
    torch.testing.assert_close(model(noise), said)
    noise[..., 0] += 3
    assert not torch.allclose(model(noise), said)


def test_placeholders_count_in_the_super_graph_alone() -> None:
    _, there, graphs = invented(True)
    with_template, without = embedding(True), embedding(False)
    with_template.load_state_dict(without.state_dict())
    bare = torch.relu(without.bias)
    share = torch.sigmoid(without.gate(bare))
    missing = torch.from_numpy(SUPERGRAPH.size - 1 - 2 * there.sum(1))
    half = len(without.bias)
    torch.testing.assert_close(with_template(graphs)[:, :half] - without(graphs)[:, :half], missing[:, None] * (share * bare), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(with_template(graphs)[:, half:], without(graphs)[:, half:])


def test_the_model() -> None:
    assert HEADS[128] == (128, 64, 1)
    _, _, graphs = invented(True)
    for size, layers in HEADS.items():
        model = GraphModel(embedding(True, size))
        linear = [part for part in model.head if isinstance(part, torch.nn.Linear)]
        assert [(part.in_features, part.out_features) for part in linear] == list(zip((size, *layers), layers, strict=False))
        said = model(graphs)
        assert said.shape == (7,)
        torch.testing.assert_close(said, model.head(model.embedding(graphs))[:, 0])
    with pytest.raises(UsageError, match="an embedding of 48 columns; the heads are for 128, 64, 32"):
        GraphModel(embedding(True, 48))
    with pytest.raises(UsageError, match="an embedding of 7 columns; half of them are sums"):
        GraphEmbedding(COLUMNS, 7)


def test_seeds() -> None:
    _, _, graphs = invented(False)
    assert torch.equal(embedding(False, seed=3)(graphs), embedding(False, seed=3)(graphs))
    assert not torch.equal(embedding(False, seed=3)(graphs), embedding(False, seed=4)(graphs))
