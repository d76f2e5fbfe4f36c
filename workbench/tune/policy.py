"""The search of Chameleon (Ahn et al., 2020): a policy learns by proximal policy optimisation to walk to what a cost model predicts to be fast, and of
the best that it met a few that stand for the others are measured.

The figures are those of the paper (arXiv 2001.08743) and of its authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.models.surrogate import Adapted, Trials
from workbench.tune.search import Candidates, Indices, Search
from workbench.tune.walks import Scores, Top, near_rows, starts

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PolicySearch", "representatives"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_UNITS = 20  # of each of two hidden layers
_RATE, _DISCOUNT, _LAMBDA, _CLIP, _VALUE, _ENTROPY = 1e-3, 0.9, 0.99, 0.2, 1.0, 0.3
_EPOCHS, _MINIBATCH = 3, 32  # minibatches an episode is worth, and their size
_IDLE = 0.75  # an episode ends with a step at which so many of the knobs stay
_TOGETHER = 16  # episodes between updates
_KNOBS, _MORE, _LOSS = 2, 8, 2.5  # adaptive sampling: knobs that are looked at, clusters to begin with and to add, the fall of the loss that is worth them


@dataclass(eq=False)
class PolicySearch(Search):
    """A policy of its own for each task, which goes on learning from round to round, and adaptive sampling.

    A step turns each knob down by an option, leaves it, or turns it up; the reward is the cost model's prediction. An episode begins at a candidate by chance
    and ends when three quarters of the knobs stay, by choice or at an end. In a space with constraints a step out of them is not made. In a recorded table a
    step to what it has not leads to one of the 16 nearest rows instead, the one that lies most in its direction.

    Args:
        episodes: a round; 16 at a time between two updates of the policy (in the paper one).
        steps: at most, of an episode.
        adaptive: whether representatives alone are measured, fewer than what is asked for, or all of the best predicted.

    Attributes:
        predicted: configurations that the last round asked the cost model about.
        walked: steps of the last round, of all episodes.
    """

    episodes: int = 128
    steps: int = 500
    adaptive: bool = True
    predicted: int = field(default=0, init=False)
    walked: int = field(default=0, init=False)
    _agent: _Agent | None = field(default=None, init=False)
    _world: _World | None = field(default=None, init=False)

    def propose(self, model: Adapted, candidates: Candidates, trials: Trials, count: int, rng: np.random.Generator) -> Indices:
        """See `Search`."""
        if not candidates.left:
            return candidates.sample(0, rng)
        if self._agent is None or self._world is None:
            self._world, self._agent = _World(candidates), _Agent(len(candidates.space.knobs), int(rng.integers(2**31)))
        scores, top = Scores(model, candidates), Top(count, candidates)
        self.walked = 0
        begin = starts(candidates, self.episodes, rng)
        top.add(begin, scores.of(begin))
        for first in range(0, self.episodes, _TOGETHER):
            walks = _walk(self._agent, self._world, begin[first : first + _TOGETHER], self.steps, rng)
            reward = scores.of(walks.reached)
            top.add(walks.reached, reward)
            self._agent.learn(walks, np.nan_to_num(reward), rng)
            self.walked += len(reward)
        self.predicted = scores.asked
        best = top.indices if len(top.indices) == count else candidates.filled(top.indices, count, rng)
        return best[representatives(candidates.space.digits(best), candidates.space.radix, int(rng.integers(2**31)))] if self.adaptive else best


def representatives(digits: Ints, radix: tuple[int, ...], seed: int) -> Ints:
    """Adaptive sampling: places of those of n configurations, the best first, that stand for the others, in their order.

    The configurations are clustered by k-means in their two knobs of most options, into 8 clusters, 16, ... as long as 8 more bring the sum of squared
    distances down to less than 1 / 2.5. Of each cluster the configuration nearest to its centre is taken, of equally near ones the best. (The authors build a
    new configuration of the centre's two knobs and other knobs by chance.)

    Args:
        digits: option numbers [n, knobs].
        radix: options of each knob.
        seed: of k-means.
    """
    from sklearn.cluster import KMeans

    wide = np.argsort(-np.array(radix), kind="stable")[:_KNOBS]
    points = digits[:, wide].astype(np.float64)
    distinct = len(np.unique(points, axis=0))
    last, clusters = np.inf, _MORE
    while clusters < distinct:
        found = KMeans(clusters, n_init=1, random_state=seed).fit(points)
        if found.inertia_ >= last / _LOSS:
            break
        last, clusters = found.inertia_, clusters + _MORE
    if clusters >= distinct:  # no two share a cluster but those that share a place
        return np.sort(np.unique(points, axis=0, return_index=True)[1]).astype(np.int64) if distinct > _MORE else np.arange(min(len(points), _MORE))
    away = ((points - found.cluster_centers_[found.labels_]) ** 2).sum(axis=1)
    order = np.lexsort((np.arange(len(points)), away))
    return np.sort(order[np.unique(found.labels_[order], return_index=True)[1]])


@dataclass(frozen=True, eq=False)
class _Walks:
    # Steps of several episodes, one after the other: seen [steps, knobs], chosen [steps, knobs] 0 to 2, how likely each choice was as logarithm [steps], where
    # it led [steps], and the number of each step's episode.
    seen: NDArray[np.float32]
    chosen: Ints
    likely: NDArray[np.float32]
    reached: Indices
    episode: Ints


def _walk(agent: _Agent, world: _World, begin: Indices, steps: int, rng: np.random.Generator) -> _Walks:
    active, here, digits = np.arange(len(begin)), begin, world.space.digits(begin)
    rows: list[tuple[Any, ...]] = []
    for _ in range(steps):
        seen = (digits / world.radix).astype(np.float32)
        chosen, likely = agent.act(seen, rng)
        here, digits, idle = world.step(here, digits, chosen - 1)
        rows.append((seen, chosen, likely, here, active))
        # The step that stays is the episode's last.
        active, here, digits = active[~idle], here[~idle], digits[~idle]
        if not len(active):
            break
    parts = [np.concatenate(part) for part in zip(*rows, strict=True)]
    order = np.argsort(parts[-1], kind="stable")
    return _Walks(*(part[order] for part in parts))


class _World:
    # Where a step leads.

    def __init__(self, candidates: Candidates) -> None:
        self.space, self._pool = candidates.space, candidates.pool
        self.radix = np.array(candidates.space.radix)
        if self._pool is not None:
            self._near, self._digits = near_rows(candidates), candidates.space.digits(self._pool)
            places = self._digits / self.radix
            toward = places[self._near] - places[:, None]
            # Directions of length 1; a table of one row has none.
            self._toward = toward / np.maximum(np.linalg.norm(toward, axis=2, keepdims=True), 1e-12)

    def step(self, here: Indices, digits: Ints, turn: Ints) -> tuple[Indices, Ints, NDArray[np.bool_]]:
        """Where knobs [n, knobs] turned by -1, 0 or 1 lead, its option numbers, and whether the episode ends there."""
        moved = np.clip(digits + turn, 0, self.radix - 1)
        idle = ((turn == 0) | (turn < 0) & (moved == 0) | (turn > 0) & (moved == self.radix - 1)).mean(axis=1) >= _IDLE
        there = self.space.from_digits(moved)
        if self._pool is not None:
            inside = self._pool[np.minimum(np.searchsorted(self._pool, there), len(self._pool) - 1)] == there
            row = np.searchsorted(self._pool, here)
            direction = (self._toward[row] @ (turn / self.radix)[:, :, None])[:, :, 0]
            nearest = self._near[row, direction.argmax(axis=1)]
            return np.where(inside, there, self._pool[nearest]), np.where(inside[:, None], moved, self._digits[nearest]), idle
        if self.space.constraints:
            inside = self.space.satisfies(there)
            return np.where(inside, there, here), np.where(inside[:, None], moved, digits), idle
        return there, moved, idle


class _Agent:
    # The policy, what it takes a place to be worth, and how both learn.

    def __init__(self, knobs: int, seed: int) -> None:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._policy, self._value = _net(knobs, 3 * knobs), _net(knobs, 1)
        self._knobs = knobs
        self._optimiser = torch.optim.Adam([*self._policy.parameters(), *self._value.parameters()], lr=_RATE, eps=1e-5)

    def act(self, seen: NDArray[np.float32], rng: np.random.Generator) -> tuple[Ints, NDArray[np.float32]]:
        """Choices [n, knobs], 0 to 2, and the logarithm of how likely all of a row were [n]."""
        import torch

        with torch.no_grad():
            logarithm = self._policy(torch.from_numpy(seen)).view(-1, self._knobs, 3).log_softmax(dim=2).numpy()
        # The largest of logarithms with Gumbel noise is drawn as likely as it is.
        chosen = (logarithm + rng.gumbel(size=logarithm.shape)).argmax(axis=2)
        return chosen, np.take_along_axis(logarithm, chosen[:, :, None], axis=2)[:, :, 0].sum(axis=1)

    def learn(self, walks: _Walks, reward: Floats, rng: np.random.Generator) -> None:
        """Three minibatches for each episode, of steps of all of them by chance, as the authors' code draws them."""
        import torch

        seen, chosen = torch.from_numpy(walks.seen), torch.from_numpy(walks.chosen)
        with torch.no_grad():
            worth = self._value(seen)[:, 0].double().numpy()
        advantage, target = advantages(reward, worth, walks.episode)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        likely, gained, wanted = (torch.from_numpy(part.astype(np.float32)) for part in (walks.likely, advantage, target))
        for places in rng.integers(len(reward), size=(_EPOCHS * (int(walks.episode[-1]) + 1), _MINIBATCH)):
            rows = torch.from_numpy(places)
            logarithm = self._policy(seen[rows]).view(-1, self._knobs, 3).log_softmax(dim=2)
            now = logarithm.gather(2, chosen[rows][:, :, None])[:, :, 0].sum(dim=1)
            ratio = (now - likely[rows]).exp()
            clipped = torch.minimum(ratio * gained[rows], ratio.clamp(1 - _CLIP, 1 + _CLIP) * gained[rows]).mean()
            entropy = -(logarithm.exp() * logarithm).sum(dim=2).mean()
            error = (self._value(seen[rows])[:, 0] - wanted[rows]).square().mean()
            self._optimiser.zero_grad()
            (_VALUE * error - clipped - _ENTROPY * entropy).backward()
            self._optimiser.step()


def _net(inputs: int, outputs: int) -> nn.Sequential:
    from torch import nn

    return nn.Sequential(nn.Linear(inputs, _UNITS), nn.Tanh(), nn.Linear(_UNITS, _UNITS), nn.Tanh(), nn.Linear(_UNITS, outputs))


def advantages(reward: Floats, worth: Floats, episode: Ints) -> tuple[Floats, Floats]:
    """Generalised advantages of steps [n], and what each step's place should have been worth: its reward and what the next is worth, less the discount.

    Args:
        reward, worth: of each step and its place, episode by episode.
        episode: number of each step's; after its last step there is nothing.
    """
    last = np.append(episode[1:] != episode[:-1], True)
    target = reward + _DISCOUNT * np.where(last, 0.0, np.append(worth[1:], 0.0))
    gained = target - worth
    for step in reversed(range(len(gained) - 1)):
        if not last[step]:
            gained[step] += _DISCOUNT * _LAMBDA * gained[step + 1]
    return gained, target
