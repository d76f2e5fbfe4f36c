"""`workbench measure`: time kernels on this machine, and make data sets of what was timed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli import measure_convolutions, measure_cuda, measure_halide, measure_tuning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.measure.native import Instance, Runner

__all__ = ["app"]

app = typer.Typer(
    name="measure", no_args_is_help=True, help="Time kernels on this machine: every attempt is kept at once, and a run that was cut short goes on."
)


app.add_typer(measure_halide.app)
app.add_typer(measure_convolutions.app)
app.add_typer(measure_cuda.app)
app.add_typer(measure_tuning.app)


@app.command(epilog="Example: workbench measure matrix --kernel mm --library eigen --instances 50")
def matrix(
    kernel: Annotated[str, typer.Option("--kernel", help="mm (matrix product), mv (matrix times vector), mc (convolution) or mp (max pooling).")],
    library: Annotated[str, typer.Option("--library", help="eigen, or boost (uBLAS, one thread).")],
    instances: Annotated[int, typer.Option("--instances", min=1, help="How many random inputs, drawn as in NN+C's Table II.")] = 500,
    max_threads: Annotated[
        int | None, typer.Option("--max-threads", min=1, help="Most threads of an instance (default: one for each CPU that may be used).")
    ] = None,
    passes: Annotated[
        int, typer.Option("--passes", min=1, help="Go through all inputs so many times: a machine is not always equally fast, and a label is the least.")
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the inputs.")] = 0,
    output: Annotated[Path | None, typer.Option("--output", help="The store (default: runs/measure/matrix.db of the project).")] = None,
    pin: Annotated[list[int] | None, typer.Option("--pin", metavar="CPU", help="Run on this CPU only; give it again for more of them.")] = None,
    run_limit: Annotated[float, typer.Option("--run-limit", min=0.001, help="Seconds that one instance may take; beyond it is a timeout.")] = 60.0,
) -> None:
    """Time a matrix kernel on random inputs, then 3% of them again to see whether the machine changed meanwhile.

    After Ctrl-C or a crash the same command goes on where it stopped; with more --instances or --passes it adds to what is there.
    Needs a C++ compiler (CXX, g++ or clang++); the program is built once and kept in the cache.
    """
    import time
    from itertools import chain

    from tqdm.auto import tqdm

    from workbench.data.store import Store
    from workbench.measure.drift import drift
    from workbench.measure.host import usable_cpus
    from workbench.measure.native import draw, open_series
    from workbench.measure.passes import rounds
    from workbench.paths import project_root

    path = output or project_root() / "runs" / "measure" / "matrix.db"
    most = max_threads or (len(set(pin)) if pin else usable_cpus())
    chosen = draw(kernel, library, instances, seed=seed, max_threads=most)
    stopped = False
    cpus = tuple(pin or ())
    with Store(path) as store, open_series(kernel, library, store, max_threads=most, seed=seed, pin=cpus, run_limit_s=run_limit) as runner:
        before = len(store)
        done = runner.attempts(chosen)
        planned = rounds(chosen, passes)
        left = sum(done[instance] < times for group, times in planned for instance in group)
        total = sum(len(group) for group, _ in planned)
        start = time.monotonic()
        attempts = chain.from_iterable(runner.measure(group, times=times) for group, times in planned)
        try:
            with tqdm(total=total, initial=total - left, desc=f"{kernel} in {library}", unit="run", disable=None) as bar:
                for _ in attempts:
                    bar.update()
        except KeyboardInterrupt:
            stopped = True
        seconds = time.monotonic() - start
        _summary(runner, chosen, len(store) - before, seconds)
        print(f"drift: {drift(store, kernel=kernel, space=library, device=runner.device.name)}")
        print(f"store: {path}")
    if stopped:
        print("stopped; the same command goes on from here")
        raise typer.Exit(130)


def _summary(runner: Runner, chosen: Sequence[Instance], new: int, seconds: float) -> None:
    """How the instances asked for ended, the reasons of failures, and the rate."""
    from collections import Counter

    from workbench.measure.native import Instance
    from workbench.measure.passes import by_input, label

    kernel, wanted = chosen[0].workload.kernel, set(chosen)
    labels = [label(attempts) for attempts in by_input(runner.store.rows(kernel=kernel, space=runner.library.name, device=runner.device.name))]
    asked = [record for record in labels if Instance(record.workload, int(record.config["threads"])) in wanted]  # type: ignore[arg-type]
    statuses = ", ".join(f"{count:,} {status}" for status, count in Counter(str(record.status) for record in asked).most_common()) or "none"
    rate = f"{new:,} runs in {seconds:.1f} s ({new / seconds:.1f} a second)" if new else "nothing was left to measure"
    restarts = f"; the program was started again {runner.restarts} times" if runner.restarts else ""
    print(f"{kernel} in {runner.library.name} on {runner.device.name}: {len(asked):,} of {len(chosen):,} instances ({statuses}); {rate}{restarts}")
    for reason, count in Counter(f"{record.status}: {record.error}" for record in asked if record.error).most_common(5):
        print(f"  {count:,} x {reason}")


@app.command(epilog="Example: workbench measure export runs/measure/matrix.db --name matrix-cpu-laptop")
def export(
    store: Annotated[Path, typer.Argument(help="The store that `workbench measure` wrote.", exists=True, dir_okay=False)],
    name: Annotated[str, typer.Option("--name", help="Beginning of the data sets' names; the kernel follows, and for a matrix kernel the library.")],
    note: Annotated[list[str] | None, typer.Option("--note", metavar="TEXT", help="A sentence for the notes of each; may be given several times.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace data sets of these names.")] = False,
) -> None:
    """Make a data set of each series of a store, as folders under data/raw: `workbench data list` shows them, and models can learn from them.

    A row's time is the least of all attempts at its input. The choices of Halide's autoschedulers become a data set of their own.
    """
    from workbench.data.store import Store
    from workbench.measure.export import export as write
    from workbench.paths import project_root

    root = project_root() / "data" / "raw"
    with Store(store) as opened:
        for dataset, rows in write(opened, name, root, notes=note or (), replace=replace).items():
            print(f"{root / dataset}: {rows:,} rows")
