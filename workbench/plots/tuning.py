"""Charts of tuning: best so far over trials, frameworks beside each other, and where the time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from workbench.plots.theme import PALETTE, PAPER_MARK, empty, log_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["framework_bars", "phase_bars", "tuning_curves"]


def _style(place: int) -> dict[str, Any]:
    # More frameworks than colours: the second round of them is dashed.
    return {"color": PALETTE[place % len(PALETTE)], "linestyle": ("-", (0, (4, 1.5)))[place // len(PALETTE) % 2]}


def tuning_curves(
    panels: Mapping[str, pd.DataFrame | str],
    order: Sequence[str],
    ylabel: str | Mapping[str, str],
    *,
    xlabel: str = "trials",
    marks: Mapping[str, Mapping[str, float]] | None = None,
    log: bool = False,
    columns: int = 2,
) -> Figure:
    """A line a framework, over trials.

    Args:
        panels: title -> frame with columns framework, trials, value and, for a band, low and high (NaN for none); or why there is nothing, which is shown only
            where no panel has a frame.
        order: frameworks, whose colours follow their places.
        ylabel, xlabel: of all panels; or title -> label.
        marks: title -> framework -> trials at which a dotted line drops.
        log: a logarithmic vertical axis.
        columns: panels side by side, at most.
    """
    panels = _shown(panels)
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(max(3.9 * columns, 5.2), 2.7 * rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    for axis, (title, frame) in zip(axes.flat, panels.items(), strict=False):
        axis.set_title(title)
        if isinstance(frame, str):
            empty(axis, frame)
            continue
        for place, framework in enumerate(order):
            part = frame[frame["framework"] == framework].sort_values("trials")
            if part.empty:
                continue
            x, style = part["trials"].to_numpy(dtype=float), _style(place)
            axis.plot(x, part["value"], linewidth=1.3, label=framework, **style)
            if part["low"].notna().any():
                axis.fill_between(x, part["low"].to_numpy(dtype=float), part["high"].to_numpy(dtype=float), color=style["color"], alpha=0.12, linewidth=0)
            reached = (marks or {}).get(title, {}).get(framework)
            if reached is not None and np.isfinite(reached):
                axis.axvline(reached, linewidth=0.9, linestyle=":", color=style["color"])
        if log:
            log_axis(axis)
        axis.set_xlim(left=0)
        axis.set_xlabel(xlabel)
        if isinstance(ylabel, str):
            axis.set_ylabel(ylabel if axis in axes[:, 0] else "")
        else:
            axis.set_ylabel(ylabel[title])
    _legend(figure, axes, order, 2.7 * rows)
    return figure


def framework_bars(panels: Mapping[str, pd.DataFrame | str], order: Sequence[str], ylabel: str, *, line: float | None = None, columns: int = 2) -> Figure:
    """A bar a framework with an interval, and diamonds where the paper has a number.

    Args:
        panels: title -> frame with columns framework, value, low, high, paper (NaN for none); or why there is nothing: see `tuning_curves`.
        order: frameworks, whose colours follow their places.
        ylabel: of all panels.
        line: what bars start from, such as the baseline's 1.
        columns: panels side by side, at most.
    """
    panels = _shown(panels)
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(max(4.2 * columns, 5.2), 2.9 * rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    start = line or 0.0
    for axis, (title, frame) in zip(axes.flat, panels.items(), strict=False):
        axis.set_title(title)
        if isinstance(frame, str):
            empty(axis, frame)
            continue
        part = frame.set_index("framework").reindex([name for name in order if name in set(frame["framework"])])
        x, value = np.arange(len(part)), part["value"].to_numpy(dtype=float)
        styles = [_style(order.index(name)) for name in part.index]
        hatches = ["///" if style["linestyle"] != "-" else "" for style in styles]
        axis.bar(x, value - start, 0.78, bottom=start, color=[style["color"] for style in styles], hatch=hatches, edgecolor="white", linewidth=0)
        spread = np.abs(np.stack([value - part["low"].to_numpy(dtype=float), part["high"].to_numpy(dtype=float) - value]))
        known = np.isfinite(spread).all(axis=0)
        axis.errorbar(x[known], value[known], yerr=spread[:, known], fmt="none", ecolor="0.25", elinewidth=0.9, capsize=2)
        if part["paper"].notna().any():
            axis.scatter(x, part["paper"], **PAPER_MARK, label="paper")
            axis.legend(loc="best", fontsize="small")
        if line is not None:
            axis.axhline(line, color="0.3", linewidth=0.8)
        axis.set_xticks(x, list(part.index), rotation=35, ha="right")
        axis.set_ylabel(ylabel if axis in axes[:, 0] else "")
    figure.tight_layout()
    return figure


def phase_bars(panels: Mapping[str, pd.DataFrame | str], order: Sequence[str], xlabel: str = "minutes") -> Figure:
    """Where the time of a tuning goes: a bar a framework, a piece a phase.

    Args:
        panels: title -> frame with the columns framework, phase, value; or why there is nothing: see `tuning_curves`.
        order: frameworks, top to bottom.
        xlabel: of the values.
    """
    panels = _shown(panels)
    phases = list(dict.fromkeys(phase for frame in panels.values() if not isinstance(frame, str) for phase in frame["phase"]))
    height = 0.27 * len(order) + 0.9
    figure, axes = plt.subplots(len(panels), 1, figsize=(7.0, height * len(panels)), squeeze=False)
    for axis, (title, frame) in zip(axes[:, 0], panels.items(), strict=True):
        axis.set_title(title, loc="left")
        if isinstance(frame, str):
            empty(axis, frame)
            continue
        wide = frame.pivot(index="framework", columns="phase", values="value").reindex(index=[name for name in order if name in set(frame["framework"])])
        y, left = np.arange(len(wide))[::-1], np.zeros(len(wide))
        for place, phase in enumerate(phases):
            if phase in wide:
                value = wide[phase].fillna(0.0).to_numpy(dtype=float)
                axis.barh(y, value, 0.7, left=left, color=PALETTE[place], label=phase)
                left += value
        axis.set_yticks(y, list(wide.index))
        axis.set_xlim(left=0)
        axis.set_xlabel(xlabel)
        axis.grid(axis="x", color="0.9", linewidth=0.6)
        axis.grid(visible=False, axis="y")
    _legend(figure, axes, phases, height * len(panels))
    return figure


def _shown(panels: Mapping[str, pd.DataFrame | str]) -> dict[str, pd.DataFrame | str]:
    drawn: dict[str, pd.DataFrame | str] = {title: frame for title, frame in panels.items() if not isinstance(frame, str)}
    return drawn or dict(panels)


def _legend(figure: Figure, axes: Any, order: Sequence[str], height: float) -> None:
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    shown = [name for name in order if name in handles]
    lines = -(-len(shown) // 6)
    if shown:
        figure.legend([handles[name] for name in shown], shown, loc="upper center", ncols=min(len(shown), 6), bbox_to_anchor=(0.5, 1.0))
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.06 + 0.19 * lines) / height))
