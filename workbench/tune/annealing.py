"""Simulated annealing over what a cost model predicts, as AutoTVM searches: many chains at once, each a walk that changes one knob at a time.

Nothing is measured on the way. The best predicted configurations that were not tried before are what is measured next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workbench.models.surrogate import Adapted, Trials
from workbench.space import Space
from workbench.tune.search import Candidates, Indices, Search
from workbench.tune.walks import Scores, Top, near_rows, starts

__all__ = ["Annealing"]

Floats = NDArray[np.float64]

_TRIES = 2  # draws a move has to find a configuration that may be measured; without success its chain stays for a step
_DENSE = 8  # a table that holds at least one in so many configurations of its space is walked by changing a knob


@dataclass(eq=False)
class Annealing(Search):
    """The best predicted candidates that chains of simulated annealing come by (AutoTVM's defaults).

    A step moves every chain to a neighbour: a configuration with another option of one knob. It is taken if its prediction is higher, and if it is lower by d
    with probability exp(-d / temperature). In a recorded table that holds one in 8 configurations of its space or more, a neighbour is a row that differs in
    one knob; in a sparser one, where there are hardly any, it is one of the 16 rows nearest in the space's coordinates, so that annealing comes close to a
    ranking of the table. A table is predicted whole before the walk, a configuration of a larger space when a chain first comes by.

    Args:
        chains: walks at once; they go on in the next round from where they are.
        steps: of each walk in a round.
        temperature: at the first step and, falling linearly, at the end.
        patience: a round ends when the best predicted stay the same for so many steps.

    Attributes:
        predicted: configurations that the last round asked the cost model about.
        walked: steps of the last round.
    """

    chains: int = 128
    steps: int = 500
    temperature: tuple[float, float] = (1.0, 0.0)
    patience: int = 50
    predicted: int = field(default=0, init=False)
    walked: int = field(default=0, init=False)
    _places: Indices | None = field(default=None, init=False)
    _moves: _Moves | None = field(default=None, init=False)

    def propose(self, model: Adapted, candidates: Candidates, trials: Trials, count: int, rng: np.random.Generator) -> Indices:
        """See `Search`."""
        if not candidates.left:
            return candidates.sample(0, rng)
        if self._moves is None:
            self._moves = _moves_of(candidates)
        scores = Scores(model, candidates)
        if self._places is None:
            self._places = starts(candidates, self.chains, rng)
        here = self._places
        value = scores.of(here)
        top = Top(count, candidates)
        top.add(here, value)
        last, (hot, cold) = 0, self.temperature
        for step in range(self.steps):
            there = self._moves.from_(here, rng)
            found = scores.of(there)
            temperature = hot + (cold - hot) * step / self.steps + 1e-5
            # Written so that a prediction that is no number never holds a chain.
            taken = ~(rng.random(len(here)) > np.exp(np.minimum((found - value) / temperature, 0.0)))
            here, value = np.where(taken, there, here), np.where(taken, found, value)
            if top.add(there, found):
                last = step
            elif step - last >= self.patience:
                break
        self._places = here
        self.predicted, self.walked = scores.asked, step + 1
        best = top.indices
        return best if len(best) == count else candidates.filled(best, count, rng)


class _Moves(Protocol):
    def from_(self, indices: Indices, rng: np.random.Generator) -> Indices:
        """A neighbour of each of `indices` [n]."""


def _moves_of(candidates: Candidates) -> _Moves:
    pool, space = candidates.pool, candidates.space
    if pool is None or len(pool) * _DENSE >= space.size:
        return _KnobMoves(space, pool)
    return _RowMoves(candidates)


class _KnobMoves:
    # To another option of one knob, within the constraints or the table.

    def __init__(self, space: Space, pool: Indices | None) -> None:
        self._space, self._pool = space, pool
        radix = np.array(space.radix)
        self._free = np.flatnonzero(radix > 1)
        self._radix = radix[self._free]
        # Python's whole numbers, where an index does not fit into 64 bits.
        strides = [1]
        for options in space.radix[:-1]:
            strides.append(strides[-1] * options)
        self._stride = np.array(strides, dtype=space.dtype)[self._free]
        self._always = pool is None and not space.constraints

    def from_(self, indices: Indices, rng: np.random.Generator) -> Indices:
        if not len(self._free):
            return indices
        which, far = rng.random((2, 1 if self._always else _TRIES, len(indices)))
        knob = (which * len(self._free)).astype(np.intp)
        radix, stride = self._radix[knob], self._stride[knob]
        digit: NDArray[Any] = indices // stride % radix
        # One of the other options: 1 to radix - 1 further, around the end.
        there: Indices = indices + ((digit + 1 + (far * (radix - 1)).astype(np.int64)) % radix - digit) * stride
        if self._always:
            return there[0]
        good = self._good(there.ravel()).reshape(there.shape)
        first = good.argmax(axis=0)
        each = np.arange(len(indices))
        return np.where(good[first, each], there[first, each], indices)

    def _good(self, indices: Indices) -> NDArray[np.bool_]:
        if self._pool is None:
            return self._space.satisfies(indices)
        return self._pool[np.minimum(np.searchsorted(self._pool, indices), len(self._pool) - 1)] == indices


class _RowMoves:
    # To one of the nearest rows of a table.

    def __init__(self, candidates: Candidates) -> None:
        assert candidates.pool is not None
        self._pool, self._near = candidates.pool, near_rows(candidates)

    def from_(self, indices: Indices, rng: np.random.Generator) -> Indices:
        place = np.searchsorted(self._pool, indices)
        return self._pool[self._near[place, rng.integers(self._near.shape[1], size=len(indices))]]
