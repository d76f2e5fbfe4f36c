"""MetaTune's tables from our own spaces and kernels, held to the paper's numbers by other ways than the notebook's."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.kernels.conv import GPU
from workbench.kernels.limits import exceeded
from workbench.kernels.networks import layer, training_kernels
from workbench.reproduce import metatune
from workbench.reproduce.claims import get_claim, paper_table


def test_the_paper_s_counts_are_those_of_one_layer() -> None:
    printed = paper_table(1, "metatune")["count"].astype(int).to_dict()
    assert dict(get_claim("metatune.table01").numbers) == printed
    for space in ("autotvm", GPU):
        ((name, number, found),) = metatune.layers_with(printed, space)
        assert (name, number, found) == ("vgg-16", 4, layer("vgg-16", 4))
        assert metatune.knob_counts(found.workload, space) == printed
    assert metatune.layers_with({**printed, "tile_rc": 9}, GPU) == []


def test_training_kernels_lie_in_the_paper_s_ranges_and_ranges_are_seen() -> None:
    table = metatune.training_ranges().set_index("kind")
    assert table["kernels"].to_dict() == {"conv1d": 9, "conv1d_transpose": 9, "conv2d": 10, "conv2d_transpose": 9, "conv2d_winograd": 10}
    assert not table["outside"].any()
    assert table.loc["conv1d", ["size", "ci, paper", "co, paper", "filter", "stride", "padding"]].tolist() == [
        "189 to 597",
        "32 to 128",
        "32 to 512",
        "3",
        "1, 2",
        "1",
    ]
    assert table.loc["conv2d_winograd", "stride"] == "1"


def test_what_lies_outside_a_range_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = list(training_kernels())
    at = next(place for place, workload in enumerate(kernels) if workload.kernel == "conv1d")
    kernels[at] = kernel("conv1d").workload({**kernels[at].params, "w": 601})
    monkeypatch.setattr(metatune, "training_kernels", lambda: tuple(kernels))
    table = metatune.training_ranges().set_index("kind")
    assert table["outside"].to_dict() == {"conv1d": 1, "conv1d_transpose": 0, "conv2d": 0, "conv2d_transpose": 0, "conv2d_winograd": 0}
    assert table.loc["conv1d", "size"] == "190 to 601"


def test_a_task_has_different_kinds_and_configurations_that_can_run() -> None:
    task = metatune.few_shot_task(3, 2, seed=5)
    assert len({workload.kernel for workload, _ in task}) == 3
    for workload, indices in task:
        assert workload in training_kernels()
        assert len(set(indices.tolist())) == 2
        assert not np.any(list(exceeded(workload, indices).values()))
    again = metatune.few_shot_task(3, 2, seed=5)
    assert [(w, i.tolist()) for w, i in again] == [(w, i.tolist()) for w, i in task]
    with pytest.raises(UsageError, match="a task of 6 ways; the training kernels have 5 kinds"):
        metatune.few_shot_task(6, 2, seed=0)
