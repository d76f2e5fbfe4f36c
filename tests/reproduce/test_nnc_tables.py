"""What the NN+C notebooks share, on invented scores."""

from __future__ import annotations

from dataclasses import replace

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
        kernel_name, device = name.split("-")[1:3] if name.startswith("nnc-") else (name.split("-")[3], "laptop")
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


OWN = {("matrix-cpu-laptop-mp-eigen", "NN+C"): [4.0, 6.0], ("matrix-cpu-laptop-mp-boost", "NN+C"): [7.0, 9.0]}


def own_scores():
    return scores(OWN)


def test_our_own_sets_have_columns_and_fill_max_pooling():
    frame = pd.concat([scores(CELLS), own_scores()])
    table = nnc.error_table("mp", {"ours": frame}, ["NN+C"], [name for name, _ in OWN])
    assert table.loc["NN+C", "ours"][["Eigen laptop", "Boost laptop", "Eigen I5"]].tolist() == ["5.0", "8.0", "never published"]
    assert table.loc["NN+C", "paper"][["Eigen laptop", "Eigen I5"]].tolist() == ["not in the paper", "14"]
    products = nnc.error_table("mm", {"ours": frame}, ["NN+C"], [name for name, _ in OWN])
    assert products.loc["NN+C", "ours"]["Eigen laptop"] == "not measured"
    alone = nnc.error_table("mm", {"ours": own_scores()}, ["NN+C"], [name for name, _ in OWN])
    assert alone.loc["all models", "ours"][["Eigen I5", "Boost I5", "Eigen laptop"]].tolist() == ["out of reach", "never published", "not measured"]


def test_aggregates_say_which_groups_a_side_does_not_have():
    table = nnc.aggregate_table({"authors": scores(CELLS), "laptop": own_scores()}, ["NN+C"])
    assert table.loc["NN+C", "authors"][["MM", "MV", "MP", "GPU"]].tolist() == ["8.0", "out of reach", "never published", "5.0"]
    assert table.loc["NN+C", "laptop"][["MM", "MP", "CPU", "GPU"]].tolist() == ["not measured", "6.5", "6.5", "not measured"]
    assert table.loc["NN+C", "paper"]["MP"] == "18"


def test_bars_of_our_own_sets_have_no_mark_of_the_paper():
    frame = nnc.ours_and_paper("mp", pd.concat([scores(CELLS), own_scores()])).set_index("group")
    assert list(frame.index) == ["Eigen\nlaptop", "Boost\nlaptop"]
    assert frame["value"].tolist() == [5, 8]
    assert frame["paper"].isna().all()


def test_pairs_of_measured_and_predicted_times_are_of_test_rows_that_succeeded():
    time = np.r_[np.ones(250), 2.0, 3.0, np.nan]
    frame = pd.DataFrame({"m": 4, "n": 9, "time_s": time, "status": ["ok"] * 252 + ["timeout"]})
    data = Dataset("invented", frame, kernel("mv"), Device("laptop", "cpu"), ("m", "n"))
    pairs = nnc.compared(data, _Oracle(np.r_[np.zeros(250), -1.0, 3.5]))
    assert pairs.to_numpy().tolist() == [[6.0, 2.0, 0.2], [6.0, 3.0, 3.5]]


def test_the_noise_floor_comes_from_passes_or_from_the_larger_file(monkeypatch):
    rng = np.random.default_rng(0)
    first = rng.uniform(1, 2, 40)
    frame = pd.DataFrame({"m": np.arange(40) + 1, "time_s": first, "status": "ok", "pass_s": [[t, 1.1 * t] for t in first]})
    data = Dataset("matrix-cpu-laptop-mv-eigen", frame, kernel("mv"), Device("laptop", "cpu"), ("m",))
    value, text = nnc.noise_floor(data)
    assert 8 < value < 11
    assert text.endswith("(40 pairs)")
    assert nnc.noise_floor(replace(data, frame=frame.drop(columns="pass_s")))[1] == "no repeats"
    larger = replace(data, name="nnc-mv-i5-5000", frame=frame.assign(time_s=first * 1.2))
    monkeypatch.setattr(nnc, "load_dataset", lambda name: larger)
    assert nnc.noise_floor(replace(data, name="nnc-mv-i5-500"))[0] == pytest.approx(20)
    assert nnc.noise_floor(replace(data, name="nnc-mm-i5-500"))[1] == "the two files are of different builds"


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
    times = pd.DataFrame({"Mullapudi2016": [np.nan, np.nan], "Li2018": [3.0, np.nan]}, index=pd.Index([1024, 2048], name="n"))
    beside = schedules.with_autoschedulers(found.reset_index(), times)
    summary = schedules.summary(beside, {"chosen, oracle": "chosen", "Mullapudi2016": "Mullapudi2016", "Li2018": "Li2018"}).set_index(["choice", "size"])
    assert summary["ratio"].to_dict() == {("chosen, oracle", 1024): 1.5, ("chosen, oracle", 2048): 1.0, ("Li2018", 1024): 1.5}
    assert schedules.with_autoschedulers(found, None) is found


def test_table_of_schedules_has_a_column_for_our_own_sets():
    rows = [("halide-blur-i5", p, 40.0, 0.9, 0.8) for p in ("paper", "clean")] + [("halide-cpu-laptop-fft", "clean", 5.0, 0.95, 0.7)]
    frame = pd.DataFrame(rows, columns=["data_set", "protocol", "mape", "spearman", "spearman_within"]).assign(model="NN")
    table = schedules.mape_and_rank_table(frame, ["NN", "compact"])
    assert table.loc["NN", "ours, clean protocol"][["Blur I5", "FFT laptop"]].tolist() == ["40.0, 0.90, 0.80 within n", "5.0, 0.95, 0.70 within n"]
    assert table.loc["NN", "ours, paper protocol"][["Blur I5", "Blur I7", "FFT laptop"]].tolist() == ["40.0, 0.90", "never published", "did not run"]
    assert table.loc["NN", "paper: MAPE [%], Spearman"][["Blur I5", "FFT laptop"]].tolist() == ["40, 0.91", "not in the paper"]


def test_gains_are_geometric_means_over_data_sets_and_extremes_over_sizes():
    rows = [("a", r, n, 9, 1.0, 1.0, g) for r in range(3) for n, g in ((1, 2.0), (2, 8.0))] + [("b", r, n, 9, 1.0, 1.0, 4.0) for r in range(3) for n in (1, 2)]
    frame = pd.DataFrame(rows, columns=["data_set", "repeat", "size", "candidates", "chosen", "best", "average"])
    assert schedules.gain(frame, "average", "chosen").estimate == pytest.approx(4.0)
    only = frame[frame["data_set"] == "a"]
    assert schedules.extreme_gain(only, True, 250, 750).estimate == pytest.approx(8.0)
    assert schedules.extreme_gain(only, False, 250, 750).estimate == pytest.approx(2.0)
