"""Online adaptation: from meta-learnt weights, fit all that was measured of the one kernel that is being tuned.

The paper fine-tunes the head with each batch of measurements. Here every adaptation starts anew from the meta-learnt weights, so that what comes out depends on
the measurements alone and not on how they were divided into batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.func import grad_and_value

from workbench.errors import DataError, UsageError
from workbench.meta.heads import Heads, Loss, Tensors, called, mean_loss, smooth_l1

__all__ = ["Adaptation", "adapt"]


@dataclass(frozen=True, eq=False)
class Adaptation:
    """Networks after adaptation.

    Attributes:
        heads: with the weights after the last step, or the last ones whose loss was a finite number.
        losses: before each step and after the last [steps + 1, heads].
        steps: how many steps each network's weights have behind them [heads]: fewer than asked for where the loss stopped being finite.
    """

    heads: Heads
    losses: NDArray[np.float64]
    steps: NDArray[np.int64]


@torch.no_grad()
def adapt(
    heads: Heads,
    inputs: Sequence[ArrayLike | Tensor],
    labels: ArrayLike | Tensor,
    rates: Mapping[str, Tensor],
    *,
    steps: int,
    optimiser: Literal["sgd", "adam"] = "sgd",
    weights: ArrayLike | Tensor | None = None,
    loss: Loss = smooth_l1,
) -> Adaptation:
    """Fit examples by gradient descent on all of them at once. No random numbers: the same call gives the same weights bit for bit.

    Args:
        heads: the meta-learnt networks, which are left as they are.
        inputs: what a network is called with, [n, ...] each.
        labels: [n].
        rates: which parameters move and how far: `MetaLearner.rates`, or `step_sizes`.
        steps: of descent; 0 gives the networks back.
        optimiser: "sgd" as in the inner loop (line 12 of Algorithm 1), or "adam" (beta 0.9 and 0.999).
        weights: how much each example counts [n], 0 or more; all alike if None. They are used relative to their sum, and ask for a loss of each example.
        loss: of outputs and labels.
    Raises:
        UsageError: a negative number of steps, an unknown optimiser, or a rate for a parameter that is not there.
        DataError: no examples, as many labels or weights as there are no examples, weights that are negative or sum to 0, or a label that is not finite.
    """
    if steps < 0 or optimiser not in ("sgd", "adam"):
        raise UsageError(f"{steps} steps of {optimiser!r}: at least 0 of 'sgd' or 'adam'")
    unknown = [name for name in rates if name not in heads.parameters]
    if unknown:
        raise UsageError(f"a step size for {unknown[0]!r}, which is no parameter; there are {', '.join(heads.parameters)}")
    given = [torch.as_tensor(array) for array in inputs]
    target = torch.as_tensor(labels, dtype=torch.float32)
    share = _shares(given, target, weights)
    moving = {name: heads.parameters[name] for name in rates}
    fixed = {name: p for name, p in {**heads.parameters, **heads.buffers}.items() if name not in rates}
    size = {name: _aligned(rate, moving[name]) for name, rate in rates.items()}

    def value(moving: Tensors, net: nn.Module, fixed: Tensors) -> Tensor:
        outputs = called(net, {**moving, **fixed}, given)
        return mean_loss(loss, outputs, target) if share is None else (share * loss(outputs, target)).sum()

    def slope(net: nn.Module, moving: Tensors, fixed: Tensors) -> tuple[Tensors, Tensor]:
        result: tuple[Tensors, Tensor] = grad_and_value(value)(moving, net, fixed)
        return result

    kept, behind, alive = moving, torch.zeros(len(heads), dtype=torch.int64), torch.ones(len(heads), dtype=torch.bool)
    first, second = ({name: torch.zeros_like(p) for name, p in moving.items()} for _ in range(2))
    losses = []
    for step in range(steps + 1):
        slopes, now = heads.mapped(slope, moving, fixed, in_dims=(0, 0))
        losses.append(now)
        alive = alive & now.isfinite()
        if alive.all():
            kept = moving
        else:  # a network whose loss is no number keeps the last weights that gave one
            kept = {name: torch.where(_aligned(alive, p), p, kept[name]) for name, p in moving.items()}
        behind = torch.where(alive, step, behind)
        if step == steps or not alive.any():
            break
        if optimiser == "adam":
            for name, g in slopes.items():
                first[name].lerp_(g, 0.1)
                second[name].lerp_(g * g, 0.001)
            steer = {name: first[name] / (1 - 0.9 ** (step + 1)) / ((second[name] / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8) for name in moving}
        else:
            steer = slopes
        moving = {name: p - size[name] * steer[name] for name, p in moving.items()}
    return Adaptation(heads.with_parameters(kept), torch.stack(losses).double().numpy(), behind.numpy())


def _shares(inputs: Sequence[Tensor], labels: Tensor, weights: ArrayLike | Tensor | None) -> Tensor | None:
    if not len(labels) or any(len(array) != len(labels) for array in inputs):
        raise DataError(f"{[len(array) for array in inputs]} rows of inputs and {len(labels)} labels to adapt to: as many of each, at least 1")
    if not labels.isfinite().all():
        place = int((~labels.isfinite()).nonzero()[0, 0])
        raise DataError(f"label {place} is {labels[place]:g}; a failure is 0, never a number that is not finite")
    if weights is None:
        return None
    share = torch.as_tensor(weights, dtype=torch.float32)
    if share.shape != labels.shape or not (share >= 0).all() or not 0 < share.sum() < float("inf"):
        raise DataError(f"weights of {len(labels)} examples are as many numbers of 0 or more with a sum above 0; here {tuple(share.shape)} of {share.sum():g}")
    return share / share.sum()


def _aligned(per_head: Tensor, parameter: Tensor) -> Tensor:
    # [heads] or [heads, ...] -> broadcasts with the parameter [heads, ...]
    return per_head if per_head.ndim == parameter.ndim else per_head.reshape(-1, *(1,) * (parameter.ndim - 1))
