"""The frameworks that compete in an experiment: those of the package, and what needs no learning at all."""

from __future__ import annotations

from workbench.models.averages import Averages
from workbench.tune.frameworks import FRAMEWORKS, Framework, framework
from workbench.tune.search import Greedy

__all__ = ["AVERAGES", "contender", "contenders"]

AVERAGES = Framework("averages", "plain average of the other tasks' relative speeds", Averages, Greedy, transfers=True, epsilon=0.0)


def contender(name: str) -> Framework:
    """The framework of that name. Raises UsageError for an unknown one."""
    return AVERAGES if name == AVERAGES.name else framework(name)


def contenders() -> list[str]:
    """Names of all, in the order of the package."""
    return [*FRAMEWORKS, AVERAGES.name]
