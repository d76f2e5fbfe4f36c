"""`workbench measure halide`: time schedules of Halide's blur and FFT on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.data.store import Store
    from workbench.measure.halide import Candidate, Runner

__all__ = ["app"]

app = typer.Typer()


@app.command(epilog="Example: workbench measure halide --kernel blur --n 1024 --schedules 50 --autoschedulers")
def halide(
    kernel: Annotated[str, typer.Option("--kernel", help="blur or fft.")],
    n: Annotated[list[int], typer.Option("--n", min=2, help="Size of the n x n image; may be given several times.")],
    schedules: Annotated[
        int, typer.Option("--schedules", min=0, help="How many schedules of each size, drawn at random; more of them continue the series.")
    ] = 50,
    passes: Annotated[
        int, typer.Option("--passes", min=1, help="Go through all schedules so many times: a machine is not always equally fast, and a label is the least.")
    ] = 1,
    autoschedulers: Annotated[bool, typer.Option("--autoschedulers", help="Measure the choices of Mullapudi2016, Adams2019 and Li2018 too.")] = False,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads that a schedule may use.")] = 1,
    pin: Annotated[list[int] | None, typer.Option("--pin", metavar="CPU", help="Run on this CPU only; give it again for more of them.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw and of the image.")] = 0,
    check: Annotated[float, typer.Option("--check", min=0.0, max=1.0, help="Share of the schedules whose result is compared with numpy's.")] = 0.1,
    output: Annotated[Path | None, typer.Option("--output", help="The store (default: runs/measure/halide.db of the project).")] = None,
) -> None:
    """Time random schedules of blur or of the fast Fourier transform, then 3% of them again to see whether the machine changed meanwhile.

    After Ctrl-C or a crash the same command goes on where it stopped; with more --schedules or --passes it adds to what is there.
    """
    from workbench.data.store import Store
    from workbench.kernels.halide.autoschedulers import AUTOSCHEDULERS
    from workbench.measure.halide import halide_workload, open_series
    from workbench.measure.runner import candidates
    from workbench.paths import project_root

    workloads = [halide_workload(kernel, size, threads) for size in dict.fromkeys(n)]
    path = output or project_root() / "runs" / "measure" / "halide.db"
    with Store(path) as store:
        for workload in workloads:
            with open_series(workload, seed=seed, pin=pin or (), check_share=check) as runner:
                drawn = candidates(runner.space, schedules, seed)
                if len(drawn) < schedules:
                    raise UsageError(f"{workload.key} has {len(drawn):,} schedules, fewer than --schedules {schedules}")
                finished = _measure(store, runner, drawn, AUTOSCHEDULERS if autoschedulers else (), passes)
                _summary(store, runner)
                if not finished:
                    print(f"store: {path}; stopped, and the same command goes on from here")
                    raise typer.Exit(130)
    print(f"store: {path}")


def _measure(store: Store, runner: Runner, drawn: Sequence[Candidate], schedulers: Sequence[Candidate], passes: int) -> bool:
    """Measure with a progress bar; whether it was done to the end."""
    from itertools import chain

    from tqdm.auto import tqdm

    from workbench.measure.passes import rounds
    from workbench.measure.runner import attempts, measure_missing

    done = attempts(store, runner)
    planned = rounds(drawn, passes, first=schedulers)
    left = sum(done[runner.key(c)] < times for group, times in planned for c in group)
    total = sum(len(group) for group, _ in planned)
    measured = chain.from_iterable(measure_missing(store, runner, group, times=times) for group, times in planned)
    try:
        with tqdm(total=total, initial=total - left, desc=_title(runner), unit="schedule", disable=None) as bar:
            for count, _ in enumerate(measured, 1):
                rate = f"{60 * count / bar.format_dict['elapsed']:.0f} a minute" if not bar.disable else ""
                bar.set_postfix_str(rate + (f", best {_time(runner.best_s)}" if runner.best_s else ""), refresh=False)
                bar.update()
    except KeyboardInterrupt:
        return False
    return True


def _summary(store: Store, runner: Runner) -> None:
    """What the store has of the runner's workload: how the attempts ended, the best, and the autoschedulers' choices."""
    from collections import Counter

    from workbench.measure.drift import drift

    rows = list(store.rows(workload=runner.workload, device=runner.device.name))
    statuses = ", ".join(f"{count:,} {status}" for status, count in Counter(str(row.status) for row in rows).most_common()) or "nothing measured"
    best = min((row for row in rows if row.time_s is not None), key=lambda row: row.time_s or 0.0, default=None)
    fastest = f"; best {_time(best.time_s or 0.0)} with {' '.join(f'{knob}={value}' for knob, value in best.config.items())}" if best else ""
    print(f"{_title(runner)} on {runner.device.name}: {statuses}{fastest}")
    for row in rows:
        if "scheduler" in row.config:
            print(f"  {row.config['scheduler']}: {_time(row.time_s) if row.time_s is not None else f'{row.status}, {row.error}'}")
    print(f"drift: {drift(store, workload=runner.workload, device=runner.device.name)}")


def _title(runner: Runner) -> str:
    return " ".join([runner.workload.kernel, *(f"{name}={value}" for name, value in runner.workload.params.items())])


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"
