"""What the NN+C notebooks share, on invented scores."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workbench.data.datasets import Dataset
from workbench.errors import MissingData, UsageError
from workbench.kernels import kernel
from workbench.metrics import bootstrap_tasks
from workbench.models.base import CostModel
from workbench.models.evaluate import Split
from workbench.reproduce import nnc, schedules
from workbench.reproduce.outputs import Outputs
from workbench.schema import Device


def scores(cells):
    """Frame of invented scores: {(data set, model): [mape a repeat]}."""
    rows = []
    for (name, model), values in cells.items():
        kernel_name, device = name.split("-")[1:3]
        rows += [
            {
                "data_set": name,
                "kernel": kernel_name,
                "device": device,
                "kind": "gpu" if device in ("tesla", "quadro") else "cpu",
                "model": model,
                "repeat": i,
                "mape": v,
            }
            for i, v in enumerate(values)
        ]
    return pd.DataFrame(rows)


CELLS = {
    ("nnc-mm-i5-500", "NN+C"): [10.0, 12.0],
    ("nnc-mm-i5-500", "NN"): [20.0, 24.0],
    ("nnc-mm-tesla-500", "NN+C"): [5.0, 5.0],
    ("nnc-mm-tesla-500", "NN"): [9.0, 11.0],
    ("nnc-mm-quadro-500", "NN+C"): [5.0, 5.0],
    ("nnc-mm-quadro-500", "NN"): [9.0, 11.0],
}


def test_tesla_and_quadro_are_one_task():
    assert {nnc.task_of(f"nnc-mm-{d}-500") for d in nnc.DEVICES} == {"mm i5", "mm i7", "mm xeon", "mm gpu"}


def test_effects_weigh_tasks_and_pair_repeats():
    frame = scores(CELLS)
    # i5: (10 + 12) / 2 = 11 points; the two GPU files together: (4 + 6) / 2 = 5 points; a task each.
    found = nnc.difference(frame, "NN", "NN+C")
    assert found.estimate == pytest.approx(8.0)
    assert found.low <= 8.0 <= found.high
    assert found.low >= 4.0
    assert found.high <= 12.0
    assert nnc.ratio(frame, "NN", "NN+C").estimate == pytest.approx(np.exp((np.log(2) + (np.log(9 / 5) + np.log(11 / 5)) / 2) / 2))
    assert nnc.level(frame, "NN").estimate == pytest.approx((22 + 10) / 2)
    assert found == bootstrap_tasks([[4.0, 6, 4, 6], [10.0, 12]])


def test_one_task_has_an_estimate_and_no_interval():
    frame = scores({k: v for k, v in CELLS.items() if "i5" in k[0]})
    found = nnc.difference(frame, "NN", "NN+C")
    assert found.estimate == 11
    assert nnc.ends(found) == (None, None)


def test_table_says_why_a_cell_is_empty():
    table = nnc.error_table("mm", {"ours": scores(CELLS)}, ["NN+C", "NN", "NLR+C"])
    ours = table.loc["NN+C", "ours"]
    assert ours["Eigen I5"] == "11.0"
    assert ours["Eigen Xeon"] == "out of reach"
    assert ours["Boost I5"] == "never published"
    assert ours["CUDA, variant not stated, Tesla"] == "5.0"
    paper = table.loc["NN+C", "paper"]
    assert paper["Eigen I5"] == "8"
    assert paper["CUDA, variant not stated, Tesla"] == "not in the paper"
    assert table.loc["NLR+C", "paper"]["Eigen I5"] == "not legible"
    assert ("NLR+C", "ours") not in table.index, "a model that did not run has no row of ours"
    assert (nnc.error_table("mp", {"ours": scores(CELLS)}, ["NN+C"]).loc["all models", "ours"] == "never published").all()


def test_marks_of_a_gpu_are_the_mean_of_the_paper_s_two_variants():
    frame = nnc.ours_and_paper("mm", scores(CELLS)).set_index(["group", "model"])
    assert frame.loc[("I5", "NN+C"), "paper"] == 8
    assert frame.loc[("Tesla", "NN+C"), "paper"] == pytest.approx((7 + 8) / 2)
    assert frame.loc[("I5", "NN+C"), ["low", "high"]].tolist() == [10, 12]


def test_what_is_out_of_reach_is_recorded_and_the_rest_loaded(tmp_path, monkeypatch):
    def refuse(name):
        raise MissingData(f"{name}: neither here nor there; run: workbench data fetch {name}")

    monkeypatch.setattr(nnc, "load_dataset", refuse)
    out = Outputs(tmp_path, task="nnc-mape")
    assert nnc.load(["nnc-mm-i5-500"], out) == []
    assert "workbench data fetch nnc-mm-i5-500" in out.close().read_text()


def test_unknown_profile_is_refused():
    with pytest.raises(UsageError, match="no profile 'quick'; use smoke"):
        nnc.counts("quick")


class _Oracle(CostModel):
    """Predicts what it is told."""

    name = "oracle"

    def __init__(self, predicted):
        self.predicted = predicted

    @property
    def n_parameters(self):
        return 0

    def predict_time_s(self, frame):
        return self.predicted[frame.index.to_numpy()]


def test_choices_are_among_the_candidates_left_out():
    time = np.array([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0, 8.0, 7.0, 10.0, 12.0, 11.0])
    frame = pd.DataFrame({"time_s": time, "status": "ok", "n": [1024] * 6 + [2048] * 6, "s1": 2, "s2": 2, "s3": 2, "s4": 2})
    data = Dataset("invented", frame, kernel("blur"), Device("laptop", "cpu"), ("n",), ("s1", "s2", "s3", "s4"))
    # Row 1, the fastest of n = 1024, trained the model: the best candidate left is row 2 with 2 s. The model prefers row 3.
    predicted = time.copy()
    predicted[3] = 0.5
    split = Split(np.array([1]), np.array([0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]))
    found = schedules.choices(data, [_Oracle(predicted)], [split]).set_index("size")
    assert found.loc[1024, ["candidates", "chosen", "best", "average"]].tolist() == [5, 3.0, 2.0, 4.0]
    assert found.loc[2048, ["chosen", "best"]].tolist() == [7.0, 7.0]
    summary = schedules.summary(found.reset_index())
    assert summary.query("choice == 'chosen' and size == 1024")["ratio"].item() == 1.5


def test_gains_are_geometric_means_over_data_sets_and_extremes_over_sizes():
    rows = [("a", r, n, 9, 1.0, 1.0, g) for r in range(3) for n, g in ((1, 2.0), (2, 8.0))] + [("b", r, n, 9, 1.0, 1.0, 4.0) for r in range(3) for n in (1, 2)]
    frame = pd.DataFrame(rows, columns=["data_set", "repeat", "size", "candidates", "chosen", "best", "average"])
    assert schedules.gain(frame, "average", "chosen").estimate == pytest.approx(4.0)
    only = frame[frame["data_set"] == "a"]
    assert schedules.extreme_gain(only, True, 250, 750).estimate == pytest.approx(8.0)
    assert schedules.extreme_gain(only, False, 250, 750).estimate == pytest.approx(2.0)
