"""The loop of auto-tuning, as AutoTVM has it: ask for a batch, measure it, tell, update the cost model, until a budget is spent.

`Tuner` is for a loop of one's own: `ask` and `tell`. `tune` is the loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UsageError, WorkbenchError
from workbench.features.tasks import TuningTask
from workbench.measure.answers import Answer, Answers
from workbench.models.surrogate import Adapted, Trials
from workbench.tune.search import Candidates, Indices, Search

__all__ = ["Answer", "Answers", "Budget", "Outcome", "Session", "Tuner", "tune"]


@dataclass(frozen=True)
class Budget:
    """When to stop: whatever is spent first. At least one is given.

    Attributes:
        trials: measurements.
        seconds: charged time: of search and model as it passes, of building and running as answered, or as it passes where an answer does not say.
        no_improvement: trials since the best was found.
    """

    trials: int | None = None
    seconds: float | None = None
    no_improvement: int | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if not given:
            raise UsageError("a budget without an end; give trials, seconds or no_improvement")
        for name, value in given.items():
            if not value > 0:
                raise UsageError(f"budget: {name} is {value!r}; it is above 0")


@dataclass(eq=False)
class Tuner:
    """Tunes one task: `ask` gives configurations to measure, `tell` takes what came out.

    Args:
        task: what is tuned.
        model: a cost model on it.
        search: a search algorithm of its own.
        candidates: what may be measured; None is every configuration of the task's space.
        epsilon: share of a batch that is drawn by chance (AutoTVM: 0.05).
        seed: of everything that is drawn.

    Attributes:
        trials: what was told.
        predicted: what the cost model said of each trial when it was asked for [trials], NaN for one that was told without being asked for.
    """

    task: TuningTask
    model: Adapted
    search: Search
    candidates: Candidates | None = None
    epsilon: float = 0.05
    seed: int = 0
    trials: Trials = field(default_factory=Trials.none)
    predicted: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    _said: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise UsageError(f"epsilon is {self.epsilon!r}; it is a share from 0 to 1")
        self._rng = np.random.default_rng(self.seed)
        self._left = self.candidates or Candidates(self.task.space)

    def ask(self, count: int = 64) -> Indices:
        """At most `count` different configurations that were not asked for or told before; none where none are left."""
        if count < 1:
            raise UsageError(f"{count} configurations asked for; ask for 1 or more")
        by_chance = int(np.sum(self._rng.random(count) < self.epsilon)) if self.epsilon else 0
        found = self.search.propose(self.model, self._left, self.trials, count - by_chance, self._rng) if count > by_chance else np.empty(0, dtype=np.int64)
        self._left.tried(found)
        if by_chance:
            drawn = self._left.sample(by_chance, self._rng)
            self._left.tried(drawn)
            found = np.concatenate([found, drawn]) if len(found) else drawn
        if len(found):
            self._said |= zip(found.tolist(), self.model.predict(found).mean.tolist(), strict=True)
        return found

    def tell(self, indices: ArrayLike, throughput: ArrayLike, valid: ArrayLike) -> None:
        """Take outcomes, of configurations that were asked for or of any others, and update the model.

        Raises:
            DataError: see `Trials`.
            SpaceError: an index that is not in the space.
        """
        given = np.asarray(indices)
        self.task.space.digits(given)
        # What was measured is kept, whatever the model makes of it.
        self.trials = self.trials.and_then(given, throughput, valid)
        self.predicted = np.concatenate([self.predicted, [self._said.get(index, np.nan) for index in given.tolist()]])
        self._left.tried(given)
        self.model.update(self.trials)


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a tuning ended, or how it stands after a round.

    Attributes:
        trials: all that was measured, in order.
        predicted: what the cost model had said of each [trials].
        round: in which round each was measured [trials], from 0; -1 for what the tuner was told before.
        seconds: spent by each round on searching, updating the model, building and running [rounds, 4]; NaN where not recorded.
        why: what ended it, "" while it goes on.
    """

    trials: Trials
    predicted: NDArray[np.float64]
    round: NDArray[np.int64]
    seconds: NDArray[np.float64]
    why: str


Session = Callable[[Outcome], None]


def tune(tuner: Tuner, answers: Answers, budget: Budget, batch: int = 64, on_round: Session | None = None) -> Outcome:
    """Ask, measure, tell, until the budget is spent or no candidate is left.

    Interrupted (Ctrl-C), or with a cost model or a search that fails (a loss that is no number, say), it ends there and gives what it has; the outcome says so.

    Args:
        tuner: may have been told of trials before; they do not count.
        answers: measures configurations. What it raises ends the tuning; `tuner` has what was measured before.
        budget: when to stop.
        batch: configurations a round (AutoTVM: 64).
        on_round: called after each round with how it stands.
    """
    start = len(tuner.trials)
    rounds = [-1] * start
    spent: list[tuple[float, float, float, float]] = []
    improved, unsaid, why = 0, 0.0, ""

    def outcome() -> Outcome:
        return Outcome(tuner.trials, tuner.predicted, np.array(rounds, dtype=np.int64), np.array(spent).reshape(-1, 4), why)

    while not why:
        done = len(rounds) - start
        count = batch if budget.trials is None else min(batch, budget.trials - done)
        before = tuner.trials.best
        try:
            began = time.perf_counter()
            try:
                asked = tuner.ask(count)
            except WorkbenchError as error:
                why = f"the search failed: {error}"
                break
            if not len(asked):
                why = "no candidates are left"
                break
            proposed = time.perf_counter()
            answer = answers(asked)
            measured = time.perf_counter()
        except KeyboardInterrupt:
            why = "interrupted"
            break
        try:
            tuner.tell(asked, answer.throughput, answer.valid)
        except KeyboardInterrupt:
            why = "interrupted"
        except WorkbenchError as error:
            why = f"the cost model failed: {error}"
        build, run = (float(np.nansum(part)) if np.isfinite(part).any() else np.nan for part in (answer.build_s, answer.run_s))
        if np.isnan(build) and np.isnan(run):
            unsaid += measured - proposed
        rounds += [len(spent)] * (len(tuner.trials) - len(rounds))
        spent.append((proposed - began, time.perf_counter() - measured, build, run))
        done = len(rounds) - start
        if tuner.trials.best > before:
            improved = int(tuner.trials.throughput[start:].argmax()) + 1
        why = why or _spent(budget, done, float(np.nansum(spent)) + unsaid, done - improved)
        if on_round is not None:
            on_round(outcome())
    return outcome()


def _spent(budget: Budget, trials: int, seconds: float, in_vain: int) -> str:
    """What of a budget is spent, "" if nothing is."""
    if budget.trials is not None and trials >= budget.trials:
        return f"{trials} trials"
    if budget.seconds is not None and seconds >= budget.seconds:
        return f"{seconds:.0f} seconds"
    if budget.no_improvement is not None and in_vain >= budget.no_improvement:
        return f"{in_vain} trials without improvement"
    return ""
