"""Kernel Tuner's strategies on invented tables: by a stand-in for it, which asks for what it likes, and by itself where it is installed."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_tuning import hills

from workbench.errors import MissingPackage
from workbench.reproduce.tuning import kernel_tuner
from workbench.reproduce.tuning.pools import Pool


@pytest.fixture
def pool() -> Pool:
    return hills().splits[0].target


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the stand-in was called with. Its strategy asks for the table from its end, for the first twice, and for one outside."""
    calls: list[dict[str, Any]] = []

    def tune_kernel(name: str, source: str, size: tuple[int, ...], arguments: list[Any], values: dict[str, list[Any]], **options: Any) -> tuple[Any, Any]:
        cache = json.loads(Path(options["cache"]).read_text())
        drawn = random.random(), np.random.random()  # noqa: NPY002
        calls.append({"table": cache["cache"], "values": values, "inside": options["restrictions"][0].of, "drawn": drawn, **options})
        print("noise")
        rows = list(reversed(cache["cache"].values()))
        outside = dict.fromkeys(values, -1)
        return [rows[0], rows[0], None, outside, *rows[1:]], {}

    monkeypatch.setitem(sys.modules, "kernel_tuner", ModuleType("kernel_tuner"))
    monkeypatch.setattr(sys.modules["kernel_tuner"], "tune_kernel", tune_kernel, raising=False)
    monkeypatch.setattr(sys.modules["kernel_tuner"], "__spec__", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "constraint", ModuleType("constraint"))
    monkeypatch.setattr(sys.modules["constraint"], "FunctionConstraint", lambda of: SimpleNamespace(of=of), raising=False)
    return calls


def test_each_configuration_that_is_asked_for_is_one_trial(pool: Pool, asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    label = pool.measured.label
    sessions = kernel_tuner.simulate(pool, ["mls"], [3], len(label) + 5)
    curve = sessions["curve"][0]
    np.testing.assert_allclose(curve[: len(label)], np.maximum.accumulate(label[::-1]))
    assert (curve[len(label) :] == 1).all()
    assert len(curve) == len(label) + 5
    (call,) = asked
    assert (call["strategy"], call["strategy_options"], call["simulation_mode"]) == ("mls", {"max_fevals": len(label) + 5}, True)
    assert len(call["table"]) == len(label)
    times = [row["time"] for row in call["table"].values()]
    assert [time == "RuntimeFailedConfig" for time in times] == (label == 0).tolist()
    first = next(iter(call["table"].values()))
    assert call["inside"](*(first[name] for name in call["values"]))
    assert not call["inside"](*(-1 for _ in call["values"]))
    assert capsys.readouterr().out == ""


def test_seeds_are_of_the_strategies_alone(pool: Pool, asked: list[dict[str, Any]]) -> None:
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    expected = random.random(), np.random.random()  # noqa: NPY002
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    kernel_tuner.simulate(pool, ["mls", "pso"], [0, 1], 4)
    assert (random.random(), np.random.random()) == expected  # noqa: NPY002
    drawn = [call["drawn"] for call in asked]
    assert drawn[:2] == drawn[2:]
    assert drawn[0] != drawn[1]


def test_the_best_strategy_after_some_trials() -> None:
    curves = {("slow", 0): [0.1, 0.2, 1.0], ("slow", 1): [0.1, 0.2, 0.9], ("quick", 0): [0.5, 0.8, 0.8], ("quick", 1): [0.3, 0.8, 0.8]}
    sessions = pd.DataFrame([{"strategy": name, "seed": seed, "curve": np.array(curve)} for (name, seed), curve in curves.items()])
    table = kernel_tuner.table({"A100": sessions, "W7800": sessions[sessions["strategy"] == "slow"]}, [1, 3])
    assert list(table.columns) == ["task", "strategy", "after 1", "after 3"]
    assert list(table["strategy"]) == ["slow", "quick", "slow"]
    best = {1: pytest.approx(0.4), 3: pytest.approx(0.95)}
    assert kernel_tuner.best(table) == {"A100": best, "W7800": {**best, 1: pytest.approx(0.1)}}


def test_without_kernel_tuner(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_tuner, "installed", lambda: False)
    with pytest.raises(MissingPackage, match="need the package 'kernel-tuner', which is not installed; run: pip install kernel-tuner"):
        kernel_tuner.simulate(pool, ["mls"], [0], 4)


def test_kernel_tuner_itself(pool: Pool) -> None:
    pytest.importorskip("kernel_tuner", reason="the optional package kernel-tuner is not installed")
    sessions = kernel_tuner.simulate(pool, ["random_sample", "mls"], [0, 1], 20)
    assert list(sessions["strategy"]) == ["random_sample", "random_sample", "mls", "mls"]
    for curve in sessions["curve"]:
        assert (np.diff(curve) >= 0).all()
        assert 0 < curve[-1] <= 1
    assert any((a != b).any() for a, b in zip(sessions["curve"][::2], sessions["curve"][1::2], strict=True))
    again = kernel_tuner.simulate(pool, ["mls"], [1], 20)
    np.testing.assert_array_equal(again["curve"][0], sessions["curve"][3])
