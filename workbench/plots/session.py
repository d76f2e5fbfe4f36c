"""Charts of single tunings: how the best grows, and what the cost model had said of each trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.plots.theme import PALETTE, empty

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["tuning_sessions"]

_MOST = 1.5  # where the axes of predictions end; a label beyond is drawn at the end


def tuning_sessions(sessions: Mapping[str, pd.DataFrame], ylabel: str, table_best: float | None = None, table: NDArray[np.float64] | None = None) -> Figure:
    """The best so far of some tunings of one layer, and predictions against what was measured.

    Args:
        sessions: title -> `Result.frame()`, in the order of the colours.
        ylabel: throughput with its unit.
        table_best: throughput of the best of the table, a line; None where there is no table.
        table: throughput of all that the table has [rows], whose spread is drawn beside the curves; None for none.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), width_ratios=(1.35, 1), layout="constrained")
    if not sessions:
        empty(left, "no tuning to show")
        empty(right, "no tuning to show")
        return figure
    last = max((len(rows) for rows in sessions.values()), default=1)
    levels = {} if table is None else {"median of the table": float(np.median(table)), "fastest 10%": float(np.quantile(table, 0.9))}
    for text, level in (levels | ({} if table_best is None else {"best of the table": table_best})).items():
        left.axhline(level, color="0.35" if level == table_best else "0.75", linewidth=0.8, linestyle=(0, (4, 2)) if level == table_best else "-", zorder=0)
        left.annotate(text, (last, level), ha="right", va="bottom", fontsize="x-small", color="0.4", xytext=(0, 1), textcoords="offset points")
    judged = False
    for place, (title, rows) in enumerate(sessions.items()):
        # More sessions than colours: the second round of them is dashed, its predictions crosses.
        colour, again = PALETTE[place % len(PALETTE)], place >= len(PALETTE)
        left.step(rows["trial"], rows["best"], where="post", color=colour, linewidth=1.5, linestyle=(0, (4, 1.5)) if again else "-", label=title)
        failed = rows[~rows["valid"]]
        left.scatter(failed["trial"], np.zeros(len(failed)), marker="|", s=22, color=colour, linewidth=0.8, clip_on=False, zorder=3)
        told = rows[rows["label"].notna() & rows["predicted"].notna()]
        if len(told):
            judged = True
            right.scatter(
                told["label"].clip(upper=_MOST),
                told["predicted"].clip(0, _MOST),
                s=10,
                alpha=0.6,
                linewidth=0.8 * again,
                marker="x" if again else "o",
                color=colour,
            )
    left.set(xlim=(0, last + 1), ylim=(0, None))
    left.set_xlabel("trials (a tick at the bottom is a failure)")
    left.set_ylabel(ylabel)
    left.set_title("Best so far")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    right.set_title("What the cost model said of each trial")
    if not judged:
        empty(right, "no cost model, or one round alone")
        return figure
    right.plot([0, _MOST], [0, _MOST], color="0.6", linewidth=0.8, zorder=0)
    right.axvline(1, color="0.8", linewidth=0.8, zorder=0)
    right.set(xlim=(-0.03, _MOST + 0.03), ylim=(-0.03, _MOST + 0.03), aspect="equal")
    right.set_xlabel("measured, over the best of the rounds before")
    right.set_ylabel("predicted")
    return figure
