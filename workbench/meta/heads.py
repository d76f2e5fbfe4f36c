"""Several networks of one architecture as one: their parameters have the networks as their first dimension, and torch.func runs and trains all at once.

An ensemble gives the spread that a search needs; one network is an ensemble of one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from workbench.errors import UsageError

__all__ = ["Heads", "Loss", "Tensors", "called", "mean_loss", "smooth_l1", "step_sizes"]

Tensors = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
"""Loss of outputs [..., n] and labels [..., n]: of each example [..., n], whose mean is taken, or of all n [...]."""


def smooth_l1(outputs: Tensor, labels: Tensor) -> Tensor:
    """Smooth L1 loss of each example [n]: half the square of an error below 1, the error less a half above."""
    return nn.functional.smooth_l1_loss(outputs, labels, reduction="none")


def mean_loss(loss: Loss, outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean over the last dimension of outputs and labels [..., n], or what a loss of all n gives: [...]."""
    value = loss(outputs, labels)
    return value.mean(-1) if value.ndim == outputs.ndim else value


def called(net: nn.Module, weights: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Outputs [n] of a network with other weights: its parameters and buffers by name. A network whose output is [n, 1] loses that last dimension."""
    outputs: Tensor = functional_call(net, weights, tuple(inputs))
    return outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs


class Heads:
    """Networks of one architecture.

    Attributes:
        net: the architecture, in evaluation mode; its own weights are not used.
        parameters: name -> [heads, ...], float32.
        buffers: name -> [heads, ...]: constants.
    """

    def __init__(self, net: nn.Module, parameters: Tensors, buffers: Tensors) -> None:
        self.net, self.parameters, self.buffers = net, parameters, buffers

    @classmethod
    def of(cls, nets: Sequence[nn.Module]) -> Heads:
        """Copies of networks that differ in their weights alone.

        A network is called with its inputs [n, ...] and gives [n] or [n, 1]; it works under torch.func.vmap, so it draws no random numbers.

        Raises:
            UsageError: none, or one without parameters.
        """
        if not nets or not dict(nets[0].named_parameters()):
            raise UsageError(f"{len(nets)} networks: at least one, with parameters")
        parameters, buffers = stack_module_state(list(nets))
        return cls(copy.deepcopy(nets[0]).eval().requires_grad_(False), {n: p.detach().clone() for n, p in parameters.items()}, buffers)

    @classmethod
    def initial(cls, make: Callable[[], nn.Module], seeds: Sequence[int]) -> Heads:
        """One network a seed: `make` is called after torch's generator has been set to it; the generator's own state comes back."""
        nets = []
        with torch.random.fork_rng(devices=[]):
            for seed in seeds:
                torch.manual_seed(seed)
                nets.append(make())
        return cls.of(nets)

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    def with_parameters(self, parameters: Tensors) -> Heads:
        """The same networks with some parameters [heads, ...] replaced; the others are shared."""
        return Heads(self.net, {**self.parameters, **parameters}, self.buffers)

    def copy(self) -> Heads:
        """Networks whose parameters are their own."""
        return self.with_parameters({name: p.detach().clone() for name, p in self.parameters.items()})

    def network(self, place: int = 0) -> nn.Module:
        """One of them as a module of its own."""
        net = copy.deepcopy(self.net).requires_grad_(True)
        net.load_state_dict({name: t[place] for name, t in {**self.parameters, **self.buffers}.items()}, strict=False)
        return net

    @torch.no_grad()
    def __call__(self, *inputs: Tensor) -> Tensor:
        """Outputs [heads, n] of all networks for the same inputs, [n, ...] each."""
        return self.mapped(called, {**self.parameters, **self.buffers}, inputs, in_dims=(0, None))

    def mapped(self, function: Callable[..., Any], *arguments: Any, in_dims: tuple[int | None, ...]) -> Any:
        """`function(net, *arguments)` for each network at once; `in_dims` says which arguments have the networks as their first dimension."""
        return vmap(lambda *given: function(self.net, *given), in_dims=in_dims)(*arguments)

    def trained(self, frozen: Sequence[str] = ()) -> list[str]:
        """Names of the parameters that do not begin with one of `frozen`, such as "embedding.".

        Raises:
            UsageError: no name begins with one of them, or all do.
        """
        for prefix in frozen:
            if not any(name.startswith(prefix) for name in self.parameters):
                raise UsageError(f"no parameter begins with {prefix!r}, which is to be frozen; there are {', '.join(self.parameters)}")
        names = [name for name in self.parameters if not name.startswith(tuple(frozen))]
        if not names:
            raise UsageError(f"every parameter is frozen by {', '.join(frozen)}: nothing is left to train")
        return names


def step_sizes(heads: Heads, rate: float, *, frozen: Sequence[str] = (), last_layer: bool = False, each: bool = False) -> Tensors:
    """Which parameters gradient descent moves, and how far.

    Args:
        heads: whose parameters.
        rate: the step size of all.
        frozen: beginnings of the names of parameters that stay.
        last_layer: only the parameters of the last module that is not frozen move (ANIL: Raghu et al., ICLR 2020).
        each: a step size for every single number (Meta-SGD: Li et al., 2017), [heads, ...] as the parameter; else one a parameter, [heads].
    Raises:
        UsageError: a rate that is not positive and finite, or as `Heads.trained`.
    """
    if not 0 < rate < float("inf"):
        raise UsageError(f"a step size of {rate}; it is a positive number")
    names = heads.trained(frozen)
    if last_layer:
        last = names[-1].rpartition(".")[0]
        names = [name for name in names if name.rpartition(".")[0] == last]
    return {name: torch.full(heads.parameters[name].shape if each else (len(heads),), rate) for name in names}
