"""Run one notebook in a kernel of its own and say exactly where it failed. This is what a worker of the cluster does; nothing here knows of Dask."""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
import papermill
import psutil
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from workbench.errors import NotebookError
from workbench.reproduce import whereabouts
from workbench.reproduce.record import Failure, Job, write_record

__all__ = ["check_parameters", "execute", "read_notebook"]

_ENGINE = "workbench"

Progress = Callable[[int, int], None]


class _Stopped(Exception):
    """The runner asked to end."""


def read_notebook(root: Path, notebook: str) -> nbformat.NotebookNode:
    """The source notebook, without cells that an earlier run injected. Raises NotebookError if it is missing or no notebook."""
    path = root / notebook
    try:
        node = nbformat.read(path, as_version=4)
        nbformat.validate(node)
    except FileNotFoundError as error:
        raise NotebookError(f"{notebook}: no such notebook in {root}") from error
    except (OSError, ValueError, nbformat.ValidationError, AttributeError, KeyError, TypeError) as error:
        raise NotebookError(f"{notebook}: not a notebook of format 4: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from error
    node.cells = [cell for cell in node.cells if "injected-parameters" not in cell.metadata.get("tags", [])]
    return node


def check_parameters(node: nbformat.NotebookNode, notebook: str, parameters: Mapping[str, Any]) -> Failure | int:
    """Index of the one cell tagged `parameters`, or what is wrong: none or several of them, a syntax error, or a passed parameter that it does not assign."""
    cells = [index for index, cell in enumerate(node.cells) if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        found = "no cell" if not cells else f"cells {', '.join(str(index + 1) for index in cells)} are"
        return Failure(
            notebook, "ParametersCell", f"{found} tagged `parameters`; tag exactly one cell, which assigns every parameter", cells[1] + 1 if cells else None
        )
    try:
        tree = ast.parse(node.cells[cells[0]].source)
    except SyntaxError as error:
        return Failure(notebook, "SyntaxError", f"the parameters cell cannot be read: {error.msg}", cells[0] + 1, error.lineno)
    assigned = {name.id for name in ast.walk(tree) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
    unknown = [name for name in (*parameters, "output_dir") if name not in assigned]
    if unknown:
        last = max((statement.end_lineno or 1 for statement in tree.body), default=1)
        text = f"unknown parameter {unknown[0]!r}; the parameters cell assigns {', '.join(sorted(assigned)) or 'nothing'}"
        return Failure(notebook, "UnknownParameter", text, cells[0] + 1, last)
    return cells[0]


def execute(job: Job, progress: Progress = lambda done, of: None) -> dict[str, Any]:
    """Run the job's notebook and give the record that run.json holds; its `status` is ok, failed or interrupted.

    run.json is written last and whole: a folder without it is a run that was cut short. An interrupted run has none.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    if job.stop.exists():
        return {"task": job.task, "status": "interrupted", "wall_s": 0.0}
    shutil.rmtree(job.folder, ignore_errors=True)
    job.folder.mkdir(parents=True)
    watch = _Watch(job, progress)
    try:
        failure = _run(job, watch)
    except _Stopped:
        return {"task": job.task, "status": "interrupted", "wall_s": round(time.monotonic() - clock, 3)}
    outputs: dict[str, Any] = {}
    if failure is None:
        try:
            outputs = _outputs(job.folder / "outputs.json")
        except NotebookError as error:
            failure = Failure(job.notebook, "NoOutputs", str(error), watch.last_cell)
    return write_record(job, started, clock, failure, {"kernel_peak_mb": watch.peak_mb, **outputs})


def _outputs(path: Path) -> dict[str, Any]:
    """outputs.json of a finished notebook. Raises NotebookError if the notebook left none."""
    try:
        outputs: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotebookError("the notebook ended without outputs.json; its last cell must call out.close()") from error
    return outputs


class _ThisPython(AsyncKernelManager):
    """A kernel of the Python that runs this, whatever kernels are registered on the machine."""

    @property
    def kernel_spec(self) -> KernelSpec:
        extension = f"--IPKernelApp.extra_extensions={whereabouts.__name__}"
        argv = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}", extension]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


class _Engine(NBClientEngine):
    """papermill's engine with a clock, progress, and a kernel that no user's configuration reaches."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: Any, kernel_name: str, *, watch: _Watch, environment: Mapping[str, str], folder: str, sockets: str, kernel_log: Any, **kwargs: Any
    ) -> Any:
        begin = nb_man.cell_start

        def cell_start(cell: Any, cell_index: int | None = None, **rest: Any) -> None:
            watch.begins(client, cell_index or 0, len(nb_man.nb.cells))
            begin(cell, cell_index, **rest)

        nb_man.cell_start = cell_start
        client = PapermillNotebookClient(
            nb_man,
            kernel_manager_class=_ThisPython,
            kernel_name="",
            timeout_func=watch.seconds_left,
            startup_timeout=120,
            iopub_timeout=60,
            shutdown_kernel="immediate",
            log=logging.getLogger("papermill"),
            # Sockets in a folder that only this user reaches: no open port, and no race for one between notebooks that start together.
            config=Config({_ThisPython.__name__: {"transport": "ipc", "ip": f"{sockets}/k"}}),
        )
        return client.execute(env=dict(environment), cwd=folder, stdout=kernel_log, stderr=kernel_log)


papermill_engines.register(_ENGINE, _Engine)


class _Watch:
    """Knows the cell that runs, the time left, and ends the kernel when the runner asks for it."""

    def __init__(self, job: Job, progress: Progress) -> None:
        self.job, self.progress = job, progress
        self.cell = self.last_cell = 0
        self.deadline = time.monotonic() + job.task_limit_s
        self.limit_s = job.cell_limit_s
        self.kernel: Any = None
        self.stopped = False
        self.peak_mb: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def begins(self, client: PapermillNotebookClient, index: int, of: int) -> None:
        self.cell, self.last_cell = index, of - 1  # without the injected cell
        self.kernel = getattr(client.km.provisioner, "process", None)
        if self.stopped:
            raise _Stopped
        self.progress(index, of)

    def seconds_left(self, cell: Any) -> int:
        self.limit_s = min(self.job.cell_limit_s, self.deadline - time.monotonic())
        return max(1, math.ceil(self.limit_s))

    def _look(self) -> None:
        while not self._ended.wait(0.25):
            if self.job.stop.exists():
                self.stopped = True
                if self.kernel is not None and self.kernel.poll() is None:
                    with contextlib.suppress(OSError):
                        os.kill(self.kernel.pid, signal.SIGKILL)
            elif self.kernel is not None:
                with contextlib.suppress(psutil.Error):
                    self.peak_mb = max(self.peak_mb or 0.0, round(psutil.Process(self.kernel.pid).memory_info().rss / 2**20, 1))


def _run(job: Job, watch: _Watch) -> Failure | None:
    try:
        node = read_notebook(job.root, job.notebook)
    except NotebookError as error:
        return Failure(job.notebook, "NotebookError", str(error).removeprefix(f"{job.notebook}: "))
    checked = check_parameters(node, job.notebook, job.parameters)
    if isinstance(checked, Failure):
        return checked
    logging.getLogger("papermill").setLevel(logging.CRITICAL + 1)
    private = job.folder / ".kernel"
    private.mkdir()
    place, log_file = private / "line", private / "kernel.log"
    executed = job.folder / "notebook.ipynb"
    try:
        nbformat.write(node, executed)
        with watch, log_file.open("wb") as log, tempfile.TemporaryDirectory(prefix="workbench-") as sockets:
            try:
                papermill.execute_notebook(
                    str(executed),
                    str(executed),
                    parameters={**job.parameters, "output_dir": str(job.folder)},
                    engine_name=_ENGINE,
                    kernel_name="python3",
                    language="python",
                    progress_bar=False,
                    watch=watch,
                    environment=_environment(job, private, place),
                    folder=str((job.root / job.notebook).parent),
                    sockets=sockets,
                    kernel_log=log,
                )
            except _Stopped:
                raise
            except Exception as error:
                if watch.stopped:
                    raise _Stopped from error
                return _locate(job, error, watch, checked, place, log_file)
    finally:
        shutil.rmtree(private, ignore_errors=True)
    return None


def _locate(job: Job, error: Exception, watch: _Watch, parameters_cell: int, place: Path, log_file: Path) -> Failure:
    """The failure with its place in the source notebook (papermill's injected cell does not count)."""

    def cell(index: int) -> int:
        return index + 1 if index <= parameters_cell else index

    if isinstance(error, PapermillExecutionError):
        trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
        found = re.search(rf"(?:Cell )?In\[{error.exec_count}\], line (\d+)", trace)
        return Failure(job.notebook, error.ename, error.evalue, cell(error.cell_index), int(found.group(1)) if found else whereabouts.read_line(place))
    number, line = cell(watch.cell), whereabouts.read_line(place)
    if isinstance(error, CellTimeoutError):
        whole = watch.limit_s < job.cell_limit_s
        limit = f"the notebook's limit of {job.task_limit_s:g} s" if whole else f"the limit of {job.cell_limit_s:g} s a cell"
        return Failure(job.notebook, "CellTimeout", f"still running at {limit}", number, line)
    # nbclient raises a plain RuntimeError when the kernel dies while it starts.
    if isinstance(error, DeadKernelError) or (isinstance(error, RuntimeError) and "Kernel died" in str(error)):
        code = watch.kernel.poll() if watch.kernel is not None else None
        how = "" if code is None else f" by signal {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"
        said = log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        last = [line.strip() for line in said if line.strip() and not line.startswith("[IPKernelApp]")][-1:]
        return Failure(job.notebook, "DeadKernel", f"the kernel ended{how}" + (f"; it last said: {last[0][:200]}" if last else ""), number, line)
    return Failure(job.notebook, type(error).__name__, str(error), number if watch.kernel is not None else None)


def _environment(job: Job, private: Path, place: Path) -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return {
        **os.environ,
        **threads,
        # No configuration, start-up file or kernel of the user reaches the run.
        **{name: str(private / name.lower()) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR")},
        "JUPYTER_NO_CONFIG": "1",
        "PYTHONHASHSEED": "0",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "WORKBENCH_ROOT": str(job.root),
        whereabouts.PLACE_VARIABLE: str(place),
    }
