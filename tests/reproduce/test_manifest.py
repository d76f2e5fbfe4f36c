"""The manifest: the project's own, selection, and faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.data import datasets
from workbench.errors import DataError, UsageError
from workbench.reproduce.manifest import load_manifest

HEAD = "[profiles.smoke]\ncell_limit_s = 1\ntask_limit_s = 2\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "manifest.toml"
    path.write_text(text)
    return path


def test_the_project_own_manifest_is_sound() -> None:
    manifest = load_manifest()
    assert list(manifest.profiles) == ["smoke", "standard", "paper"]
    assert manifest.profile("smoke").task_limit_s <= 180
    for task in manifest.tasks.values():
        assert task.data_sets(datasets.names()) or not task.inputs, task.name
    items = [item for task in manifest.tasks.values() for item in task.items]
    assert len(items) == len(set(items))


def test_a_profile_adds_to_the_parameters_or_replaces_them(tmp_path: Path) -> None:
    text = HEAD + '[tasks.a]\nnotebook = "a.ipynb"\nparameters = {splits = 5, kernels = ["mm"]}\nsmoke = {splits = 1}\n'
    task = load_manifest(write(tmp_path, text)).tasks["a"]
    assert task.parameters_for("smoke") == {"splits": 1, "kernels": ["mm"], "profile": "smoke"}
    assert task.parameters_for("paper") == {"splits": 5, "kernels": ["mm"], "profile": "paper"}


def test_selection() -> None:
    manifest = load_manifest()
    explored = ["explore-dataset-audit", "explore-search-space", "explore-tuning-session"]
    assert [task.name for task in manifest.select(["nnc-mape", "explore-*"])] == ["nnc-mape", *explored]
    assert len(manifest.select()) == len(manifest.tasks)
    with pytest.raises(UsageError, match=r"no task 'nnc-map'.*nnc-mape"):
        manifest.select(["nnc-map"])
    with pytest.raises(UsageError, match="smoke, standard, paper"):
        manifest.profile("fast")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[profiles", "cannot be read"),
        ("", "no \\[profiles.NAME\\]"),
        (HEAD + "[tasks.a]\n", "task 'a'.*notebook"),
        (HEAD + '[tasks.a]\nnotebook = "a.ipynb"\ncolour = 1\n', "colour"),
        (HEAD + '[tasks.a]\nnotebook = "a.ipynb"\ntimed = "yes"\n', "timed = 'yes'; it is true or false"),
        (HEAD + '[tasks.A_b]\nnotebook = "a.ipynb"\n', "small letters"),
        (HEAD + '[tasks.a]\nnotebook = "../a.ipynb"\n', "inside the project"),
        (HEAD + '[tasks.a]\nnotebook = "a.ipynb"\nsmoke = {profile = "x"}\n', "passed by the runner"),
    ],
)
def test_faults_name_the_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_manifest(write(tmp_path, text))


def test_an_input_that_matches_nothing_is_named(tmp_path: Path) -> None:
    task = load_manifest(write(tmp_path, HEAD + '[tasks.a]\nnotebook = "a.ipynb"\ninputs = ["nnc-mm-i5-50"]\n')).tasks["a"]
    with pytest.raises(UsageError, match=r"'nnc-mm-i5-50'.*close: nnc-mm-i5-500"):
        task.data_sets(["nnc-mm-i5-500"])


def test_what_may_not_be_there_is_used_once_it_is(tmp_path: Path) -> None:
    text = HEAD + '[tasks.a]\nnotebook = "a.ipynb"\ninputs = ["nnc-*"]\nif_there = ["matrix-gpu-*", "conv-gpu-*"]\n'
    task = load_manifest(write(tmp_path, text)).tasks["a"]
    assert task.data_sets(["nnc-mm", "matrix-cpu-x-mm-eigen"]) == ["nnc-mm"]
    assert task.data_sets(["matrix-gpu-x-mm-global", "nnc-mm"]) == ["matrix-gpu-x-mm-global", "nnc-mm"]
