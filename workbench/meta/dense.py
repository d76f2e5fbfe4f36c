"""Adaptation of fully connected ReLU heads with its inner slopes written out: what torch.func makes of them, in a third of the time.

A head's inputs stay what they are while it adapts, and descent moves its first layer by sums of products of inputs and slopes. So the outputs of that layer
move by the inputs' inner products times the slopes, and its weights, two thirds of the paper's 128-128-64-1, are never made for each task.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.meta.heads import Loss, mean_loss

__all__ = ["dense_layers", "dense_losses"]

_masked = torch.ops.aten.threshold_backward  # slopes where a ReLU's output is above 0: half of what a product with a comparison takes


def dense_layers(net: nn.Module) -> list[str]:
    """Names of the linear layers of a network that is nothing but linear layers with ReLU between them and one output; none of another one."""
    modules = list(net.named_children()) if type(net) is nn.Sequential else []
    linear, between = [m for _, m in modules[::2]], [m for _, m in modules[1::2]]
    plain = len(modules) % 2 == 1 and all(type(m) is nn.Linear and m.bias is not None for m in linear) and all(type(m) is nn.ReLU for m in between)
    return [name for name, _ in modules[::2]] if plain and modules[-1][1].out_features == 1 else []


def dense_losses(
    weights: list[Tensor],
    biases: list[Tensor],
    support: tuple[Tensor, Tensor],
    query: tuple[Tensor, Tensor],
    *,
    steps: int,
    rate: float,
    second_order: bool,
    loss: Loss,
) -> Tensor:
    """Loss on the query after adapting to the support, mean over tasks: [heads], differentiable by weights and biases.

    Args:
        weights, biases: of each layer [heads, out, in] and [heads, out].
        support, query: inputs [heads, tasks, shots, in] and labels [heads, tasks, shots].
        steps, rate: of the inner loop (line 12 of Algorithm 1); at least 1 step.
        second_order: whether derivatives go through the inner slopes.
        loss: of outputs and labels.
    """
    (x, y), (x_query, y_query) = ((part[0].flatten(0, 1), part[1].flatten(0, 1)) for part in (support, query))
    z, z_query = (_affine(rows, weights[0], biases[0][:, None]) for rows in (x, x_query))
    # What a unit of slope moves the first layer's outputs by, weights and bias alike [tasks, shots, shots].
    moves, moves_query = (torch.baddbmm(x.new_full((1, 1, 1), -rate), rows, x.mT, alpha=-rate) for rows in (x, x_query))
    layers = [(w, b[:, None]) for w, b in zip(weights[1:], biases[1:], strict=True)]
    summed = torch.zeros_like(z)
    for step in range(steps):
        outputs, hidden = _outputs(z, layers)
        (slope,) = torch.autograd.grad(mean_loss(loss, outputs[..., 0], y).sum(), outputs, create_graph=second_order, retain_graph=True)
        moved = []
        for (w, b), h in zip(reversed(layers), reversed(hidden), strict=True):
            h = h if second_order else h.detach()
            own_w, own_b = (t if len(t) == len(x) else t[:, None].expand(-1, len(x) // len(t), -1, -1).flatten(0, 1) for t in (w, b))
            moved.append((torch.baddbmm(own_w, slope.mT, h, alpha=-rate), own_b.sub(slope.sum(1, keepdim=True), alpha=rate)))
            slope = _masked(_affine(slope, (w if second_order else w.detach()).mT), h, 0)
        layers = moved[::-1]
        summed = summed + slope
        if step < steps - 1:
            z = torch.baddbmm(z, moves, slope)
    z_query = torch.baddbmm(z_query, moves_query, summed)
    return mean_loss(loss, _outputs(z_query, layers)[0][..., 0], y_query).view(len(weights[0]), -1).mean(1)


def _affine(x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    # x [tasks, n, in] by weights [heads or tasks, out, in] and bias [heads or tasks, 1, out]: [tasks, n, out]. Where tasks share weights it is one product.
    rows = x.reshape(len(weights), -1, x.shape[2])
    return (rows @ weights.mT if bias is None else torch.baddbmm(bias, rows, weights.mT)).view(len(x), x.shape[1], -1)


def _outputs(z: Tensor, layers: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, list[Tensor]]:
    # From what the first layer gives: what the last one gives [tasks, n, 1], and the inputs of those between.
    hidden = []
    for weights, bias in layers:
        hidden.append(z.relu())
        z = _affine(hidden[-1], weights, bias)
    return z, hidden
