"""MetaTune's graph model: the dense path beside DGL over all nodes and edges, scoring 10,000 configurations, features included, and learning from a batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from workbench.features.graph import to_dgl
from workbench.features.supergraph import COLUMNS, SUPERGRAPH, SuperGraphs
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.kernels import kernel
from workbench.kernels.networks import layer
from workbench.models.gcn import GraphEmbedding, GraphModel, reference, shares
from workbench.models.metatune import MetaTune
from workbench.models.scoring import Embedder
from workbench.models.surrogate import Trials
from workbench.schema import Device

COUNT = 10_000


def cpu_seconds(call: Callable[[], object], times: int = 5) -> float:
    """Median processor time: what other programs take of a busy machine is not the model's."""
    found = []
    call()
    for _ in range(times):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return float(np.median(found))


@pytest.mark.parametrize("template", [True, False])
@pytest.mark.parametrize("space", ["workbench-gpu", "workbench-cpu"])
def test_scoring_a_layer_of_resnet(benchmark: Any, space: str, template: bool) -> None:
    """Layer 2 of ResNet-18: 64 channels of 56 x 56, filters of 3 x 3."""
    torch.set_num_threads(1)
    workload = layer("resnet-18", 2).workload
    graphs = SuperGraphs(kernel("conv2d"), workload, space, logarithms=True)
    indices = kernel("conv2d").space(workload, space).sample(COUNT, 0)
    features, there = graphs.of(indices[:512])
    torch.manual_seed(0)
    mean, std = features[there].mean(0).astype(np.float64), features[there].std(0).astype(np.float64)
    model = GraphModel(GraphEmbedding(len(COLUMNS), 128, template, mean, std)).requires_grad_(False)
    embedder = Embedder(model.embedding, graphs)

    def score() -> torch.Tensor:
        return model.head(torch.from_numpy(embedder.of(indices)))

    benchmark.pedantic(score, rounds=5, warmup_rounds=1)
    seconds, features_alone = cpu_seconds(score), cpu_seconds(lambda: [None for _ in graphs.tables(indices)])

    # 512 of them by DGL, and by the dense path that training takes, both from features that are there.
    slots = there.any(0)
    share = np.zeros((512, len(slots), 1), dtype=np.float32)
    for places, structure, _ in graphs.stream(indices[:512]):
        share[places, :, 0] = shares(graphs, structure, template)
    dense = torch.from_numpy(np.concatenate([features, share], axis=2)[:, slots])
    if template:
        batches = [to_dgl(SUPERGRAPH, features, there)]
    else:
        kinds = [(present, (there == present).all(1)) for present in np.unique(there, axis=0)]
        batches = [to_dgl(SUPERGRAPH.restricted(present), features[rows][:, present]) for present, rows in kinds]
    by_dgl = cpu_seconds(lambda: [reference(model.embedding, batch) for batch in batches])
    by_dense = cpu_seconds(lambda: model.embedding(dense))
    ratios = {"dense_times_faster_than_dgl": round(by_dgl / by_dense, 1), "scoring_times_faster_than_dgl": round(by_dgl / 512 * COUNT / seconds, 1)}
    benchmark.extra_info |= {"ms": round(seconds * 1e3, 1), "features_ms": round(features_alone * 1e3, 1), **ratios}
    print(
        f"\n{space}, {'super-graph' if template else 'own AST'}: {COUNT} in {seconds * 1e3:.0f} ms, {features_alone * 1e3:.0f} of them features; "
        f"of graphs made before DGL takes {by_dgl / 512 * 1e6:.0f} us each, the dense path {by_dense / 512 * 1e6:.0f} us ({by_dgl / by_dense:.1f}x)"
    )
    assert by_dgl > by_dense
    assert seconds < 0.1


@pytest.mark.parametrize("trials", [64, 1024])
def test_learning_from_a_batch(benchmark: Any, trials: int) -> None:
    """All trials so far, of which 64 are new. What was measured is invented: how long it takes does not depend on it."""
    torch.set_num_threads(1)
    task = TuningTask("layer 2", kernel("conv2d"), layer("resnet-18", 2).workload, Device("invented-gpu", "gpu"), "workbench-gpu")
    rng = np.random.default_rng(0)
    indices, throughput, unknown = task.space.sample(trials, rng), 1 + rng.random(trials), np.full(trials, np.nan)
    valid = np.ones(trials, dtype=bool)
    fitted = MetaTune(epochs=1, outer=0).fit([MeasuredTask(task, indices, throughput, valid, unknown, unknown, unknown)])
    adapted = fitted.adapt(task)
    before, after = (Trials(indices[:count], throughput[:count], valid[:count]) for count in (trials - 64, trials))
    adapted.update(before)
    seconds = []

    def update() -> None:
        start = time.process_time()
        adapted.update(after)
        seconds.append(time.process_time() - start)

    benchmark.pedantic(update, rounds=3)
    benchmark.extra_info["ms"] = round(seconds[0] * 1e3, 1)  # the first finds the embeddings of the new ones
    print(f"\n{trials} trials, 64 of them new: {seconds[0] * 1e3:.0f} ms")
    assert max(seconds) < 1
