"""The scorecard and its three forms, from run folders written by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console
from small_project import Project
from typer.testing import CliRunner

from workbench.cli import build
from workbench.errors import UsageError
from workbench.reproduce.claims import Row, Verdict, load_claims
from workbench.reproduce.manifest import load_manifest
from workbench.reproduce.report import print_scorecard, write_html, write_results
from workbench.reproduce.run import save_reference
from workbench.reproduce.scorecard import Entry, Finding, Run, Scorecard, build_scorecard, format_number, ours_text

EVIL = "<script>alert('x')</script> | a & b"


def put(root: Path, source: str, task: str, *rows: Row, started: str = "2031-01-02T03:04:05+00:00", **changes: Any) -> Path:
    """A run folder with one table and one figure, whose texts try to break out."""
    folder = root / source / task
    folder.mkdir(parents=True)
    (folder / "table06.csv").write_text('model,MM\n"<img src=x onerror=alert(1)>",9.1\n')
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([1, 2])
    for name in ("figure02.png", "figure02.svg"):
        figure.savefig(folder / name)
    items = {
        "table06": {"kind": "table", "title": EVIL, "caption": EVIL, "files": ["table06.csv"]},
        "figure02": {"kind": "figure", "title": "Times", "caption": "", "files": ["figure02.png", "figure02.svg"]},
    }
    record = {
        "version": 1,
        "task": task,
        "notebook": f"notebooks/{task}.ipynb",
        "title": "Prediction error",
        "profile": source.rpartition("/")[2] if "/" in source else "paper",
        "git": {"sha": "0123456789abcdef", "tag": "v1", "dirty": False},
        "status": "ok",
        "error": None,
        "started": started,
        "wall_s": 12.5,
        "peak_mb": 300.0,
        "items": items,
        "rows": [asdict(row) for row in rows],
        "data": {"nnc-mm-i5-500": {"sha256": {"mm.csv": "ab" * 32}}},
        "missing": {},
        "device": {"cpu": "A processor", "cores": 2},
    }
    (folder / "run.json").write_text(json.dumps({**record, **changes}))
    (folder / "notebook.ipynb").write_text("{}")
    return folder


def margin(value: float, **more: Any) -> Row:
    fields: dict[str, Any] = {"unit": "points", "effect": value, "effect_low": 1.0, "effect_high": value + 5, "n_tasks": 5, "data_sets": ("nnc-mm-i5-500",)}
    return Row("nnc.table06", **{**fields, "devices": ("I5",), **more})


def entry(scorecard: Scorecard, claim: str, label: str = "") -> Entry:
    return next(entry for entry in scorecard.entries if (entry.claim.id, entry.label) == (claim, label))


def test_reference_and_fresh_stand_side_by_side(tmp_path: Path) -> None:
    put(tmp_path, "figures", "nnc-mape", margin(9))
    put(tmp_path, "runs/smoke", "nnc-mape", margin(2), started="2031-02-01T00:00:00+00:00")
    put(tmp_path, "runs/standard", "nnc-mape", margin(3), started="2031-01-01T00:00:00+00:00")
    six = entry(build_scorecard(tmp_path), "nnc.table06")
    assert six.reference is not None
    assert six.fresh is not None
    assert (six.reference.row.effect, six.fresh.row.effect) == (9, 2)  # the newest of the two fresh runs
    assert (six.verdict, six.fresh.verdict) == ("holds", "holds partly")
    record = six.to_json()
    assert record["ours"] == record["reference"]
    assert record["ours"]["sha256"] == {"nnc-mm-i5-500": {"mm.csv": "ab" * 32}}
    assert record["fresh"]["provenance"]["profile"] == "smoke"
    assert record["ours"]["provenance"]["git_sha"] == "0123456789abcdef"
    assert not record["preliminary"]  # the reference run has the paper's counts
    chosen = entry(build_scorecard(tmp_path, "standard"), "nnc.table06")
    assert chosen.fresh is not None
    assert chosen.fresh.row.effect == 3


def test_every_claim_has_a_row_with_numbers_or_the_reason(tmp_path: Path) -> None:
    put(tmp_path, "runs/smoke", "nnc-mape", margin(9), Row("nnc.table09", reason="max-pooling was not published"))
    put(tmp_path, "runs/smoke", "nnc-models", status="failed", error={"text": "notebooks/nnc/models.ipynb, cell 3, line 1: ValueError: no"})
    scorecard = build_scorecard(tmp_path)
    assert [one.claim.id for one in scorecard.entries] == list(load_claims())
    for one in scorecard.entries:
        assert one.finding is not None or one.why, one.claim.id
    assert entry(scorecard, "nnc.table09").why == "max-pooling was not published"
    assert entry(scorecard, "nnc.table09").verdict == "cannot be tested here"
    assert entry(scorecard, "nnc.figure04").why == "not run yet: workbench reproduce nnc-variant-selection"
    assert entry(scorecard, "nnc.table03").why == "the last run failed: notebooks/nnc/models.ipynb, cell 3, line 1: ValueError: no"
    assert "gave no row" in entry(scorecard, "nnc.table10").why
    assert scorecard.counts()["holds"] == 1
    assert sum(scorecard.counts().values()) == len(load_claims())


def test_rows_of_one_claim_are_told_apart(tmp_path: Path) -> None:
    put(tmp_path, "figures", "nnc-mape", margin(9, label="paper protocol"), margin(1, label="clean protocol"))
    put(tmp_path, "runs/smoke", "nnc-mape", margin(8, label="clean protocol"))
    scorecard = build_scorecard(tmp_path)
    assert entry(scorecard, "nnc.table06", "paper protocol").fresh is None
    clean = entry(scorecard, "nnc.table06", "clean protocol")
    assert (clean.reference is None, clean.fresh is None) == (False, False)


def test_damaged_records_are_named_and_left_out(tmp_path: Path) -> None:
    put(tmp_path, "runs/smoke", "nnc-mape", margin(9))
    (put(tmp_path, "runs/smoke", "nnc-models") / "run.json").write_text("{half")
    put(tmp_path, "runs/smoke", "nnc-old", version=0)
    put(tmp_path, "runs/smoke", "nnc-rows", rows=[{"claim": "nnc.table07", "colour": 1}])
    put(tmp_path, "runs/smoke", "nnc-renamed", Row("nnc.table99", value=1.0))
    scorecard = build_scorecard(tmp_path)
    assert len(scorecard.damaged) == 3
    assert entry(scorecard, "nnc.table06").verdict == "holds"
    assert entry(scorecard, "nnc.table07").finding is None


def out_of_reach() -> Mapping[str, Any]:
    return {"missing": {"nnc-mv-i5-500": "mv.csv is out of reach: set WORKBENCH_MIRROR", "my-own": "ask a colleague for my-own.csv"}}


def test_the_terminal_says_what_was_out_of_reach_and_how_to_get_it(tmp_path: Path) -> None:
    put(tmp_path, "runs/smoke", "nnc-mape", margin(9, label="[bold]clean[/bold]"), **out_of_reach())
    text = StringIO()
    print_scorecard(build_scorecard(tmp_path), Console(file=text, width=220))
    lines = text.getvalue()
    assert "9 [1, 14] points" in lines
    assert "[bold]clean[/bold]" in lines  # printed, not obeyed
    assert "2 inputs were out of reach" in lines
    assert "A verdict marked (smoke) has smaller counts" in lines
    assert re.search(r"nnc-mv-i5-500: https://\S+\.csv\n", lines)
    assert "my-own: ask a colleague for my-own.csv" in lines
    assert "workbench data fetch nnc-mv-i5-500\n" in lines


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_no_other_file_and_escapes_everything(tmp_path: Path) -> None:
    put(tmp_path, "figures", "nnc-mape", margin(9, note=EVIL))
    put(tmp_path, "runs/smoke", "nnc-mape", margin(2, note=EVIL), **out_of_reach())
    put(tmp_path, "runs/smoke", "nnc-<b>", status="failed", error={"text": EVIL})
    (tmp_path / "figures" / "nnc-mape" / "figure02.png").unlink()
    text = write_html(tmp_path, load_manifest(), build_scorecard(tmp_path)).read_text()
    page = Page(text)
    assert page.open == []
    assert not [tag for tag, _ in page.tags if tag in ("script", "link", "iframe", "b") and tag != "b"]
    assert "<script" not in text
    assert "onerror=alert(1)>" not in text
    images = [attributes["src"] or "" for tag, attributes in page.tags if tag == "img"]
    assert len(images) == 2  # fresh runs; the reference's file is gone, and the page says so
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in images)
    assert "figure02.png is missing from figures/nnc-mape" in text
    for words in ("Table VI", "Inputs out of reach", "not legible", ">29<", "failed: &lt;script&gt;"):
        assert words in text, words


def test_results_are_made_from_the_reference_alone_and_always_the_same(tmp_path: Path) -> None:
    put(tmp_path, "figures", "nnc-mape", margin(9, note=EVIL), Row("nnc.table09", reason="max-pooling was not published"))
    first = write_results(tmp_path, load_manifest()).read_bytes()
    put(tmp_path, "runs/smoke", "nnc-mape", margin(2))
    assert write_results(tmp_path, load_manifest()).read_bytes() == first
    text = first.decode()
    assert "![Times](figures/nnc-mape/figure02.png)" in text
    assert "**holds**" in text
    assert "max-pooling was not published" in text
    assert "<script" not in text.replace("\\<script", "")
    for line in text.splitlines():
        if line.startswith("| Table VI |"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 10  # nine cells, whatever a note holds
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (tmp_path / target).is_file()
    assert "Made by `workbench report --results`" in text


def test_saving_a_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    manifest = load_manifest()
    tasks = manifest.select(["nnc-mape"])
    with pytest.raises(UsageError, match="profile paper, not 'smoke'"):
        save_reference(tmp_path, "smoke", tasks)
    with pytest.raises(UsageError, match="no finished run"):
        save_reference(tmp_path, "paper", tasks)
    put(tmp_path, "runs/paper", "nnc-mape", margin(9), missing={"a": f"not in the cache {tmp_path}/home/.cache"})
    (tmp_path / "figures" / "nnc-mape").mkdir(parents=True)
    (tmp_path / "figures" / "nnc-mape" / "old.csv").touch()
    assert save_reference(tmp_path, "paper", tasks) == [tmp_path / "figures" / "nnc-mape"]
    assert sorted(path.name for path in (tmp_path / "figures" / "nnc-mape").iterdir()) == ["figure02.png", "figure02.svg", "run.json", "table06.csv"]
    assert str(tmp_path) not in (tmp_path / "figures" / "nnc-mape" / "run.json").read_text()
    assert entry(build_scorecard(tmp_path, fresh=False), "nnc.table06").verdict == "holds"


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (Row("c", value=3.0, low=2.0, high=4.5, unit="%"), "3 [2, 4.5] %"),
        (Row("c", value=3.0, effect=9.0, effect_low=1.0, effect_high=10.0, unit="points"), "3; effect 9 [1, 10] points"),
        (Row("c", value=9.0, low=1.0, high=10.0, effect=9.0, effect_low=1.0, effect_high=10.0, unit="points"), "9 [1, 10] points"),
        (Row("c", numbers={"MM": 64.0, "MV": 50.0}), "MM 64, MV 50"),
        (Row("c", reason="not published"), ""),
    ],
)
def test_what_we_found_in_one_line(row: Row, text: str, tmp_path: Path) -> None:
    assert ours_text(Finding(row, Verdict.SHOWN, "", Run("t", tmp_path, "figures", {}))) == text
    assert ours_text(None) == ""


@pytest.mark.parametrize(("number", "text"), [(9.123456, "9.123"), (0.00012, "0.00012"), (12345.6, "12,346"), (-3, "-3"), (0, "0")])
def test_numbers(number: float, text: str) -> None:
    assert format_number(number) == text


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Project(tmp_path / "checkout")
    put(here.root, "runs/smoke", "nnc-mape", margin(9))
    monkeypatch.setenv("WORKBENCH_ROOT", str(here.root))

    def call(*arguments: str) -> Any:
        return CliRunner().invoke(build(), list(arguments))

    rows = json.loads(call("report", "--json").stdout)["rows"]
    assert len(rows) == len(load_claims())
    assert {"claim", "item", "paper", "verdict", "ours", "why"} <= set(rows[0])
    assert "holds" in call("report").stdout
    assert "RESULTS.md" in call("report", "--results", "--html").stdout
    assert (here.root / "RESULTS.md").is_file()
    assert (here.root / "runs" / "report.html").is_file()
    assert "nnc-mape" in call("reproduce", "--list").stdout
    for arguments, message in (
        (("report", "--profile", "fast"), "no profile 'fast'"),
        (("reproduce", "nnc-map"), "no task 'nnc-map'"),
        (("reproduce", "--save-reference"), "needs --profile paper"),
        (("reproduce", "--profile", "smoke", "--jobs", "0"), "--jobs is 0"),
    ):
        result = call(*arguments)
        assert result.exit_code == 2, arguments
        assert message in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
    for command in ("reproduce", "report"):
        assert "Example:" in call(command, "--help").stdout
