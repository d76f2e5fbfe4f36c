"""`workbench measure tuning`: every framework tunes layers of a network on this machine, into one store; that becomes a data set which can be replayed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.kernels.networks import Layer
    from workbench.measure.runner import Runner
    from workbench.reproduce.tuning.live import Report
    from workbench.schema import Measurement

__all__ = ["app"]

app = typer.Typer()

_NETWORK = "resnet-18"


@app.command(epilog="Example: taskset -c 1 workbench measure tuning --pin 1")
def tuning(
    network: Annotated[str, typer.Option("--network", help="Whose convolutions are tuned.")] = _NETWORK,
    layer: Annotated[
        list[int] | None, typer.Option("--layer", metavar="N", help="The Nth of them, from 1; again for more (default: of resnet-18 one of each kind).")
    ] = None,
    framework: Annotated[list[str] | None, typer.Option("--framework", help="What tunes; again for more (default: all).")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Sessions of each framework on each layer, with seeds from 0.")] = 3,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Measurements of a session.")] = 192,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Measurements a round.")] = 16,
    history: Annotated[
        list[str] | None,
        typer.Option("--history", metavar="NAME", help="Data set to learn from; again for more (default: training kernels measured on CPUs like this)."),
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads that a measured program may use.")] = 1,
    pin: Annotated[list[str] | None, typer.Option("--pin", metavar="CPU|last", help="Time on this CPU only; build and search on the others, if any.")] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Run sessions of earlier code again; what they ask for as before is not measured again.")] = False,
    output: Annotated[Path | None, typer.Option("--output", help="Folder of store and sessions (default: runs/measure/tuning-NETWORK of the project).")] = None,
) -> None:
    """Compare frameworks live: each tunes each layer with each seed, every proposal is measured, and nothing is measured twice.

    Cost models that transfer learn from training kernels alone, never from a layer of the network. Every session of the first seed comes before any of the
    second. After Ctrl-C or a crash the same command goes on where it stopped; with more layers, frameworks or seeds it adds to what is there. With --pin and
    more CPUs than that, two such commands may work at once: one searches while the other measures. Models compute on one thread, so that a session can be
    repeated bit for bit.
    """
    import sys

    _one_thread()
    from tqdm.auto import tqdm

    from workbench.cli.measure_convolutions import cpus_of
    from workbench.kernels.networks import network as convolutions_of
    from workbench.measure import tvm
    from workbench.measure.host import cpu, processor
    from workbench.paths import project_root
    from workbench.reproduce.tuning import live
    from workbench.tune.frameworks import FRAMEWORKS
    from workbench.tune.frameworks import framework as framework_of

    if not layer and network != _NETWORK:
        raise UsageError(f"--network {network} needs --layer N, from 1 to {len(convolutions_of(network))}; give it again for more")
    how = live.Comparison(
        network=network,
        layers=tuple(layer or live.LAYERS),
        frameworks=tuple(framework_of(name).name for name in framework or FRAMEWORKS),
        seeds=tuple(range(seeds)),
        trials=trials,
        batch=batch,
        threads=threads,
        history=tuple(history or live.training_sets(cpu(), processor())),
    )
    folder, cpus = output or project_root() / "runs" / "measure" / f"tuning-{network}", cpus_of(pin or [])

    def runner(chosen: Layer) -> Runner[int]:
        return tvm.open_series(chosen.workload, threads=threads, pin=cpus)

    print(f"learns from {', '.join(how.history)}; into {folder}", flush=True)
    with tqdm(unit="trial", disable=None) as bar:

        def told(report: Report) -> None:
            bar.write(_line(report))
            sys.stdout.flush()  # a long series may write to a file

        def measured(_: Measurement) -> None:
            bar.update()

        try:
            other = live.run(how, folder, runner, processor=processor(), pin=cpus, on_session=told, on_measurement=measured, renew=renew)
        except KeyboardInterrupt:
            bar.write("stopped; the same command goes on from here")
            raise typer.Exit(130) from None
    if other:
        print(f"{other} sessions are of earlier code, and may not replay; --renew runs them again")
    print(f"all sessions are in {folder / 'sessions'}")


@app.command("export-tuning", epilog="Example: workbench measure export-tuning --name laptop")
def export_tuning(
    name: Annotated[str, typer.Option("--name", help="Of the machine: the data set becomes tuning-NAME-NETWORK-conv2d.")],
    folder: Annotated[
        Path | None, typer.Argument(help="What `workbench measure tuning` wrote (default: runs/measure/tuning-resnet-18 of the project).")
    ] = None,
    note: Annotated[list[str] | None, typer.Option("--note", metavar="TEXT", help="A sentence for its notes; may be given several times.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a data set of this name.")] = False,
) -> None:
    """Make a data set of a live comparison under data/raw: every measurement, and the sessions that asked for them.

    Sessions that are not whole are left out. Notebooks show it; nothing learns from it, since its configurations are no random sample.
    """
    from workbench.paths import project_root
    from workbench.reproduce.tuning import live_sets

    root = project_root() / "data" / "raw"
    made = folder or project_root() / "runs" / "measure" / f"tuning-{_NETWORK}"
    for dataset, rows in live_sets.export(made, name, root, notes=note or (), replace=replace).items():
        print(f"{root / dataset}: {rows:,} rows, {len(live_sets.load_live(dataset).sessions):,} sessions")


@app.command("replay-tuning", epilog="Example: workbench measure replay-tuning tuning-genoa-resnet-18-conv2d --framework xgb --seed 0")
def replay_tuning(
    dataset: Annotated[str, typer.Argument(help="The data set of a live comparison.")],
    framework: Annotated[list[str] | None, typer.Option("--framework", help="Only sessions of this; again for more.")] = None,
    seed: Annotated[list[int] | None, typer.Option("--seed", min=0, help="Only sessions with this seed; again for more.")] = None,
) -> None:
    """Run the sessions of a live comparison again, its data set answering: the same trials in the same order, bit for bit, and nothing is measured.

    Cost models learn again, on one thread. Another kind of CPU may round otherwise; where a session then goes another way, a line says at which trial.
    """
    _one_thread()
    from workbench.reproduce.tuning import live_sets
    from workbench.tune.frameworks import framework as framework_of

    live = live_sets.load_live(dataset)
    done = faults = 0
    for found in live_sets.replay(live, [framework_of(name).name for name in framework or ()], seed or ()):
        done, faults = done + 1, faults + bool(found.fault)
        print(f"{found.task}, {found.framework}, seed {found.seed}: {found.fault or 'the same'}; {found.seconds:.0f} s", flush=True)
    print(f"{done - faults} of {done} sessions are the same, trial by trial")
    if faults:
        raise typer.Exit(1)


def _one_thread() -> None:
    """Models compute on one thread, so that they compute the same each time. Before numpy and PyTorch are loaded."""
    import os

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def _line(report: Report) -> str:
    result, trials = report.result, report.result.outcome.trials
    best = f"best {trials.best:,.4g} {result.unit} at trial {int(trials.throughput.argmax()) + 1}" if trials.best else "nothing has run"
    counts = f"{len(trials)} trials, {int((~trials.valid).sum())} of them failures, {report.measured} measured now"
    ended = f"; ended: {result.outcome.why}" if "failed" in result.outcome.why else ""
    return f"{report.done}/{report.of} {result.task}, {result.framework}, seed {result.settings['seed']}: {best}; {counts}; {report.seconds:.0f} s{ended}"
