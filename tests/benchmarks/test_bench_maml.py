"""Meta-training and online adaptation of the paper's head, beside `higher`: `make bench`. All numbers are invented.

Processor time, since other programs of a busy machine take turns with a step: what they take is not the step's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from higher_maml import higher_gradient
from torch import nn

from workbench.meta.adapt import adapt
from workbench.meta.heads import Heads, step_sizes
from workbench.meta.maml import Inner, MetaLearner

TASKS, SHOTS = 32, 20  # of the author's runs: 20-way, 1-shot


def head(kind: type[nn.Sequential] = nn.Sequential) -> nn.Module:
    return kind(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))


class General(nn.Sequential):
    """Left to torch.func."""


def seconds(call: Callable[[], object], repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return float(np.median(times))


@pytest.mark.parametrize("steps", [1, 5])
def test_outer_gradient(benchmark: Any, steps: int) -> None:
    g = torch.Generator().manual_seed(0)
    support, query = ((torch.randn(TASKS, SHOTS, 128, generator=g), torch.rand(TASKS, SHOTS, generator=g)) for _ in range(2))
    heads = Heads.initial(head, [0])
    net = heads.network()
    batched = [([x[None]], y[None]) for x, y in (support, query)]

    def gradient(kind: type[nn.Sequential]) -> Callable[[], tuple[torch.Tensor, ...]]:
        learner = MetaLearner(Heads.of([kind(*net)]), Inner(steps, 2e-3))
        return lambda: torch.autograd.grad(learner.losses(*batched).sum(), list(learner.heads.parameters.values()))

    ours, general, reference = gradient(nn.Sequential), gradient(General), lambda: higher_gradient(net, support, query, steps, 2e-3)
    for found in (ours, general):
        for one, other in zip(found(), reference().values(), strict=True):
            assert (one[0] - other).abs().max() < 1e-5
    benchmark.pedantic(ours, rounds=20, warmup_rounds=2)
    own, by_func, by_higher = seconds(ours, 20), seconds(general, 10), seconds(reference, 5)
    benchmark.extra_info |= {"ms": own * 1e3, "torch_func_ms": by_func * 1e3, "higher_ms": by_higher * 1e3, "times_faster_than_higher": by_higher / own}
    print(f"\n{steps} inner steps: {own * 1e3:.1f} ms; torch.func {by_func * 1e3:.1f} ms, higher {by_higher * 1e3:.0f} ms ({by_higher / own:.1f}x)")
    assert by_higher / own > 5


@pytest.mark.parametrize(("rows", "networks"), [(64, 1), (600, 1), (600, 5)])
def test_adaptation(benchmark: Any, rows: int, networks: int) -> None:
    heads, g = Heads.initial(head, range(networks)), torch.Generator().manual_seed(0)
    x, y, rates = torch.randn(rows, 128, generator=g), torch.rand(rows, generator=g), step_sizes(heads, 1e-3)
    found = benchmark.pedantic(lambda: adapt(heads, [x], y, rates, steps=50, optimiser="adam"), rounds=5, warmup_rounds=1)
    cpu = seconds(lambda: adapt(heads, [x], y, rates, steps=50, optimiser="adam"), 5)
    many = torch.randn(10_000, 128, generator=g)
    scoring = seconds(lambda: found.heads(many), 5)
    benchmark.extra_info |= {"cpu_ms": cpu * 1e3, "scoring_10000_ms": scoring * 1e3}
    print(f"\n{rows} rows, {networks} networks, 50 steps of Adam: {cpu * 1e3:.0f} ms; scoring 10,000 rows {scoring * 1e3:.0f} ms")
    assert cpu < 1
