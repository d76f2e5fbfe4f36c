"""What a notebook leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from workbench.errors import MissingData, UsageError
from workbench.reproduce.outputs import Outputs, write_json


def picture() -> Figure:
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([1, 3, 2], label="measured")
    return figure


def read(folder: Path) -> dict:
    return json.loads((folder / "outputs.json").read_text())


def test_everything_is_recorded(tmp_path: Path) -> None:
    data = SimpleNamespace(name="nnc-mm-i5-500", sha256={"mm.csv": "ab"}, frame=pd.DataFrame({"time_s": [1.0, 2.0]}), licence="none stated", source="invented")
    with Outputs(tmp_path / "deep" / "down", task="nnc-mape") as out:
        assert out.uses(data) is data
        out.missing("nnc-mv-i5-500", MissingData("mv.csv is out of reach: set WORKBENCH_MIRROR"))
        out.seeds(np.arange(3))
        out.table("table06", pd.DataFrame({"MM": [1 / 3]}, index=pd.Index(["NN+C"], name="model")), title="MAPE", caption="in percent")
        out.figure("figure02", picture(), title="Times")
        out.row("nnc.table06", value=np.float32(9), effect=9, effect_low=1, effect_high=10, n_tasks=np.int64(5), data_sets=["nnc-mm-i5-500"], devices="I5")
        out.row("nnc.table06", label="clean protocol", reason="not run")
    record = read(tmp_path / "deep" / "down")
    assert record["task"] == "nnc-mape"
    assert record["data"]["nnc-mm-i5-500"] == {"sha256": {"mm.csv": "ab"}, "source": "invented", "licence": "none stated", "device": "", "rows": 2}
    assert "WORKBENCH_MIRROR" in record["missing"]["nnc-mv-i5-500"]
    assert record["seeds"] == [0, 1, 2]
    assert record["items"]["figure02"]["files"] == ["figure02.png", "figure02.svg"]
    assert [row["label"] for row in record["rows"]] == ["", "clean protocol"]
    assert record["rows"][0]["unit"] == "points"
    assert record["rows"][0]["devices"] == ["I5"]
    assert record["kernel_peak_mb"] > 10
    assert record["kernel_wall_s"] > 0
    assert record["versions"]["numpy"] == np.__version__
    assert record["device"]["cores"] >= 1
    assert (tmp_path / "deep" / "down" / "table06.csv").read_text() == "model,MM\nNN+C,0.333333\n"


def test_the_same_picture_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        Outputs(tmp_path / name).figure("figure02", picture(), title="Times")
    for file in ("figure02.svg", "figure02.png"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    assert b"<dc:date>" not in (tmp_path / "one" / "figure02.svg").read_bytes()


def test_a_person_in_jupyterlab_finds_the_files_under_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    assert Outputs("", task="nnc-mape").folder == tmp_path / "runs" / "lab" / "nnc-mape"
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/someone/mape.ipynb")
    assert Outputs().folder == tmp_path / "runs" / "lab" / "mape"


def test_a_failed_block_leaves_no_outputs(tmp_path: Path) -> None:
    def fail() -> None:
        with Outputs(tmp_path):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not (tmp_path / "outputs.json").exists()


@pytest.mark.parametrize("name", ["Table06", "../table06", "table 06", "", "6"])
def test_unsafe_ids_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="small letters"):
        Outputs(tmp_path).table(name, pd.DataFrame({"a": [1]}), title="t")


def test_mistakes_in_rows_are_refused(tmp_path: Path) -> None:
    out = Outputs(tmp_path)
    out.table("table06", pd.DataFrame({"a": [1]}), title="t")
    with pytest.raises(UsageError, match="given twice"):
        out.figure("table06", picture(), title="t")
    with pytest.raises(UsageError, match=r"close: nnc\.table06"):
        out.row("nnc.table6", value=1)
    with pytest.raises(UsageError, match="or the reason"):
        out.row("nnc.table06")
    with pytest.raises(UsageError, match="finite"):
        out.row("nnc.table06", value=float("nan"))
    out.row("nnc.figure01")  # a schematic needs no number
    out.row("nnc.table06", value=1)
    with pytest.raises(UsageError, match="`label`"):
        out.row("nnc.table06", value=2)


def test_json_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
