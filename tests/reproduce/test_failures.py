"""One run with many faults in it: each is an error with notebook, cell and line, and the other notebooks go on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_project import CLOSE, OPEN, PARAMETERS, Project

from workbench.reproduce import run
from workbench.reproduce.manifest import load_manifest

DATA = """from workbench.data.datasets import load_dataset
from workbench.errors import MissingData
try:
    out.uses(load_dataset("nnc-mm-i5-500"))
except MissingData as error:
    out.missing("nnc-mm-i5-500", error)
    out.row("nnc.table06", reason="nnc-mm-i5-500 is out of reach")
"""
GOOD = """import os, sys, pandas as pd
out.table("table06", pd.DataFrame({"x": [x], "threads": [os.environ["OMP_NUM_THREADS"]], "python": [sys.executable]}), title="T")
from pathlib import Path
Path(output_dir, "cwd").write_text(os.getcwd())"""


class Seen:
    """A view that notes what it is told."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.cells: dict[str, list[tuple[int, int]]] = {}
        self.ended: dict[str, str] = {}

    def begin(self, tasks: Sequence[str]) -> None:
        self.began = list(tasks)

    def cell(self, task: str, done: int, of: int) -> None:
        self.cells.setdefault(task, []).append((done, of))

    def end(self, task: str, record: Mapping[str, Any]) -> None:
        self.ended[task] = record["status"]


def fill(project: Project, home: Path) -> None:
    project.add("good", OPEN, GOOD, CLOSE, entry="parameters = {x = 7}")
    project.add("raises", OPEN, "def f():\n    raise ValueError('no <b>good</b>')\n\nf()\n")
    project.add("syntax", OPEN, "y = 1\ny = = 2\n")
    project.add("dies", OPEN, "import os\nfor i in range(3):\n    pass\nos._exit(7)")
    project.add("killed", OPEN, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    # A regular expression that holds the interpreter: no signal of Python's reaches it.
    project.add("hangs", OPEN, "import re\nfound = re.match('(a+)+$', 'a' * 60 + 'b')")
    project.add("unclosed", OPEN)
    project.add("unreachable", OPEN, DATA, CLOSE, entry='inputs = ["nnc-mm-i5-500"]')
    project.add("unknown", OPEN, CLOSE, entry="parameters = {zeta = 7}")
    project.add("untagged", OPEN, CLOSE, tagged=0)
    project.add("twice", OPEN, CLOSE, tagged=2)
    project.add("badcell", OPEN, CLOSE, parameters=PARAMETERS + "\nx = = 1")
    project.add("absent", write=False)
    project.add("garbage", write=False)
    project.path("garbage").write_text("{not a notebook")
    # What a user may have at home must not reach a run: a foreign kernel called python3, and configurations that fail.
    kernel = home / ".local" / "share" / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps({"argv": ["/bin/false", "{connection_file}"], "display_name": "Foreign", "language": "python"}))
    for path in (
        ".jupyter/jupyter_config.py",
        ".jupyter/jupyter_client_config.py",
        ".ipython/profile_default/startup/00.py",
        ".ipython/profile_default/ipython_config.py",
    ):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text("raise RuntimeError('a configuration of the user was read')\nimport os; os._exit(9)\n")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, dict[str, dict[str, Any]], Seen]]:
    folder = tmp_path_factory.mktemp("failures")
    home = folder / "home"
    project = Project(folder / "checkout", cell_limit_s=3, task_limit_s=30)
    fill(project, home)
    manifest, seen = load_manifest(project.manifest), Seen()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("WORKBENCH_MIRROR", "JUPYTER_PATH", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "OMP_NUM_THREADS"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(home))
        patch.setenv("WORKBENCH_OFFLINE", "1")
        patch.setenv("WORKBENCH_CACHE", str(folder / "cache"))
        patch.setenv("WORKBENCH_ROOT", str(project.root))
        records = run.reproduce(project.root, manifest, "smoke", manifest.select(), seen, jobs=2)
    yield project, {record["task"]: record for record in records}, seen
    assert not [process for process in psutil.Process().children(recursive=True) if "ipykernel" in " ".join(process.cmdline())]


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("raises", "notebooks/raises.ipynb, cell 4, line 4: ValueError: no <b>good</b>"),
        ("syntax", "notebooks/syntax.ipynb, cell 4, line 2: SyntaxError: invalid syntax"),
        ("dies", "notebooks/dies.ipynb, cell 4, line 4: DeadKernel: the kernel ended with exit code 7"),
        ("killed", "notebooks/killed.ipynb, cell 4, line 2: DeadKernel: the kernel ended by signal SIGKILL"),
        ("hangs", "notebooks/hangs.ipynb, cell 4, line 2: CellTimeout: still running at the limit of 3 s a cell"),
        ("unclosed", "notebooks/unclosed.ipynb, cell 3: NoOutputs: the notebook ended without outputs.json"),
        (
            "unknown",
            "notebooks/unknown.ipynb, cell 2, line 4: UnknownParameter: unknown parameter 'zeta'; the parameters cell assigns output_dir",
        ),
        ("untagged", "notebooks/untagged.ipynb: ParametersCell: no cell tagged `parameters`"),
        ("twice", "notebooks/twice.ipynb, cell 3: ParametersCell: cells 2, 3 are tagged `parameters`"),
        ("badcell", "notebooks/badcell.ipynb, cell 2, line 5: SyntaxError: the parameters cell cannot be read"),
        ("absent", "notebooks/absent.ipynb: NotebookError: no such notebook"),
        ("garbage", "notebooks/garbage.ipynb: NotebookError: not a notebook of format 4"),
    ],
)
def test_each_failure_says_where(ran: tuple[Project, dict[str, dict[str, Any]], Seen], task: str, text: str) -> None:
    project, records, _ = ran
    assert records[task]["status"] == "failed"
    assert records[task]["error"]["text"].startswith(text)
    assert json.loads((project.folder(task) / "run.json").read_text()) == records[task]


def test_the_other_notebooks_went_on(ran: tuple[Project, dict[str, dict[str, Any]], Seen]) -> None:
    project, records, seen = ran
    good = records["good"]
    assert good["status"] == "ok"
    assert sorted(path.name for path in project.folder("good").iterdir()) == ["cwd", "notebook.ipynb", "outputs.json", "run.json", "table06.csv"]
    assert (project.folder("good") / "cwd").read_text() == str(project.root / "notebooks")
    values = (project.folder("good") / "table06.csv").read_text().splitlines()[1].split(",")
    assert values[:2] == ["7", "1"]
    assert good["parameters"] == {"x": 7, "profile": "smoke"}
    assert good["wall_s"] > 0
    assert good["peak_mb"] > 20
    assert {"sha", "tag", "dirty"} == set(good["git"])
    assert good["versions"]["papermill"]
    assert seen.began == list(records)
    assert seen.ended == {task: record["status"] for task, record in records.items()}
    assert seen.cells["good"] == [(index, 6) for index in range(6)]


def test_the_kernel_is_this_python(ran: tuple[Project, dict[str, dict[str, Any]], Seen]) -> None:
    import sys

    assert (ran[0].folder("good") / "table06.csv").read_text().strip().endswith(sys.executable)


def test_an_input_out_of_reach_is_no_failure(ran: tuple[Project, dict[str, dict[str, Any]], Seen]) -> None:
    record = ran[1]["unreachable"]
    assert record["status"] == "ok"
    assert "WORKBENCH_MIRROR" in record["missing"]["nnc-mm-i5-500"]
    assert record["rows"][0]["reason"]


def test_nothing_of_the_kernel_is_left_in_the_folders(ran: tuple[Project, dict[str, dict[str, Any]], Seen]) -> None:
    assert not list((ran[0].root / "runs").glob("smoke/*/.kernel"))
    assert not list((ran[0].root / "runs").glob("smoke/.stop-*"))
