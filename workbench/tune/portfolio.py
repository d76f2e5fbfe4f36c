"""A search that begins by trying what each source of a cost model thinks best, and goes on with what the cost model, having seen it, ranks first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.models.surrogate import Adapted, Trials
from workbench.tune.search import Candidates, Greedy, Indices, Search

__all__ = ["Portfolio"]


@dataclass
class Portfolio(Search):
    """The first trials go round the sources of the cost model (`Adapted.opinions`), each giving its best candidate that is left. One source makes it greedy.

    With several, such as other devices that measured the same configurations, the few first trials so tell which of them this task is like, where the average
    of all would ask for more of what they agree on.

    Args:
        start: trials that are given out so.
        sampled: see `Greedy`.
    """

    start: int = 10
    sampled: int = 4096

    def propose(self, model: Adapted, candidates: Candidates, trials: Trials, count: int, rng: np.random.Generator) -> Indices:
        """See `Search`."""
        first = min(count, self.start - len(trials))
        greedy = Greedy(self.sampled)
        if first <= 0:
            return greedy.propose(model, candidates, trials, count, rng)
        looked_at = candidates.all()
        looked_at = rng.permutation(candidates.sample(self.sampled, rng) if looked_at is None else looked_at)
        opinions = model.opinions(looked_at)
        if len(opinions) == 1:
            return greedy.propose(model, candidates, trials, count, rng)
        chosen: dict[int, None] = {}
        ranks = [iter(order) for order in np.argsort(-opinions, axis=1, kind="stable")]
        for turn in range(min(first, len(looked_at))):
            rank = ranks[turn % len(ranks)]
            chosen[next(place for place in rank if place not in chosen)] = None
        after = np.argsort(-opinions[0], kind="stable")
        rest = [place for place in after if place not in chosen][: count - len(chosen)]
        return looked_at[[*chosen, *rest]]
