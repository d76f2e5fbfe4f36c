"""Pictures of programs and of how things hang together: loop nests as text and as graphs, samples of a few-shot task, flow charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from workbench.features.graph import Graph
from workbench.loopnest import LoopNest, Number, Statement
from workbench.plots.theme import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Box", "flow_chart", "loop_graph", "loop_listing", "super_graph", "super_graph_panels", "task_panels"]

_LINE = 0.155  # inches a line of a listing
# What a loop is for the hardware -> its colour; GPU annotations by what stands before the dot.
_COLOURS = {"blockIdx": PALETTE[0], "vthread": PALETTE[3], "threadIdx": PALETTE[1], "parallel": PALETTE[5], "vectorize": PALETTE[4], "unroll": PALETTE[2]}
_PLAIN = "0.45"
_TITLES = {"blockIdx": "blocks of a GPU", "vthread": "virtual threads", "threadIdx": "threads of a block", "parallel": "shared out among a CPU's threads"}
_TITLES |= {"vectorize": "vectors", "unroll": "unrolled"}


@dataclass(frozen=True)
class Box:
    """A box of a flow chart: its centre in inches from the top left, its lines (the first is bold), and its colour."""

    x: float
    y: float
    lines: tuple[str, ...]
    colour: str = PALETTE[0]
    width: float = 1.9


def loop_listing(nest: LoopNest, position: int, title: str) -> Figure:
    """A configuration's loops and statements as an indented text: one line for loops of one level that stand inside each other, with their iterations.

    Args:
        nest: of a batch.
        position: which configuration of the batch.
        title: above the text.
    """
    lines = _lines(nest, position)
    figure, axis = plt.subplots(figsize=(7.2, _LINE * (len(lines) + 2.5)))
    for row, (depth, text, annotation) in enumerate(lines):
        colour = "black" if annotation is None else _colour(annotation)
        axis.text(0.22 * depth, -row, text, color=colour, family="monospace", fontsize=8, va="center")
    axis.set_title(title, loc="left")
    axis.set_xlim(0, 7)
    axis.set_ylim(-len(lines), 1)
    axis.axis("off")
    _legend(figure, [annotation for _, _, annotation in lines if annotation])
    figure.tight_layout()
    return figure


def loop_graph(nest: LoopNest, position: int, title: str) -> Figure:
    """The graph of a configuration: a root, a circle for each loop, and at each a square that stands for what is known of it (its iterations stand beside it).

    Arguments as of `loop_listing`.
    """
    places = _places(_parents(nest))
    leaves, depth = max(x for x, _ in places), max(y for _, y in places)
    figure, axis = plt.subplots(figsize=(1.5 * (leaves + 1) + 0.6, 0.34 * (depth + 2)))
    _draw(axis, _parents(nest), _loops(nest, position), size=70)
    for loop, (x, y) in zip(nest.loops, places, strict=True):
        axis.plot([x, x + 0.2], [-y, -y], color="0.7", linewidth=0.8, zorder=1)
        axis.scatter([x + 0.2], [-y], s=26, marker="s", color=_colour(loop.annotation), zorder=2)
        axis.text(x + 0.28, -y, f"{loop.name} {_at(loop.extent, position):,}", fontsize=6.5, va="center")
    axis.set_xlim(-0.25, leaves + 1.0)
    axis.set_title(title, loc="left")
    _legend(figure, [loop.annotation for loop in nest.loops])
    figure.tight_layout()
    return figure


def super_graph(graph: Graph, nest: LoopNest, position: int, at: Mapping[str, int], title: str) -> Figure:
    """A configuration in a graph with places for the loops of every kind: those that it has are filled and have their iterations, the others are empty.

    Args:
        graph: of places.
        nest: of a batch.
        position: which configuration of the batch.
        at: name of each loop of the nest -> its place.
        title: above the graph.
    """
    loops = _loops(nest, position, at)
    rows = _places(graph.parents)
    figure, axis = plt.subplots(figsize=(1.15 * (max(x for x, _ in rows) + 1), 0.25 * (max(y for _, y in rows) + 2)))
    for name, (x, y), place in zip(graph.loops, _draw(axis, graph.parents, loops, size=45), range(len(rows)), strict=True):
        text = f"{name} {loops[place][0]:,}" if place in loops else name
        axis.text(x + 0.12, -y, text, fontsize=5.5, va="center", color="black" if place in loops else "0.6")
    axis.set_title(title, loc="left")
    _legend(figure, [annotation for _, annotation in loops.values()])
    figure.tight_layout()
    return figure


def super_graph_panels(graph: Graph, panels: Mapping[str, tuple[LoopNest, int, Mapping[str, int]]], columns: int = 4) -> Figure:
    """Which places of a common graph configurations of several kinds take; arguments as of `super_graph`, a panel a title, without names."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2.6 * columns, 2.9 * rows + 0.2), squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    annotations = []
    for axis, (title, (nest, position, at)) in zip(axes.flat, panels.items(), strict=False):
        _draw(axis, graph.parents, _loops(nest, position, at), size=16)
        axis.set_title(title, fontsize="small")
        annotations += [loop.annotation for loop in nest.loops]
    _legend(figure, annotations)
    figure.tight_layout()
    return figure


def task_panels(rows: Mapping[str, Sequence[tuple[LoopNest, int, str]]], title: str) -> Figure:
    """The samples of a few-shot task: a row a class (a workload), a column a sample, each a small graph of loops with a text below.

    The area of a loop grows with the logarithm of its iterations.

    Args:
        rows: class in words -> samples: nest, position in its batch, text below it.
        title: above all.
    """
    columns = max(map(len, rows.values()))
    figure, axes = plt.subplots(len(rows), columns, figsize=(3.4 * columns + 1.2, 3.0 * len(rows)), squeeze=False)
    for line, (name, samples) in zip(axes, rows.items(), strict=True):
        for axis in line:
            axis.axis("off")
        line[0].text(-0.12, 0.5, name, transform=line[0].transAxes, ha="right", va="center", fontsize="small")
        for axis, (nest, position, text) in zip(line, samples, strict=False):
            _draw(axis, _parents(nest), _loops(nest, position), size=22)
            axis.text(0.5, -0.02, text, transform=axis.transAxes, ha="center", va="top", fontsize="x-small")
    figure.suptitle(title, x=0.02, ha="left", fontsize="medium")
    _legend(figure, [loop.annotation for samples in rows.values() for nest, _, _ in samples for loop in nest.loops])
    figure.tight_layout()
    return figure


def flow_chart(boxes: Mapping[str, Box], arrows: Sequence[tuple[str, str, str]], frames: Mapping[str, Sequence[str]] | None = None) -> Figure:
    """Boxes with arrows between them, and frames around some of them.

    Args:
        boxes: name -> box.
        arrows: from, to, label (may be "").
        frames: title -> names of the boxes inside.
    """
    heights = {name: 0.17 * len(box.lines) + 0.16 for name, box in boxes.items()}
    width = max(box.x + box.width / 2 for box in boxes.values()) + 0.2
    height = max(box.y + heights[name] / 2 for name, box in boxes.items()) + 0.25
    figure, axis = plt.subplots(figsize=(width, height))
    axis.set_position((0.0, 0.0, 1.0, 1.0))
    axis.set_xlim(0, width)
    axis.set_ylim(height, 0)
    axis.axis("off")
    for title, members in (frames or {}).items():
        left, right = (f(boxes[n].x + s * boxes[n].width / 2 for n in members) for f, s in ((min, -1), (max, 1)))
        top, bottom = (f(boxes[n].y + s * heights[n] / 2 for n in members) for f, s in ((min, -1), (max, 1)))
        size = right - left + 0.24, bottom - top + 0.42
        axis.add_patch(FancyBboxPatch((left - 0.12, top - 0.3), *size, boxstyle="round,pad=0,rounding_size=0.08", facecolor="0.96", edgecolor="0.75", zorder=0))
        axis.text(left - 0.04, top - 0.26, title, va="top", color="0.35", fontsize="small", zorder=1)
    patches = {}
    for name, box in boxes.items():
        corner = box.x - box.width / 2, box.y - heights[name] / 2
        patches[name] = FancyBboxPatch(
            corner, box.width, heights[name], boxstyle="round,pad=0,rounding_size=0.06", facecolor="white", edgecolor=box.colour, lw=1.4
        )
        axis.add_patch(patches[name])
        for row, line in enumerate(box.lines):
            y = box.y + 0.17 * (row - (len(box.lines) - 1) / 2)
            axis.text(box.x, y, line, ha="center", va="center", fontsize="small", weight="normal" if row else "bold", color="0.35" if row else "black")
    for start, end, label in arrows:
        first, last = ((boxes[n].x, boxes[n].y) for n in (start, end))
        arrow = {"arrowstyle": "-|>", "color": "0.3", "linewidth": 1.0, "patchA": patches[start], "patchB": patches[end], "shrinkA": 0, "shrinkB": 0}
        axis.annotate("", last, first, arrowprops=arrow, zorder=1)
        middle = (first[0] + last[0]) / 2, (first[1] + last[1]) / 2
        level = abs(first[1] - last[1]) < 0.05
        axis.text(
            middle[0] + (0 if level else 0.06),
            middle[1] - (0.06 if level else 0),
            label,
            ha="center" if level else "left",
            va="bottom" if level else "center",
            fontsize="x-small",
            color="0.3",
        )
    return figure


def _at(number: Number, position: int) -> int:
    return int(number[position]) if isinstance(number, np.ndarray) else number


def _colour(annotation: str) -> str:
    return _COLOURS.get(annotation.partition(".")[0], _PLAIN)


def _lines(nest: LoopNest, position: int) -> list[tuple[int, str, str | None]]:
    """Depth, text and annotation (None of a statement) of every line."""
    children = _inside(_parents(nest))
    inside: dict[int, list[Statement]] = {}
    for statement in nest.statements:
        inside.setdefault(statement.loop, []).append(statement)
    lines: list[tuple[int, str, str | None]] = []

    def walk(place: int, depth: int) -> None:
        chain = [place]
        while len(following := children.get(chain[-1], [])) == 1 and chain[-1] not in inside and _level(nest, following[0]) == _level(nest, place):
            chain += following
        loops = [nest.loops[member] for member in chain]
        axes = ", ".join(f"{loop.name.partition('.')[2]} < {_at(loop.extent, position):,}" for loop in loops)
        marks = list(dict.fromkeys(loop.annotation.partition(".")[0] for loop in loops if loop.annotation != "none"))
        lines.append((depth, f"{_level(nest, place)}: for {axes}" + "".join(f"  [{mark}]" for mark in marks), loops[0].annotation))
        for statement in inside.get(chain[-1], []):
            lines.append((depth + 1, _assignment(statement), None))
        for child in children.get(chain[-1], []):
            walk(child, depth + 1)

    for root in children.get(-1, []):
        walk(root, 0)
    return lines


def _level(nest: LoopNest, place: int) -> str:
    return nest.loops[place].name.partition(".")[0]


def _assignment(statement: Statement) -> str:
    *loads, store = (access.buffer for access in statement.accesses)
    if store in loads:  # a sum: what is added to is read first
        rest = [name for name in loads if name != store]
        return f"{store} += {' * '.join(rest) if statement.mul else ' + '.join(rest)}"
    return f"{store} = {' , '.join(loads) or '0'}"


def _places(parents: Sequence[int]) -> list[tuple[float, int]]:
    """Column and row of every loop: leaves stand side by side in the program's order, others above the middle of what is inside; the root is row 0."""
    inside = _inside(parents)
    columns, leaves, rows = [0.0] * len(parents), 0, [0] * len(parents)
    for place, parent in enumerate(parents):
        rows[place] = 1 + (rows[parent] if parent >= 0 else 0)
        if place not in inside:
            columns[place], leaves = float(leaves), leaves + 1
    for place in reversed(range(len(parents))):
        if place in inside:
            columns[place] = float(np.mean([columns[child] for child in inside[place]]))
    return list(zip(columns, rows, strict=True))


def _inside(parents: Sequence[int]) -> dict[int, list[int]]:
    """The loops directly in each loop, and at -1 those that are in none."""
    found: dict[int, list[int]] = {}
    for place, parent in enumerate(parents):
        found.setdefault(parent, []).append(place)
    return found


def _draw(axis: Axes, parents: Sequence[int], loops: Mapping[int, tuple[int, str]], size: float) -> list[tuple[float, int]]:
    """Draw a root and loops, of those that are there (iterations and annotation) a circle, of others a small empty one. Gives column and row of each."""
    places = _places(parents)
    root = (float(np.mean([places[place][0] for place, parent in enumerate(parents) if parent == -1])), 0)
    ends = [[(x, -y) for x, y in (places[parent] if parent >= 0 else root, place)] for place, parent in zip(places, parents, strict=True)]
    axis.add_collection(LineCollection(ends, colors=["0.7" if place in loops else "0.88" for place in range(len(parents))], linewidths=0.8, zorder=1))
    (x, y), empty = np.array([places[place] for place in loops]).T, np.array([place for number, place in enumerate(places) if number not in loops])
    areas = [size * (0.35 + 0.2 * np.log2(extent)) for extent, _ in loops.values()]
    colours = [_colour(annotation) for _, annotation in loops.values()]
    axis.scatter(x, -y, s=areas, c=colours, edgecolor="white", linewidth=0.5, zorder=2)
    if len(empty):
        axis.scatter(empty[:, 0], -empty[:, 1], s=0.35 * size, facecolor="white", edgecolor="0.75", linewidth=0.7, zorder=2)
    axis.scatter([root[0]], [0], s=size, color="black", zorder=2)
    axis.margins(0.08)
    axis.axis("off")
    return places


def _loops(nest: LoopNest, position: int, at: Mapping[str, int] | None = None) -> dict[int, tuple[int, str]]:
    """Iterations and annotation of each loop of a configuration, by its position in the nest or in `at`."""
    return {at[loop.name] if at else place: (_at(loop.extent, position), loop.annotation) for place, loop in enumerate(nest.loops)}


def _parents(nest: LoopNest) -> list[int]:
    return [loop.parent for loop in nest.loops]


def _legend(figure: Figure, annotations: Sequence[str]) -> None:
    kinds = [kind for kind in _TITLES if kind in {annotation.partition(".")[0] for annotation in annotations}]
    handles = [Line2D([], [], marker="o", linestyle="", color=_COLOURS[kind]) for kind in kinds]
    handles.append(Line2D([], [], marker="o", linestyle="", color=_PLAIN))
    figure.legend(
        handles,
        [*(_TITLES[kind] for kind in kinds), "one iteration after the other"],
        loc="upper center",
        ncols=4,
        fontsize="x-small",
        bbox_to_anchor=(0.5, 0.0),
    )
