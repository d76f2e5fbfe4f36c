"""The compiled function itself: its own arithmetic, plain Python beside it, and where it is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import MissingPackage
from workbench.features.inputs import Term
from workbench.models import interpreter
from workbench.models.compact import CompactModel
from workbench.models.compiled import compile_alternatives, compile_model
from workbench.models.evidence import SmallNet
from workbench.models.interpreter import GIVEN, decay, interpret
from workbench.models.linear import LinearModel

TERMS = (Term("log2", "a"), Term("overhang", "b", "a"), Term("alignment", "a"), Term("value", "c"))


def model(seed: int) -> CompactModel:
    net = SmallNet(len(TERMS), 3, 2)
    weights = np.random.default_rng(seed).normal(size=net.n_parameters)
    return CompactModel("random", TERMS, net, weights, np.full(4, 2.0), np.full(4, 3.0), -5.0, 0.8, 0.1)


@given(st.floats(min_value=0.0))
def test_decay(x: float) -> None:
    assert decay(x) == pytest.approx(np.exp(-x), abs=1e-14)


def test_what_decays_to_nothing_and_from_no_number() -> None:
    assert decay(0.0) == 1.0
    assert 0 < decay(np.inf) < 1e-17
    assert np.isnan(decay(np.nan))


@pytest.mark.parametrize("name", ["a model", "a stack of models", "a model of many rows and a stack"])
def test_plain_python_gives_the_same_numbers(name: str) -> None:
    models = [compile_model(model(seed)) for seed in range(3)]
    rng = np.random.default_rng(0)
    out, values = np.empty(70), rng.uniform(1, 500, (70, 3))
    if name == "a model":
        interpret(models[0].plan, models[0].numbers, values.ravel(), out, *[0.0] * GIVEN)
        np.testing.assert_allclose(out, models[0].predict(values), rtol=1e-12)
        return
    rows = {"a stack of models": (5, 1, 3), "a model of many rows and a stack": (3, 66, 1)}[name]
    found = compile_alternatives([(m, pd.DataFrame({"b": values[:n, 0]})) for m, n in zip(models, rows, strict=True)], ("a", "c"), None)
    out = np.empty(sum(rows))
    place = interpret(found.plan, found.numbers, found.table, out, 0.0, 0.0, 0.0, 48.0, 0.7)
    np.testing.assert_allclose(out, found.times(48.0, 0.7), rtol=1e-12)
    assert place == found.fastest(48.0, 0.7)


def test_a_division_by_zero_is_no_exception() -> None:
    inverse = compile_model(LinearModel("inverse", (Term("inverse", "a"),), np.array([2.0]), 1.0))
    assert np.isnan(inverse.predict_one(0.0))
    assert inverse.predict_one(4.0) == 1.5


def test_without_numba_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    interpreter.dispatcher.cache_clear()
    interpreter.entry_point.cache_clear()
    try:
        with pytest.raises(MissingPackage, match="pip install numba"):
            compile_model(model(0))
    finally:
        interpreter.dispatcher.cache_clear()


def test_a_cache_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where numba would make a folder")
    code = (
        "import numpy as np\n"
        "from workbench.models import compiled, interpreter\n"
        "from workbench.features.inputs import Term\n"
        "from workbench.models.linear import LinearModel\n"
        "fast = compiled.compile_model(LinearModel('l', (Term('value', 'a'),), np.array([2.0]), 1.0))\n"
        "print(fast.predict_one(3.0), type(interpreter.dispatcher()._cache).__name__)\n"
    )
    # Only the locator of NUMBA_CACHE_DIR is asked, and its folder cannot be made: what a read-only installation without a home looks like.
    env = {**os.environ, "NUMBA_CACHE_DIR": str(blocked / "below"), "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout.split() == ["7.0", "NullCache"], done.stderr
