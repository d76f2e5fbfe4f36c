"""Each way of predicting gives the same time, and each is timed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workbench.data.datasets import Dataset
from workbench.kernels import kernel
from workbench.models.nnc import PaperNetwork
from workbench.models.trees import NonlinearRegressionC
from workbench.reproduce.inference import time_ways, ways
from workbench.schema import Device


def _data():
    """Made-up times of matrix-vector products."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"m": rng.integers(1, 1025, 60), "n": rng.integers(1, 1025, 60), "d1": 2.0 ** -rng.integers(0, 6, 60), "threads": rng.integers(1, 5, 60)}
    )
    frame = frame.assign(c=frame["m"] * frame["n"], time_s=1e-9 * frame["m"] * frame["n"] + 1e-6, status="ok")
    return Dataset("invented", frame, kernel("mv"), Device("laptop", "cpu"), ("m", "n", "d1"), ("threads",))


def test_ways_of_inference_agree_and_are_timed_alike():
    data = _data()
    rows = np.arange(40)
    network = PaperNetwork(epochs_scale=0.003).fit([(data, rows)])[0]
    forest = NonlinearRegressionC().fit([(data, rows)])[0]
    row = data.frame.iloc[[50]]
    calls = ways(network, forest, row, rows=100)
    expected = network.predict_time_s(row)[0]
    assert calls["NN+C, compiled, one call"][0]() == pytest.approx(expected, rel=1e-6)
    assert calls["NN+C, compiled, in a loop"][0]() == pytest.approx(np.full(100, expected), rel=1e-6)
    assert float(calls["NN+C, PyTorch"][0]()) == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert calls["NLR+C, scikit-learn"][0]() == pytest.approx(forest.predict_time_s(row))
    times = time_ways(calls, repeats=2, target_s=0.001)
    assert (times.groupby("way").size() == 2).all()
    assert (times["time_us"] > 0).all()
