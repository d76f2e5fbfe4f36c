"""Each framework is a line of composition; here each is taken through a small tuning. The throughputs are invented."""

from __future__ import annotations

import pytest

from workbench.errors import UsageError
from workbench.tune.frameworks import FRAMEWORKS, NoModel, framework
from workbench.tune.search import Greedy, RandomSearch


def test_names_and_an_unknown_one() -> None:
    assert all(name == found.name for name, found in FRAMEWORKS.items())
    with pytest.raises(UsageError, match=r"no framework 'meta-bo-x'; there are random"):
        framework("meta-bo-x")


def test_random_needs_no_history_and_stays_random_where_others_rank() -> None:
    random = framework("random")
    fitted = random.fit([])
    assert isinstance(fitted, NoModel)
    assert isinstance(random.search(), RandomSearch)
    assert not isinstance(random.search(), Greedy)
