"""What the papers claim (claims.toml), and the rules that turn a measured row into a verdict.

The rules were fixed before the first run and know nothing of the results:

rule "effect": a difference or a ratio. `number` is the paper's effect, `null` what no effect would be (0, or 1 for a ratio); both count from `null`.
    holds                 the paper's direction, the 95% interval over tasks excludes `null`, and the effect is at least half the paper's
    holds partly          direction and interval only
    does not hold         otherwise
    holds in direction    direction and interval, where the paper's number is not legible in our copy of its text (then nothing more can be said)
rule "level": a quantity such as "a MAPE of 3%". `number` is the paper's.
    direction "lower", "higher"    holds if the value is at the paper's number or beyond it; holds partly if its 95% interval reaches that number;
                                   else does not hold
    direction "equal"              holds if the interval contains the paper's number and the value is between half and twice it; holds partly if only
                                   the second; else does not hold
    no legible number              shown
rule "equal": counts and sizes. Reproduced if all `numbers` are equal, else differs.
rule "shown": schematics and pictures, which state no number. Shown.

Any rule: a row with a `reason` cannot be tested here, and the reason names what is missing. A claim without a row is not run yet.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import DataError, UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NOT_LEGIBLE", "Claim", "Row", "Verdict", "get_claim", "judge", "load_claims", "paper_table", "paper_tables"]

NOT_LEGIBLE = "not legible"
RULES = ("effect", "level", "equal", "shown")
DIRECTIONS = {"effect": ("higher", "lower"), "level": ("higher", "lower", "equal"), "equal": ("equal",), "shown": ("",)}


class Verdict(StrEnum):
    """What a row says about a claim."""

    HOLDS = "holds"
    DIRECTION = "holds in direction"
    PARTLY = "holds partly"
    NOT = "does not hold"
    UNTESTABLE = "cannot be tested here"
    REPRODUCED = "reproduced"
    DIFFERS = "differs"
    SHOWN = "shown"
    NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Claim:
    """One table, figure or claim of a paper.

    Attributes:
        id: such as "nnc.table06" or "nnc.claim.nn_margin".
        item: where it stands, such as "Table VI" or "abstract".
        title: a few words for print.
        statement: what the paper says, in our words.
        value: the paper's value as our copy of the text shows it, or "not legible".
        rule: "effect", "level", "equal" or "shown".
        task: the manifest's task that tests it.
        number: the number that the rule compares with, None where it is not legible.
        numbers: for rule "equal", name -> number.
        direction: "higher", "lower" or "equal".
        null: what the number would be without an effect: 0 for a difference, 1 for a ratio.
        unit: of `number`.
        data: what the claim needs, in words.
        note: how `number` was derived, or where the paper contradicts itself.
    """

    id: str
    item: str
    title: str
    statement: str
    value: str
    rule: str
    task: str
    number: float | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    direction: str = ""
    null: float = 0.0
    unit: str = ""
    data: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise DataError(f"claim {self.id}: rule {self.rule!r}; use one of {', '.join(RULES)}")
        if self.direction not in DIRECTIONS[self.rule]:
            raise DataError(f"claim {self.id}: direction {self.direction!r} with rule {self.rule!r}; use one of {', '.join(DIRECTIONS[self.rule])}")
        if self.value == NOT_LEGIBLE and self.number is not None:
            raise DataError(f"claim {self.id}: the value is not legible, so `number` must be absent, not {self.number}")
        if self.rule == "equal" and not self.numbers:
            raise DataError(f"claim {self.id}: rule 'equal' needs `numbers`")

    @property
    def legible(self) -> bool:
        """Whether our copy of the paper's text shows its value."""
        return self.value != NOT_LEGIBLE


@dataclass(frozen=True)
class Row:
    """A row of the scorecard: what a notebook found about one claim.

    `value` with `low` and `high` is for print and for rule "level"; `effect` with its 95% interval over tasks is what rule "effect" sees.
    """

    claim: str
    label: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    n_tasks: int | None = None
    data_sets: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    note: str = ""
    reason: str | None = None

    def __post_init__(self) -> None:
        for name in ("value", "low", "high", "effect", "effect_low", "effect_high"):
            number = getattr(self, name)
            if number is not None and not math.isfinite(number):
                raise UsageError(f"row {self.claim}: {name} is {number}; give a finite number, or none and the reason")
        for low, high in (("low", "high"), ("effect_low", "effect_high")):
            first, last = getattr(self, low), getattr(self, high)
            if (first is None) != (last is None):
                raise UsageError(f"row {self.claim}: an interval has two ends; {low} is {first}, {high} is {last}")
            if first is not None and first > last:
                raise UsageError(f"row {self.claim}: {low} = {first} is above {high} = {last}")

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Row:
        """Build from a row of outputs.json. Raises DataError for an unknown or missing field."""
        try:
            return cls(**{**record, "data_sets": tuple(record.get("data_sets", ())), "devices": tuple(record.get("devices", ()))})
        except TypeError as error:
            raise DataError(f"not a row of a scorecard: {error}") from error


@cache
def load_claims(path: Path | None = None) -> dict[str, Claim]:
    """All claims by id, in the order of the papers. Raises DataError for a faulty file."""
    path = path or Path(__file__).with_name("claims.toml")
    try:
        records = tomllib.loads(path.read_text(encoding="utf-8"))["claim"]
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise DataError(f"{path}: {error}") from error
    claims: dict[str, Claim] = {}
    for record in records:
        try:
            claim = Claim(**record)
        except TypeError as error:
            raise DataError(f"{path}: claim {record.get('id')!r}: {error}") from error
        if claim.id in claims:
            raise DataError(f"{path}: claim {claim.id!r} stands twice")
        claims[claim.id] = claim
    return claims


def get_claim(claim_id: str) -> Claim:
    """The claim with this id. Raises UsageError that names close matches."""
    claims = load_claims()
    if claim_id not in claims:
        close = difflib.get_close_matches(claim_id, claims, n=3, cutoff=0.5)
        raise UsageError(f"no claim {claim_id!r} in claims.toml; " + (f"close: {', '.join(close)}" if close else f"ids look like {next(iter(claims))}"))
    return claims[claim_id]


def judge(claim: Claim, row: Row | None) -> tuple[Verdict, str]:
    """Verdict of a row about a claim by the rules above, and in a few words why."""
    if row is None:
        return Verdict.NOT_RUN, f"not run yet: workbench reproduce {claim.task}"
    if row.reason:
        return Verdict.UNTESTABLE, row.reason
    if claim.rule == "effect":
        return _judge_effect(claim, row)
    if claim.rule == "level":
        return _judge_level(claim, row)
    if claim.rule == "equal":
        wrong = [f"{name}: {row.numbers.get(name, 'none')} (expected {number:g})" for name, number in claim.numbers.items() if row.numbers.get(name) != number]
        against = "the paper's" if claim.legible else "the authors' published code's (paper value not legible)"
        return (Verdict.DIFFERS, "; ".join(wrong)) if wrong else (Verdict.REPRODUCED, f"equal to {against} {len(claim.numbers)} numbers")
    return Verdict.SHOWN, "the paper states no number here"


def _judge_effect(claim: Claim, row: Row) -> tuple[Verdict, str]:
    if row.effect is None:
        return Verdict.UNTESTABLE, "the run gave no effect"
    sign = 1.0 if claim.direction == "higher" else -1.0
    effect = sign * (row.effect - claim.null)
    if effect <= 0:
        return Verdict.NOT, "not in the paper's direction"
    if row.effect_low is None or row.effect_high is None:
        return Verdict.UNTESTABLE, "an interval over tasks needs at least two tasks"
    if min(sign * (row.effect_low - claim.null), sign * (row.effect_high - claim.null)) <= 0:
        return Verdict.NOT, f"the 95% interval includes {claim.null:g}"
    if claim.number is None:
        return Verdict.DIRECTION, "direction and interval; paper value not legible"
    if effect >= sign * (claim.number - claim.null) / 2:
        return Verdict.HOLDS, "direction, interval, and at least half the paper's effect"
    return Verdict.PARTLY, "direction and interval, but less than half the paper's effect"


def _judge_level(claim: Claim, row: Row) -> tuple[Verdict, str]:
    if row.value is None:
        return Verdict.UNTESTABLE, "the run gave no value"
    if claim.number is None:
        return Verdict.SHOWN, "paper value not legible"
    low, high = (row.value, row.value) if row.low is None or row.high is None else (row.low, row.high)
    if claim.direction == "equal":
        near = claim.number / 2 <= row.value <= 2 * claim.number
        if near and low <= claim.number <= high:
            return Verdict.HOLDS, "the interval contains the paper's number"
        return (Verdict.PARTLY, "between half and twice the paper's number") if near else (Verdict.NOT, "not between half and twice the paper's number")
    lower = claim.direction == "lower"
    if (row.value <= claim.number) if lower else (row.value >= claim.number):
        return Verdict.HOLDS, "at the paper's number or beyond"
    if (low <= claim.number) if lower else (high >= claim.number):
        return Verdict.PARTLY, "only the 95% interval reaches the paper's number"
    return Verdict.NOT, "neither the value nor its 95% interval reaches the paper's number"


@cache
def paper_tables() -> dict[str, dict[str, Any]]:
    """The papers' tables of numbers: id such as "nnc.table06" -> {title, unit, columns, rows: name -> list, unplaced: name -> text}."""
    with Path(__file__).with_name("paper_tables.toml").open("rb") as file:
        tables: dict[str, dict[str, Any]] = tomllib.load(file)
    flat = {f"{paper}.{name}": table for paper, group in tables.items() for name, table in group.items()}
    for name, table in flat.items():
        for row, cells in table["rows"].items():
            if len(cells) != len(table["columns"]) or any(isinstance(cell, str) and cell not in (NOT_LEGIBLE, "N/A") for cell in cells):
                raise DataError(f"paper_tables.toml: {name}, row {row!r}: needs {len(table['columns'])} cells, each a number, 'N/A' or {NOT_LEGIBLE!r}")
    return flat


def paper_table(number: str | int, paper: str = "nnc") -> pd.DataFrame:
    """A table of a paper as our copy of the text shows it: models by columns, in `unit`; NaN where a number is not legible.

    Args:
        number: "VI", "table06", 6, or the name of a part such as "table12_spearman".
        paper: "nnc".

    Raises:
        UsageError: no such table of numbers.
    """
    import pandas as pd

    text = str(number).strip()
    roman = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII", "XIV", "XV")
    digits = str(roman.index(text.upper()) + 1) if text.upper() in roman else text.lower().removeprefix("table")
    name = f"{paper}.table{int(digits):02d}" if digits.isdigit() else f"{paper}.table{digits}"
    tables = paper_tables()
    if name not in tables:
        raise UsageError(f"no table {number!r} of numbers in paper_tables.toml; there are {', '.join(sorted(tables))}")
    table = tables[name]
    rows = [[math.nan if isinstance(cell, str) else float(cell) for cell in cells] for cells in table["rows"].values()]
    return pd.DataFrame(rows, index=pd.Index(table["rows"], name=table["index"]), columns=table["columns"])
