"""Supervised pre-training of a whole network on the examples of all kernels: lines 1 to 5 of MetaTune's Algorithm 1.

It makes an embedding stable before the head is meta-trained on it, and its weights are where meta-training begins.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workbench.errors import TrainingError, UsageError
from workbench.meta.heads import Loss, mean_loss, smooth_l1
from workbench.meta.tasks import Pool

__all__ = ["pretrain"]


def pretrain(
    net: nn.Module, pool: Pool, *, epochs: int, batch: int = 256, rate: float = 1e-3, clip: float = 10.0, seed: int = 0, loss: Loss = smooth_l1
) -> NDArray[np.float64]:
    """Train a network in place by Adam; it is left in evaluation mode.

    Args:
        net: called with the pool's inputs [n, ...]; gives [n] or [n, 1]. It may draw random numbers (dropout) from torch's own generator, which is seeded
            for the time of training and comes back as it was.
        pool: examples of all kernels; every row is seen once an epoch (line 3).
        epochs: passes over the rows (n of Algorithm 1), each in a new order.
        batch: rows a step.
        rate: of Adam (gamma).
        clip: the largest norm of the gradient.
        seed: of the orders.
        loss: of outputs and labels [n].
    Returns:
        Mean loss of each epoch's steps, each before its step [epochs].
    Raises:
        TrainingError: a loss or gradient that is not a finite number; the network has the last weights whose loss was one.
        UsageError: a network without parameters to train, or a number of epochs or rows, rate or clip that is not positive.
    """
    learning = [p for p in net.parameters() if p.requires_grad]
    if not learning or min(epochs, batch, rate, clip) <= 0:
        raise UsageError(
            f"{len(learning)} parameters, {epochs} epochs, {batch} rows a step, a rate of {rate} and gradients of at most {clip}: all are positive"
        )
    inputs, labels = [torch.from_numpy(array) for array in pool.inputs], torch.from_numpy(pool.labels)
    optimiser = torch.optim.Adam(learning, lr=rate)
    good = [t.detach().clone() for t in (*learning, *net.buffers())]
    history: list[float] = []
    step = 0

    def check(number: float, what: str) -> None:
        if math.isfinite(number):
            return
        with torch.no_grad():
            for kept, tensor in zip(good, (*learning, *net.buffers()), strict=True):
                tensor.copy_(kept)
        net.eval()
        raise TrainingError(
            f"pre-training step {step}, epoch {len(history)}: the {what} is {number:g}; the last weights whose loss was a number are kept. "
            f"Take a smaller rate than {rate:g}, or labels of a smaller spread"
        )

    net.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for epoch in range(epochs):
            order = torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(len(pool)))
            total = 0.0
            for rows in order.split(batch):
                value = _mean_loss(net, [array[rows] for array in inputs], labels[rows], loss)
                check(value.item(), "loss")
                for kept, tensor in zip(good, (*learning, *net.buffers()), strict=True):
                    kept.copy_(tensor.detach())
                optimiser.zero_grad()
                value.backward()
                check(nn.utils.clip_grad_norm_(learning, clip).item(), "norm of the gradient")
                optimiser.step()
                total += value.item() * len(rows)
                step += 1
            history.append(total / len(pool))
    net.eval()
    return np.array(history)


def _mean_loss(net: nn.Module, inputs: list[Tensor], labels: Tensor, loss: Loss) -> Tensor:
    outputs = net(*inputs)
    return mean_loss(loss, outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs, labels)
