"""Charts of errors, times, ratios and audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from workbench.plots.theme import PALETTE, PAPER_MARK, empty, log_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "audit_chart",
    "error_bars",
    "forest",
    "inference_bars",
    "network_diagram",
    "prediction_panels",
    "ratio_panels",
    "schedule_bars",
    "speed_curves",
    "trade_off",
]


def network_diagram(networks: Mapping[str, tuple[Sequence[str], Sequence[int]]]) -> Figure:
    """Structure of fully connected networks, drawn from their layer sizes.

    Args:
        networks: title -> (labels of the inputs, layer sizes from input to output).
    """
    figure, axes = plt.subplots(1, len(networks), figsize=(4.6 * len(networks), 3.9), squeeze=False)
    for axis, (title, (labels, layers)) in zip(axes[0], networks.items(), strict=True):
        places = [[(x, (size - 1) / 2 - i) for i in range(size)] for x, size in enumerate(layers)]
        for left, right in pairwise(places):
            for x0, y0 in left:
                for x1, y1 in right:
                    axis.plot([x0, x1], [y0, y1], color="0.75", linewidth=0.5, zorder=1)
        for x, layer in enumerate(places):
            for i, (_, y) in enumerate(layer):
                extra = x == 0 and labels[i].startswith("c")
                colour = PALETTE[1] if extra else PALETTE[0] if x == 0 else PALETTE[2] if x < len(places) - 1 else "0.25"
                axis.scatter([x], [y], s=150, color=colour, edgecolor="white", zorder=2)
        for (x, y), label in zip(places[0], labels, strict=True):
            axis.text(x - 0.14, y, label, ha="right", va="center", color=PALETTE[1] if label.startswith("c") else "black")
        axis.text(len(layers) - 1 + 0.13, places[-1][0][1], "time", ha="left", va="center")
        names = ["inputs", *[f"{n} units, ReLU" for n in layers[1:-1]], "output"]
        low = min(y for layer in places for _, y in layer) - 0.9
        for x, name in enumerate(names):
            axis.text(x, low, name, ha="center", va="top", color="0.35", fontsize="small")
        axis.set_title(title)
        axis.set_xlim(-1.0, len(layers) - 0.5)
        axis.set_ylim(low - 0.7, max(y for layer in places for _, y in layer) + 0.6)
        axis.axis("off")
    figure.tight_layout()
    return figure


def prediction_panels(panels: Mapping[tuple[str, str], tuple[pd.DataFrame, str] | str]) -> Figure:
    """Measured and predicted time of each test row, joined by a line.

    Args:
        panels: (row title, column title) -> (frame with columns size, measured, predicted in seconds; label of the size axis), or why there is nothing.
    """
    rows, columns = list(dict.fromkeys(r for r, _ in panels)), list(dict.fromkeys(c for _, c in panels))
    figure, axes = plt.subplots(len(rows), len(columns), figsize=(3.4 * len(columns), 2.5 * len(rows)), squeeze=False)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            axis, panel = axes[i, j], panels[row, column]
            axis.set_title(f"{column}, {row}")
            if isinstance(panel, str):
                empty(axis, panel)
                continue
            frame, label = panel
            axis.vlines(frame["size"], frame["measured"], frame["predicted"], color="0.6", linewidth=0.7, zorder=1)
            axis.scatter(frame["size"], frame["measured"], s=9, color=PALETTE[0], label="measured", zorder=2)
            axis.scatter(frame["size"], frame["predicted"], s=9, color=PALETTE[1], marker="x", linewidth=0.8, label="predicted", zorder=3)
            axis.set_yscale("log")
            axis.set_xlabel(label)
            axis.set_ylabel("time [s]")
    handles, labels = next((a.get_legend_handles_labels() for a in axes.flat if a.get_legend_handles_labels()[1]), ([], []))
    if handles:
        figure.legend(handles, labels, loc="upper center", ncols=2, bbox_to_anchor=(0.5, 1.03))
    figure.tight_layout()
    return figure


def error_bars(panels: Mapping[str, pd.DataFrame], ylabel: str = "MAPE, slowest 70% [%]", log: bool = True) -> Figure:
    """Bars of an error by group and model, with the spread over repeats as a whisker and the paper's numbers as diamonds.

    Args:
        panels: title -> frame with columns group, model, value, low, high, paper (NaN where not legible or not published).
    """
    models = list(dict.fromkeys(m for frame in panels.values() for m in frame["model"]))
    colour = dict(zip(models, PALETTE, strict=False))
    figure, axes = plt.subplots(len(panels), 1, figsize=(8.2, 2.5 * len(panels)), squeeze=False)
    marked = False
    for axis, (title, frame) in zip(axes[:, 0], panels.items(), strict=True):
        groups = list(dict.fromkeys(frame["group"]))
        width = 0.82 / len(models)
        for m, model in enumerate(models):
            part = frame[frame["model"] == model].set_index("group").reindex(groups)
            x = np.arange(len(groups)) + (m - (len(models) - 1) / 2) * width
            value = part["value"].to_numpy(dtype=float)
            spread = np.abs(np.stack([value - part["low"].to_numpy(dtype=float), part["high"].to_numpy(dtype=float) - value]))
            axis.bar(x, value, width * 0.92, color=colour[model], label=model)
            axis.errorbar(x, value, yerr=spread, fmt="none", ecolor="0.25", elinewidth=0.8, capsize=1.5)
            paper = part["paper"].to_numpy(dtype=float)
            if np.isfinite(paper).any():
                axis.scatter(x, paper, **PAPER_MARK, label=None if marked else "paper")
                marked = True
        if log:
            log_axis(axis)
        axis.set_xticks(range(len(groups)), groups)
        axis.set_title(title, loc="left")
        axis.set_ylabel(ylabel)
    handles: dict[str, Any] = {}
    for axis in axes[:, 0]:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(list(handles.values()), list(handles), loc="upper center", ncols=min(len(handles), 8), bbox_to_anchor=(0.5, 1.0))
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.28 / (2.5 * len(panels))))
    return figure


def trade_off(points: pd.DataFrame) -> Figure:
    """Error over preparing time: an arrow from each lightweight model to the unconstrained one.

    Args:
        points: columns kernel, device, light_s, light_mape, full_s, full_mape (seconds and percent).
    """
    figure, axis = plt.subplots(figsize=(6.2, 4.2))
    kernels, devices = list(dict.fromkeys(points["kernel"])), list(dict.fromkeys(points["device"]))
    marks = dict(zip(devices, "osD^vPX*<>", strict=False))
    colour = dict(zip(kernels, PALETTE, strict=False))
    for row in points.itertuples():
        ends = (row.light_s, row.light_mape), (row.full_s, row.full_mape)
        axis.annotate("", ends[1], ends[0], arrowprops={"arrowstyle": "->", "color": "0.65", "linewidth": 0.9})
        axis.scatter(*ends[0], marker=marks[row.device], s=34, facecolor="none", edgecolor=colour[row.kernel], linewidth=1.3)
        axis.scatter(*ends[1], marker=marks[row.device], s=34, color=colour[row.kernel])
    for kernel in kernels:
        axis.scatter([], [], color=colour[kernel], label=kernel, s=34)
    for device in devices:
        axis.scatter([], [], color="0.4", marker=marks[device], label=device, s=34)
    axis.scatter([], [], facecolor="none", edgecolor="0.3", label="lightweight, 250 rows")
    axis.scatter([], [], color="0.3", label="unconstrained, 2,500 rows")
    axis.set_xscale("log")
    log_axis(axis)
    axis.set_xlabel("preparing time: measuring and training [s]")
    axis.set_ylabel("MAPE, slowest 70% [%]")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    return figure


def inference_bars(frame: pd.DataFrame) -> Figure:
    """Time of one prediction by kernel and way of inference, log scale.

    Args:
        frame: columns kernel, way, time_us, low_us, high_us (microseconds).
    """
    ways, kernels = list(dict.fromkeys(frame["way"])), list(dict.fromkeys(frame["kernel"]))
    figure, axis = plt.subplots(figsize=(7.4, 3.4))
    width = 0.84 / len(ways)
    for w, way in enumerate(ways):
        part = frame[frame["way"] == way].set_index("kernel").reindex(kernels)
        x = np.arange(len(kernels)) + (w - (len(ways) - 1) / 2) * width
        spread = np.stack([part["time_us"] - part["low_us"], part["high_us"] - part["time_us"]])
        axis.bar(x, part["time_us"], width * 0.92, label=way, color=PALETTE[w % len(PALETTE)])
        axis.errorbar(x, part["time_us"], yerr=spread, fmt="none", ecolor="0.25", elinewidth=0.8, capsize=1.5)
    log_axis(axis, "10")
    axis.set_ylabel("one prediction [µs]")
    axis.set_xticks(range(len(kernels)), kernels)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    return figure


def schedule_bars(panels: Mapping[str, pd.DataFrame], unit: str = "time over the best schedule's", columns: int = 3) -> Figure:
    """Time of chosen schedules by input size, relative to the best candidate.

    Args:
        panels: title -> frame with columns size, choice, ratio, low, high.
        unit: label of the vertical axes.
        columns: panels side by side, at most.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    every = list(dict.fromkeys(choice for frame in panels.values() for choice in frame["choice"]))
    colour = dict(zip(every, PALETTE, strict=False))
    figure, axes = plt.subplots(rows, columns, figsize=(max(3.4 * columns, 6.0), 2.9 * rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    for axis, (title, frame) in zip(axes.flat, panels.items(), strict=False):
        sizes, choices = sorted(frame["size"].unique()), list(dict.fromkeys(frame["choice"]))
        width = 0.84 / len(choices)
        for c, choice in enumerate(choices):
            part = frame[frame["choice"] == choice].set_index("size").reindex(sizes)
            x = np.arange(len(sizes)) + (c - (len(choices) - 1) / 2) * width
            spread = np.abs(np.stack([part["ratio"] - part["low"], part["high"] - part["ratio"]]))
            axis.bar(x, part["ratio"], width * 0.92, color=colour[choice], label=choice)
            axis.errorbar(x, part["ratio"], yerr=spread, fmt="none", ecolor="0.25", elinewidth=0.8, capsize=1.5)
        axis.axhline(1.0, color="0.2", linewidth=0.8)
        log_axis(axis)
        axis.set_xticks(range(len(sizes)), [f"{int(s):,}" for s in sizes], rotation=30, ha="right")
        axis.set_xlabel("input size n")
        axis.set_title(title)
    for axis in axes[:, 0]:
        axis.set_ylabel(unit)
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    lines = -(-len(every) // 4)
    figure.legend([handles[choice] for choice in every], every, loc="upper center", ncols=min(len(every), 4), bbox_to_anchor=(0.5, 1.0))
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.08 + 0.18 * lines) / (2.9 * rows)))
    return figure


def ratio_panels(panels: Mapping[str, pd.DataFrame], xlabel: str, ylabel: str) -> Figure:
    """Ratios over something else, both on logarithmic axes, with a line where the two are equal.

    Args:
        panels: title -> frame with columns x, ratio and group (its colour and mark).
    """
    groups = list(dict.fromkeys(group for frame in panels.values() for group in frame["group"]))
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.7 * columns, 2.6 * rows), squeeze=False, sharey=True)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    for axis, (title, frame) in zip(axes.flat, panels.items(), strict=False):
        axis.axhline(1.0, color="0.2", linewidth=0.8)
        for g, group in enumerate(groups):
            part = frame[frame["group"] == group]
            axis.scatter(part["x"], part["ratio"], s=11, color=PALETTE[g], marker="ox^s"[g % 4], linewidth=0.8, label=group, zorder=3)
        axis.set_xscale("log")
        axis.set_xlabel(xlabel)
        axis.set_title(title)
    log_axis(axes[0, 0])
    for axis in axes[:, 0]:
        axis.set_ylabel(ylabel)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=len(labels), bbox_to_anchor=(0.5, 1.0))
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.25 / (2.6 * rows)))
    return figure


def forest(frame: pd.DataFrame, xlabel: str, line: float | None = None) -> Figure:
    """A point and an interval a row, for ablations and comparisons.

    Args:
        frame: columns label, value, low, high; drawn top to bottom. With a column panel, rows of one panel stand together under its name.
        line: a vertical line, such as no difference.
    """
    panels = [(str(title), part) for title, part in frame.groupby("panel", sort=False)] if "panel" in frame else [("", frame)]
    height = 0.34 * len(frame) + 1.0 + 0.4 * (len(panels) - 1)
    ratios = {"height_ratios": [len(part) for _, part in panels]}
    figure, axes = plt.subplots(len(panels), 1, figsize=(6.4, height), squeeze=False, sharex=True, gridspec_kw=ratios)
    for axis, (title, part) in zip(axes[:, 0], panels, strict=True):
        y = np.arange(len(part))[::-1]
        axis.hlines(y, part["low"], part["high"], color=PALETTE[0], linewidth=1.4)
        axis.scatter(part["value"], y, color=PALETTE[0], s=26, zorder=3)
        if line is not None:
            axis.axvline(line, color="0.3", linewidth=0.8, linestyle="--")
        axis.set_yticks(y, list(part["label"]))
        if title:
            axis.set_title(title, loc="left")
            axis.set_ylim(-0.6, len(part) - 0.4)
        axis.grid(axis="x", color="0.9", linewidth=0.6)
        axis.grid(visible=False, axis="y")
    axes[-1, 0].set_xlabel(xlabel)
    figure.tight_layout()
    return figure


def audit_chart(frame: pd.DataFrame, threshold: float) -> Figure:
    """Signal of data sets: R2 of log time from inputs, and what row order adds.

    Args:
        frame: columns data_set, signal_r2, order_beyond_r2, passed.
        threshold: the least signal that passes.
    """
    figure, axis = plt.subplots(figsize=(6.8, 0.22 * len(frame) + 1.2))
    y = np.arange(len(frame))[::-1]
    colours = [PALETTE[0] if passed else PALETTE[1] for passed in frame["passed"]]
    axis.barh(y, frame["signal_r2"].clip(lower=-0.2), color=colours, height=0.72)
    axis.scatter(frame["order_beyond_r2"].clip(lower=-0.2), y, color="black", marker="|", s=40, label="added by row order")
    axis.axvline(threshold, color="0.3", linewidth=0.8, linestyle="--", label=f"least signal that passes ({threshold:g})")
    axis.scatter([], [], color=PALETTE[0], marker="s", label="explained by inputs: passes")
    axis.scatter([], [], color=PALETTE[1], marker="s", label="explained by inputs: fails")
    axis.set_yticks(y, list(frame["data_set"]), fontsize="x-small")
    axis.set_ylim(-1, len(frame))
    axis.set_xlabel("R² of log time, 3-fold cross-validation")
    axis.grid(axis="x", color="0.9", linewidth=0.6)
    axis.grid(visible=False, axis="y")
    height = 0.22 * len(frame) + 1.2
    figure.legend(loc="upper center", ncols=2, fontsize="small")
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.5 / height))
    return figure


def speed_curves(panels: Mapping[str, Mapping[str, np.ndarray]], xlabel: str = "GFLOP/s", columns: int = 3) -> Figure:
    """How fast which share of configurations is: a panel a workload, a step curve a series, whose end on the right is the best.

    Args:
        panels: title -> series -> speeds [configurations]; configurations without one count as slower than all others (NaN).
        xlabel: of the speeds.
        columns: panels side by side, at most.
    """
    every = list(dict.fromkeys(name for series in panels.values() for name in series))
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(max(2.7 * columns, 4.2), 2.2 * rows + 0.3), squeeze=False, sharey=True)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    for axis, (title, series) in zip(axes.flat, panels.items(), strict=False):
        for name, speeds in series.items():
            known = np.sort(speeds[np.isfinite(speeds)])
            colour = PALETTE[every.index(name) % len(PALETTE)]
            share = 100 * (len(speeds) - len(known) + np.arange(1, len(known) + 1)) / len(speeds)
            axis.step(known, share, where="post", color=colour, linewidth=1.2, label=name)
            axis.scatter(known[-1:], share[-1:], s=14, color=colour, zorder=3)
        if any(np.isfinite(speeds).any() for speeds in series.values()):
            log_axis(axis, horizontal=True)
        else:
            axis.text(0.5, 0.5, "none has a speed", ha="center", transform=axis.transAxes, color="0.4")
        axis.set_ylim(0, 103)
        axis.set_xlabel(xlabel)
        axis.set_title(title)
    for axis in axes[:, 0]:
        axis.set_ylabel("configurations as slow [%]")
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    if len(every) > 1:
        figure.legend([handles[name] for name in every], every, loc="upper center", ncols=min(len(every), 4), bbox_to_anchor=(0.5, 1.0))
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.25 * (len(every) > 1) / (2.2 * rows + 0.3)))
    return figure
