"""`workbench tune`: tune a layer with a framework, on recorded measurements or by measuring on this machine."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from workbench.features.tasks import MeasuredTask, TuningTask
    from workbench.measure.answers import Answers
    from workbench.schema import Measurement
    from workbench.tune.loop import Outcome
    from workbench.tune.search import Candidates

__all__ = ["app"]

app = typer.Typer()

_TRIALS = 200


@app.command(epilog="Example: workbench tune --dataset titanxp-conv2d --layer yolo8 --framework xgb-Xfer-shrunk --trials 200")
def tune(
    framework: Annotated[str, typer.Option("--framework", help="What tunes; an unknown name lists them.")],
    dataset: Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="Replay this data set: only what it has is proposed.")] = None,
    network: Annotated[str | None, typer.Option("--network", metavar="NAME", help="Measure a convolution of this network: resnet-18, vgg-16, ...")] = None,
    layer: Annotated[str | None, typer.Option("--layer", help="The layer's name, or its number from 1. A data set of one layer needs none.")] = None,
    target: Annotated[str, typer.Option("--target", help="llvm: measure on this machine's CPU. With --network.")] = "llvm",
    trials: Annotated[int | None, typer.Option("--trials", min=1, help=f"Stop after so many measurements (default, without other limits: {_TRIALS}).")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.001, help="Stop after so many seconds of search, model, building and running.")] = None,
    no_improvement: Annotated[int | None, typer.Option("--no-improvement", min=1, help="Stop after so many measurements without a faster one.")] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Measurements a round.")] = 16,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the cost model and of everything that is drawn.")] = 0,
    history: Annotated[
        list[str] | None,
        typer.Option("--history", metavar="NAME", help="Data set that the cost model learns from first; give it again for more (default: see above)."),
    ] = None,
    exclude_family: Annotated[bool, typer.Option("--exclude-family", help="Do not learn from near twins, the layer's family (titanxp-conv2d).")] = False,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads that a measured program may use.")] = 1,
    pin: Annotated[list[str] | None, typer.Option("--pin", metavar="CPU|last", help="Time on this CPU only, and build on the others.")] = None,
    store: Annotated[Path | None, typer.Option("--store", help="Where measurements are kept (default: runs/measure/convolutions.db of the project).")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The result file (default: under runs/tune of the project).")] = None,
) -> None:
    """Tune one layer: propose, measure, learn, until a limit is reached. Several limits end it at the first.

    With --dataset the answers come from recorded measurements, and a cost model that transfers learns from the other layers of the data set first. With
    --network TVM's schedules are measured here, and it learns from the data sets under data/raw with the same knobs. The layer itself is never learnt from.

    The result file is written after each round. Measurements go to a store that all tunings share, and nothing in it is measured twice: after Ctrl-C or a
    crash the same command goes on where it stopped.
    """
    import time

    from tqdm.auto import tqdm

    from workbench.paths import project_root
    from workbench.tune.frameworks import framework as framework_of
    from workbench.tune.loop import Budget
    from workbench.tune.loop import tune as run
    from workbench.tune.results import Result, save_result

    chosen = framework_of(framework)
    if trials is None and seconds is None and no_improvement is None:
        trials = _TRIALS
    if (dataset is None) == (network is None):
        raise UsageError("say what to tune: --dataset NAME replays recorded measurements, --network NAME measures here; give one of the two")
    with ExitStack() as stack, tqdm(total=trials, unit="trial", disable=None) as bar:

        def measured(_: Measurement) -> None:
            bar.update()

        if dataset is not None:
            if threads != 1 or pin or store:
                raise UsageError("--threads, --pin and --store belong to measuring; leave them out with --dataset")
            work = _recorded(dataset, layer, history or [], exclude_family)
        else:
            if exclude_family:
                raise UsageError("--exclude-family: only the layers of titanxp-conv2d have families that are known")
            kept = store or project_root() / "runs" / "measure" / "convolutions.db"
            work = _live(stack, str(network), layer, target, history or [], threads, pin or [], kept, measured)
        learnt = work.history if chosen.transfers else []
        path = out or project_root() / "runs" / "tune" / f"{_slug(f'{work.source} {work.name} {chosen.name} {seed}')}.json"
        began = time.perf_counter()
        fitted = chosen.fit([table for _, table in learnt], seed)
        plain: dict[str, Any] = {
            "task": work.name,
            "source": work.source,
            "framework": chosen.name,
            "history": tuple(name for name, _ in learnt),
            "settings": {"seed": seed, "batch": batch, "trials": trials, "seconds": seconds, "no_improvement": no_improvement, "threads": threads},
            "ranking_only": work.ranking_only,
            "table_best": work.table_best,
            "fit_s": time.perf_counter() - began,
        }
        tuner = chosen.tuner(work.task, fitted, work.candidates, seed=seed, ranking_only=work.ranking_only)
        bar.set_description(f"{work.name}, {chosen.name}")
        for line in work.notes(chosen.name, len(learnt), plain["fit_s"]):
            bar.write(line)

        def on_round(stands: Outcome) -> None:
            save_result(Result.of(work.task, stands, **plain), path)
            bar.update(len(stands.trials) - bar.n)
            bar.set_postfix_str(f"best {work.speed(stands)}")
            bar.write(f"trial {len(stands.trials):,}: best {work.speed(stands)}")

        outcome = run(tuner, work.answers, Budget(trials, seconds, no_improvement), batch, on_round)
    save_result(Result.of(work.task, outcome, **plain), path)
    for line in _summary(work, outcome):
        print(line)
    print(f"result: {path}")
    if outcome.why == "interrupted":
        raise typer.Exit(130)
    if "failed" in outcome.why:
        raise typer.Exit(1)


@dataclass(frozen=True, eq=False)
class _Work:
    """What is tuned, who answers, and what may be learnt from: tables by name."""

    name: str
    source: str
    task: TuningTask
    answers: Answers
    candidates: Candidates
    history: list[tuple[str, MeasuredTask]]
    table: MeasuredTask | None = None
    ranking_only: bool = False

    @property
    def table_best(self) -> float | None:
        return None if self.table is None else self.table.best

    def speed(self, outcome: Outcome) -> str:
        """The best so far, and what share of the table's best that is."""
        if not (best := outcome.trials.best):
            return "none yet: nothing has run"
        share = f" ({best / self.table_best:.1%} of the table's best)" if self.table_best else ""
        return f"{best:,.4g} {'GFLOP/s' if self.task.kernel.flop else 'runs/s'}{share}"

    def notes(self, framework: str, learnt: int, fit_s: float) -> list[str]:
        """What to know before the first trial."""
        import numpy as np

        lines = [f"{self.name} on {self.task.device.model or self.task.device.name}, {framework}"]
        if learnt:
            lines[0] += f", learnt from {learnt} measured tasks in {fit_s:.1f} s"
        if self.table is not None and self.ranking_only:
            lines.append(f"ranking only: {len(self.table):,} of {self.task.space.size:,} configurations were measured, so no search can go its way")
        if self.table is not None and not (np.isfinite(self.table.build_s) | np.isfinite(self.table.run_s)).any():
            lines.append("how long building and running took was not recorded: seconds are those of search and model alone")
        return lines


def _recorded(dataset: str, layer: str | None, history: Sequence[str], exclude_family: bool) -> _Work:
    from workbench.data.datasets import load_dataset
    from workbench.measure.replay import Replay
    from workbench.tune.search import Candidates

    tables = _tables(dataset)
    names = [name for name, _, _ in tables]
    if layer is None and len(tables) > 1:
        raise UsageError(f"data set {dataset!r} has {len(tables)} layers; choose one with --layer: {_listed(names)}")
    wanted = layer or "1"
    place = names.index(wanted) if wanted in names else int(wanted) - 1 if wanted.isdecimal() else -1
    if place not in range(len(names)):
        raise UsageError(f"data set {dataset!r} has no layer {wanted!r}; it has {_listed(names)}, by name or by number from 1")
    name, family, table = tables[place]
    if exclude_family and not family:
        raise UsageError(f"--exclude-family: the layers of {dataset!r} have no families that are known; those of titanxp-conv2d have")
    replay = Replay(table)
    learnt = [
        (f"{source}: {other}", found) for source in history or [dataset] for other, kin, found in _tables(source) if not (exclude_family and kin == family)
    ]
    candidates = Candidates(table.task.space, table.indices)
    title = name if name != table.task.workload.key else load_dataset(dataset).kernel.title
    return _Work(title, dataset, table.task, replay, candidates, _others(learnt, table.task), table, ranking_only=not replay.exhaustive)


def _live(
    stack: ExitStack,
    network: str,
    layer: str | None,
    target: str,
    history: Sequence[str],
    threads: int,
    pin: list[str],
    path: Path,
    measured: Callable[[Measurement], None],
) -> _Work:
    from workbench.cli.measure_convolutions import cpus_of
    from workbench.data.store import Store
    from workbench.features.tasks import TuningTask
    from workbench.kernels import kernel, networks
    from workbench.kernels.conv import CPU
    from workbench.kernels.conv import KERNELS as CONVOLUTIONS
    from workbench.measure import tvm
    from workbench.measure.replay import Cached
    from workbench.reproduce import own
    from workbench.tune.search import Candidates

    if target != "llvm":
        raise UsageError(f"--target {target!r}; it is llvm")
    count = len(networks.network(network))
    if layer is None or not layer.isdecimal():
        raise UsageError(f"{network} has {count} distinct convolutions; choose one with --layer N, from 1 to {count}")
    workload = networks.layer(network, int(layer)).workload
    runner = stack.enter_context(tvm.open_series(workload, threads=threads, pin=cpus_of(pin)))
    task = TuningTask(f"{network} {layer}", kernel(workload.kernel), workload, runner.device, CPU)
    learnt = [
        (f"{source}: {other}", found)
        for source in history or own.measured_sets(CONVOLUTIONS)
        for other, _, found in _tables(source)
        if history or found.task.space_name == CPU
    ]
    answers = Cached(stack.enter_context(Store(path)), runner, measured)
    return _Work(task.name, target, task, answers, Candidates(runner.space), _others(learnt, task))


def _tables(dataset: str) -> list[tuple[str, str, MeasuredTask]]:
    """Name, family and measurements of the layers of a data set; no family where none is known."""
    from workbench.data.datasets import load_dataset
    from workbench.features.tasks import tasks_of
    from workbench.reproduce.convolutions import name_of
    from workbench.reproduce.tuning.pools import yolo_layers

    loaded = load_dataset(dataset)
    if loaded.kernel.name == "flextensor_conv2d":
        return [(pool.name, pool.family, pool.measured) for pool in yolo_layers(loaded)]
    return [(name_of(table.task.workload), "", table) for table in tasks_of(loaded)]


def _others(tables: Sequence[tuple[str, MeasuredTask]], task: TuningTask) -> list[tuple[str, MeasuredTask]]:
    """Those that are not of the task itself: another workload, or another device."""
    return [(name, table) for name, table in tables if (table.task.workload, table.task.device.name) != (task.workload, task.device.name)]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _slug(text: str) -> str:
    import re

    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _summary(work: _Work, outcome: Outcome) -> list[str]:
    import numpy as np

    trials = outcome.trials
    failures = int((~trials.valid).sum())
    ended = f"{len(trials):,} trials, {failures:,} of them failures; ended: {outcome.why}"
    if not trials.best:
        return [f"nothing has run: {ended}"]
    first = int(trials.throughput.argmax())
    config = " ".join(f"{knob}={value}" for knob, value in work.task.space.config(int(trials.indices[first])).items())
    spent = [
        f"{phase} {np.nansum(column):.1f} s" if np.isfinite(column).any() else f"{phase} not recorded"
        for phase, column in zip(("search", "model", "build", "run"), outcome.seconds.T, strict=True)
    ]
    return [f"best: {work.speed(outcome)}, trial {first + 1:,}, with {config}", f"{ended}; {', '.join(spent)}"]
