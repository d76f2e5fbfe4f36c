"""Rows of the scorecard about errors and chosen schedules, on invented scores of our own sets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.data.datasets import Dataset
from workbench.kernels import kernel
from workbench.models.base import CostModel
from workbench.reproduce import nnc, nnc_rows
from workbench.reproduce.outputs import Outputs
from workbench.schema import Device

MODELS = {"NN+C": 10.0, "NN": 20.0, "C": 40.0, "LR+C": 30.0, "NLR+C": 15.0}


@pytest.fixture
def out(tmp_path: Path) -> Outputs:
    return Outputs(tmp_path, task="nnc-mape")


def rows(out: Outputs) -> dict[tuple[str, str], dict]:
    return {(row["claim"], row["label"]): row for row in json.loads(out.close().read_text())["rows"]}


def invented(sets: list[str], models: dict[str, float] = MODELS, **columns: object) -> pd.DataFrame:
    """Two repeats, 1 point apart; the second set errs by 2 points more."""
    records = []
    for i, name in enumerate(sets):
        for model, error in models.items():
            records += [
                {"data_set": name, "kernel": name.split("-")[-2], "kind": "cpu", "device": "laptop", "model": model, "repeat": r, "mape": error + r + 2 * i}
                for r in (0, 1)
            ]
    return pd.DataFrame(records).assign(**columns)


def test_error_rows_of_our_own_sets_count_libraries_as_tasks_and_say_whose_they_are(out: Outputs) -> None:
    sets = [f"matrix-cpu-laptop-{k}-{lib}" for k in ("mm", "mp") for lib in ("eigen", "boost")]
    nnc_rows.error_rows(out, invented(sets), "clean protocol, laptop", "one CPU", "one CPU")
    found = rows(out)
    assert {label for _, label in found} == {"clean protocol, laptop"}
    pooling = found["nnc.table09", "clean protocol, laptop"]
    assert pooling["effect"] == pytest.approx(10)
    assert pooling["n_tasks"] == 2
    assert pooling["data_sets"] == sets[2:]
    assert pooling["note"] == "NN+C 15.5%; one CPU"
    assert found["nnc.table10", "clean protocol, laptop"]["n_tasks"] == 4
    assert found["nnc.claim.nlrc_margin", "clean protocol, laptop"]["effect"] == pytest.approx(5)
    assert found["nnc.claim.ranking", "clean protocol, laptop"]["numbers"] == {"NN+C": 1, "NLR+C": 2, "NN": 3, "LR+C": 4, "C": 5}
    assert found["nnc.claim.lowest_everywhere", "clean protocol, laptop"]["value"] == 100
    assert found["nnc.claim.cpu_average", "clean protocol, laptop"]["value"] == pytest.approx(13.5)
    assert not {"nnc.table07", "nnc.claim.gpu_average"} & {claim for claim, _ in found}, "nothing of what did not run"
    assert {claim for claim, _ in found} <= {*nnc_rows.ERROR_CLAIMS, "nnc.table09"}


def test_one_library_gives_a_row_without_an_interval(out: Outputs) -> None:
    nnc_rows.error_rows(out, invented(["matrix-cpu-laptop-mp-eigen"]), "clean protocol, laptop", "", "")
    row = rows(out)["nnc.table09", "clean protocol, laptop"]
    assert row["effect"] == pytest.approx(10)
    assert row["effect_low"] is None


class _Constant(CostModel):
    name, n_parameters = "constant", 0

    def predict_time_s(self, frame: pd.DataFrame) -> np.ndarray:
        return np.full(len(frame), 2.0)


def test_what_the_fastest_rows_contribute(out: Outputs) -> None:
    # Test rows: three of 1 s, which a prediction of 2 s misses by 100%, and seven of 2 s, which it meets.
    time = np.array([9.0] * 250 + [1.0] * 3 + [2.0] * 7 + [5.0])
    status = ["ok"] * 260 + ["timeout"]
    data = Dataset("matrix-cpu-laptop-mc-eigen", pd.DataFrame({"time_s": time, "status": status}), kernel("mc"), Device("laptop", "cpu"), ())
    fastest = nnc_rows.fastest_rows([data], [_Constant(), _Constant()], 2)
    assert fastest["error_share"].tolist() == [100, 100]
    assert fastest["time_share"].tolist() == pytest.approx([100 / 1.7] * 2)
    assert fastest[["lowest30", "highest70", "overall"]].iloc[0].tolist() == pytest.approx([100, 0, 30])
    nnc_rows.thirty_percent_rows(out, fastest, "laptop")
    found = rows(out)
    assert found["nnc.claim.low30_mape", "laptop"]["value"] == pytest.approx(100)
    assert ("nnc.claim.mc_gpu_overall", "laptop") not in found, "a CPU says nothing of GPUs"
    nnc_rows.thirty_percent_rows(out, fastest.assign(kind="gpu"), "as if")
    assert rows(out)["nnc.claim.mc_gpu_overall", "as if"]["value"] == pytest.approx(30)


def test_size_rows_compare_on_the_same_rows(out: Outputs) -> None:
    sets = ["matrix-cpu-laptop-5000-mp-eigen", "matrix-cpu-laptop-5000-mp-boost"]
    nnc_rows.size_rows(out, invented(sets, {"light": 14.0, "full": 9.0}), "light", "full", "laptop", "one CPU")
    found = rows(out)
    assert found["nnc.figure03", "laptop"]["effect"] == pytest.approx(5)
    assert found["nnc.claim.unconstrained_mp_cpu", "laptop"]["n_tasks"] == 2
    assert found["nnc.claim.unconstrained_average", "laptop"]["value"] == pytest.approx(10.5)


def choices(name: str, gain: float, scheduler: float = float("nan")) -> pd.DataFrame:
    table = [(name, r, n, 9, 1.0, 0.9, gain, scheduler * n / 1024) for r in range(3) for n in (1024, 2048)]
    return pd.DataFrame(table, columns=["data_set", "repeat", "size", "candidates", "chosen", "best", "average", "Mullapudi2016"])


def test_rank_rows_and_the_speed_up_over_an_autoscheduler(out: Outputs) -> None:
    names = ["halide-cpu-laptop-blur", "halide-cpu-laptop-fft"]
    both = [invented(names, protocol=p, spearman=0.5) for p in ("paper", "clean")]
    scores = pd.concat(both, ignore_index=True)
    scores.loc[scores["model"] == "NN+C", "spearman"] = 0.7
    chosen = {"compact": pd.concat([choices(names[0], 2.0), choices(names[1], 8.0)])}
    nnc_rows.rank_rows(out, scores, chosen, ", laptop")
    nnc_rows.speed_up_row(out, "nnc.claim.mullapudi", choices(names[0], 2.0, 1.2), True, 600, "one device", above="Mullapudi2016", label="laptop")
    found = rows(out)
    assert found["nnc.table12", "clean protocol, laptop"]["effect"] == pytest.approx(0.2)
    assert found["nnc.claim.rank_majority", "paper protocol, laptop"]["value"] == 100
    figure = found["nnc.figure04", "clean protocol, compact, laptop"]
    assert figure["effect"] == pytest.approx(4.0)
    assert figure["note"] == "chosen over best 1.11"
    row = found["nnc.claim.mullapudi", "laptop"]
    assert row["effect"] == pytest.approx(2.4), "at the size where it gains most"
    assert row["note"] == "one device; by n: 1024 1.20x, 2048 2.40x"
    assert row["n_tasks"] == 1


def test_rows_of_our_model_have_the_noise_floor_beside_them(out: Outputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nnc, "noise_floor", lambda data: (4.0, "4.0 (250 pairs)"))
    frame = pd.DataFrame({"time_s": np.ones(500), "status": "ok"})
    sets = [Dataset(f"matrix-cpu-laptop-mp-{lib}", frame, kernel("mp"), Device("laptop", "cpu"), ()) for lib in ("eigen", "boost")]
    nnc_rows.measured_rows(out, invented([d.name for d in sets], {"compact": 4.0}), sets)
    found = rows(out)
    eigen = found["own.measured.mp", "Eigen laptop"]
    assert eigen["value"] == pytest.approx(4.5)
    assert eigen["low"] is None, "one set is one task"
    assert eigen["note"] == "noise floor [%]: 4.0 (250 pairs); splits 4.0 to 5.0"
    assert found["own.measured.mp", "mean, laptop"]["value"] == pytest.approx(5.5)
    assert "did not run" not in str(eigen["reason"])
    assert "ran" in found["own.measured.mm", ""]["reason"]
