"""Full-batch Adam for many small ReLU networks at once: splits, seeds, restarts and devices are one batch dimension.

The gradient is written out, because at 75 weights autograd's bookkeeping costs several times the arithmetic; a test compares it with torch.func.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

__all__ = ["Trained", "forward", "initial", "n_weights", "train", "value_and_gradient"]


def n_weights(layers: Sequence[int]) -> int:
    """Weights and biases of a fully connected network: (7, 7, 1) has 64."""
    return sum((a + 1) * b for a, b in pairwise(layers))


def _views(theta: Tensor, layers: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """(weights [B, in, out], bias [B, 1, out]) of each layer, views of theta [B, p]."""
    out, at = [], 0
    for a, b in pairwise(layers):
        out.append((theta[:, at : at + a * b].unflatten(1, (a, b)), theta[:, at + a * b : at + (a + 1) * b].unflatten(1, (1, b))))
        at += (a + 1) * b
    return out


def initial(layers: Sequence[int], seeds: Sequence[int]) -> Tensor:
    """Glorot-uniform weights and zero biases (the default of the paper's framework), one network a seed: [len(seeds), p], float32."""
    theta = torch.zeros(len(seeds), n_weights(layers))
    for row, seed in zip(theta, seeds, strict=True):
        generator = torch.Generator().manual_seed(seed)
        for weights, _ in _views(row[None], layers):
            limit = math.sqrt(6 / (weights.shape[1] + weights.shape[2]))
            weights.uniform_(-limit, limit, generator=generator)
    return theta


def forward(theta: Tensor, x: Tensor, layers: Sequence[int]) -> Tensor:
    """Outputs [B, n] of networks theta [B, p] for inputs x [B, n, d]; ReLU on the hidden layers."""
    views = _views(theta, layers)
    for i, (weights, bias) in enumerate(views):
        x = torch.baddbmm(bias, x, weights)
        if i < len(views) - 1:
            x = torch.relu(x)
    return x[..., 0]


def value_and_gradient(theta: Tensor, x: Tensor, y: Tensor, layers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Mean squared error [B] of y [B, n] and its gradient [B, p]."""
    views = _views(theta, layers)
    inputs = [x]
    for weights, bias in views[:-1]:
        inputs.append(torch.baddbmm(bias, inputs[-1], weights).relu_())
    residual = torch.baddbmm(views[-1][1], inputs[-1], views[-1][0])[..., 0] - y
    gradient = torch.empty_like(theta)
    upstream = (residual * (2 / y.shape[1]))[..., None]
    for (weights, _), (grad_weights, grad_bias), given in zip(reversed(views), reversed(_views(gradient, layers)), reversed(inputs), strict=True):
        grad_weights.copy_(given.mT @ upstream)
        grad_bias.copy_(upstream.sum(1, keepdim=True))
        if given is not x:
            upstream = (upstream @ weights.mT).mul_(given > 0)
    return (residual * residual).mean(1), gradient


@dataclass(frozen=True)
class Trained:
    """Networks after training.

    Attributes:
        theta: parameters [B, p].
        loss: mean squared error on the training rows [B].
        checkpoints: parameters at evenly spaced epochs [k, B, p]; the last is `theta`. Empty unless asked for.
    """

    theta: Tensor
    loss: Tensor
    checkpoints: Tensor


@torch.no_grad()
def train(x: Tensor, y: Tensor, layers: Sequence[int], seeds: Sequence[int], *, lr: float, epochs: int, cosine: bool = False, checkpoints: int = 0) -> Trained:
    """Full-batch Adam (beta 0.9 and 0.999) on the mean squared error.

    Args:
        x: inputs [B, n, d]. y: targets [B, n].
        layers: sizes from input to output, (d, ..., 1).
        seeds: of the initial weights, one a network.
        lr: learning rate; `cosine` lets it fall to zero over the epochs.
        epochs: full-batch steps.
        checkpoints: how many intermediate states to keep.
    """
    x, y = x.float().contiguous(), y.float()
    theta = initial(layers, seeds)
    first, second = torch.zeros_like(theta), torch.zeros_like(theta)
    kept: list[Tensor] = []
    keep = {round(epochs * (i + 1) / checkpoints) for i in range(checkpoints)}
    for epoch in range(1, epochs + 1):
        _, gradient = value_and_gradient(theta, x, y, layers)
        first.lerp_(gradient, 0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        rate = lr * (0.5 * (1 + math.cos(math.pi * epoch / epochs)) if cosine else 1.0)
        step = rate * math.sqrt(1 - 0.999**epoch) / (1 - 0.9**epoch)
        theta.addcdiv_(first, second.sqrt().add_(1e-7 * math.sqrt(1 - 0.999**epoch)), value=-step)
        if epoch in keep:
            kept.append(theta.clone())
    loss, _ = value_and_gradient(theta, x, y, layers)
    return Trained(theta, loss, torch.stack(kept) if kept else theta.new_empty(0, *theta.shape))
