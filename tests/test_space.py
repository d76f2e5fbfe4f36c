"""Spaces: AutoTVM's numbering against brute force and by hand, round trips, sampling, neighbours, coordinates, and what a wrong input is told."""

from __future__ import annotations

import hashlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import SpaceError
from workbench.space import Choice, Constraint, Space, Split, product_at_most

UNROLL = Choice("unroll", (0, 512, 1500))


def brute_force_split(extent: int, parts: int) -> list[tuple[int, ...]]:
    """AutoTVM's "factors" policy word by word: nested loops over ascending divisors, the innermost tile in the outermost loop; the leading tile is implied."""
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    options = []
    for inner_first in itertools.product(divisors, repeat=parts - 1):
        if extent % math.prod(inner_first) == 0:
            options.append((extent // math.prod(inner_first), *reversed(inner_first)))
    return options


knobs = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 48), st.integers(1, 4)).map(lambda a: ("split", *a)),
        st.lists(st.integers(-9, 9), min_size=1, max_size=5, unique=True).map(lambda a: ("choice", tuple(a))),
        st.lists(st.sampled_from(["none", "row", "column", "both"]), min_size=1, max_size=4, unique=True).map(lambda a: ("choice", tuple(a))),
    ),
    min_size=1,
    max_size=5,
).map(lambda specs: tuple(Split(f"k{i}", s[1], s[2]) if s[0] == "split" else Choice(f"k{i}", s[1]) for i, s in enumerate(specs)))
spaces = knobs.map(lambda given: Space("any", given))


# Worked out by hand


def test_split_by_hand() -> None:
    assert Split("t", 4, 2).options.tolist() == [[4, 1], [2, 2], [1, 4]]
    # The tile beside the leading one runs fastest, the innermost slowest.
    assert Split("t", 6, 3).options.tolist() == [[6, 1, 1], [3, 2, 1], [2, 3, 1], [1, 6, 1], [3, 1, 2], [1, 3, 2], [2, 1, 3], [1, 2, 3], [1, 1, 6]]
    assert Split("t", 7, 1).options.tolist() == [[7]]


def test_decode_by_hand() -> None:
    space = Space("s", (Split("tile", 4, 2), UNROLL, Choice("explicit", (0, 1))))
    assert space.size == 18
    # 16 = 1 + 3 (2 + 3 * 1): the first knob is the least significant digit.
    assert space.digits([16]).tolist() == [[1, 2, 1]]
    assert space.config(16) == {"tile": (2, 2), "unroll": 1500, "explicit": 1}
    assert space.index({"tile": (2, 2), "unroll": 1500, "explicit": 1}) == 16
    decoded = space.decode(np.array([0, 2, 3, 17]))
    assert decoded["tile"].tolist() == [[4, 1], [1, 4], [4, 1], [1, 4]]
    assert decoded["unroll"].tolist() == [0, 0, 512, 1500]
    assert decoded["explicit"].tolist() == [0, 0, 0, 1]


def test_coordinates_by_hand() -> None:
    space = Space("s", (Split("tile", 16, 2), UNROLL, Choice("fixed", (7,)), Split("one", 1, 4)))
    assert space.coordinate_names == ("tile_0", "tile_1", "unroll")
    index = space.index({"tile": (4, 4), "unroll": 512, "fixed": 7, "one": (1, 1, 1, 1)})
    np.testing.assert_allclose(space.coordinates([index, 0]), [[0.5, 0.5, 0.5], [1.0, 0.0, 0.0]])


# Against brute force


@given(st.integers(1, 360), st.integers(1, 4))
def test_split_order_equals_brute_force(extent: int, parts: int) -> None:
    split = Split("t", extent, parts)
    assert [tuple(row) for row in split.options.tolist()] == brute_force_split(extent, parts)
    assert split.count == len(split.options)


@given(spaces)
def test_numbering_equals_brute_force(space: Space) -> None:
    tables = [[tuple(o) if isinstance(o, list) else o for o in knob.options.tolist()] for knob in space.knobs]
    wanted = [dict(zip(space.names, reversed(row), strict=True)) for row in itertools.islice(itertools.product(*reversed(tables)), 200)]
    assert [space.config(i) for i in range(len(wanted))] == wanted
    assert space.size == math.prod(map(len, tables))


@given(spaces, st.integers(0, 2**32))
def test_round_trips(space: Space, seed: int) -> None:
    indices = np.random.default_rng(seed).integers(space.size, size=40)
    np.testing.assert_array_equal(space.encode(space.decode(indices)), indices)
    np.testing.assert_array_equal(space.from_digits(space.digits(indices)), indices)
    assert [space.index(space.config(int(i))) for i in indices[:5]] == indices[:5].tolist()


@given(spaces, st.integers(0, 2**32))
def test_decoding_some_knobs_gives_the_same_values(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    indices = rng.integers(space.size, size=20)
    chosen = [name for name in space.names if rng.random() < 0.5]
    everything, some = space.decode(indices), space.decode(indices, chosen)
    assert sorted(some) == sorted(chosen)
    for name in chosen:
        np.testing.assert_array_equal(some[name], everything[name])


@given(spaces, st.integers(0, 2**32))
def test_coordinates_lie_in_the_unit_cube_and_tell_configurations_apart(space: Space, seed: int) -> None:
    indices = np.unique(np.random.default_rng(seed).integers(space.size, size=40))
    points = space.coordinates(indices)
    assert points.shape == (len(indices), len(space.coordinate_names))
    assert ((points >= 0) & (points <= 1)).all()
    assert len(np.unique(points, axis=0)) == len(indices)


# Sampling


@settings(max_examples=50)
@given(spaces, st.integers(0, 2**32), st.data())
def test_samples_are_different_and_in_range(space: Space, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, min(space.size, 300)))
    indices = space.sample(count, seed)
    assert len(set(indices.tolist())) == len(indices) == count
    assert ((indices >= 0) & (indices < space.size)).all()
    np.testing.assert_array_equal(indices, space.sample(count, seed))


def test_a_space_of_a_trillion_is_sampled_under_its_constraint() -> None:
    tiles = tuple(Split(f"tile_{axis}", 4096, 4) for axis in "fyx")
    space = Space("big", (*tiles, Choice("a", tuple(range(30))), Choice("b", tuple(range(30)))))
    assert space.size == 455**3 * 900 == 84_776_737_500
    space = Space("bigger", (*space.knobs, Split("tile_c", 4096, 2), Choice("c", (0, 1))))
    assert space.size == 84_776_737_500 * 26 > 1e12
    limited = space.restrict(product_at_most(1024, "threads", {"tile_f": 2, "tile_y": 2, "tile_x": 2}))
    indices = limited.sample(5_000, 0)
    assert len(set(indices.tolist())) == 5_000
    values = space.decode(indices)
    assert (values["tile_f"][:, 2] * values["tile_y"][:, 2] * values["tile_x"][:, 2]).max() <= 1024
    assert indices.max() > 0.99 * space.size
    assert indices.min() < 0.01 * space.size


@pytest.mark.parametrize("bits", [20, 22])  # a small space is enumerated, a larger one is drawn from
def test_samples_are_uniform(bits: int) -> None:
    space = Space("s", tuple(Choice(f"k{i}", (0, 1, 2, 3)) for i in range(bits // 2)), (Constraint("k0 below 3", ("k0",), lambda k: k < 3),))
    indices = space.sample(30_000, 1)
    first = np.bincount(space.decode(indices, ["k0"])["k0"], minlength=4)
    assert first[3] == 0
    assert (np.abs(first[:3] - 10_000) < 400).all()  # five standard deviations
    last = np.bincount(space.decode(indices, [space.names[-1]])[space.names[-1]], minlength=4)
    assert (np.abs(last - 7_500) < 400).all()


def test_beyond_64_bits() -> None:
    space = Space("huge", tuple(Split(f"t{i}", 720_720, 4) for i in range(4)), (Constraint("t0[3] at most 8", ("t0",), lambda t: t[:, 3] <= 8),))
    assert space.size == 89_600**4 > 2**63
    assert space.dtype == object
    indices = space.sample(200, 3)
    assert len(set(indices.tolist())) == 200
    assert max(indices) > 2**63
    assert all(isinstance(i, int) for i in indices.tolist())
    np.testing.assert_array_equal(space.encode(space.decode(indices)), indices)
    assert space.decode(indices)["t0"][:, 3].max() <= 8
    assert space.config(space.size - 1) == {f"t{i}": (1, 1, 1, 720_720) for i in range(4)}
    assert space.index(space.config(2**63 + 12_345)) == 2**63 + 12_345
    assert space.satisfies(space.random_neighbours(indices, 0)).all()
    with pytest.raises(SpaceError, match="out of range"):
        space.decode([space.size])


def test_the_last_index_of_63_bits() -> None:
    space = Space("edge", tuple(Choice(f"k{i}", tuple(range(2**7))) for i in range(9)))
    assert space.size == 2**63
    assert space.dtype == np.int64
    assert space.index(space.config(2**63 - 1)) == 2**63 - 1
    assert len(set(space.sample(100, 0).tolist())) == 100


def test_too_few_configurations() -> None:
    small = Space("small", (UNROLL,))
    with pytest.raises(SpaceError, match="has 3 configurations, fewer than the 4"):
        small.sample(4)
    with pytest.raises(SpaceError, match="has 1 configurations within its constraints"):
        small.restrict(Constraint("unroll over 512", ("unroll",), lambda u: u > 512)).sample(2)
    with pytest.raises(SpaceError, match="cannot sample -1"):
        small.sample(-1)
    large = Space("large", tuple(Split(f"t{i}", 4096, 4) for i in range(4)), (Constraint("never", ("t0",), lambda t: t[:, 0] < 0),))
    with pytest.raises(SpaceError, match="never"):
        large.sample(1, 0)


# Constraints and neighbours


@given(spaces, st.integers(0, 2**32))
def test_neighbours_differ_in_one_knob(space: Space, seed: int) -> None:
    index = int(np.random.default_rng(seed).integers(space.size))
    found = space.neighbours(index)
    assert len(set(found.tolist())) == len(found) == sum(len(knob.options) - 1 for knob in space.knobs)
    assert ((space.digits(found) != space.digits([index])).sum(axis=1) == 1).all()


@given(spaces, st.integers(0, 2**32))
def test_random_neighbours_are_neighbours(space: Space, seed: int) -> None:
    here = np.random.default_rng(seed).integers(space.size, size=30)
    moved = space.random_neighbours(here, seed)
    changed = (space.digits(here) != space.digits(moved)).sum(axis=1)
    assert (changed == (1 if space.size > 1 else 0)).all()


def test_random_neighbours_reach_every_neighbour() -> None:
    space = Space("s", (Split("tile", 12, 3), UNROLL))
    assert set(space.random_neighbours(np.full(4_000, 5), 0).tolist()) == set(space.neighbours(5).tolist())


def test_neighbours_keep_the_constraints() -> None:
    space = Space("s", (Split("f", 64, 4), Split("y", 64, 4)), (product_at_most(32, "threads", {"f": 2, "y": 2}),))
    here = space.sample(200, 0)
    assert space.satisfies(space.random_neighbours(here, 0)).all()
    assert space.satisfies(space.neighbours(int(here[0]))).all()
    # Without a way out one stays.
    alone = Space("s", (UNROLL,), (Constraint("only 0", ("unroll",), lambda u: u == 0),))
    assert alone.random_neighbours([0, 0], 0).tolist() == [0, 0]
    assert alone.neighbours(0).tolist() == []


def test_members_are_what_meets_the_constraints() -> None:
    space = Space("s", (Split("f", 16, 3), UNROLL), (product_at_most(4, "threads", {"f": 1}), Constraint("unrolled", ("unroll",), lambda u: u > 0)))
    wanted = [i for i in range(space.size) if space.config(i)["f"][1] <= 4 and space.config(i)["unroll"] > 0]
    assert space.members().tolist() == wanted
    with pytest.raises(SpaceError, match="more than 10 to enumerate"):
        space.members(limit=10)


def test_product_at_most_says_what_it_means() -> None:
    assert product_at_most(1024, "threads", {"tile_f": 2, "block": None}).text == "at most 1,024 threads (tile_f[2] x block)"
    with pytest.raises(SpaceError, match="positive"):
        product_at_most(0, "threads", {"tile_f": 2})


# Identity


def test_spaces_are_values() -> None:
    def make(name: str = "s", extent: int = 8, values: tuple[int, ...] = (0, 1), text: str = "any") -> Space:
        return Space(name, (Split("t", extent, 2), Choice("u", values)), (Constraint(text, ("u",), lambda u: u >= 0),))

    assert make() == make()
    assert hash(make()) == hash(make())
    variants = [make(), make(name="t"), make(extent=9), make(values=(1, 0)), make(text="other"), Space("s", make().knobs[::-1], make().constraints)]
    assert len({space.signature for space in variants}) == len(set(variants)) == 6
    # A record of another day and machine must find the same signature.
    text = b'["s",[["split","t",8,2],["choice","u",[0,1]]],[]]'
    assert Space("s", (Split("t", 8, 2), Choice("u", (0, 1)))).signature == hashlib.sha256(text).hexdigest()[:16] == "48925eeb8c0043ca"
    with pytest.raises(AttributeError):
        make().name = "x"
    with pytest.raises(ValueError, match="read-only"):
        make().knobs[0].options[0] = 3


# Bad input


@pytest.mark.parametrize(
    ("index", "named"),
    [(-1, "-1"), (18, "18"), (10**30, str(10**30)), (1.0, "1.0"), (float("nan"), "nan"), (True, "True"), ("3", "'3'"), (None, "None"), (np.float64(2), "2.0")],
)
def test_a_bad_index_is_named(index: object, named: str) -> None:
    space = Space("s", (Split("tile", 4, 2), UNROLL, Choice("explicit", (0, 1))))
    with pytest.raises(SpaceError, match=named):
        space.config(index)
    with pytest.raises(SpaceError, match=named):
        space.neighbours(index)


@pytest.mark.parametrize(
    "indices", [[0, -5], [0.0, 1.0], np.array([1, np.nan]), np.array([3, 999], dtype=np.uint64), [[1, 2]], [[1], [2, 3]], 3, ["a"], [True]]
)
def test_bad_arrays_of_indices(indices: object) -> None:
    space = Space("s", (UNROLL, Choice("explicit", (0, 1))))
    for method in (space.decode, space.digits, space.satisfies, space.coordinates, space.random_neighbours):
        with pytest.raises(SpaceError):
            method(indices)


def test_any_integer_type_and_an_empty_array() -> None:
    space = Space("s", (UNROLL, Choice("explicit", (0, 1))))
    for dtype in (np.int8, np.uint8, np.uint64, object):
        assert space.decode(np.array([5, 0], dtype=dtype))["unroll"].tolist() == [1500, 0]
    empty = space.decode([])
    assert empty["unroll"].shape == (0,)
    assert space.encode(empty).shape == (0,)
    assert space.coordinates([]).shape == (0, 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tile": [(3, 2)], "unroll": [0]}, r"'tile' cannot be \(3, 2\).*product is 4"),
        ({"tile": [(2, 2), (-2, -2)], "unroll": [0, 0]}, r"\(-2, -2\) \(row 1\)"),
        ({"tile": [(2.5, 2)], "unroll": [0]}, "whole numbers"),
        ({"tile": [(4, 1, 1)], "unroll": [0]}, "takes 2 tiles"),
        ({"tile": [(4, 1)], "unroll": [5]}, "'unroll' cannot be 5: it is one of 0, 512, 1500"),
        ({"tile": [(4, 1)], "unroll": [float("nan")]}, "nan"),
        ({"tile": [(4, 1)], "unroll": ["0"]}, "'0'"),
        ({"tile": [(4, 1)]}, "no value for knob 'unroll'"),
        ({"tile": [(4, 1)], "unroll": [0], "vector": [1]}, "no knob 'vector'"),
        ({"tile": [(4, 1), (2, 2)], "unroll": [0]}, "different numbers of values"),
    ],
)
def test_encode_names_what_is_no_option(values: dict[str, object], message: str) -> None:
    space = Space("s", (Split("tile", 4, 2), UNROLL))
    with pytest.raises(SpaceError, match=message):
        space.encode(values)


def test_tuples_and_texts_as_choices() -> None:
    space = Space("s", (Choice("tile_b", ((16, 1, 1, 1), (1, 16, 1, 1))), Choice("layout", ("NCHW", "NHWC"))))
    assert space.config(3) == {"tile_b": (1, 16, 1, 1), "layout": "NHWC"}
    assert space.encode(space.decode([0, 1, 2, 3])).tolist() == [0, 1, 2, 3]
    with pytest.raises(SpaceError, match="tile_b"):
        space.index({"tile_b": (2, 8, 1, 1), "layout": "NHWC"})
    with pytest.raises(SpaceError, match="'NHCW'"):
        space.index({"tile_b": (1, 16, 1, 1), "layout": "NHCW"})


@pytest.mark.parametrize(
    "make",
    [
        lambda: Split("t", 0, 2),
        lambda: Split("t", 2.0, 2),
        lambda: Split("t", 2**40, 2),
        lambda: Split("t", 4, 0),
        lambda: Split("t", 720_720, 7),
        lambda: Choice("c", ()),
        lambda: Choice("c", (1, 1)),
        lambda: Choice("c", (1, "a")),
        lambda: Choice("c", (1, float("nan"))),
        lambda: Choice("c", ((1, 2), (1, 2, 3))),
        lambda: Space("s", ()),
        lambda: Space("s", (UNROLL, UNROLL)),
        lambda: Space("s", (UNROLL,), (Constraint("t", ("tile",), lambda t: t > 0),)),
        lambda: Space("s", (UNROLL,)).decode([0], ["tile"]),
        lambda: Space("s", (UNROLL,)).from_digits([[3]]),
        lambda: Space("s", (UNROLL,)).from_digits([[0, 0]]),
        lambda: Space("s", (UNROLL,)).from_digits([[0.5]]),
    ],
)
def test_what_cannot_be_a_space(make: object) -> None:
    with pytest.raises(SpaceError):
        make()
