"""The name that a CPU's measurements are recorded under."""

from __future__ import annotations

import os

import pytest

from workbench.measure import host


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Intel(R) Core(TM) i5-7360U CPU @ 2.30GHz", "intel-core-i5-7360u"),
        ("AMD EPYC 9654 96-Core Processor", "amd-epyc-9654-96-core"),
        ("Apple M1", "apple-m1"),
    ],
)
def test_the_name_is_the_model_without_its_ornaments(monkeypatch, model, name):
    monkeypatch.setattr(host, "_facts", lambda: {"model name": model})
    assert (host.cpu().name, host.cpu().model, host.cpu().kind) == (name, model, "cpu")


def test_a_system_that_says_nothing_still_has_a_name(monkeypatch):
    monkeypatch.setattr(host, "_facts", dict)
    monkeypatch.setattr(host.platform, "processor", lambda: "")
    monkeypatch.setattr(host.platform, "machine", lambda: "")
    assert host.cpu().name == "cpu"
    monkeypatch.setattr(host.os, "getloadavg", lambda: (_ for _ in ()).throw(OSError()))
    assert host.load() is None


def test_features_of_a_cpu_tell_it_from_others(monkeypatch):
    monkeypatch.setattr(host, "_facts", lambda: {"model name": "X", "flags": "sse avx"})
    first = host.cpu_identity()
    monkeypatch.setattr(host, "_facts", lambda: {"model name": "X", "flags": "sse avx avx2"})
    assert host.cpu_identity() != first
    assert host.usable_cpus() >= 1


def test_a_processor_is_told_from_others_of_the_same_name(monkeypatch):
    monkeypatch.setattr(host, "_facts", lambda: {"vendor_id": "GenuineIntel", "cpu family": "6", "model": "207", "model name": "Some CPU", "stepping": "2"})
    assert host.processor() == "GenuineIntel family 6 model 207 stepping 2"
    monkeypatch.setattr(host, "_facts", dict)
    assert host.processor() == ""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not pin processes")
def test_the_last_cpu_is_one_that_may_be_used() -> None:
    assert host.last_cpu() == (max(os.sched_getaffinity(0)),)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not pin processes")
def test_the_last_cpus_are_no_more_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 3, 4})
    assert [host.last_cpus(count) for count in (1, 2, 9)] == [(5,), (4, 5), (3, 4, 5)]
