"""Charts of tuning carry what they are given."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from workbench import plots


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    plots.style()
    yield
    plt.close("all")


def texts(figure: plt.Figure) -> set[str]:
    return {found.get_text() for found in figure.findobj(mpl.text.Text) if found.get_text()}


def curves(names: list[str], band: bool = False) -> pd.DataFrame:
    low = 0.1 if band else np.nan
    lines = [{"framework": name, "trials": [1, 2, 4], "value": [0.2, 0.5, place], "low": low, "high": low} for place, name in enumerate(names)]
    return pd.concat([pd.DataFrame(line) for line in lines])


def test_curves_have_a_line_a_framework_a_band_and_marks() -> None:
    names = [f"f{place}" for place in range(10)]
    figure = plots.tuning_curves({"one": curves(names), "two": curves(["f9"], band=True), "three": "is missing"}, names, "speed", marks={"one": {"f2": 3.0}})
    one, two = (axis for axis in figure.axes if axis.lines)
    assert len(one.lines) == 11
    lines = {line.get_label(): line for line in one.lines}
    assert lines["f0"].get_color() == lines["f8"].get_color() == plots.PALETTE[0]
    assert lines["f0"].get_linestyle() != lines["f8"].get_linestyle()
    assert [line.get_xdata()[0] for line in one.lines if line.get_linestyle() == ":"] == [3.0]
    assert two.lines[0].get_color() == lines["f9"].get_color()  # a framework has its colour in every panel
    assert len(two.collections) == 1
    assert {"one", "two", "speed", "trials", *names} <= texts(figure)
    assert "is missing" not in texts(figure)
    assert "is missing" in texts(plots.tuning_curves({"three": "is missing"}, names, "speed"))
    labels = {"one": "GFLOP/s", "two": "share"}
    assert {"GFLOP/s", "share"} <= texts(plots.tuning_curves({title: curves(["f0"]) for title in labels}, ["f0"], labels))


def test_bars_start_from_the_line_and_show_the_paper_where_it_has_a_number() -> None:
    frame = pd.DataFrame({"framework": ["b", "a"], "value": [0.9, 1.2], "low": [np.nan, 1.1], "high": [np.nan, 1.3], "paper": [np.nan, 1.08]})
    figure = plots.framework_bars({"one": frame}, ["a", "b"], "ratio", line=1.0)
    axis = figure.axes[0]
    assert [bar.get_height() for bar in axis.patches] == pytest.approx([0.2, -0.1])
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["a", "b"]
    assert "paper" in texts(figure)
    assert "paper" not in texts(plots.framework_bars({"one": frame.assign(paper=np.nan)}, ["a", "b"], "ratio"))


def test_phases_are_stacked() -> None:
    frame = pd.DataFrame({"framework": ["a", "a", "b", "b"], "phase": ["search", "run"] * 2, "value": [1.0, 2.0, 3.0, np.nan]})
    figure = plots.phase_bars({"one": frame, "two": "not recorded"}, ["a", "b"])
    bars = [(bar.get_x(), bar.get_width()) for bar in figure.axes[0].patches]
    assert bars == [(0.0, 1.0), (0.0, 3.0), (1.0, 2.0), (3.0, 0.0)]
    assert {"search", "run", "minutes"} <= texts(figure)
