"""A store keeps how a series was measured, and refuses what was measured otherwise."""

from __future__ import annotations

import pytest

from workbench.data.store import Store
from workbench.errors import DataError, UsageError
from workbench.measure.provenance import claim, recorded

STATED = {"compiler": "g++ 99", "policy": "the least of 7", "device": '{"name": "some-cpu"}', "seed": "0", "command": "workbench measure matrix"}


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.db") as opened:
        yield opened


def test_the_first_claim_is_what_is_recorded(store):
    claim(store, "series", "mv in eigen", STATED)
    claim(store, "series", "mv in eigen", STATED)
    assert recorded(store, "series", "mv in eigen") == STATED
    with pytest.raises(UsageError, match="measurements of mv in eigen have seed '0', these would have '1'; use another store"):
        claim(store, "series", "mv in eigen", {**STATED, "seed": "1"})
    assert recorded(store, "series", "mv in eigen") == STATED
    claim(store, "another", "mv in boost", {**STATED, "seed": "1"})


def test_what_an_earlier_version_did_not_state_is_no_difference(store):
    claim(store, "series", "mv in eigen", STATED)
    claim(store, "series", "mv in eigen", {**STATED, "processor": "family 6"})
    claim(store, "another", "mv in boost", {**STATED, "processor": "family 6"})
    with pytest.raises(UsageError, match="have processor 'family 6', these would have 'family 7'"):
        claim(store, "another", "mv in boost", {**STATED, "processor": "family 7"})


def test_what_was_never_stated(store):
    with pytest.raises(DataError, match="does not say how mv in eigen was measured"):
        recorded(store, "series", "mv in eigen")
