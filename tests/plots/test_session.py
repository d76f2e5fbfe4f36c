"""Pictures of single tunings carry the trials, the failures, the predictions and the table they are given. The numbers are invented."""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from workbench import plots


@pytest.fixture(autouse=True)
def _close():
    plots.style()
    yield
    plt.close("all")


def session(predicted: float = 0.5) -> pd.DataFrame:
    throughput = np.array([2.0, 0.0, 4.0, 3.0, 16.0])
    rows = pd.DataFrame({"trial": range(1, 6), "throughput": throughput, "valid": throughput > 0, "best": np.maximum.accumulate(throughput)})
    return rows.assign(predicted=predicted, label=[np.nan, np.nan, 2.0, 0.75, 4.0])


def texts(figure: mpl.figure.Figure) -> set[str]:
    return {text.get_text() for text in figure.findobj(mpl.text.Text)}


def test_curves_failures_predictions_and_the_table() -> None:
    figure = plots.tuning_sessions({"a": session(), "b": session(0.9)}, "throughput [GFLOP/s]", 20.0, np.arange(1.0, 21.0))
    left, right = figure.axes
    curves = [line for line in left.lines if line.get_drawstyle() == "steps-post"]
    assert [line.get_ydata().tolist() for line in curves] == [[2.0, 2.0, 4.0, 4.0, 16.0]] * 2
    assert [points.get_offsets().tolist() for points in left.collections] == [[[2.0, 0.0]]] * 2
    # Labels beyond the axis are drawn at its end.
    assert [points.get_offsets().tolist() for points in right.collections] == [[[1.5, said], [0.75, said], [1.5, said]] for said in (0.5, 0.9)]
    assert {"a", "b", "throughput [GFLOP/s]", "best of the table", "fastest 10%", "median of the table"} <= texts(figure)
    assert 20.0 in [line.get_ydata()[0] for line in left.lines]


def test_without_a_model_a_table_or_a_session_it_says_so() -> None:
    figure = plots.tuning_sessions({"random": session(np.nan)}, "throughput [GFLOP/s]")
    assert "no cost model, or one round alone" in texts(figure)
    assert not {"best of the table", "median of the table"} & texts(figure)
    assert "no tuning to show" in texts(plots.tuning_sessions({}, "throughput"))
