"""`workbench tune`: tune a layer with a framework, on recorded measurements or by measuring on this machine."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.reproduce.tuning.work import Work
    from workbench.schema import Measurement
    from workbench.tune.frameworks import Framework
    from workbench.tune.results import Result

__all__ = ["app"]

app = typer.Typer()

_TRIALS = 200


@app.command(epilog="Example: workbench tune --dataset titanxp-conv2d --layer yolo8 --framework xgb-Xfer-shrunk --trials 200")
def tune(
    framework: Annotated[str, typer.Option("--framework", help="What tunes; an unknown name lists them.")],
    dataset: Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="Replay this data set: only what it has is proposed.")] = None,
    network: Annotated[str | None, typer.Option("--network", metavar="NAME", help="Measure a convolution of this network: resnet-18, vgg-16, ...")] = None,
    layer: Annotated[str | None, typer.Option("--layer", help="The layer's name, or its number from 1. A data set of one layer needs none.")] = None,
    target: Annotated[str, typer.Option("--target", help="With --network. llvm: measure on this machine's CPU. cuda: on its GPU of NVIDIA's.")] = "llvm",
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
    from tqdm.auto import tqdm

    from workbench.cli.measure_convolutions import cpus_of
    from workbench.paths import project_root, slug
    from workbench.reproduce.tuning import work as works
    from workbench.tune.frameworks import framework as framework_of
    from workbench.tune.loop import Budget
    from workbench.tune.results import save_result

    chosen = framework_of(framework)
    if trials is None and seconds is None and no_improvement is None:
        trials = _TRIALS
    if (dataset is None) == (network is None):
        raise UsageError("say what to tune: --dataset NAME replays recorded measurements, --network NAME measures here; give one of the two")
    if target not in ("llvm", "cuda"):
        raise UsageError(f"--target {target!r}; it is llvm or cuda")
    with ExitStack() as stack:
        # Kept for its rate and what is left; where there is no terminal, the lines of the rounds say how it goes.
        bar = stack.enter_context(tqdm(total=trials, unit="trial", disable=None))

        def measured(_: Measurement) -> None:
            bar.update()

        if dataset is not None:
            if threads != 1 or pin or store:
                raise UsageError("--threads, --pin and --store belong to measuring; leave them out with --dataset")
            work = works.recorded(dataset, layer, history or (), exclude_family=exclude_family)
        else:
            if exclude_family:
                raise UsageError("--exclude-family: only the layers of titanxp-conv2d have families that are known")
            kept = store or project_root() / "runs" / "measure" / "convolutions.db"
            measuring = works.live(str(network), layer, kept, history or (), target=target, threads=threads, pin=cpus_of(pin or []), on_measurement=measured)
            work = stack.enter_context(measuring)
        path = out or project_root() / "runs" / "tune" / f"{slug(f'{work.source} {work.name} {chosen.name} {seed}')}.json"
        for line in _before(work, chosen):
            bar.write(line)
        bar.set_description(f"{work.name}, {chosen.name}")

        def on_round(stands: Result) -> None:
            save_result(stands, path)
            bar.update(len(stands.outcome.trials) - bar.n)
            bar.set_postfix_str(f"best {_speed(stands)}")
            bar.write(f"trial {len(stands.outcome.trials):,}: best {_speed(stands)}")

        budget = Budget(trials, seconds, no_improvement)
        result = work.run(chosen, budget, batch=batch, seed=seed, threads=threads, on_round=on_round)
    save_result(result, path)
    for line in _after(result):
        print(line)
    print(f"result: {path}")
    if result.outcome.why == "interrupted":
        raise typer.Exit(130)
    if "failed" in result.outcome.why:
        raise typer.Exit(1)


def _before(work: Work, framework: Framework) -> list[str]:
    """What to know before the first trial."""
    import numpy as np

    learning = f", learns from {len(work.history)} measured tasks first" if framework.transfers else ""
    lines = [f"{work.name} on {work.task.device.model or work.task.device.name}, {framework.name}{learning}"]
    if work.table is not None and work.ranking_only:
        lines.append(f"ranking only: {len(work.table):,} of {work.task.space.size:,} configurations were measured, so no search can go its way")
    if work.table is not None and not (np.isfinite(work.table.build_s) | np.isfinite(work.table.run_s)).any():
        lines.append("how long building and running took was not recorded: seconds are those of search and model alone")
    return lines


def _speed(result: Result) -> str:
    """The best so far, and what share of the table's best that is."""
    if not (best := result.outcome.trials.best):
        return "none yet: nothing has run"
    share = f" ({best / result.table_best:.1%} of the table's best)" if result.table_best else ""
    return f"{best:,.4g} {result.unit}{share}"


def _after(result: Result) -> list[str]:
    """The best configuration, how it ended, and where the time went."""
    import numpy as np

    trials = result.outcome.trials
    failures = int((~trials.valid).sum())
    ended = f"{len(trials):,} trials, {failures:,} of them failures; ended: {result.outcome.why}"
    if not trials.best:
        return [f"nothing has run: {ended}"]
    config = " ".join(f"{knob}={value}" for knob, value in result.best.items())
    phases = zip(("search", "model", "build", "run"), result.outcome.seconds.T, strict=True)
    spent = [f"{phase} {np.nansum(column):.1f} s" if np.isfinite(column).any() else f"{phase} not recorded" for phase, column in phases]
    first = int(trials.throughput.argmax()) + 1
    return [f"best: {_speed(result)}, trial {first:,}, with {config}", f"{ended}; learning from others {result.fit_s:.1f} s, {', '.join(spent)}"]
