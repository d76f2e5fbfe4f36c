"""The outer gradient of MAML by the library `higher`, task after task: the reference of ours, and what its speed is compared with."""

from __future__ import annotations

import higher
import torch
from torch import Tensor, nn


def higher_gradient(net: nn.Module, support: tuple[Tensor, Tensor], query: tuple[Tensor, Tensor], steps: int, rate: float) -> dict[str, Tensor]:
    """Second-order gradient of the mean over tasks of the query's smooth L1 loss after `steps` of descent on the support.

    Inputs are [tasks, shots, ...], labels [tasks, shots].
    """
    net.zero_grad()
    descent = torch.optim.SGD(net.parameters(), lr=rate)
    tasks = len(support[1])
    for x, y, x_query, y_query in zip(*support, *query, strict=True):
        # Without copies of the initial weights the gradient reaches the network's own.
        with higher.innerloop_ctx(net, descent, copy_initial_weights=False) as (fast, inner):
            for _ in range(steps):
                inner.step(nn.functional.smooth_l1_loss(fast(x)[:, 0], y))
            (nn.functional.smooth_l1_loss(fast(x_query)[:, 0], y_query) / tasks).backward()
    return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
