"""Figures carry what they are given: bars, marks, units, order."""

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


def _texts(figure):
    return [t.get_text() for t in figure.findobj(mpl.text.Text) if t.get_text()]


def test_network_diagram_draws_a_unit_for_every_size_and_names_the_inputs():
    figure = plots.network_diagram({"small": (["m", "n", "c = mn"], (3, 4, 1))})
    axis = figure.axes[0]
    assert sum(len(c.get_offsets()) for c in axis.collections) == 8
    assert len(axis.lines) == 3 * 4 + 4
    assert {"m", "n", "c = mn", "4 units, ReLU", "time"} <= set(_texts(figure))


def test_error_bars_have_a_bar_a_model_and_group_and_diamonds_only_where_the_paper_has_a_number():
    frame = pd.DataFrame(
        {
            "group": ["A", "A", "B", "B"],
            "model": ["x", "y"] * 2,
            "value": [1.0, 2, 3, 4],
            "low": [0.5, 1, 2, 3],
            "high": [2.0, 3, 4, 5],
            "paper": [np.nan, 7, np.nan, np.nan],
        }
    )
    figure = plots.error_bars({"one": frame})
    axis = figure.axes[0]
    assert sorted(p.get_height() for p in axis.patches) == [1, 2, 3, 4]
    marks = np.concatenate([c.get_offsets() for c in axis.collections if isinstance(c, mpl.collections.PathCollection)])
    assert np.nansum(np.isfinite(np.ma.filled(marks[:, 1], np.nan))) == 1
    assert axis.get_ylabel().endswith("[%]")
    assert "paper" in _texts(figure)


def test_prediction_panels_join_each_pair_and_say_why_a_panel_is_empty():
    frame = pd.DataFrame({"size": [1.0, 2], "measured": [0.1, 0.2], "predicted": [0.1, 0.3]})
    figure = plots.prediction_panels({("I5", "MM"): (frame, "side"), ("I5", "MP"): "never published"})
    texts = _texts(figure)
    assert "never published" in texts
    assert "time [s]" in texts
    assert "MM, I5" in texts


def test_schedule_bars_order_sizes_by_number_whatever_the_order_of_the_rows():
    frame = pd.DataFrame({"size": [4096, 1024, 2048], "choice": ["chosen"] * 3, "ratio": [3.0, 1.0, 2.0], "low": [3.0, 1, 2], "high": [3.0, 1, 2]})
    axis = plots.schedule_bars({"Blur": frame}).axes[0]
    assert [t.get_text() for t in axis.get_xticklabels()] == ["1,024", "2,048", "4,096"]
    assert [p.get_height() for p in axis.patches] == [1.0, 2.0, 3.0]


def test_schedule_bars_give_a_choice_one_colour_in_every_panel_and_name_it_once():
    few = pd.DataFrame({"size": [1024], "choice": ["chosen"], "ratio": [1.0], "low": [1.0], "high": [1.0]})
    more = pd.concat([few.assign(choice="autoscheduler", ratio=2.0), few])
    figure = plots.schedule_bars({"more": more, "few": few})
    heights = [{p.get_facecolor(): p.get_height() for p in axis.patches} for axis in figure.axes]
    assert {colour for colour, height in heights[0].items() if height == 1.0} == set(heights[1])
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["autoscheduler", "chosen"]


def test_trade_off_draws_an_arrow_from_each_light_model():
    frame = pd.DataFrame(
        {"kernel": ["MM", "MV"], "device": ["I5", "Tesla"], "light_s": [1.0, 2], "light_mape": [9.0, 8], "full_s": [10.0, 20], "full_mape": [5.0, 4]}
    )
    figure = plots.trade_off(frame)
    assert len([a for a in figure.axes[0].texts if isinstance(a, mpl.text.Annotation)]) == 2
    assert any("[s]" in t for t in _texts(figure))


def test_inference_bars_and_forest_and_audit_chart_show_their_numbers():
    bars = plots.inference_bars(pd.DataFrame({"kernel": ["MM", "MM"], "way": ["a", "b"], "time_us": [10.0, 0.1], "low_us": [9.0, 0.1], "high_us": [11.0, 0.2]}))
    assert [p.get_height() for p in bars.axes[0].patches] == [10.0, 0.1]
    forest = plots.forest(pd.DataFrame({"label": ["first", "second"], "value": [1.0, 2], "low": [0.5, 1], "high": [2.0, 3]}), "ratio", line=1.0)
    assert [t.get_text() for t in forest.axes[0].get_yticklabels()] == ["first", "second"]
    assert forest.axes[0].get_yticks()[0] > forest.axes[0].get_yticks()[1]
    rows = pd.DataFrame({"panel": ["a", "b", "a"], "label": ["1", "2", "3"], "value": [1.0, 2, 3], "low": [0.0, 1, 2], "high": [2.0, 3, 4]})
    both = plots.forest(rows, "ratio", line=1.0).axes
    assert [(axis.get_title("left"), [t.get_text() for t in axis.get_yticklabels()]) for axis in both] == [("a", ["1", "3"]), ("b", ["2"])]
    assert [axis.get_xlabel() for axis in both] == ["", "ratio"]
    chart = plots.audit_chart(
        pd.DataFrame({"data_set": ["good", "bad"], "signal_r2": [0.9, -0.5], "order_beyond_r2": [0.0, 0.4], "passed": [True, False]}), 0.26
    )
    widths = [p.get_width() for p in chart.axes[0].patches]
    assert widths[0] == 0.9
    assert widths[1] == -0.2, "a very negative R2 is cut so that it does not flatten the others"


def test_ratio_panels_give_a_group_one_colour_and_share_their_scale():
    first = pd.DataFrame({"x": [1e-6, 1e-3], "ratio": [0.5, 2.0], "group": ["eigen", "boost"]})
    figure = plots.ratio_panels({"MM": first, "MV": first[first["group"] == "boost"]}, "time [s]", "ratio")
    points = [{tuple(p.get_facecolor()[0]) for p in axis.collections if len(p.get_offsets())} for axis in figure.axes]
    assert len(points[0]) == 2
    assert points[1] < points[0]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["eigen", "boost"]


def test_speed_curves_end_at_the_best_and_count_what_has_no_speed_as_slower():
    panels = {"first": {"here": np.array([4.0, 1.0, np.nan, 2.0]), "there": np.array([3.0])}, "second": {"here": np.array([np.nan])}}
    figure = plots.speed_curves(panels)
    first, second = figure.axes
    here = first.lines[0]
    assert here.get_xdata().tolist() == [1.0, 2.0, 4.0]
    assert here.get_ydata().tolist() == [50.0, 75.0, 100.0]
    assert second.lines[0].get_xdata().size == 0
    assert "none has a speed" in [text.get_text() for text in second.texts]
    assert first.get_xlabel() == "GFLOP/s"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["here", "there"]
    assert first.lines[1].get_color() != here.get_color()
    assert not plots.speed_curves({"alone": {"here": np.array([1.0])}}).legends


def test_a_logarithmic_axis_has_plain_numbers_whichever_axis_it_is():
    figure = plots.speed_curves({"one": {"here": np.array([2.0, 5.0, 20.0])}})
    figure.canvas.draw()
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["1", "2", "5", "10", "20", "50"]
