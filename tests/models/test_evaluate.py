"""Protocols, splits and scores, on invented measurements."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from workbench.data.datasets import Dataset
from workbench.errors import DataError, UsageError
from workbench.kernels import kernel
from workbench.metrics import mape
from workbench.models.evaluate import fit_and_score, pass_floor, repeat_floor, spearman_within, splits
from workbench.models.linear import LinearRegressionC
from workbench.models.nnc import PaperNetwork
from workbench.schema import Device


def invented(rows=60, seed=0, noise=0.05, name="nnc-mv-i5-500"):
    """Made-up times of matrix-vector products: 1e-9 s an operation."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"m": rng.integers(1, 1025, rows), "n": rng.integers(1, 1025, rows), "d1": 0.5, "threads": rng.integers(1, 5, rows)})
    frame["d1"] = 2.0 ** -rng.integers(0, 6, rows)
    frame["c"] = frame["m"] * frame["n"]
    frame["time_s"] = 1e-9 * frame["c"] * np.exp(noise * rng.standard_normal(rows)) + 1e-6
    frame["status"] = "ok"
    return Dataset(name, frame, kernel("mv"), Device("laptop", "cpu"), ("m", "n", "d1"), ("threads",))


def test_paper_splits_are_the_first_rows_and_clean_ones_differ_and_cover_all():
    paper = splits(10, 4, 2, "paper")
    assert paper[0].train.tolist() == [0, 1, 2, 3]
    assert paper[1].test.tolist() == [4, 5, 6, 7, 8, 9]
    clean = splits(10, 4, 3, "clean", seed=1)
    for split in clean:
        assert sorted([*split.train, *split.test]) == list(range(10))
    assert clean[0].train.tolist() != clean[1].train.tolist()
    assert [s.train.tolist() for s in splits(10, 4, 3, "clean", seed=1)] == [s.train.tolist() for s in clean]


def test_models_of_different_training_sizes_share_their_test_rows():
    few, many = splits(100, 10, 1, "clean", 0, test_from=60)[0], splits(100, 60, 1, "clean", 0)[0]
    assert few.test.tolist() == many.test.tolist()
    assert set(few.train) <= set(many.train)


@pytest.mark.parametrize(("train", "test_from"), [(0, None), (10, None), (11, None), (5, 4), (5, 10)])
def test_a_split_without_training_or_test_rows_is_refused(train, test_from):
    with pytest.raises(UsageError, match=r"training rows .* of 10"):
        splits(10, train, 1, "clean", 0, test_from)


def test_unknown_protocol_is_refused():
    with pytest.raises(UsageError, match="no protocol 'honest'"):
        splits(10, 5, 1, "honest")


def test_scores_are_those_of_the_rows_left_out():
    data = invented()
    scores, models = fit_and_score([data], LinearRegressionC(), protocol="paper", train=40, repeats=1)
    held = data.frame.iloc[40:]
    assert scores.loc[0, "mape"] == mape(held["time_s"], models[0].predict_time_s(held))
    assert scores.loc[0, ["data_set", "model", "protocol", "n_parameters"]].tolist() == ["nnc-mv-i5-500", "LR+C", "paper", 6]


def test_the_paper_s_scoring_is_used_for_its_networks_under_its_protocol_only():
    data = invented()
    recipe = PaperNetwork(epochs_scale=0.003)
    paper, models = fit_and_score([data], recipe, protocol="paper", train=40, repeats=1)
    held = data.frame.iloc[40:].reset_index(drop=True)
    assert paper.loc[0, "mape"] == models[0].published_mape(held)
    assert paper.loc[0, "mape_last"] == mape(held["time_s"], models[0].predict_time_s(held))
    clean, _ = fit_and_score([data], recipe, protocol="clean", train=40, repeats=1)
    assert clean.loc[0, "mape"] == clean.loc[0, "mape_last"]


def test_failed_attempts_neither_train_nor_test():
    data = invented()
    frame = data.frame.copy()
    frame.loc[:4, ["status", "time_s"]] = ["timeout", np.nan]
    scores, _ = fit_and_score([dataclasses.replace(data, frame=frame)], LinearRegressionC(), train=40, repeats=2)
    assert np.isfinite(scores["mape"]).all()


def test_a_data_set_without_the_column_c_gets_it_from_its_kernel():
    data = invented()
    without = dataclasses.replace(data, frame=data.frame.drop(columns="c"))
    a, _ = fit_and_score([data], LinearRegressionC(), train=40, repeats=1)
    b, _ = fit_and_score([without], LinearRegressionC(), train=40, repeats=1)
    assert a["mape"].tolist() == b["mape"].tolist()


def test_rank_within_a_size_ignores_that_size_is_ranked():
    frame = pd.DataFrame({"n": [1] * 5 + [2] * 5, "time_s": [1.0, 2, 3, 4, 5, 101, 102, 103, 104, 105]})
    predicted = np.array([5.0, 4, 3, 2, 1, 105, 104, 103, 102, 101])
    assert spearman_within(frame, predicted) == pytest.approx(-1.0)
    assert spearman_within(frame, np.ones(10)) == 0, "a model that predicts one value ranks nothing"
    with pytest.raises(DataError, match="no n has five rows"):
        spearman_within(frame.iloc[:4], predicted[:4])


def test_the_floor_is_the_error_of_one_measurement_as_the_prediction_of_another():
    first = invented(noise=0.0)
    again = dataclasses.replace(first, name="again", frame=first.frame.assign(time_s=first.frame["time_s"] * 1.1))
    value, pairs = repeat_floor(first, again)
    assert value == pytest.approx(10.0)
    assert pairs == 60
    with pytest.raises(DataError, match="too few repeats"):
        repeat_floor(first, invented(seed=9))


def with_passes(attempts):
    """Inputs that take 1, 2, 3, ... times what their attempts say."""
    data = invented(rows=len(attempts))
    return dataclasses.replace(data, frame=data.frame.assign(pass_s=[np.multiply(times, 1.0 + i) for i, times in enumerate(attempts)]))


def test_the_floor_of_passes_is_the_error_between_the_least_times_of_two_halves():
    # Halves (first, third) and (second, fourth): least times 1.0 and 1.1, whatever the slow attempts were.
    value, inputs = pass_floor(with_passes([[1.0, 9.0, 5.0, 1.1]] * 20 + [[3.0, 1.1, 1.0, float("nan")]] * 20))
    assert value == pytest.approx((10 + 100 / 11) / 2)
    assert inputs == 40
    assert pass_floor(with_passes([[2.0, 2.0]] * 30)) == (0.0, 30)


def test_inputs_without_two_attempts_that_succeeded_tell_no_noise():
    nan = float("nan")
    rows = [[1.0, 1.2]] * 29 + [[1.0], [nan, 1.0, nan], [1.0, nan, 1.0]]
    with pytest.raises(DataError, match="29 inputs were measured in two passes or more"):
        pass_floor(with_passes(rows))
    assert pass_floor(with_passes([*rows, [1.0, 1.2]]))[1] == 30
    with pytest.raises(DataError, match="no column 'pass_s'"):
        pass_floor(invented())
