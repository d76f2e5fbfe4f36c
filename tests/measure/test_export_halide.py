"""Halide's series become data sets too: the schedules of a kernel, and the autoschedulers' choices. All numbers are invented."""

from __future__ import annotations

import json
import math

import pytest

from workbench.data.datasets import load_dataset
from workbench.data.store import Store
from workbench.errors import DataError, UsageError
from workbench.kernels import kernel
from workbench.kernels.halide.autoschedulers import AUTOSCHEDULERS
from workbench.measure.export import export
from workbench.measure.halide import AUTOSCHEDULER_SPACE, SPACE, halide_workload, series
from workbench.measure.provenance import claim
from workbench.measure.runner import candidates
from workbench.schema import Device, Measurement, Status, Workload


def fill(store: Store, workload: Workload, rounds: list[float], *, count: int = 4, schedulers: bool = False, **otherwise: str) -> None:
    """`count` schedules measured in as many passes as there are factors, the first of them once more at the end; Li2018 fails."""
    name = workload.kernel
    provenance = {
        "compiler": "Halide 99.1",
        "policy": "time_s is the minimum of times_s",
        "device": json.dumps({"name": "some-cpu", "kind": "cpu", "model": "Some CPU", "peak_gflops": None}),
        "seed": "0",
        "command": f"workbench measure halide --kernel {name} --threads {workload.params['threads']} --seed 0 --check 0.1",
    }
    claim(store, series(workload, "some-cpu"), workload.key, {**provenance, **otherwise})
    space = kernel(name).space(workload, SPACE)
    drawn = candidates(space, count)
    for turn, factor in enumerate([*rounds, 2.0]):
        last = turn == len(rounds)
        choices = [] if last or not schedulers else list(AUTOSCHEDULERS)
        for i, index in enumerate(drawn[:1] if last else drawn):
            time_s = factor * 1e-3 * (i + 1)
            of_schedule = {"space": SPACE, "index": index, "config": space.config(index), "times_s": (2 * time_s, time_s), "compile_s": 0.5}
            store.add([Measurement(workload, "some-cpu", Status.OK, time_s, **of_schedule, timestamp=1.9e9 + 1000 * turn + i, load=float(turn))])
        for choice in choices:
            ok = choice != "Li2018"
            of_choice = {"space": AUTOSCHEDULER_SPACE, "config": {"scheduler": choice}, "error": "" if ok else "compiling: none found"}
            store.add([Measurement(workload, "some-cpu", Status.OK if ok else Status.COMPILE_ERROR, factor * 0.01 if ok else None, **of_choice)])


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.db") as opened:
        yield opened


def test_schedules_and_choices_become_two_data_sets(store, root):
    for n in (64, 128):
        fill(store, halide_workload("blur", n), [3.0, 1.0], schedulers=True)
    fill(store, halide_workload("fft", 16), [1.0], count=3)
    made = export(store, "halide-cpu-x", root, notes=["It was measured at night."])
    assert made == {"halide-cpu-x-blur": 8, "halide-cpu-x-blur-autoschedulers": 6, "halide-cpu-x-fft": 3}

    blur = load_dataset("halide-cpu-x-blur")
    assert (blur.kernel.name, blur.device, blur.parameters, blur.knobs) == ("blur", Device("some-cpu", "cpu", "Some CPU"), ("n",), ("s1", "s2", "s3", "s4"))
    assert blur.frame["n"].tolist() == [64] * 4 + [128] * 4
    assert set(blur.frame["threads"]) == {1}
    space = kernel("blur").space(halide_workload("blur", 64), SPACE)
    assert [space.config(index) for index in blur.frame["index"][:4]] == blur.frame.loc[:3, list(blur.knobs)].to_dict("records")
    assert blur.frame["time_s"].tolist() == pytest.approx([0.001, 0.002, 0.003, 0.004] * 2)
    assert blur.frame["median_s"].tolist() == pytest.approx([0.0015, 0.003, 0.0045, 0.006] * 2)
    assert blur.frame["load"].tolist() == [1.0] * 8
    assert blur.frame["timestamp"].tolist()[:4] == [1.9e9 + i for i in range(4)]
    assert blur.frame["attempts"].tolist() == [3, 2, 2, 2] * 2
    assert list(blur.frame["pass_s"][0]) == pytest.approx([0.003, 0.001, 0.002])
    assert blur.frame["again_s"].tolist()[:2] == pytest.approx([0.002, 0.002])
    assert set(blur.frame["compile_s"]) == {0.5}
    assert "--check 0.1 --n 64 --n 128 --schedules 4 --autoschedulers --passes 2`" in blur.source
    assert "measured in 2 passes, 2 of 8 inputs once more" in blur.source
    assert blur.notes[-1] == "It was measured at night."
    assert not any("batch" in note for note in blur.notes)

    choices = load_dataset("halide-cpu-x-blur-autoschedulers")
    assert choices.knobs == ("scheduler",)
    assert choices.frame["scheduler"].tolist() == list(AUTOSCHEDULERS) * 2
    assert choices.frame["status"].tolist() == ["ok", "ok", "compile_error"] * 2
    assert choices.valid["time_s"].tolist() == pytest.approx([0.01] * 4)
    assert all(math.isnan(time_s) for time_s in choices.frame["pass_s"][2])
    assert not {"index", "s1", "compile_s"} & set(choices.frame)

    fft = load_dataset("halide-cpu-x-fft")
    assert len(fft.knobs) == 9
    assert any("a time is that of one image" in note for note in fft.notes)
    assert "measured in 1 pass, 1 of 3 inputs once more" in fft.source


def test_a_series_that_is_not_finished_names_what_it_has(store, root):
    fill(store, halide_workload("blur", 64), [1.0, 1.0])
    fill(store, halide_workload("blur", 128), [1.0], count=2)
    export(store, "x", root)
    source = load_dataset("x-blur").source
    base = "workbench measure halide --kernel blur --threads 1 --seed 0 --check 0.1"
    assert f"`{base} --n 64 --schedules 4 --passes 2 && {base} --n 128 --schedules 2`" in source


def test_several_numbers_of_threads_need_a_store_each(store, root):
    fill(store, halide_workload("blur", 64), [1.0])
    fill(store, halide_workload("blur", 64, threads=2), [1.0])
    with pytest.raises(UsageError, match=r"measurements of blur are on 1 and on 2 threads; .* use a store for each"):
        export(store, "x", root)
    assert list(root.iterdir()) == []


def test_sizes_that_were_measured_otherwise_need_a_store_each(store, root):
    fill(store, halide_workload("blur", 64), [1.0])
    fill(store, halide_workload("blur", 128), [1.0], seed="1")
    with pytest.raises(UsageError, match=r'{"n":128,"threads":1} have seed .1., those of blur {"n":64,"threads":1} .0.; .* store for each'):
        export(store, "x", root)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("note", "said"),
    [
        (None, "does not say how"),
        ("{", "cannot be read"),
        ("[1]", "cannot be read"),
        ('{"device": "{"}', "cannot be read"),
        ('{"device": "{}", "compiler": "Halide 99.1"}', "lacks policy, seed, command"),
    ],
)
def test_a_note_that_does_not_say_how_it_was_measured(store, root, note, said):
    workload = halide_workload("blur", 64)
    store.add([Measurement(workload, "some-cpu", Status.TIMEOUT, space=SPACE, index=0, config={"s1": 2, "s2": 2, "s3": 2, "s4": 2})])
    if note is not None:
        store.note(series(workload, "some-cpu"), note)
    with pytest.raises(DataError, match=said):
        export(store, "x", root)
    assert list(root.iterdir()) == []
