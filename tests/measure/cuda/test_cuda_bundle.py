"""A bundle comes back as it went, whole or not at all: what was cut short, changed, or made by a later version is one line."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import small_bundle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.errors import DataError, MissingData, StoreError
from workbench.measure.cuda.bundle import BUNDLE_VERSION, Candidate, Input, Launch, Problem, Stage, read_bundle, write_bundle
from workbench.schema import Workload

TEXT = st.text(max_size=8)
COUNT = st.integers(0, 2**31 - 1)
EXTENTS = st.tuples(COUNT, COUNT, COUNT)


def launches(names: list[str]) -> st.SearchStrategy[tuple[Launch, ...]]:
    arguments = st.lists(st.sampled_from(names) | COUNT, max_size=4).map(tuple)
    return st.lists(st.builds(Launch, TEXT, EXTENTS, EXTENTS, arguments, COUNT, st.booleans()), max_size=3).map(tuple)


@st.composite
def contents(draw: st.DrawFn) -> dict[str, object]:
    keys = draw(st.lists(TEXT, min_size=1, max_size=3, unique=True))
    problems = [
        Problem(Workload(f"k{i}", {"n": (i, 2), "name": key}), (Input("a", draw(COUNT), 1, 3),), "c", draw(COUNT), draw(launches(["a"])), draw(st.floats(0, 1)))
        for i, key in enumerate(keys)
    ]
    programs = draw(st.lists(st.text(max_size=50), min_size=1, max_size=3))
    candidates = [
        Candidate(
            group=draw(TEXT),
            problem=draw(st.integers(0, len(problems) - 1)),
            program=draw(st.integers(0, len(programs) - 1)),
            space=draw(TEXT),
            index=draw(st.none() | st.just(2**70 + i)),
            config={"knob": (1, i), "other": draw(TEXT)},
            launches=draw(launches(["a", "c", "t"])),
            scratch={"t": draw(COUNT)},
            copied=draw(st.booleans()),
            label=draw(TEXT),
        )
        for i in range(draw(st.integers(0, 4)))
    ]
    first = draw(st.integers(0, len(candidates)))
    stages = [Stage("one", first, 0.25), Stage("two", len(candidates) - first, 1.0)]
    return {"stages": stages, "programs": programs, "problems": problems, "candidates": candidates, "notes": {"g": draw(st.lists(TEXT, max_size=2))}}


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=contents())
def test_it_comes_back_as_it_went(parts: dict[str, list], tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    write_bundle(path, made_by="command", reference="text", **parts)  # type: ignore[arg-type]
    bundle = read_bundle(path)
    assert (bundle.made_by, bundle.reference, bundle.notes) == ("command", "text", parts["notes"])
    assert list(bundle.stages) == parts["stages"]
    assert bundle.problems == parts["problems"]
    assert bundle.candidates == parts["candidates"]
    assert [bundle.source(i) for i in range(len(parts["programs"]))] == parts["programs"]
    assert len(set(bundle.identities)) == len(bundle.candidates)
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.zip"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle.write_matrices(tmp_path_factory.mktemp("bundle") / "bundle.zip")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_was_cut_or_changed_is_refused_or_harmless(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(whole.read_bytes())
    path = tmp_path / "bundle.zip"
    if data.draw(st.booleans()):
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
        with pytest.raises(DataError, match="not a whole bundle"):
            read_bundle(path)
        return
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    said = ""
    try:
        bundle = read_bundle(path)
    except DataError as error:
        said = str(error)
    if said:
        assert len(said.splitlines()) == 1
        assert str(path) in said
    else:  # a bit of the zip's own that says nothing, such as a time
        first = read_bundle(whole)
        assert (bundle.candidates, bundle.problems, bundle.stages, bundle.reference) == (first.candidates, first.problems, first.stages, first.reference)


def rewritten(whole: Path, path: Path, change: dict[str, object], parts: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = (parts or {}).get(name, old.read(name))
            if name == "bundle.json":
                content = json.dumps({**json.loads(content), **change}).encode()
            new.writestr(name, content)
    return path


def test_a_later_version_and_another_file(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"a bundle of version 7; this workbench reads up to version {BUNDLE_VERSION}: update it, or make the bundle anew"):
        read_bundle(rewritten(whole, tmp_path / "later.zip", {"version": 7}))
    with pytest.raises(DataError, match="not a bundle"):
        read_bundle(rewritten(whole, tmp_path / "other.zip", {"format": "something"}))
    with pytest.raises(DataError, match=r"its candidates\.parquet is not what the header says"):
        read_bundle(rewritten(whole, tmp_path / "part.zip", {}, {"candidates.parquet": b"PAR1"}))
    with pytest.raises(DataError, match=r"its contents are not those of a bundle .* 16"):
        read_bundle(rewritten(whole, tmp_path / "stages.zip", {"stages": [["matrix", 3, 1.0]]}))
    (tmp_path / "text.zip").write_text("hello")
    with pytest.raises(DataError, match="not a whole bundle, 5 bytes"):
        read_bundle(tmp_path / "text.zip")
    with pytest.raises(MissingData, match="make a bundle with: workbench measure bundle"):
        read_bundle(tmp_path / "none.zip")
    with pytest.raises(StoreError, match="cannot be written"):
        small_bundle.write_matrices(tmp_path / "no" / "bundle.zip")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"problem": 9}, "candidate 1 refers to problem 9"),
        ({"program": 5}, "candidate 1 refers to problem 0 and program 5"),
        ({"launches": (Launch("right", (1, 1, 1), (1, 1, 1), ("nothing",)),)}, "candidate 1 has no buffer 'nothing'"),
        ({"index": 0}, "a candidate is there twice"),
    ],
)
def test_a_candidate_that_refers_to_nothing(tmp_path: Path, change: dict[str, object], said: str) -> None:
    candidates = [small_bundle.convolution("right"), replace(small_bundle.convolution("right", index=1), **change)]  # type: ignore[arg-type]
    write_bundle(
        tmp_path / "b.zip",
        made_by="",
        stages=[Stage("one", 2, 1.0)],
        programs=[small_bundle.SOURCE],
        reference="",
        problems=[small_bundle.problem()],
        candidates=candidates,
    )
    with pytest.raises(DataError, match=said):
        read_bundle(tmp_path / "b.zip")
