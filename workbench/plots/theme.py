"""The style that all figures share: colours, marks, axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.ticker import LogLocator, NullFormatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PALETTE", "PAPER_MARK", "empty", "log_axis", "style"]

# Okabe and Ito's colours: told apart with any common colour vision, and by lightness in grey.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
PAPER_MARK = {"marker": "D", "s": 26, "facecolor": "none", "edgecolor": "black", "linewidth": 1.1, "zorder": 5}


def style() -> None:
    """Set the style of all figures: seaborn's paper context, thin grid, the palette."""
    sns.set_theme(context="paper", style="ticks", palette=list(PALETTE), font_scale=1.0)
    plt.rcParams.update(
        {
            "axes.grid": True,
            "axes.grid.axis": "y",
            "grid.color": "0.9",
            "grid.linewidth": 0.6,
            "axes.axisbelow": True,
            "figure.dpi": 110,
            "legend.frameon": False,
            "axes.titlesize": "medium",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "font.family": "DejaVu Sans",
        }
    )


def log_axis(axis: Axes, steps: str = "auto", horizontal: bool = False) -> None:
    """A logarithmic y axis, or x axis, with plain numbers, the denser the shorter its range."""
    (axis.set_xscale if horizontal else axis.set_yscale)("log")
    low, high = axis.get_xlim() if horizontal else axis.get_ylim()
    scale = axis.xaxis if horizontal else axis.yaxis
    subs = (1.0,) if steps != "auto" or high / low >= 100 else (1.0, 2.0, 5.0) if high / low >= 10 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    scale.set_major_locator(LogLocator(subs=subs, numticks=12))
    scale.set_major_formatter(lambda v, _: f"{v:,.10g}")
    scale.set_minor_formatter(NullFormatter())


def empty(axis: Axes, reason: str) -> None:
    """A panel without a picture says why."""
    axis.text(0.5, 0.5, reason, ha="center", va="center", transform=axis.transAxes, color="0.4", wrap=True)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(visible=False)
    sns.despine(ax=axis, left=True, bottom=True)
