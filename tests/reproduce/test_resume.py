"""The command line's runner: cache, force, a lock, Ctrl-C and kill -9 in the middle, and going on from there."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_project import CLOSE, OPEN, Project

from workbench.errors import MissingPackage, UsageError
from workbench.reproduce import run
from workbench.reproduce.cache import is_current, run_key
from workbench.reproduce.execute import execute
from workbench.reproduce.manifest import load_manifest
from workbench.reproduce.record import Job

# Waits as long as a file called `wait` stands beside the notebook, and says which process it is.
SLOW = "import os, time\nfrom pathlib import Path\nPath('pid').write_text(str(os.getpid()))\nwhile Path('wait').exists():\n    time.sleep(0.05)"


class Quiet:
    def begin(self, tasks: Sequence[str]) -> None: ...

    def cell(self, task: str, done: int, of: int) -> None: ...

    def end(self, task: str, record: Mapping[str, Any]) -> None: ...


def start(project: Project, *arguments: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-c",
        "from workbench.cli import main; main()",
        "reproduce",
        "--profile",
        "smoke",
        "--manifest",
        str(project.manifest),
        *arguments,
    ]
    # A copy of the package, since an edit while this test runs would rightly make the cached runs stale.
    package = project.root / "package" / "workbench"
    if not package.exists():
        shutil.copytree(Path(__file__).parents[2] / "workbench", package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "WORKBENCH_ROOT": str(project.root), "WORKBENCH_OFFLINE": "1", "PYTHONPATH": str(package.parent)}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that were started in the background ignore Ctrl-C, and what they start inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def status(project: Project, task: str) -> str:
    return json.loads((project.folder(task) / "run.json").read_text())["status"]


def test_interrupted_runs_leave_nothing_behind_and_go_on(project: Callable[..., Project]) -> None:
    here = project()
    here.add("quick", OPEN, CLOSE)
    here.add("slow", OPEN, SLOW, CLOSE)
    here.add("broken", "1 / 0", write=True)
    (here.root / "notebooks" / "wait").touch()
    pid = here.root / "notebooks" / "pid"

    def begin(*arguments: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
        pid.unlink(missing_ok=True)
        process = start(here, *arguments)
        wait_for(lambda: pid.exists() and pid.read_text() and (here.folder("quick") / "run.json").exists(), "both notebooks under way")
        children = psutil.Process(process.pid).children(recursive=True)
        assert int(pid.read_text()) in [child.pid for child in children]
        connections = [one for each in (psutil.Process(process.pid), *children) for one in each.net_connections("tcp")]
        listening = [one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN]
        assert set(listening) == {"127.0.0.1"}
        return process, children

    # Ctrl-C, as a terminal sends it: to the whole process group.
    process, children = begin("quick", "slow")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130, errors
    assert "interrupted; kept: quick" in errors
    assert "Traceback" not in errors
    wait_for(lambda: not any(child.is_running() for child in children), "all child processes ended")
    assert not (here.folder("slow") / "run.json").exists()

    # kill -9, while another run asks for the same folder.
    process, children = begin("quick", "slow")
    manifest = load_manifest(here.manifest)
    with pytest.raises(UsageError, match=f"another run \\(process {process.pid}\\)"):
        run.reproduce(here.root, manifest, "smoke", manifest.select(["quick"]), Quiet())
    process.kill()
    _, errors = process.communicate(timeout=100)
    assert "quick cached" in errors
    wait_for(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children), "all child processes ended")
    assert (here.folder("slow")).is_dir()
    assert not (here.folder("slow") / "run.json").exists()

    # The half-written folder is done again, the finished one is kept, a failure sets the exit code.
    (here.root / "notebooks" / "wait").unlink()
    process = start(here)
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 1, errors
    assert "quick  cached" in errors
    assert "slow   ok" in errors
    assert "notebooks/broken.ipynb, cell 3, line 1: ZeroDivisionError" in errors
    assert "2 of 3 tasks ended well" in output
    assert [status(here, task) for task in ("quick", "slow", "broken")] == ["ok", "ok", "failed"]


@pytest.mark.slow
def test_ctrl_c_to_the_runner_alone_ends_its_kernels(project: Callable[..., Project]) -> None:
    here = project()
    here.add("slow", OPEN, SLOW, CLOSE)
    (here.root / "notebooks" / "wait").touch()
    pid = here.root / "notebooks" / "pid"
    process = start(here)
    wait_for(lambda: pid.exists() and pid.read_text(), "the notebook under way")
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130, errors
    assert "kept: nothing yet" in errors
    wait_for(lambda: not any(child.is_running() for child in children), "all child processes ended")


def test_what_makes_a_run_stale(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = project()
    here.add("demo", OPEN, CLOSE)
    monkeypatch.setenv("WORKBENCH_ROOT", str(here.root))
    (here.root / "requirements.lock").write_text("numpy==1\n")

    def key(parameters: Mapping[str, Any] = {"x": 1}, inputs: Sequence[str] = ("nnc-mm-i5-500",), cpu: str = "") -> str:
        return run_key(here.root, "notebooks/demo.ipynb", parameters, inputs, cpu)

    first = key()
    assert key() == first
    assert key({"x": 2}) != first
    assert key(inputs=["nnc-mm-i7-500"]) != first
    assert key(inputs=[]) != first
    assert len({first, key(cpu="one"), key(cpu="another")}) == 3  # times of one machine say nothing of another
    (here.root / "requirements.lock").write_text("numpy==2\n")
    assert key() != first
    (here.root / "requirements.lock").write_text("numpy==1\n")
    text = here.path("demo").read_text()
    here.path("demo").write_text(text.replace("x = 1", "x = 3"))
    assert key() != first
    here.path("demo").write_text(text.replace('"execution_count": null', '"execution_count": 5'))
    assert key() == first  # a number that JupyterLab wrote is no change
    here.path("demo").unlink()
    assert key() != first


def test_what_counts_as_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_OFFLINE", "1")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("WORKBENCH_MIRROR", raising=False)
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "notebook.ipynb").touch()
    (folder / "table01.csv").touch()
    good = {"version": 1, "status": "ok", "key": "k", "items": {"table01": {"files": ["table01.csv"]}}, "missing": {}}

    def current(**changes: Any) -> bool:
        (folder / "run.json").write_text(json.dumps({**good, **changes}))
        return is_current(folder, "k")

    assert current()
    assert not current(key="other")
    assert not current(status="failed")
    assert not current(version=0)
    assert current(missing={"nnc-mm-i5-500": "out of reach"})  # and still is
    mirrored = tmp_path / "here"
    monkeypatch.setattr("workbench.reproduce.cache.registry.fetch", lambda file, **options: mirrored)
    assert not current(missing={"nnc-mm-i5-500": "out of reach"})  # it came within reach
    (folder / "table01.csv").unlink()
    assert not current()
    (folder / "run.json").write_text("{half")
    assert not is_current(folder, "k")
    shutil.rmtree(folder)
    assert not is_current(folder, "k")


def test_a_stop_file_and_the_limit_of_a_notebook_end_the_kernel(project: Callable[..., Project]) -> None:
    here = project()
    here.add("slow", OPEN, SLOW, CLOSE)
    (here.root / "notebooks" / "wait").touch()
    pid = here.root / "notebooks" / "pid"

    def job(limit: float) -> Job:
        return Job("slow", "notebooks/slow.ipynb", here.root, here.folder("slow"), {"profile": "smoke"}, 60, limit, here.root / "stop")

    def stop() -> None:
        wait_for(lambda: pid.exists() and pid.read_text(), "the notebook under way")
        (here.root / "stop").touch()

    thread = threading.Thread(target=stop)
    thread.start()
    assert execute(job(60))["status"] == "interrupted"
    thread.join()
    assert not psutil.pid_exists(int(pid.read_text()))
    assert not (here.folder("slow") / "run.json").exists()
    (here.root / "stop").unlink()
    record = execute(job(3))
    assert record["error"]["text"] == "notebooks/slow.ipynb, cell 4, line 4: CellTimeout: still running at the notebook's limit of 3 s"


def test_another_cluster_and_force(project: Callable[..., Project]) -> None:
    from distributed import LocalCluster

    here = project()
    here.add("demo", OPEN, CLOSE)
    manifest = load_manifest(here.manifest)
    with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, memory_limit=0) as cluster:
        results = [
            run.reproduce(here.root, manifest, "smoke", manifest.select(), Quiet(), scheduler=cluster.scheduler_address, force=force)[0]["status"]
            for force in (False, False, True)
        ]
        cluster.scale(0)
        wait_for(lambda: not cluster.scheduler.workers, "no workers")
        with pytest.raises(UsageError, match="has no workers"):
            run.reproduce(here.root, manifest, "smoke", manifest.select(), Quiet(), scheduler=cluster.scheduler_address, force=True)
    assert results == ["ok", "cached", "ok"]
    with pytest.raises(UsageError, match="no Dask scheduler answers"):
        run.reproduce(here.root, manifest, "smoke", manifest.select(), Quiet(), scheduler="nowhere", force=True)
    with pytest.raises(UsageError, match="--jobs is 0"):
        run.reproduce(here.root, manifest, "smoke", manifest.select(), Quiet(), jobs=0)
    if importlib.util.find_spec("bokeh") is None:
        with pytest.raises(MissingPackage, match="pip install bokeh"):
            run.reproduce(here.root, manifest, "smoke", manifest.select(), Quiet(), dashboard=True)


@pytest.mark.slow
def test_a_worker_that_dies_fails_its_notebook_only(project: Callable[..., Project]) -> None:
    here = project()
    # The kernel's parent is the worker.
    here.add("murder", OPEN, "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time; time.sleep(60)")
    here.add("innocent", OPEN, CLOSE)
    manifest = load_manifest(here.manifest)
    records = run.reproduce(here.root, manifest, "smoke", manifest.select(), Quiet(), jobs=2)
    assert [record["status"] for record in records] == ["failed", "ok"]
    assert "the worker that ran it ended" in records[0]["error"]["text"]
    assert status(here, "murder") == "failed"
