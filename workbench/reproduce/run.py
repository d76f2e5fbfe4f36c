"""Run the manifest's notebooks on a Dask cluster: one process a notebook, cached, resumable, and none beside one that takes times."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from workbench.data import datasets
from workbench.errors import MissingPackage, UsageError
from workbench.measure.host import cpu_identity
from workbench.reproduce.cache import git_state, is_current, run_key
from workbench.reproduce.manifest import Manifest, Task
from workbench.reproduce.record import Failure, Job, read_run, write_failure

__all__ = ["Interrupted", "View", "reproduce", "save_reference"]


class View(Protocol):
    """What shows how the run goes. `cell` comes from another thread."""

    def begin(self, tasks: Sequence[str]) -> None:
        """All tasks of the run."""

    def cell(self, task: str, done: int, of: int) -> None:
        """A cell of a task starts; `done` cells are behind it."""

    def end(self, task: str, record: Mapping[str, Any]) -> None:
        """A task ended: its record, whose status is ok, cached, failed or interrupted."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: carries the records of what ended before; the kernels are gone."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        super().__init__("interrupted")
        self.records = list(records)


def reproduce(
    root: Path,
    manifest: Manifest,
    profile: str,
    tasks: Sequence[Task],
    view: View,
    *,
    force: bool = False,
    jobs: int | None = None,
    scheduler: str | None = None,
    dashboard: bool = False,
) -> list[dict[str, Any]]:
    """Run tasks into runs/<profile>/<task>/ and give their records (as run.json, with status "cached" for those not run again).

    Args:
        root: the checkout.
        manifest: where profiles come from.
        profile: "smoke", "standard" or "paper".
        tasks: what to run.
        view: shows progress.
        force: run also what is cached.
        jobs: notebooks at once on the local cluster; None is one a core.
        scheduler: address of another Dask cluster, whose workers see the same files at the same paths.
        dashboard: serve Dask's dashboard on loopback.

    Raises:
        UsageError: unknown profile or input, another run in the same folder, no cluster at the address.
        MissingPackage: `dashboard` without bokeh.
        Interrupted: Ctrl-C.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs is {jobs}; at least one notebook runs at a time")
    if dashboard and importlib.util.find_spec("bokeh") is None:
        raise MissingPackage("--dashboard needs the package 'bokeh', which is not installed; run: pip install bokeh")
    known = datasets.names()
    limits = manifest.profile(profile)
    runs = root / "runs" / profile
    runs.mkdir(parents=True, exist_ok=True)
    git = git_state(root)
    with _only_run(runs):
        for left in runs.glob(".stop-*"):
            left.unlink()
        stop = runs / f".stop-{uuid.uuid4().hex}"
        view.begin([task.name for task in tasks])
        records: dict[str, dict[str, Any]] = {}
        shared: list[Job] = []
        alone: list[Job] = []
        for task in tasks:
            parameters = task.parameters_for(profile)
            inputs = task.data_sets(known)
            key = run_key(root, task.notebook, parameters, inputs, cpu_identity() if task.timed else "")
            folder = runs / task.name
            if not force and is_current(folder, key):
                records[task.name] = {**(read_run(folder) or {}), "status": "cached"}
                view.end(task.name, records[task.name])
                continue
            facts = {"title": task.title, "makes": list(task.items), "profile": profile, "inputs": inputs, "git": git, "key": key}
            job = Job(task.name, task.notebook, root, folder, parameters, limits.cell_limit_s, limits.task_limit_s, stop, facts)
            (alone if task.timed else shared).append(job)
        # A notebook that times the machine waits until the others are done, and has it to itself.
        groups = [group for group in (shared, *([job] for job in alone)) if group]
        if groups:
            try:
                with _cluster(scheduler, min(jobs or _cores(), max(map(len, groups))), dashboard) as client:
                    for group in groups:
                        for record in _work_off(client, group, view, stop):
                            records[record["task"]] = record
            except KeyboardInterrupt as error:
                raise Interrupted(list(records.values())) from error
            finally:
                stop.unlink(missing_ok=True)
    return [records[task.name] for task in tasks]


def save_reference(root: Path, profile: str, tasks: Sequence[Task]) -> list[Path]:
    """Copy finished runs to figures/<task>/, all files but the executed notebook. Raises UsageError if the profile is not "paper" or a run is not ok."""
    if profile != "paper":
        raise UsageError(f"a reference run has profile paper, not {profile!r}")
    saved = []
    for task in tasks:
        source, target = root / "runs" / profile / task.name, root / "figures" / task.name
        record = read_run(source)
        if record is None or record["status"] != "ok":
            raise UsageError(f"{task.name}: no finished run in {source}; run: workbench reproduce {task.name} --profile {profile}")
        part = target.with_name(f".{target.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name in sorted(name for item in record["items"].values() for name in item["files"]):
            shutil.copyfile(source / name, part / name)
        text = (source / "run.json").read_text(encoding="utf-8")
        # What is tracked names no folder of the machine it was made on.
        for place, short in ((str(root), "."), (str(Path.home()), "~")):
            text = text.replace(place, short) if len(place) > 1 else text
        (part / "run.json").write_text(text, encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        part.replace(target)
        saved.append(target)
    return saved


def _run_job(job: Job, topic: str) -> dict[str, Any]:
    """On a worker."""
    from distributed import get_worker

    from workbench.reproduce.execute import execute

    # nbclient leaves a task behind when a kernel is killed, of which asyncio then complains on stderr.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
    worker = get_worker()
    return execute(job, lambda done, of: worker.log_event(topic, {"task": job.task, "done": done, "of": of}))


def _work_off(client: Any, pending: Sequence[Job], view: View, stop: Path) -> Iterator[dict[str, Any]]:
    from distributed import as_completed, wait

    topic = f"workbench-{uuid.uuid4().hex}"
    client.subscribe_topic(topic, lambda event: view.cell(event[1]["task"], event[1]["done"], event[1]["of"]))
    jobs = {client.submit(_run_job, job, topic, pure=False, retries=0, key=f"{job.task}-{uuid.uuid4().hex[:8]}"): job for job in pending}
    try:
        for future in as_completed(jobs, loop=client.loop):
            job = jobs[future]
            try:
                record = future.result()
            except Exception as error:
                record = write_failure(job, Failure(job.notebook, type(error).__name__, f"the worker that ran it ended: {error}"))
            view.end(job.task, record)
            yield record
    except KeyboardInterrupt:
        # A signal reaches neither a thread that waits for a kernel nor another machine; each notebook's run looks for this file, so all end soon.
        stop.touch()
        with contextlib.suppress(Exception):
            wait(list(jobs), timeout=10)
        raise


@contextlib.contextmanager
def _cluster(scheduler: str | None, workers: int, dashboard: bool) -> Iterator[Any]:
    import dask
    from distributed import Client, LocalCluster

    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=10, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(f"no Dask scheduler answers at {scheduler!r}: {error}; it looks like tcp://host:8786") from error
        with client:
            if not client.scheduler_info()["workers"]:
                raise UsageError(f"the Dask scheduler at {scheduler} has no workers; start some with: dask worker {scheduler}")
            yield client
        return
    # A worker that dies takes one notebook with it; that notebook is not tried again behind the user's back.
    settings = {"distributed.scheduler.allowed-failures": 0, "distributed.worker.multiprocessing-method": "spawn"}
    with dask.config.set(settings):
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": dashboard},
            memory_limit=0,
            silence_logs=logging.CRITICAL,
            # A terminal sends Ctrl-C to every process of the group; the runner alone answers it.
            preload="import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
        )
        with cluster, Client(cluster, set_as_default=False) as client:
            if dashboard:
                print(f"dashboard: {cluster.dashboard_link}")
            yield client


@contextlib.contextmanager
def _only_run(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with the process however it ends."""
    with (folder / ".lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise UsageError(f"another run (process {file.read().strip() or 'unknown'}) is writing to {folder}; wait for it, or end it") from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
