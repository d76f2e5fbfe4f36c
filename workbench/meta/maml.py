"""MAML (Finn et al., ICML 2017) as MetaTune's Algorithm 1 uses it, all tasks and all networks of an ensemble at once by torch.func.

Lines 6 to 13: tasks are drawn (8); each is adapted to by gradient descent on its support (10 to 12); the weights that adaptation starts from move down the
gradient of the loss after adaptation (13), through the inner steps: second order. In the paper the embedding is frozen by then and the fully connected head is
what learns: give embedded features as inputs, which are then computed once, or a whole network and the beginnings of the names to freeze.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import grad, vmap

from workbench.errors import DataError, TrainingError, UsageError
from workbench.meta.checkpoints import read_checkpoint, write_checkpoint
from workbench.meta.dense import dense_layers, dense_losses
from workbench.meta.heads import Heads, Loss, Tensors, called, mean_loss, smooth_l1, step_sizes
from workbench.meta.tasks import Episodes, FewShot, Pool

__all__ = ["Inner", "MetaLearner"]


@dataclass(frozen=True)
class Inner:
    """The inner loop: how a network is adapted to a task. The defaults are the author's.

    Attributes:
        steps: of gradient descent on the support. 0 makes the outer loop plain supervised training on the query.
        rate: step size (alpha of Algorithm 1).
        second_order: the outer gradient goes through the inner ones; if not, they are taken for constants (first-order MAML).
        last_layer: only the last layer adapts, the others learn in the outer loop (ANIL).
        learned_rates: each number has a step size of its own, which begins at `rate` and learns in the outer loop (Meta-SGD).

    Raises:
        UsageError: a negative number of steps.
    """

    steps: int = 1
    rate: float = 2e-3
    second_order: bool = True
    last_layer: bool = False
    learned_rates: bool = False

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise UsageError(f"{self.steps} inner steps; at least 0")


class MetaLearner:
    """Networks being meta-trained.

    Attributes:
        heads: the weights that adaptation starts from; training changes them.
        rates: step sizes of the parameters that adapt, [heads] or [heads, ...]; what `adapt` takes.
        step: how many outer steps are behind the weights.
    """

    def __init__(
        self,
        heads: Heads,
        inner: Inner = Inner(),
        *,
        seeds: tuple[int, ...] | None = None,
        frozen: tuple[str, ...] = (),
        rate: float = 1e-3,
        clip: float = 10.0,
        loss: Loss = smooth_l1,
    ) -> None:
        """Begin with copies of networks.

        Args:
            heads: where training begins.
            inner: how a task is adapted to.
            seeds: of the tasks that each network sees; 0, 1, ... if None. A network of an ensemble learns what it would learn alone with its seed.
            frozen: beginnings of the names of parameters that neither loop changes.
            rate: of Adam in the outer loop (beta of Algorithm 1).
            clip: the largest norm of a network's outer gradient.
            loss: of outputs and labels, in both loops.
        Raises:
            UsageError: as many seeds as there are no networks, a name that freezes nothing, or a rate that is not positive.
        """
        self.seeds = tuple(range(len(heads))) if seeds is None else seeds
        if len(self.seeds) != len(heads):
            raise UsageError(f"{len(self.seeds)} seeds for {len(heads)} networks; one each")
        if not (rate > 0 and clip > 0):
            raise UsageError(f"an outer rate of {rate} and gradients of at most {clip}; both are positive")
        self.heads, self.inner, self.frozen, self.rate, self.clip, self.loss = heads.copy(), inner, frozen, rate, clip, loss
        self.rates = step_sizes(heads, inner.rate, frozen=frozen, last_layer=inner.last_layer, each=inner.learned_rates)
        # Heads of the paper's kind that adapt as a whole have a faster way.
        self._dense = dense_layers(heads.net) if inner.steps and not (inner.learned_rates or inner.last_layer or frozen) else []
        self.step = 0
        self._learning = [self.heads.parameters[name] for name in heads.trained(frozen)] + (list(self.rates.values()) if inner.learned_rates else [])
        for tensor in self._learning:
            tensor.requires_grad_()
        self._begin()

    def _begin(self) -> None:
        self._optimiser = torch.optim.Adam(self._learning, lr=self.rate)
        self._good = [t.detach().clone() for t in self._learning]  # the last whose loss was a number, and the outer steps behind them
        self._good_step = self.step

    def losses(self, support: tuple[list[Tensor], Tensor], query: tuple[list[Tensor], Tensor]) -> Tensor:
        """Loss of each network on the query of tasks after adapting to their support, mean over tasks (line 13 has the sum): [heads], differentiable.

        Args:
            support, query: inputs [heads, tasks, shots, ...] each, and labels [heads, tasks, shots].
        """
        parameters, inner = self.heads.parameters, self.inner
        if self._dense and len(support[0]) == 1 and support[0][0].ndim == 4:
            weights, biases = ([parameters[f"{name}.{part}"] for name in self._dense] for part in ("weight", "bias"))
            told, asked = ((inputs[0], labels) for inputs, labels in (support, query))
            return dense_losses(weights, biases, told, asked, steps=inner.steps, rate=inner.rate, second_order=inner.second_order, loss=self.loss)
        return self._general_losses(support, query)

    def _general_losses(self, support: tuple[list[Tensor], Tensor], query: tuple[list[Tensor], Tensor]) -> Tensor:
        # Of any network and with all options, by torch.func; `dense_losses` is the same of some.
        weights = {**self.heads.parameters, **self.heads.buffers}
        fast = {name: weights[name] for name in self.rates}
        slow = {name: t for name, t in weights.items() if name not in fast}

        def of_task(net: nn.Module, fast: Tensors, slow: Tensors, rates: Tensors, x: list[Tensor], y: Tensor, x_query: list[Tensor], y_query: Tensor) -> Tensor:
            def value(fast: Tensors, x: list[Tensor], y: Tensor) -> Tensor:
                return mean_loss(self.loss, called(net, {**fast, **slow}, x), y)

            for _ in range(self.inner.steps):
                slopes = grad(value)(fast, x, y)
                if not self.inner.second_order:
                    slopes = {name: slope.detach() for name, slope in slopes.items()}
                fast = {name: weight - rates[name] * slopes[name] for name, weight in fast.items()}
            return value(fast, x_query, y_query)

        def of_head(net: nn.Module, *given: object) -> Tensor:
            return vmap(lambda *task: of_task(net, *given[:3], *task))(*given[3:]).mean()  # type: ignore[arg-type]

        result: Tensor = self.heads.mapped(of_head, fast, slow, self.rates, *support, *query, in_dims=(0,) * 7)
        return result

    def train(self, pool: Pool, shots: FewShot, steps: int, *, tasks: int = 32, checkpoint: Path | str | None = None, every: int = 100) -> NDArray[np.float64]:
        """Take outer steps; a second call goes on where the first ended. Which tasks a step sees follows from its number and the seeds.

        Args:
            pool: examples to draw tasks from.
            shots: how.
            steps: outer steps.
            tasks: in each.
            checkpoint: file to save to after every `every` steps and after the last, if any.
            every: outer steps from one saving to the next.
        Returns:
            Loss on the queries before each step [steps, heads].
        Raises:
            TrainingError: a loss or gradient that is not a finite number; the weights are the last whose loss was one.
            UsageError: tasks that cannot be drawn from the pool, or a checkpoint that cannot be written.
        """
        inputs, labels = [torch.from_numpy(array) for array in pool.inputs], torch.from_numpy(pool.labels)
        history = []
        for _ in range(steps):
            episodes = [shots.draw(pool, tasks, np.random.default_rng([seed, self.step])) for seed in self.seeds]
            history.append(self._update(*self._examples(episodes, inputs, labels)))
            if checkpoint is not None and self.step % every == 0:
                self.save(checkpoint)
        if checkpoint is not None and self.step % every:
            self.save(checkpoint)
        return torch.stack(history).double().numpy() if history else np.empty((0, len(self.heads)))

    @staticmethod
    def _examples(episodes: list[Episodes], inputs: list[Tensor], labels: Tensor) -> list[tuple[list[Tensor], Tensor]]:
        rows = (torch.from_numpy(np.stack([getattr(e, part) for e in episodes])) for part in ("support", "query"))
        return [([array[places] for array in inputs], labels[places]) for places in rows]

    def _update(self, support: tuple[list[Tensor], Tensor], query: tuple[list[Tensor], Tensor]) -> Tensor:
        losses = self.losses(support, query)
        self._check(losses.detach(), "loss")
        for kept, tensor in zip(self._good, self._learning, strict=True):
            kept.copy_(tensor.detach())
        self._good_step = self.step
        gradient = torch.autograd.grad(losses.sum(), self._learning)
        norms = torch.stack([g.flatten(1).square().sum(1) for g in gradient]).sum(0).sqrt()
        self._check(norms, "gradient")
        shrink = (self.clip / norms).clamp(max=1.0)
        for tensor, g in zip(self._learning, gradient, strict=True):
            tensor.grad = g * shrink.reshape(-1, *(1,) * (g.ndim - 1))
        self._optimiser.step()
        self._optimiser.zero_grad()
        self.step += 1
        return losses.detach()

    def _check(self, numbers: Tensor, what: str) -> None:
        if numbers.isfinite().all():
            return
        place, failed = int((~numbers.isfinite()).nonzero()[0, 0]), self.step
        with torch.no_grad():
            for kept, tensor in zip(self._good, self._learning, strict=True):
                tensor.copy_(kept)
        self.step = self._good_step
        self._begin()
        raise TrainingError(
            f"outer step {failed}: the {what} of the network with seed {self.seeds[place]} is {numbers[place]:g}; those after {self.step} steps are kept. "
            f"Take a smaller outer rate ({self.rate:g}) or inner step size ({self.inner.rate:g})"
        )

    def _settings(self) -> dict[str, object]:
        shapes = {name: list(p.shape) for name, p in self.heads.parameters.items()}
        return {"inner": asdict(self.inner), "seeds": list(self.seeds), "frozen": list(self.frozen), "rate": self.rate, "clip": self.clip, "shapes": shapes}

    def save(self, path: Path | str) -> None:
        """Write a checkpoint, whole or not at all. Raises UsageError if it cannot be written."""
        tensors = {name: p.detach() for name, p in self.heads.parameters.items()}
        rates = {name: r.detach() for name, r in self.rates.items()}
        state = {"step": self.step, "parameters": tensors, "buffers": self.heads.buffers, "rates": rates, "optimiser": self._optimiser.state_dict()}
        write_checkpoint(Path(path), "meta-training", self._settings(), state)

    def load(self, path: Path | str) -> None:
        """Go on from a checkpoint of a learner that was made in the same way: what it learns from here on is bit for bit what that one would have learnt.

        Raises:
            UsageError: no such file, or one of a learner that was made in another way.
            DataError: not a whole checkpoint.
        """
        state = read_checkpoint(Path(path), "meta-training", self._settings())
        with torch.no_grad():
            try:
                for mine, saved in ((self.heads.parameters, "parameters"), (self.heads.buffers, "buffers"), (self.rates, "rates")):
                    for name, tensor in mine.items():
                        tensor.copy_(state[saved][name])
                self.step = state["step"]
                self._begin()
                self._optimiser.load_state_dict(state["optimiser"])
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise DataError(f"{path}: a checkpoint without all of its fields ({error}); train again") from error
