"""Figures for print: one style (colour-blind safe, units on axes) and one function a picture. They draw what they are given and compute nothing."""

from __future__ import annotations

from workbench.plots.charts import (
    audit_chart,
    error_bars,
    forest,
    inference_bars,
    network_diagram,
    prediction_panels,
    ratio_panels,
    schedule_bars,
    speed_curves,
    trade_off,
)
from workbench.plots.session import tuning_sessions
from workbench.plots.structure import Box, flow_chart, loop_graph, loop_listing, super_graph, super_graph_panels, task_panels
from workbench.plots.theme import PALETTE, style
from workbench.plots.tuning import framework_bars, phase_bars, tuning_curves

__all__ = [
    "PALETTE",
    "Box",
    "audit_chart",
    "error_bars",
    "flow_chart",
    "forest",
    "framework_bars",
    "inference_bars",
    "loop_graph",
    "loop_listing",
    "network_diagram",
    "phase_bars",
    "prediction_panels",
    "ratio_panels",
    "schedule_bars",
    "speed_curves",
    "style",
    "super_graph",
    "super_graph_panels",
    "task_panels",
    "trade_off",
    "tuning_curves",
    "tuning_sessions",
]
