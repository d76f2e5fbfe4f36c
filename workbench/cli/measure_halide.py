"""`workbench measure halide`: time schedules of Halide's blur and FFT on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.data.store import Store
    from workbench.measure.halide import Candidate, Runner

__all__ = ["app"]

app = typer.Typer(name="measure", no_args_is_help=True, help="Measure kernels on this machine.")


@app.callback()
def measure() -> None:
    """Without a callback Typer would make the only command the group itself."""


@app.command(epilog="Example: workbench measure halide --kernel blur --n 1024 --schedules 50 --autoschedulers")
def halide(
    kernel: Annotated[str, typer.Option("--kernel", help="blur or fft.")],
    n: Annotated[list[int], typer.Option("--n", min=2, help="Size of the n x n image; may be given several times.")],
    schedules: Annotated[
        int, typer.Option("--schedules", min=0, help="How many schedules of each size, drawn at random; more of them continue the series.")
    ] = 50,
    autoschedulers: Annotated[bool, typer.Option("--autoschedulers", help="Measure the choices of Mullapudi2016, Adams2019 and Li2018 too.")] = False,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads that a schedule may use.")] = 1,
    pin: Annotated[list[int] | None, typer.Option("--pin", min=0, help="Processor to measure on; may be given several times. Default: any.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw and of the image.")] = 0,
    check: Annotated[float, typer.Option("--check", min=0.0, max=1.0, help="Share of the schedules whose result is compared with numpy's.")] = 0.1,
    device: Annotated[str | None, typer.Option("--device", help="Name of this machine in the records. Default: its processor.")] = None,
    output: Annotated[Path, typer.Option("--output", help="The measurement store.")] = Path("runs/halide.db"),
) -> None:
    """Measure schedules, each in a child process. The same command after an interruption goes on where it stopped."""
    from workbench.data.store import Store
    from workbench.kernels.halide.autoschedulers import AUTOSCHEDULERS
    from workbench.measure.halide import Runner, candidates, halide_workload

    if pin is not None and threads > len(set(pin)):
        raise UsageError(f"--threads {threads} on the {len(set(pin))} processors of --pin would take turns; name {threads} processors")
    workloads = [halide_workload(kernel, size, threads) for size in dict.fromkeys(n)]
    with Store(output) as store:
        for workload in workloads:
            with Runner(workload, device=device, pin=pin, check_share=check, seed=seed) as runner:
                drawn = candidates(runner.space, schedules, seed)
                if len(drawn) < schedules:
                    raise UsageError(f"{workload.key} has {len(drawn)} schedules, fewer than --schedules {schedules}")
                _measure(store, runner, [*(AUTOSCHEDULERS if autoschedulers else ()), *drawn])
    print(f"records: {output}")


def _measure(store: Store, runner: Runner, wanted: list[Candidate]) -> None:
    """Measure with a progress bar, then say what the store has of these candidates."""
    from collections import Counter

    from tqdm.auto import tqdm

    from workbench.measure.halide import measure_schedules

    known = store.done(workload=runner.workload, device=runner.device)
    before = sum(runner.key(candidate) in known for candidate in wanted)
    title = " ".join([runner.workload.kernel, *(f"{name}={value}" for name, value in runner.workload.params.items())])
    with tqdm(total=len(wanted), initial=before, desc=title, unit="schedule") as bar:
        for count, _ in enumerate(measure_schedules(store, runner, wanted), 1):
            rate = f"{60 * count / bar.format_dict['elapsed']:.0f} a minute"
            bar.set_postfix_str(rate + (f", best {_time(runner.best_s)}" if runner.best_s else ""), refresh=False)
            bar.update()
    rows = list(store.rows(workload=runner.workload, device=runner.device))
    counts = Counter(str(row.status) for row in rows)
    best = min((row for row in rows if row.time_s is not None), key=lambda row: row.time_s or 0.0, default=None)
    text = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
    print(f"{title}: {text or 'nothing measured'}" + (f"; best {_time(best.time_s or 0.0)} with {dict(best.config)}" if best else ""))
    for row in rows:
        if "scheduler" in row.config:
            print(f"  {row.config['scheduler']}: {_time(row.time_s) if row.time_s is not None else f'{row.status} ({row.error})'}")


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"
