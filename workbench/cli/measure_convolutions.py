"""`workbench measure convolutions`: time TVM's schedules of a network's convolutions on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.data.store import Store
    from workbench.measure.runner import Runner
    from workbench.schema import Workload

__all__ = ["app"]

app = typer.Typer()


@app.command(epilog="Example: workbench measure convolutions --network resnet-18 --layer 2 --trials 64")
def convolutions(
    network: Annotated[str | None, typer.Option("--network", help="resnet-18, vgg-16, ...: its distinct convolutions, one after the other.")] = None,
    layer: Annotated[list[int] | None, typer.Option("--layer", metavar="N", help="Only the Nth of them, from 1; may be given several times.")] = None,
    kernels: Annotated[str | None, typer.Option("--set", help="training: the kernels that MetaTune trains on.")] = None,
    target: Annotated[str, typer.Option("--target", help="llvm: this machine's CPU. cuda: its GPU of NVIDIA's.")] = "llvm",
    trials: Annotated[int, typer.Option("--trials", min=1, help="Configurations of each convolution, drawn at random; more continue the series.")] = 64,
    passes: Annotated[
        int, typer.Option("--passes", min=1, help="Go through all of them so many times: a machine is not always equally fast, and a label is the least.")
    ] = 1,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads that a program may use.")] = 1,
    pin: Annotated[
        list[str] | None, typer.Option("--pin", metavar="CPU|last", help="Time on this CPU only, and build on the others; give it again for more of them.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw and of the inputs.")] = 0,
    output: Annotated[Path | None, typer.Option("--output", help="The store (default: runs/measure/convolutions.db of the project).")] = None,
) -> None:
    """Time random schedules of convolutions, one convolution after the other, each with 3% of its schedules again to see whether the machine changed.

    After Ctrl-C or a crash the same command goes on where it stopped; with more --trials or --passes it adds to what is there. Every output is compared with
    numpy's. A CPU needs a C++ compiler (CXX, g++ or clang++), which links; a GPU needs its driver, and NVRTC or nvcc.
    """
    from contextlib import ExitStack

    from workbench.data.store import Store
    from workbench.measure import tvm
    from workbench.measure.cuda import live
    from workbench.measure.runner import candidates
    from workbench.paths import project_root

    if target not in ("llvm", "cuda"):
        raise UsageError(f"--target {target!r}; it is llvm or cuda")
    if target == "cuda" and (threads != 1 or pin):
        raise UsageError("--threads and --pin are a CPU's; leave them out with --target cuda")
    chosen, cpus = _chosen(network, layer or [], kernels), cpus_of(pin or [])
    path = output or project_root() / "runs" / "measure" / "convolutions.db"
    with ExitStack() as stack:
        store = stack.enter_context(Store(path))
        session = stack.enter_context(live.Session()) if target == "cuda" else None
        for title, workload in chosen:
            series: Runner[int]
            if session is None:
                series = tvm.open_series(workload, threads=threads, seed=seed, pin=cpus)
            else:
                series = live.open_series(workload, session, seed=seed)
            with series as runner:
                drawn = candidates(runner.space, trials, seed)
                if len(drawn) < trials:
                    raise UsageError(f"{workload.key} has {len(drawn):,} configurations, fewer than --trials {trials}")
                finished = _measure(store, runner, title, drawn, passes)
                print(_summary(store, runner, title), flush=True)  # a long series may write to a file
                if not finished:
                    print(f"store: {path}; stopped, and the same command goes on from here")
                    raise typer.Exit(130)
    print(f"store: {path}")


def _chosen(network: str | None, layers: list[int], kernels: str | None) -> list[tuple[str, Workload]]:
    """Title and workload of every convolution asked for."""
    from workbench.kernels import networks

    if (network is None) == (kernels is None) or kernels not in (None, "training"):
        raise UsageError("name the convolutions: --network NAME, with --layer N for some of its layers, or --set training")
    if network is None:
        if layers:
            raise UsageError("--layer is a layer of a network; name it with --network")
        return [(f"training {number}, {workload.kernel}", workload) for number, workload in enumerate(networks.training_kernels(), 1)]
    wanted = dict.fromkeys(layers) or range(1, len(networks.network(network)) + 1)
    return [(f"{network} layer {number}", networks.layer(network, number).workload) for number in wanted]


def cpus_of(pin: list[str]) -> list[int]:
    from workbench.measure.host import last_cpu

    cpus: list[int] = []
    for word in pin:
        if word != "last" and not word.isdecimal():
            raise UsageError(f"--pin {word!r}; it is the number of a CPU, or last")
        cpus += last_cpu() if word == "last" else [int(word)]
    return cpus


def _measure(store: Store, runner: Runner[int], title: str, drawn: list[int], passes: int) -> bool:
    """Measure with a progress bar; whether it was done to the end."""
    from itertools import chain

    from tqdm.auto import tqdm

    from workbench.measure.passes import rounds
    from workbench.measure.runner import attempts, measure_missing

    done = attempts(store, runner)
    planned = rounds(drawn, passes)
    left = sum(done[runner.key(candidate)] < times for group, times in planned for candidate in group)
    total = sum(len(group) for group, _ in planned)
    measured = chain.from_iterable(measure_missing(store, runner, group, times=times) for group, times in planned)
    try:
        with tqdm(total=total, initial=total - left, desc=title, unit="trial", disable=None) as bar:
            for _ in measured:
                bar.set_postfix_str(f"best {_speed(runner, runner.best_s)}" if runner.best_s else "", refresh=False)
                bar.update()
    except KeyboardInterrupt:
        return False
    return True


def _summary(store: Store, runner: Runner[int], title: str) -> str:
    """One line: how the attempts ended, the best configuration, and whether the machine changed."""
    from collections import Counter

    from workbench.measure.drift import drift_of
    from workbench.measure.passes import by_input, label

    inputs = by_input(store.rows(workload=runner.workload, device=runner.device.name))
    labels = [label(attempts) for attempts in inputs]
    statuses = ", ".join(f"{count:,} {status}" for status, count in Counter(str(row.status) for row in labels).most_common()) or "nothing measured"
    best = min((row for row in labels if row.time_s is not None), key=lambda row: row.time_s or 0.0, default=None)
    fastest = f"; best {_speed(runner, best.time_s or 0.0)} with {' '.join(f'{knob}={value}' for knob, value in best.config.items())}" if best else ""
    return f"{title} on {runner.device.name}: {statuses}{fastest}; drift: {drift_of(inputs)}"


def _speed(runner: Runner[int], seconds: float) -> str:
    from workbench.kernels import kernel

    flop = kernel(runner.workload.kernel).flop
    assert flop is not None  # every kind of convolution has one
    return f"{flop(runner.workload.params) / seconds / 1e9:.3g} GFLOP/s"
