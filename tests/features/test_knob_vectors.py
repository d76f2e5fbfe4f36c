"""Knob vectors: by hand, against the decoder for spaces of every kind, and what has none."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from workbench.errors import SpaceError, UsageError
from workbench.features.knobs import KnobVectors
from workbench.kernels import kernel
from workbench.space import Choice, Space, Split

SPACE = Space(
    "invented",
    (
        Split("tile_f", 12, 3),
        Choice("unroll", (0, 7, 1023)),
        Choice("layout", ("NCHW", "NHWC")),
        Choice("order", (1, 0)),
        Choice("shift", (-3.0, 0.0)),
        Choice("tile_b", ((36, 1),)),
    ),
)


def test_by_hand() -> None:
    vectors = KnobVectors(SPACE)
    tiles, choices = ("tile_f.0", "tile_f.1", "tile_f.2"), ("unroll", "layout=NCHW", "layout=NHWC", "order", "shift")
    assert vectors.columns == (*tiles, *choices, "tile_b.0", "tile_b.1")
    configs = [
        {"tile_f": (3, 4, 1), "unroll": 7, "layout": "NHWC", "order": 0, "shift": -3.0, "tile_b": (36, 1)},
        {"tile_f": (1, 2, 6), "unroll": 1023, "layout": "NCHW", "order": 1, "shift": 0.0, "tile_b": (36, 1)},
    ]
    found = vectors.of([SPACE.index(config) for config in configs])
    three, six, all_of_b = np.log2([3, 6, 36])
    expected = [[three, 2, 0, 3, 0, 1, 0, -2, all_of_b, 0], [0, 1, six, 10, 1, 0, 1, 0, all_of_b, 0]]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_one_hot_by_hand() -> None:
    vectors = KnobVectors(Space("invented", (Choice("unroll", (0, 16, 64)), Split("tile_x", 8, 2))), one_hot=True)
    assert vectors.columns == ("unroll=0", "unroll=16", "unroll=64", "tile_x.0", "tile_x.1")
    np.testing.assert_array_equal(vectors.of([4]), [[0, 1, 0, 2, 1]])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_vectors_hold_what_the_decoder_says(data: st.DataObject) -> None:
    knobs = [Split(f"tile_{i}", data.draw(st.integers(1, 360)), data.draw(st.integers(1, 4))) for i in range(data.draw(st.integers(1, 3)))]
    values = data.draw(st.lists(st.integers(-100, 2000), min_size=1, max_size=5, unique=True))
    space = Space("drawn", (*knobs, Choice("number", tuple(values))))
    indices = data.draw(st.lists(st.integers(0, space.size - 1), max_size=20))
    vectors, decoded = KnobVectors(space), space.decode(indices)
    found = vectors.of(indices)
    assert found.shape == (len(indices), len(vectors.columns))
    at = {name: i for i, name in enumerate(vectors.columns)}
    for knob in knobs:
        parts = found[:, [at[f"{knob.name}.{part}"] for part in range(knob.parts)]]
        np.testing.assert_allclose(np.exp2(parts), decoded[knob.name], rtol=1e-5)
    number = found[:, at["number"]]
    np.testing.assert_allclose(np.sign(number) * (np.exp2(np.abs(number)) - 1), decoded["number"], rtol=1e-4, atol=1e-4)
    hot = KnobVectors(space, one_hot=True)
    np.testing.assert_array_equal(hot.of(indices)[:, -len(values) :].argmax(axis=1), space.digits(indices)[:, -1])


def test_workloads_of_a_kernel_share_columns() -> None:
    conv = kernel("conv2d")
    shapes = [{"ci": 64, "h": 56, "w": 56, "co": 64, "kh": 3, "kw": 3}, {"ci": 3, "h": 7, "w": 5, "co": 4, "kh": 1, "kw": 1}]
    spaces = [conv.space(conv.workload({"n": 1, "stride": 1, "padding": 0, **shape}), "workbench-gpu") for shape in shapes]
    assert KnobVectors(spaces[0]).columns == KnobVectors(spaces[1]).columns
    assert KnobVectors(spaces[0]).of([]).shape == (0, len(KnobVectors(spaces[1]).columns))


def test_what_has_no_vectors() -> None:
    with pytest.raises(UsageError, match="knob 'tile_b' has a tile of 0, which has no logarithm"):
        KnobVectors(Space("invented", (Choice("tile_b", ((0, 1), (2, 2))),)))
    with pytest.raises(SpaceError, match=f"index {SPACE.size} is out of range"):
        KnobVectors(SPACE).of([SPACE.size])
