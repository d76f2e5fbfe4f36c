"""The scorecard: every claim beside what the reference run (figures/) and the newest run (runs/) found, with a verdict and where it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import DataError
from workbench.reproduce.claims import Claim, Row, Verdict, judge, load_claims
from workbench.reproduce.record import read_run

__all__ = ["Entry", "Finding", "Run", "Scorecard", "build_scorecard", "format_number", "ours_text"]


@dataclass(frozen=True)
class Run:
    """A recorded run of a task: `folder` holds its files, `source` says where it stands ("figures" or "runs/<profile>")."""

    task: str
    folder: Path
    source: str
    record: Mapping[str, Any]

    @property
    def provenance(self) -> dict[str, Any]:
        """Where its numbers come from, as plain JSON types."""
        git = self.record.get("git") or {}
        return {
            "source": self.source,
            "task": self.task,
            "profile": self.record.get("profile"),
            "git_sha": git.get("sha"),
            "git_tag": git.get("tag"),
            "dirty": git.get("dirty"),
            "date": self.record.get("started"),
            "wall_s": self.record.get("wall_s"),
            "peak_mb": self.record.get("peak_mb"),
            "machine": (self.record.get("device") or {}).get("cpu"),
        }


@dataclass(frozen=True)
class Finding:
    """A row of a run with its verdict."""

    row: Row
    verdict: Verdict
    why: str
    run: Run

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types: the row's numbers, verdict, sha256 of the files of its data sets, provenance."""
        data = self.run.record.get("data") or {}
        row = asdict(self.row)
        del row["claim"], row["label"]
        sha256 = {name: data[name]["sha256"] for name in self.row.data_sets if name in data}
        return {**row, "verdict": str(self.verdict), "why": self.why, "sha256": sha256, "provenance": self.run.provenance}


@dataclass(frozen=True)
class Entry:
    """A claim, and what each of the two runs found about it (`label` tells several rows of one claim apart)."""

    claim: Claim
    label: str
    reference: Finding | None
    fresh: Finding | None
    absent: str = ""

    @property
    def finding(self) -> Finding | None:
        """The one that counts: the reference run's where there is one."""
        return self.reference or self.fresh

    @property
    def verdict(self) -> Verdict:
        """Verdict of the one that counts."""
        return self.finding.verdict if self.finding else Verdict.NOT_RUN

    @property
    def why(self) -> str:
        """Reason of the verdict in a few words."""
        return self.finding.why if self.finding else self.absent

    @property
    def preliminary(self) -> str:
        """Profile of the run if its counts are not the paper's, so that the verdict is none to quote; else ""."""
        profile = self.finding.run.record.get("profile") if self.finding else "paper"
        return "" if profile == "paper" else str(profile)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "claim": self.claim.id,
            "item": self.claim.item,
            "title": self.claim.title,
            "label": self.label,
            "statement": self.claim.statement,
            "paper": self.claim.value,
            "paper_legible": self.claim.legible,
            "paper_number": self.claim.number,
            "rule": self.claim.rule,
            "direction": self.claim.direction,
            "needs": self.claim.data,
            "note": self.claim.note,
            "task": self.claim.task,
            "verdict": str(self.verdict),
            "why": self.why,
            "preliminary": bool(self.preliminary),
            "ours": self.finding.to_json() if self.finding else None,
            "reference": self.reference.to_json() if self.reference else None,
            "fresh": self.fresh.to_json() if self.fresh else None,
        }


@dataclass(frozen=True)
class Scorecard:
    """All entries in the order of claims.toml; the runs they come from by task; inputs out of reach in the newest runs (name -> how to get it)."""

    entries: tuple[Entry, ...]
    reference: Mapping[str, Run]
    fresh: Mapping[str, Run]
    out_of_reach: Mapping[str, str]
    damaged: tuple[str, ...] = field(default=())

    def counts(self) -> dict[str, int]:
        """Verdict -> number of entries, in the order of Verdict."""
        counted = Counter(entry.verdict for entry in self.entries)
        return {str(verdict): counted[verdict] for verdict in Verdict if counted[verdict]}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "rows": [entry.to_json() for entry in self.entries],
            "counts": self.counts(),
            "out_of_reach": [{"name": name, "how": how} for name, how in self.out_of_reach.items()],
            "damaged": list(self.damaged),
        }


def build_scorecard(root: Path, profile: str | None = None, fresh: bool = True) -> Scorecard:
    """Read figures/ and runs/ of a checkout.

    Args:
        root: the checkout.
        profile: take fresh runs of this profile only; None takes the newest of each task.
        fresh: False leaves runs/ out.
    """
    damaged: list[str] = []
    reference = {run.task: run for run in _runs(root / "figures", "figures", damaged)}
    newest: dict[str, Run] = {}
    if fresh:
        for folder in sorted((root / "runs").glob(profile or "*")):
            if folder.name != "lab":
                for run in _runs(folder, f"runs/{folder.name}", damaged):
                    if run.task not in newest or str(run.record["started"]) > str(newest[run.task].record["started"]):
                        newest[run.task] = run
    found = {"reference": _findings(reference, damaged), "fresh": _findings(newest, damaged)}
    entries = []
    for claim in load_claims().values():
        labels = list(dict.fromkeys(label for rows in found.values() for label in rows.get(claim.id, {})))
        for label in labels or [""]:
            pair = {which: rows.get(claim.id, {}).get(label) for which, rows in found.items()}
            entries.append(Entry(claim, label, pair["reference"], pair["fresh"], "" if labels else _absent(claim, newest, reference)))
    missing: dict[str, str] = {}
    for run in newest.values() or reference.values():
        missing.update(run.record.get("missing") or {})
    return Scorecard(tuple(entries), reference, newest, missing, tuple(damaged))


def format_number(number: float) -> str:
    """Four significant digits at most, never an exponent below a million."""
    return f"{number:.4g}" if abs(number) < 10_000 else f"{number:,.0f}"


def ours_text(finding: Finding | None) -> str:
    """What a finding says in one line: value, interval, unit, then the effect with its interval."""
    if finding is None:
        return ""
    row, parts, unit = finding.row, [], f" {finding.row.unit}" if finding.row.unit else ""
    if row.value is not None and row.value != row.effect:
        parts.append(format_number(row.value) + _interval(row.low, row.high) + (unit if row.effect is None else ""))
    if row.effect is not None:
        parts.append(("effect " if parts else "") + format_number(row.effect) + _interval(row.effect_low, row.effect_high) + unit)
    if row.numbers:
        parts.append(", ".join(f"{name} {format_number(number)}" for name, number in row.numbers.items()))
    return "; ".join(parts)


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{format_number(low)}, {format_number(high)}]"


def _runs(folder: Path, source: str, damaged: list[str]) -> list[Run]:
    runs = []
    for path in sorted(folder.glob("[!.]*/run.json")):
        try:
            record = read_run(path.parent)
        except DataError as error:
            damaged.append(str(error))
            continue
        if record is not None:
            runs.append(Run(path.parent.name, path.parent, source, record))
    return runs


def _findings(runs: Mapping[str, Run], damaged: list[str]) -> dict[str, dict[str, Finding]]:
    claims = load_claims()
    found: dict[str, dict[str, Finding]] = {}
    for run in runs.values():
        for record in run.record.get("rows") or []:
            try:
                row = Row.from_json(record)
            except ValueError as error:
                damaged.append(f"{run.folder / 'run.json'}: {error}")
                continue
            if row.claim in claims:  # a claim that was renamed since has no row until the task runs again
                found.setdefault(row.claim, {})[row.label] = Finding(row, *judge(claims[row.claim], row), run)
    return found


def _absent(claim: Claim, fresh: Mapping[str, Run], reference: Mapping[str, Run]) -> str:
    run = fresh.get(claim.task) or reference.get(claim.task)
    if run is None:
        return judge(claim, None)[1]
    if run.record["status"] != "ok":
        return f"the last run failed: {(run.record.get('error') or {}).get('text', 'no reason recorded')}"
    return f"{run.record['notebook']} gave no row for it"
