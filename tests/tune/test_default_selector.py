"""What is chosen from when nothing is named: the data sets of this machine, trained once and kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from workbench.data.registry import sha256_of
from workbench.errors import DataError, UsageError
from workbench.measure.host import cpu
from workbench.schema import Device
from workbench.tune import select as module
from workbench.tune.select import Selector, best_variant, default_selector, save_selector

Invent = Callable[..., Any]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project with a cache of its own."""
    (tmp_path / "data" / "raw").mkdir(parents=True)
    (tmp_path / "data" / "external.toml").write_text("")
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_ready", {})
    return tmp_path


def put(project: Path, data: Any, name: str, device: Device) -> None:
    """A data set under data/raw."""
    folder = project / "data" / "raw" / name
    folder.mkdir()
    data.frame.to_parquet(folder / "rows.parquet")
    header = {
        "kernel": data.kernel.name,
        "parameters": list(data.parameters),
        "knobs": list(data.knobs),
        "driver": "",
        "compiler": "none",
        "policy": "invented numbers",
        "command": "none",
    }
    device_text = ", ".join(f"{k} = {json.dumps(v)}" for k, v in asdict(device).items() if v is not None)
    lines = [f"{key} = {json.dumps(value)}" for key, value in header.items()]
    lines += ["date = 2026-01-31", f"device = {{ {device_text} }}", "versions = {}", f'sha256 = {{ "rows.parquet" = "{sha256_of(folder / "rows.parquet")}" }}']
    (folder / "dataset.toml").write_text("\n".join(lines))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    trained: list[list[str]] = []
    train = module.train_selector

    def counting(datasets: Any, **options: Any) -> Selector:
        trained.append([d.name for d in datasets])
        return train(datasets, **options)

    monkeypatch.setattr(module, "train_selector", counting)
    return trained


def test_this_machines_data_sets_are_used_and_trained_once(project: Path, invented_matrix: Invent, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = counted(monkeypatch)
    put(project, invented_matrix("eigen", "mv", rows=60), "here-mv-eigen", cpu())
    put(project, invented_matrix("boost", "mv", rows=60), "here-mv-boost", cpu())
    put(project, invented_matrix("boost", "mv", rows=60), "there-mv-boost", Device("other-cpu", "cpu"))
    put(project, invented_matrix("eigen", rows=60), "here-mm-eigen", cpu())
    first = best_variant("mv", {"m": 900, "n": 900})
    assert trained == [["here-mv-boost", "here-mv-eigen"]]
    assert first.variants == 2
    assert (first.variant.device, first.variant.library) == (cpu().name, "eigen")
    assert best_variant("mv", {"m": 1, "n": 1}).variant.library == "boost"
    # Another process reads the file.
    module._ready.clear()
    again = best_variant("mv", {"m": 900, "n": 900})
    assert replace(again, cost_s=0, pays=True, runs_to_pay=0, notes=()) == replace(first, cost_s=0, pays=True, runs_to_pay=0, notes=())
    assert len(trained) == 1
    (kept,) = (project / "cache" / "selectors").iterdir()
    # A damaged file is made again; other rows are another file.
    module._ready.clear()
    kept.write_text(kept.read_text()[:-40])
    best_variant("mv", {"m": 900, "n": 900})
    assert len(trained) == 2
    put(project, invented_matrix("eigen", "mv", rows=70, seed=5, threads=(2,)), "more-mv-eigen", cpu())
    assert best_variant("mv", {"m": 900, "n": 900}).variants == 3
    assert best_variant("mv", {"m": 900, "n": 900}, threads=1).variants == 2
    assert len(trained) == 3
    assert len(list((project / "cache" / "selectors").iterdir())) == 2


def test_data_sets_of_another_device_are_used_and_named(project: Path, invented_matrix: Invent) -> None:
    put(project, invented_matrix("boost", "mv", rows=60), "there-mv-boost", Device("other-cpu", "cpu"))
    selector = default_selector("mv")
    assert selector.notes[-1] == f"No data set of 'mv' was measured on this machine ({cpu().name}); these are of other-cpu."
    assert default_selector("mv", ["there-mv-boost"]).notes == selector.notes[:-1]
    assert best_variant("mv", {"m": 9, "n": 9}).notes[-1] == selector.notes[-1]


def test_what_an_autoscheduler_chose_is_no_space_of_schedules(project: Path, invented_blur: Invent) -> None:
    data = invented_blur(rows=60)
    put(project, data, "here-blur", cpu())
    put(project, replace(data, frame=data.frame.assign(scheduler="Mullapudi2016"), knobs=("scheduler",)), "here-blur-autoschedulers", cpu())
    assert module.default_data(data.kernel) == (["here-blur"], "")


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("mm", r"no measurements of 'mm' under data/raw; make them with: workbench measure matrix --kernel mm --library eigen, then: workbench measure export"),
        ("blur", r"make them with: workbench measure halide --kernel blur --n 128 --schedules 400, then: workbench measure export runs/measure/halide.db"),
        ("conv2d", "no variants of kernel 'conv2d' can be selected"),
        ("blurr", "there is no kernel 'blurr'"),
    ],
)
def test_without_measurements_the_message_says_how_to_make_them(project: Path, kernel: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        best_variant(kernel, {})


def test_named_data_and_files(project: Path, mm: Selector, invented_matrix: Invent) -> None:
    put(project, invented_matrix("eigen", "mv", rows=60), "here-mv-eigen", cpu())
    save_selector(mm, project / "mm.json")
    assert best_variant("mm", {"m": 9, "n": 9, "k": 9}, models=project / "mm.json").variant == mm.choose(9, 9, 9, 1.0, 1.0)
    with pytest.raises(UsageError, match="its models are of kernel 'mm', not 'mv'"):
        best_variant("mv", {"m": 9, "n": 9}, models=project / "mm.json")
    with pytest.raises(UsageError, match="data set 'here-mv-eigen' is of kernel 'mv', not 'mm'"):
        best_variant("mm", {"m": 9, "n": 9, "k": 9}, data=["here-mv-eigen"])
    with pytest.raises(UsageError, match="unknown data set 'nowhere'"):
        best_variant("mv", {"m": 9, "n": 9}, data=["nowhere"])


def test_a_damaged_data_set_is_named(project: Path, invented_matrix: Invent) -> None:
    put(project, invented_matrix("eigen", "mv", rows=60), "here-mv-eigen", cpu())
    path = project / "data" / "raw" / "here-mv-eigen" / "rows.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DataError, match=r"rows\.parquet"):
        best_variant("mv", {"m": 9, "n": 9})


def test_a_cache_that_cannot_be_written_only_costs_time(project: Path, invented_matrix: Invent, monkeypatch: pytest.MonkeyPatch) -> None:
    put(project, invented_matrix("eigen", "mv", rows=60), "here-mv-eigen", cpu())
    (project / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_CACHE", str(project / "file"))
    assert best_variant("mv", {"m": 9, "n": 9}).variant.library == "eigen"
