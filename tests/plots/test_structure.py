"""Programs as pictures: every loop is there, in the program's order, with its iterations."""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from workbench import plots
from workbench.features.graph import Graph
from workbench.loopnest import Access, Buffer, Loop, LoopNest, Statement


@pytest.fixture(autouse=True)
def _close():
    plots.style()
    yield
    plt.close("all")


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(mpl.text.Text) if text.get_text()]


def marks(axis: Axes) -> list[np.ndarray]:
    return [np.asarray(collection.get_offsets()) for collection in axis.collections if isinstance(collection, PathCollection)]


def nest() -> LoopNest:
    """Two configurations of a product of matrices: what is summed begins at 0, and is written behind."""

    def access(buffer: str, loops: int, store: bool = False) -> Access:
        return Access(buffer, store, (1,) * loops, (-1,) * loops)

    loops = (
        Loop("block.x", -1, np.array([4, 2]), "blockIdx.x"),
        Loop("block.y", 0, 3, "blockIdx.y"),
        Loop("init.x", 1, 5),
        Loop("inner.k", 1, np.array([7, 70]), "unroll"),
    )
    statements = (
        Statement("init", 2, 0, 0, 0, (access("sums", 3, store=True),)),
        Statement("update", 3, 1, 1, 0, (access("sums", 3), access("a", 3), access("b", 3), access("sums", 3, store=True))),
        Statement("write", 1, 0, 0, 0, (access("sums", 2), access("out", 2, store=True))),
    )
    return LoopNest(2, loops, tuple(Buffer(name, "global", (8,)) for name in ("a", "b", "out", "sums")), statements)


def test_a_listing_has_loops_of_one_level_in_a_line_and_statements_inside_them() -> None:
    lines = plots.loop_listing(nest(), 1, "Loops").axes[0].texts
    assert [line.get_text() for line in lines] == [
        "block: for x < 2, y < 3  [blockIdx]",
        "out = sums",
        "init: for x < 5",
        "sums = 0",
        "inner: for k < 70  [unroll]",
        "sums += a * b",
    ]
    assert [line.get_position()[0] for line in lines] == pytest.approx([0, 0.22, 0.22, 0.44, 0.22, 0.44])
    assert "block: for x < 4, y < 3  [blockIdx]" in texts(plots.loop_listing(nest(), 0, "Loops"))


def test_a_graph_has_a_root_a_circle_and_a_square_for_each_loop_with_its_iterations() -> None:
    figure = plots.loop_graph(nest(), 1, "Graph")
    points = marks(figure.axes[0])
    assert sum(len(of_kind) for of_kind in points) == 1 + 2 * 4
    assert {place[1] for of_kind in points for place in of_kind} == {0, -1, -2, -3}
    assert {"block.x 2", "block.y 3", "init.x 5", "inner.k 70"} <= set(texts(figure))
    assert {"blocks of a GPU", "unrolled", "one iteration after the other"} == set(texts(figure.legends[0]))


def test_leaves_stand_side_by_side_under_the_loop_around_them() -> None:
    figure = plots.loop_graph(nest(), 0, "Graph")
    labels = {text.get_text(): text.get_position() for text in figure.axes[0].texts}
    (left, top), (right, level) = labels["init.x 5"], labels["inner.k 7"]
    assert level == top
    assert right > left
    assert labels["block.y 3"] == pytest.approx(((left + right) / 2, top + 1))


def test_a_task_has_a_row_a_class_and_a_panel_a_sample() -> None:
    figure = plots.task_panels({"first": [(nest(), 0, "a0"), (nest(), 1, "a1")], "second": [(nest(), 1, "b1")]}, "A task")
    drawn = [axis for axis in figure.axes if axis.collections]
    assert len(figure.axes) == 4
    assert len(drawn) == 3
    assert {"first", "second", "a0", "a1", "b1", "A task"} <= set(texts(figure))
    # Of a loop with more iterations the circle is larger.
    first, second = ([area for c in axis.collections if isinstance(c, PathCollection) for area in c.get_sizes()] for axis in drawn[:2])
    assert max(second) > max(first)


def test_a_super_graph_has_loops_at_their_places_and_the_others_empty() -> None:
    places = Graph(("block.x", "block.y", "unused", "init.x", "inner.k", "also unused"), (-1, 0, 1, 2, 2, -1))
    at = {"block.x": 0, "block.y": 1, "init.x": 3, "inner.k": 4}
    figure = plots.super_graph(places, nest(), 1, at, "Super-graph")
    assert {"block.x 2", "block.y 3", "unused", "init.x 5", "inner.k 70", "also unused"} <= set(texts(figure))
    filled, empty, root = marks(figure.axes[0])
    assert len(filled) == 4
    assert sorted(tuple(place) for place in empty) == [(0.5, -3), (2, -1)]
    assert root.tolist() == [[pytest.approx(1.25), 0]]
    panels = plots.super_graph_panels(places, {"a": (nest(), 0, at), "b": (nest(), 1, at), "c": (nest(), 0, at)}, columns=2)
    assert [len(marks(axis)) for axis in panels.axes] == [3, 3, 3, 0]
    assert {"a", "b", "c"} <= set(texts(panels))


def test_arrows_go_from_box_to_box_and_frames_hold_their_boxes() -> None:
    boxes = {"a": plots.Box(1.2, 0.8, ("A", "first")), "b": plots.Box(4.2, 0.8, ("B",)), "c": plots.Box(4.2, 2.0, ("C",))}
    figure = plots.flow_chart(boxes, [("a", "b", "goes to"), ("b", "c", "")], {"Both": ["b", "c"]})
    axis = figure.axes[0]
    assert {"A", "first", "B", "C", "goes to", "Both"} <= set(texts(figure))
    frame, *drawn = [patch for patch in axis.patches if isinstance(patch, mpl.patches.FancyBboxPatch)]
    assert len(drawn) == 3
    inside = [frame.get_path().get_extents().contains(box.x, box.y) for box in boxes.values()]
    assert inside == [False, True, True]
    arrows = [text for text in axis.texts if isinstance(text, mpl.text.Annotation)]
    assert [(arrow.xyann, arrow.xy) for arrow in arrows] == [((1.2, 0.8), pytest.approx((4.2, 0.8))), ((4.2, 0.8), pytest.approx((4.2, 2.0)))]
    figure.canvas.draw()
