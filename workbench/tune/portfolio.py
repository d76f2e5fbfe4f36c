"""A search whose batches are named by several sources of a cost model, so that a batch is not lost where one of them is wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.models.surrogate import Adapted, Trials
from workbench.tune.search import Candidates, Indices, Search

__all__ = ["Portfolio"]


@dataclass
class Portfolio(Search):
    """The sources of a cost model (`Adapted.opinions`) take turns by their shares, and each names its best candidate that is left.

    Args:
        sampled: configurations that are looked at where the space is too large to be looked at whole.
    """

    sampled: int = 4096

    def propose(self, model: Adapted, candidates: Candidates, trials: Trials, count: int, rng: np.random.Generator) -> Indices:
        """See `Search`."""
        looked_at = candidates.all()
        # Equal opinions, as before anything is learnt, are taken by chance.
        looked_at = rng.permutation(candidates.sample(self.sampled, rng) if looked_at is None else looked_at)
        if not len(looked_at):
            return looked_at
        opinions = model.opinions(looked_at)
        shares = np.array(opinions.shares) / sum(opinions.shares)
        orders = [iter(order) for order in np.argsort(-opinions.rankings, axis=1, kind="stable")]
        chosen: dict[int, None] = {}
        named = np.zeros(len(shares))
        while len(chosen) < min(count, len(looked_at)):
            source = int(np.argmax(shares * (len(chosen) + 1) - named))
            chosen[next(place for place in orders[source] if place not in chosen)] = None
            named[source] += 1
        return looked_at[list(chosen)]
