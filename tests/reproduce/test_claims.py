"""The verdict rules branch by branch, and claims.toml and paper_tables.toml held to the paper's text as we have it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from workbench.errors import DataError, UsageError
from workbench.reproduce.claims import NOT_LEGIBLE, Claim, Row, Verdict, get_claim, judge, load_claims, paper_table, paper_tables
from workbench.reproduce.manifest import load_manifest


def claim(**changes: object) -> Claim:
    fields: dict[str, object] = {
        "id": "c",
        "item": "Table I",
        "title": "t",
        "statement": "s",
        "value": "8 points",
        "rule": "effect",
        "task": "t",
        "number": 8.0,
    }
    fields |= {"direction": "higher"} | changes
    return Claim(**fields)  # type: ignore[arg-type]


def effect(value: float, low: float | None, high: float | None) -> Row:
    return Row("c", effect=value, effect_low=low, effect_high=high)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (effect(9, 2, 16), Verdict.HOLDS),
        (effect(4, 1, 7), Verdict.HOLDS),  # exactly half
        (effect(3.9, 1, 7), Verdict.PARTLY),
        (effect(9, 0, 18), Verdict.NOT),  # touches 0
        (effect(9, -1, 18), Verdict.NOT),
        (effect(-9, -12, -6), Verdict.NOT),
        (effect(0, 0, 0), Verdict.NOT),
        (effect(9, None, None), Verdict.UNTESTABLE),
        (effect(-9, None, None), Verdict.NOT),
        (Row("c", value=3.0), Verdict.UNTESTABLE),
        (Row("c", value=3.0, effect=9.0, effect_low=2.0, effect_high=16.0, reason="Boost was not published"), Verdict.UNTESTABLE),
    ],
)
def test_effect(row: Row, expected: Verdict) -> None:
    assert judge(claim(), row)[0] is expected


@pytest.mark.parametrize(("row", "expected"), [(effect(-4, -7, -1), Verdict.HOLDS), (effect(-3, -7, -1), Verdict.PARTLY), (effect(4, 1, 7), Verdict.NOT)])
def test_effect_downwards(row: Row, expected: Verdict) -> None:
    assert judge(claim(direction="lower", number=-8.0), row)[0] is expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (effect(1.35, 1.1, 1.6), Verdict.HOLDS),  # half of +70% is +35%
        (effect(1.34, 1.1, 1.6), Verdict.PARTLY),
        (effect(1.35, 0.9, 1.8), Verdict.NOT),
        (effect(0.8, 0.7, 0.9), Verdict.NOT),
    ],
)
def test_ratio_counts_from_one(row: Row, expected: Verdict) -> None:
    assert judge(claim(number=1.7, null=1.0, value="1.7x"), row)[0] is expected


def test_effect_without_a_legible_number_rests_on_direction() -> None:
    lost = claim(value=NOT_LEGIBLE, number=None)
    verdict, why = judge(lost, effect(0.1, 0.05, 0.2))
    assert verdict is Verdict.DIRECTION
    assert "not legible" in why
    assert judge(lost, effect(0.1, -0.05, 0.2))[0] is Verdict.NOT
    assert judge(lost, effect(-0.1, -0.3, -0.05))[0] is Verdict.NOT


def level(value: float, low: float | None = None, high: float | None = None) -> Row:
    return Row("c", value=value, low=low, high=high)


@pytest.mark.parametrize(
    ("direction", "row", "expected"),
    [
        ("lower", level(3.0), Verdict.HOLDS),
        ("lower", level(2.0, 1.0, 5.0), Verdict.HOLDS),
        ("lower", level(3.8, 2.9, 5.0), Verdict.PARTLY),
        ("lower", level(3.8, 3.1, 5.0), Verdict.NOT),
        ("lower", level(3.8), Verdict.NOT),
        ("higher", level(3.0), Verdict.HOLDS),
        ("higher", level(2.0, 1.0, 3.5), Verdict.PARTLY),
        ("higher", level(2.0, 1.0, 2.5), Verdict.NOT),
        ("equal", level(3.4, 2.5, 4.0), Verdict.HOLDS),
        ("equal", level(3.4, 3.2, 4.0), Verdict.PARTLY),
        ("equal", level(7.0, 2.0, 12.0), Verdict.NOT),  # more than twice, however wide the interval
        ("equal", level(1.0, 0.5, 3.5), Verdict.NOT),  # less than half
        ("equal", Row("c", effect=3.0), Verdict.UNTESTABLE),
    ],
)
def test_level(direction: str, row: Row, expected: Verdict) -> None:
    assert judge(claim(rule="level", direction=direction, number=3.0), row)[0] is expected


def test_level_without_a_legible_number_is_shown() -> None:
    assert judge(claim(rule="level", value=NOT_LEGIBLE, number=None), level(3.0)) == (Verdict.SHOWN, "paper value not legible")


def test_equal() -> None:
    sizes = claim(rule="equal", direction="equal", number=None, numbers={"MM": 64, "MV": 50})
    assert judge(sizes, Row("c", numbers={"MM": 64, "MV": 50, "more": 1}))[0] is Verdict.REPRODUCED
    verdict, why = judge(sizes, Row("c", numbers={"MM": 65}))
    assert verdict is Verdict.DIFFERS
    assert why == "MM: 65 (expected 64); MV: none (expected 50)"
    lost = claim(rule="equal", direction="equal", value=NOT_LEGIBLE, number=None, numbers={"MM": 64})
    assert "paper value not legible" in judge(lost, Row("c", numbers={"MM": 64}))[1]


def test_shown_and_not_run() -> None:
    assert judge(claim(rule="shown", direction="", number=None), Row("c"))[0] is Verdict.SHOWN
    assert judge(claim(), None) == (Verdict.NOT_RUN, "not run yet: workbench reproduce t")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule": "guess"}, "rule 'guess'"),
        ({"direction": "up"}, "direction 'up'"),
        ({"value": NOT_LEGIBLE}, "must be absent"),
        ({"rule": "equal", "direction": "equal"}, "needs `numbers`"),
    ],
)
def test_faulty_claims_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        claim(**changes)


@pytest.mark.parametrize(
    "fields",
    [
        {"value": math.nan},
        {"effect": math.inf},
        {"value": 1.0, "low": 0.5},
        {"value": 1.0, "low": 2.0, "high": 1.0},
        {"effect": 1.0, "effect_high": 2.0},
    ],
)
def test_faulty_rows_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="row c"):
        Row("c", **fields)  # type: ignore[arg-type]


def test_files_with_faults_are_refused(tmp_path: Path) -> None:
    entry = '[[claim]]\nid = "a"\nitem = "i"\ntitle = "t"\nstatement = "s"\nvalue = "v"\nrule = "shown"\ntask = "t"\n'
    for text, message in (("[[claim]", "claims.toml"), (entry + entry, "stands twice"), (entry + "colour = 1\n", "colour")):
        path = tmp_path / f"{len(message)}" / "claims.toml"
        path.parent.mkdir()
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            load_claims(path)


def test_every_table_figure_and_claim_has_a_row_and_a_task() -> None:
    claims = load_claims()
    roman = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"]
    assert [claims[f"nnc.table{number:02d}"].item for number in range(1, 13)] == [f"Table {text}" for text in roman]
    assert [claims[f"nnc.figure{number:02d}"].item for number in range(1, 6)] == [f"Figure {number}" for number in range(1, 6)]
    assert {"nnc.claim.abstract_mape", "nnc.claim.combinations", "nnc.claim.nn_margin", "nnc.claim.nlrc_margin", "nnc.claim.mullapudi"} <= set(claims)
    manifest = load_manifest()
    made = {item for task in manifest.tasks.values() for item in task.items}
    for entry in claims.values():
        assert entry.task in manifest.tasks, entry.id
        if entry.item.startswith(("Table", "Figure")):
            assert entry.item in made, entry.id


def test_unknown_claim_names_close_matches() -> None:
    with pytest.raises(UsageError, match=r"no claim 'nnc.tabel06'.*nnc\.table06"):
        get_claim("nnc.tabel06")


def test_lost_numbers_are_not_filled_in() -> None:
    six = paper_table("VI")
    assert list(six.index) == ["NN+C", "NN", "C", "LR+C", "NLR+C"]
    assert six.loc["NN"].tolist() == [29, 31, 26, 20, 35, 19, 23, 13, 18, 16]
    assert six.loc["NLR+C"].isna().all()
    assert paper_table("table07").loc[["NN", "C", "LR+C"]].isna().all(axis=None)
    assert paper_table(12).loc[["NN+C", "NLR+C"]].isna().all(axis=None)
    assert paper_table("table12_spearman").loc["NN", "FFT Xeon"] == 0.98
    assert math.isnan(paper_table("V").loc["GPU", "FFT"])
    with pytest.raises(UsageError, match="no table 'XIV'"):
        paper_table("XIV")


def test_an_unplaced_row_has_no_cells() -> None:
    for name, table in paper_tables().items():
        for row in table.get("unplaced", {}):
            assert set(table["rows"][row]) == {NOT_LEGIBLE}, (name, row)


def test_derived_numbers_follow_from_the_tables() -> None:
    claims, ten, eleven = load_claims(), paper_table("X"), paper_table("XI")
    margins = ten.loc["NN"] - ten.loc["NN+C"]
    for number, kernel in (("06", "MM"), ("07", "MV"), ("08", "MC"), ("09", "MP")):
        assert claims[f"nnc.table{number}"].number == margins[kernel]
    assert claims["nnc.table10"].number == margins[["MM", "MV", "MC", "MP"]].mean()
    assert claims["nnc.table11"].number == round(eleven[[name for name in eleven if name.endswith("time")]].to_numpy().mean(), 2)
    assert claims["nnc.claim.mm_half"].number == round(23 / 11, 2)
    rest = [ratio for name, ratio in claims["nnc.claim.size_rest"].numbers.items() if name != "mean"]
    assert claims["nnc.claim.size_rest"].numbers["mean"] == round(sum(rest) / 7, 2)
