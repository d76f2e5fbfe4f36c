"""The scorecard in print: a table for the terminal, RESULTS.md, and one HTML page with every figure and table beside the paper's numbers."""

from __future__ import annotations

import base64
import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.data import datasets
from workbench.errors import WorkbenchError
from workbench.reproduce import claims
from workbench.reproduce.manifest import Manifest
from workbench.reproduce.scorecard import Entry, Run, Scorecard, build_scorecard, ours_text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_scorecard", "write_html", "write_results"]

_COLOURS = {
    "holds": "green",
    "holds in direction": "green",
    "reproduced": "green",
    "shown": "green",
    "holds partly": "yellow",
    "does not hold": "red",
    "differs": "red",
}
_MOST_ROWS = 60


def print_scorecard(scorecard: Scorecard, console: Console) -> None:
    """Print one line an entry, then what was out of reach and how to get it."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Scorecard: the paper, the reference run, and the newest run", title_justify="left", pad_edge=False, expand=False)
    for name, ratio in (("Item", None), ("What", 3), ("Paper", 3), ("Reference", 2), ("Fresh", 2), ("Verdict", None), ("Why", 3)):
        table.add_column(name, ratio=ratio, overflow="fold")
    for entry in scorecard.entries:
        verdict = Text(str(entry.verdict), style=_COLOURS.get(str(entry.verdict), ""))
        verdict.append(f" ({entry.preliminary})" if entry.preliminary else "", style="dim")
        paper = entry.claim.value if len(entry.claim.value) < 60 else entry.claim.value[:57] + "..."
        cells = (entry.claim.item, _what(entry), paper, ours_text(entry.reference), ours_text(entry.fresh))
        table.add_row(*(Text(cell) for cell in cells), verdict, Text(entry.why))
    console.print(table)
    console.print(Text(", ".join(f"{number} {verdict}" for verdict, number in scorecard.counts().items())))
    if profiles := sorted({entry.preliminary for entry in scorecard.entries if entry.preliminary}):
        console.print(Text(f"A verdict marked ({' or '.join(profiles)}) has smaller counts than the paper; those that count come from --profile paper."))
    for text in scorecard.damaged:
        console.print(Text(f"left out: {text}", style="red"))
    for line in _out_of_reach(scorecard):
        console.print(Text(line), soft_wrap=True)


def write_results(root: Path, manifest: Manifest) -> Path:
    """Write RESULTS.md from claims.toml and figures/ alone: the same inputs give the same bytes."""
    scorecard = build_scorecard(root, fresh=False)
    lines = [
        "# Results",
        "",
        "Made by `workbench report --results` from the reference run in `figures/` and `workbench/reproduce/claims.toml`; not edited by hand.",
        "",
        "What the verdicts mean (fixed before the first run):",
        "",
        "```text",
        _rules(),
        "```",
        "",
        f"{len(scorecard.entries)} rows: " + ", ".join(f"{number} {verdict}" for verdict, number in scorecard.counts().items()) + ".",
        "",
        "## Scorecard",
        "",
        *_markdown_table(
            ("Item", "What", "Paper", "Ours [95% interval]", "Tasks", "Data sets", "Devices", "Verdict", "Why"),
            (
                (
                    entry.claim.item,
                    _what(entry),
                    entry.claim.value,
                    ours_text(entry.reference),
                    "" if entry.reference is None or entry.reference.row.n_tasks is None else str(entry.reference.row.n_tasks),
                    _short(entry.reference.row.data_sets if entry.reference else ()),
                    ", ".join(entry.reference.row.devices if entry.reference else ()),
                    f"**{entry.verdict}**",
                    entry.why + (f" ({note})" if entry.reference and (note := entry.reference.row.note) else ""),
                )
                for entry in scorecard.entries
            ),
        ),
    ]
    for name, run in _in_order(scorecard.reference, manifest):
        lines += ["", f"## {_md(str(run.record.get('title') or name))}", "", _md(_origin(run)), ""]
        for item_id, item in run.record["items"].items():
            lines += ["", f"### {_md(_heading(name, item_id, item))}", ""]
            if item["caption"]:
                lines += [_md(item["caption"]), ""]
            if paper := _paper_value(name, item_id):
                lines += [f"The paper: {_md(paper)}", ""]
            place = f"figures/{name}/"
            if item["kind"] == "figure":
                lines += [f"![{_md(item['title'])}]({place}{item['files'][0]})", "", *(f"[{Path(file).suffix[1:]}]({place}{file})" for file in item["files"])]
            else:
                header, rows = _read_csv(run.folder / item["files"][0])
                lines += _markdown_table(header, rows[:_MOST_ROWS])
                lines += ["", f"[csv]({place}{item['files'][0]})" + (f", {len(rows) - _MOST_ROWS} more rows there" if len(rows) > _MOST_ROWS else "")]
    if scorecard.out_of_reach:
        lines += ["", "## Out of reach in the reference run", "", *(f"- {_md(name)}: {_md(how)}" for name, how in scorecard.out_of_reach.items())]
    path = root / "RESULTS.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_html(root: Path, manifest: Manifest, scorecard: Scorecard) -> Path:
    """Write runs/report.html: one file that needs no other, every value escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    names = dict.fromkeys([name for name, _ in _in_order({**scorecard.reference, **scorecard.fresh}, manifest)])
    sections = []
    for name in names:
        runs = [(label, run) for label, run in (("Reference", scorecard.reference.get(name)), ("Fresh", scorecard.fresh.get(name))) if run is not None]
        ids = dict.fromkeys(item_id for _, run in runs for item_id in run.record["items"])
        items = []
        for item_id in ids:
            shown = [(label, run.record["items"][item_id], run) for label, run in runs if item_id in run.record["items"]]
            items.append(
                {
                    "heading": _heading(name, item_id, shown[0][1]),
                    "caption": shown[0][1]["caption"],
                    "paper": _paper_value(name, item_id),
                    "paper_table": _paper_numbers(name, item_id),
                    "shown": [{"label": label, **_content(run, item)} for label, item, run in shown],
                }
            )
        errors = [(run.record.get("error") or {}).get("text") for _, run in runs if run.record["status"] != "ok"]
        title = str(runs[0][1].record.get("title") or name)
        sections.append({"title": title, "name": name, "origins": [f"{label}: {_origin(run)}" for label, run in runs], "errors": errors, "items": items})
    rows = [{"entry": entry, "what": _what(entry), "reference": ours_text(entry.reference), "fresh": ours_text(entry.fresh)} for entry in scorecard.entries]
    text = environment.get_template("report.html").render(rows=rows, counts=scorecard.counts(), rules=_rules(), sections=sections, scorecard=scorecard)
    path = root / "runs" / "report.html"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _out_of_reach(scorecard: Scorecard) -> list[str]:
    """Which files were out of reach, and how to get them: a line a file, since the reasons of forty are the same."""
    if not scorecard.out_of_reach:
        return []
    lines, known = ["", f"{len(scorecard.out_of_reach)} inputs were out of reach:"], []
    for name, how in scorecard.out_of_reach.items():
        try:
            files = datasets.files_of(name)
        except WorkbenchError:  # not a data set of the catalogue: what the notebook said must do
            lines.append(f"  {name}: {how}")
            continue
        known.append(name)
        lines += [f"  {name}: {file.url}" for file in files]
    if known:
        lines += [
            f"To get them, on a machine with a network: workbench data fetch {' '.join(known)}",
            "or set WORKBENCH_MIRROR to a folder that holds them as <owner>/<repository>/<commit>/<path>; then run the same command again.",
        ]
    return lines


def _rules() -> str:
    return (claims.__doc__ or "").split("\n\n", 2)[2].strip()


def _what(entry: Entry) -> str:
    return entry.claim.title + (f" ({entry.label})" if entry.label else "")


def _in_order(runs: Mapping[str, Run], manifest: Manifest) -> list[tuple[str, Run]]:
    order = list(manifest.tasks)
    return sorted(runs.items(), key=lambda pair: (order.index(pair[0]) if pair[0] in order else len(order), pair[0]))


def _claim(task: str, item_id: str) -> claims.Claim | None:
    return claims.load_claims().get(f"{task.partition('-')[0]}.{item_id}")


def _heading(task: str, item_id: str, item: Mapping[str, Any]) -> str:
    claim = _claim(task, item_id)
    return f"{claim.item}: {item['title']}" if claim else str(item["title"])


def _paper_value(task: str, item_id: str) -> str:
    claim = _claim(task, item_id)
    return f"{claim.statement} Value: {claim.value}." if claim else ""


def _paper_numbers(task: str, item_id: str) -> dict[str, Any] | None:
    table = claims.paper_tables().get(f"{task.partition('-')[0]}.{item_id}")
    if table is None:
        return None
    return {"unit": table["unit"], "header": [table["index"], *table["columns"]], "rows": [[name, *cells] for name, cells in table["rows"].items()]}


def _origin(run: Run) -> str:
    origin = run.provenance
    sha = (origin["git_sha"] or "no commit")[:12] + (" with changes" if origin["dirty"] else "")
    wall = f"{origin['wall_s']:.0f} s" if origin["wall_s"] is not None else "unknown time"
    peak = f", {origin['peak_mb']:.0f} MB" if origin["peak_mb"] else ""
    return f"profile {origin['profile']}, {sha}, {origin['date']}, {wall}{peak}, {origin['machine'] or 'unknown machine'}"


def _content(run: Run, item: Mapping[str, Any]) -> dict[str, Any]:
    path = run.folder / item["files"][0]
    if not path.is_file():
        return {"kind": "absent", "text": f"{path.name} is missing from {run.source}/{run.task}"}
    if item["kind"] == "figure":
        return {"kind": "figure", "title": item["title"], "image": base64.b64encode(path.read_bytes()).decode("ascii")}
    header, rows = _read_csv(path)
    return {"kind": "table", "header": header, "rows": rows[:_MOST_ROWS], "more": max(0, len(rows) - _MOST_ROWS)}


def _read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    return (rows[0], rows[1:]) if rows else ([], [])


def _short(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _md(text: str) -> str:
    # Characters that would end a cell, or be read as a tag or as emphasis.
    return re.sub(r"([|<>*_`\[\]\\])", r"\\\1", " ".join(text.split()))


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(_md(cell) for cell in header) + " |", "|" + " --- |" * len(header)]
    for row in rows:
        cells = [cell if re.fullmatch(r"\*\*[a-z ]+\*\*", cell) else _md(cell) for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
