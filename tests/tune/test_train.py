"""Training: which rows, which variants, what is noted, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from workbench.errors import DataError, UsageError
from workbench.kernels import kernel
from workbench.schema import Device
from workbench.tune import train as module
from workbench.tune.select import Selector, train_selector
from workbench.tune.train import space_of

Invent = Callable[..., Any]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A recipe that is fitted in no time, and what it was given."""
    from workbench.models.linear import LinearRegressionC

    given: list[Any] = []

    class Quick(LinearRegressionC):
        def fit(self, problems: Any, seed: int = 0) -> Any:
            given.extend(problems)
            return super().fit([(module.with_complexity(dataset), rows) for dataset, rows in problems], seed)

    monkeypatch.setattr(module, "recipe_of", lambda kernel: Quick())
    monkeypatch.setattr(module, "_average", lambda *_: 1.0)
    return given


def test_what_a_selector_says_of_itself(mm: Selector) -> None:
    eigen, boost = mm.sources
    assert (eigen.data_set, eigen.library, eigen.threads, eigen.knobs) == ("invented-mm-eigen", "eigen", None, ("threads",))
    assert eigen.configs == ({"threads": 1}, {"threads": 2}, {"threads": 8})
    assert boost.configs == ({"threads": 1},)
    assert (eigen.rows, eigen.trained, boost.rows, boost.trained) == (240, 200, 120, 120)
    assert eigen.recipe == "CompactMatrix"
    assert 0 < eigen.mape < 10
    assert boost.mape is None
    assert mm.notes == ("invented-mm-boost has 120 valid rows, fewer than the 200 asked for: all of them train.",)
    assert mm.train_s > 0
    assert eigen.sha256 == {"rows.parquet": "0" * 64}
    assert all(eigen.ranges[p][0] >= 1 and eigen.ranges[p][1] <= 1024 for p in ("m", "n", "k"))


def test_schedules(blurred: Selector) -> None:
    (source,) = blurred.sources
    assert (source.space, source.threads, source.recipe) == ("workbench", 1, "CompactSchedule")
    assert len(source.configs) == 1
    assert source.compile_s == pytest.approx(0.2)


def test_the_training_rows_depend_on_the_seed_only(invented_matrix: Invent, quick: list[Any]) -> None:
    data = invented_matrix("eigen")
    for seed in (0, 0, 1):
        train_selector([data], train=50, seed=seed)
    rows = [rows.tolist() for _, rows in quick]
    assert rows[0] == rows[1] != rows[2]
    assert len(set(rows[0])) == 50


def test_a_sources_own_operation_count_is_not_used(invented_matrix: Invent, quick: list[Any]) -> None:
    data = invented_matrix("eigen")
    train_selector([replace(data, frame=data.frame.assign(c=7.0))], train=50)
    assert "c" not in quick[0][0].frame


def test_failed_rows_do_not_train(invented_matrix: Invent, quick: list[Any]) -> None:
    data = invented_matrix("eigen")
    failed = np.arange(len(data.frame)) % 2 == 0
    frame = data.frame.assign(status=np.where(failed, "timeout", "ok"), time_s=np.where(failed, np.nan, data.frame["time_s"]))
    selector = train_selector([replace(data, frame=frame)])
    assert selector.sources[0].rows == selector.sources[0].trained == 60


def test_a_variant_that_two_data_sets_hold_is_answered_by_the_one_with_more_rows(invented_matrix: Invent, quick: list[Any]) -> None:
    two, one, more = (
        invented_matrix("eigen", threads=(1, 2), rows=100, tag="-2t"),
        invented_matrix("eigen", rows=100),
        invented_matrix("eigen", rows=100, tag="-passes"),
    )
    more = replace(more, frame=more.frame.assign(attempts=3))
    selector = train_selector([two, one, more], train=100)
    assert [(s.data_set, s.configs) for s in selector.sources] == [
        ("invented-2t-mm-eigen", ({"threads": 2},)),
        ("invented-passes-mm-eigen", ({"threads": 1},)),
    ]
    assert "invented-mm-eigen is not used: other data sets have as many rows of the same variants." in selector.notes
    again = [replace(one, name=f"invented-again-{i}") for i in range(2)]
    (note,) = train_selector([more, one, *again], train=100).notes
    assert note == "invented-mm-eigen, invented-again-0, invented-again-1 are not used: other data sets have as many rows of the same variants."
    other = invented_matrix("eigen", rows=100, device=Device("other-cpu", "cpu"), tag="-other")
    assert len(train_selector([one, other], train=50).sources) == 2


def test_two_ways_of_writing_a_kernel_for_a_gpu_are_two_variants(invented_matrix: Invent, quick: list[Any]) -> None:
    gpu = Device("invented-gpu", "gpu", "Invented")
    sets = [invented_matrix(variant, name="mv", device=gpu) for variant in ("global", "shared")]
    selector = train_selector([replace(data, frame=data.frame.drop(columns="threads"), knobs=()) for data in sets], train=50)
    assert [(source.library, source.threads) for source in selector.sources] == [("global", None), ("shared", None)]
    assert selector.notes == ()


def test_a_gpu_beside_a_cpu_is_compared_without_copies_and_the_selector_says_so(invented_matrix: Invent, quick: list[Any]) -> None:
    gpu = invented_matrix("global", name="mv", device=Device("invented-gpu", "gpu", "Invented"))
    selector = train_selector([invented_matrix("eigen", name="mv"), replace(gpu, frame=gpu.frame.drop(columns="threads"), knobs=())], train=50)
    assert [source.device.kind for source in selector.sources] == ["cpu", "gpu"]
    assert selector.notes == ("Times of a GPU are of the kernel alone: what its inputs and its result take to be copied comes on top.",)


def test_schedules_of_other_threads_are_other_variants(invented_blur: Invent) -> None:
    selector = train_selector([invented_blur(rows=60), invented_blur(rows=60, threads=2, tag="-2t"), invented_blur(rows=60, seed=3, tag="-dev")], train=40)
    assert [(s.data_set, s.threads) for s in selector.sources] == [("invented-blur", 1), ("invented-2t-blur", 2)]
    choice = selector.select({"n": 128})
    assert choice.variant.threads == 2
    assert selector.at_most(1).select({"n": 128}).variant.threads == 1
    assert choice.variants == 2 * selector.at_most(1).select({"n": 128}).variants


def test_which_space() -> None:
    fft, blur, mm = kernel("fft"), kernel("blur"), kernel("mm")
    nine = fft.space(fft.workload({"n": 16}), "workbench").names
    assert space_of(fft, nine) == "workbench"
    assert space_of(fft, nine[::-1], "halide") == "workbench"
    assert space_of(fft, ("s1", "s2", "s3", "s4", "s5", "s6")) == "halide"
    assert space_of(blur, ("s1", "s2", "s3", "s4"), "workbench") == "workbench"
    assert space_of(blur, ("s1", "s2", "s3", "s4"), "None") == "halide"
    assert space_of(mm, ("threads",)) == ""
    with pytest.raises(UsageError, match="no space of kernel 'blur' has the knobs scheduler; its spaces are halide, workbench"):
        space_of(blur, ("scheduler",))


def test_what_cannot_be_trained(invented_matrix: Invent, invented_blur: Invent) -> None:
    mm, mv, blur = invented_matrix("eigen"), invented_matrix("eigen", "mv"), invented_blur(rows=60)
    with pytest.raises(UsageError, match="no data sets to train on"):
        train_selector([])
    with pytest.raises(UsageError, match=r"data sets of two kernels, 'mm' \(invented-mm-eigen\) and 'mv' \(invented-mv-eigen\)"):
        train_selector([mm, mv])
    with pytest.raises(UsageError, match="5 training rows; use at least 20"):
        train_selector([mm], train=5)
    with pytest.raises(UsageError, match="no variants of kernel 'conv2d' can be selected"):
        train_selector([replace(mm, kernel=kernel("conv2d"))])
    frame = mm.frame.assign(status=np.where(np.arange(120) < 19, "ok", "run_error"))
    with pytest.raises(DataError, match=r"invented-mm-eigen: 19 valid rows \(101 failed\); a model needs at least 20: measure more"):
        train_selector([replace(mm, frame=frame)])
    with pytest.raises(DataError, match="no column 'd2', which kernel 'mm' needs"):
        train_selector([replace(mm, frame=mm.frame.drop(columns="d2"))])
    with pytest.raises(DataError, match="the knob 'threads' is no number"):
        train_selector([replace(mm, frame=mm.frame.assign(threads="all"))])
    with pytest.raises(UsageError, match="no space of kernel 'blur' has the knobs s1"):
        train_selector([replace(blur, knobs=("s1",))])


def test_schedules_keep_what_was_measured_and_no_more_than_is_looked_at(
    blurred: Selector, mm: Selector, invented_blur: Invent, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = invented_blur()
    (source,) = blurred.sources
    assert list(source.measured) == ["n", "s1", "s2", "s3", "s4", "time_s"]
    assert all(source.measured[name] == tuple(data.frame[name]) for name in source.measured)
    kept = source.measurements(blurred.kernel)
    assert kept is not None
    assert (kept.parameters, kept.knobs, len(kept.valid)) == (("n",), source.knobs, 150)
    assert all(not source.measured and source.measurements(mm.kernel) is None for source in mm.sources)
    monkeypatch.setattr(module, "KEPT", 30)
    (short,) = train_selector([data], train=40).sources
    rows = set(zip(*source.measured.values(), strict=True))
    found = set(zip(*short.measured.values(), strict=True))
    assert len(found) == 30
    assert found < rows
