"""Embeddings by the thousand: those of the model itself, for kernels of one structure and of several."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from workbench.errors import MissingPackage, SpaceError
from workbench.features.supergraph import COLUMNS, SuperGraphs
from workbench.kernels import kernel
from workbench.kernels.networks import layer, training_kernels
from workbench.models import scoring
from workbench.models.gcn import GraphEmbedding, shares
from workbench.models.scoring import Embedder
from workbench.schema import Workload


def embedding(vectors: np.ndarray, size: int, template: bool) -> GraphEmbedding:
    """Standardised by the loops' own numbers, as after a training on them."""
    torch.manual_seed(0)
    found = GraphEmbedding(len(COLUMNS), size, template, vectors.mean(0).astype(np.float64), vectors.std(0).astype(np.float64)).requires_grad_(False)
    torch.nn.init.normal_(found.bias)
    return found


def graphs_of(workload: Workload, space: str) -> SuperGraphs:
    return SuperGraphs(kernel(workload.kernel), workload, space, logarithms=True)


def direct(model: GraphEmbedding, graphs: SuperGraphs, indices: np.ndarray) -> np.ndarray:
    given = torch.zeros(len(indices), graphs.present.shape[1], len(COLUMNS) + 1)
    for places, structure, vectors in graphs.stream(indices):
        given[places, :, :-1] = torch.from_numpy(vectors.copy())
        given[places, :, -1] = torch.from_numpy(shares(graphs, structure, model.template))
    return model(given).numpy()


WORKLOADS = [layer("resnet-18", 2).workload, *{w.kernel: w for w in training_kernels()}.values()]


@pytest.mark.parametrize("space", ["workbench-cpu", "workbench-gpu"])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.kernel)
def test_the_same_numbers(workload: Workload, space: str) -> None:
    if space not in kernel(workload.kernel).spaces:
        pytest.skip(f"no {space} of {workload.kernel}")
    graphs = graphs_of(workload, space)
    indices = kernel(workload.kernel).space(workload, space).sample(150, 0)  # two blocks and a part of one
    features, there = graphs.of(indices)
    for size, template in ((128, True), (128, False), (32, True)):
        model = embedding(features[there], size, template)
        found = Embedder(model, graphs).of(indices)
        expected = direct(model, graphs, indices)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_neither_order_nor_company_matters() -> None:
    workload = WORKLOADS[0]
    graphs = graphs_of(workload, "workbench-cpu")
    space = kernel("conv2d").space(workload, "workbench-cpu")
    indices = space.sample(200, 1)
    features, there = graphs.of(indices)
    embedder = Embedder(embedding(features[there], 64, True), graphs)
    found = embedder.of(indices)
    order = np.random.default_rng(0).permutation(200)
    np.testing.assert_array_equal(embedder.of(indices[order]), found[order])
    np.testing.assert_array_equal(np.concatenate([embedder.of(indices[i : i + 1]) for i in range(10)]), found[:10])
    assert embedder.of(indices[:0]).shape == (0, 64)
    with pytest.raises(SpaceError):
        embedder.of(np.array([space.size]))


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    scoring._compiled.cache_clear()
    with pytest.raises(MissingPackage, match="scoring of graphs needs the package 'numba', which is not installed; run: pip install numba"):
        Embedder(GraphEmbedding(len(COLUMNS)), graphs_of(WORKLOADS[0], "workbench-cpu"))
