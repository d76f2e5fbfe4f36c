"""Something to tune: a layer of a data set, whose recorded measurements answer, or a convolution of a network, which is measured here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.data.datasets import load_dataset
from workbench.data.store import Store
from workbench.errors import UsageError
from workbench.features.tasks import MeasuredTask, TuningTask, tasks_of
from workbench.kernels import kernel, networks
from workbench.kernels.conv import CPU, GPU
from workbench.kernels.conv import KERNELS as CONVOLUTIONS
from workbench.kernels.limits import constraint
from workbench.measure import tvm
from workbench.measure.answers import Answers
from workbench.measure.cuda import live as cuda
from workbench.measure.replay import Cached, Replay
from workbench.measure.runner import Runner
from workbench.reproduce import own
from workbench.reproduce.convolutions import name_of
from workbench.reproduce.tuning.pools import yolo_layers
from workbench.space import Space
from workbench.tune.code import code_digest
from workbench.tune.frameworks import Framework
from workbench.tune.loop import Budget, Outcome, tune
from workbench.tune.results import Result
from workbench.tune.search import Candidates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench.models.surrogate import Surrogate
    from workbench.schema import Measurement

__all__ = ["Work", "live", "recorded", "tables"]

_SPACES = {"llvm": CPU, "cuda": GPU}


@dataclass(frozen=True, eq=False)
class Work:
    """What is tuned, who answers, and what may be learnt from.

    Attributes:
        name: of the layer, in print.
        source: the data set that answers, or the target that is measured on.
        task, answers: see `workbench.tune.loop`.
        space: what may be measured, of which only the table's configurations are proposed where there is a table.
        history: measured tasks by name, the layer itself not among them.
        table: the recorded measurements, None where it is measured.
        ranking_only: whether the table is but a part of the space, so that no search can go its way.
    """

    name: str
    source: str
    task: TuningTask
    answers: Answers
    space: Space
    history: tuple[tuple[str, MeasuredTask], ...]
    table: MeasuredTask | None = None
    ranking_only: bool = False

    def run(
        self,
        framework: Framework,
        budget: Budget,
        *,
        batch: int = 16,
        seed: int = 0,
        threads: int = 1,
        on_round: Callable[[Result], None] | None = None,
        learnt: tuple[Surrogate, float] | None = None,
    ) -> Result:
        """Tune it.

        Args:
            framework: what tunes.
            budget: when to stop.
            batch: measurements a round.
            seed: of the cost model and of everything that is drawn.
            threads: of measured programs, for the record.
            on_round: called after each round with how it stands.
            learnt: its cost model with this seed, fitted to the history before, and the seconds that took; None fits it now.

        Raises:
            UsageError: the framework needs a history and there is none, or its cost model cannot look at the task.
            DataError: its cost model cannot learn from the history.
            WorkbenchError: measuring does not work; what was measured before is in the store and was given to `on_round`.
        """
        known = self.history if framework.transfers else ()
        if learnt is None:
            began = time.perf_counter()
            learnt = framework.fit([table for _, table in known], seed), time.perf_counter() - began
        fitted, fit_s = learnt

        def result(outcome: Outcome) -> Result:
            return Result.of(
                self.task,
                outcome,
                task=self.name,
                source=self.source,
                framework=framework.name,
                history=tuple(name for name, _ in known),
                settings={"seed": seed, "batch": batch, "threads": threads, **vars(budget)},
                ranking_only=self.ranking_only,
                table_best=None if self.table is None else self.table.best,
                fit_s=fit_s,
                code=code_digest(),
            )

        candidates = Candidates(self.space, None if self.table is None else self.table.indices)  # a tuning takes out what it has tried
        tuner = framework.tuner(self.task, fitted, candidates, seed=seed, ranking_only=self.ranking_only)
        told = None if on_round is None else lambda stands: on_round(result(stands))
        return result(tune(tuner, self.answers, budget, batch, told))


def recorded(dataset: str, layer: str | None = None, history: Sequence[str] = (), *, exclude_family: bool = False) -> Work:
    """A layer of a data set.

    Args:
        dataset: its name.
        layer: the layer's name, or its number from 1; None where there is but one.
        history: data sets to learn from first; none is the data set itself.
        exclude_family: whether near twins of the layer are left out of the history.

    Raises:
        UsageError: no such data set or layer, or a family is to be left out where none is known.
        MissingData: the data set's files are out of reach.
    """
    layers = tables(dataset)
    names = [name for name, _, _ in layers]
    if layer is None and len(layers) > 1:
        raise UsageError(f"data set {dataset!r} has {len(layers)} layers; choose one with --layer: {_listed(names)}")
    wanted = layer or "1"
    place = names.index(wanted) if wanted in names else int(wanted) - 1 if wanted.isdecimal() else -1
    if place not in range(len(names)):
        raise UsageError(f"data set {dataset!r} has no layer {wanted!r}; it has {_listed(names)}, by name or by number from 1")
    name, family, table = layers[place]
    if exclude_family and not family:
        raise UsageError(f"--exclude-family: the layers of {dataset!r} have no families that are known; those of titanxp-conv2d have")
    replay = Replay(table)
    known = [(source, *entry) for source in history or [dataset] for entry in tables(source)]
    learnt = [(f"{source}: {other}", found) for source, other, kin, found in known if not (exclude_family and kin == family)]
    title = name if name != table.task.workload.key else table.task.kernel.title
    return Work(title, dataset, table.task, replay, table.task.space, _others(learnt, table.task), table, ranking_only=not replay.exhaustive)


@contextmanager
def live(
    network: str,
    layer: str | None,
    store: Path,
    history: Sequence[str] = (),
    *,
    target: str = "llvm",
    threads: int = 1,
    pin: Sequence[int] = (),
    on_measurement: Callable[[Measurement], None] | None = None,
) -> Iterator[Work]:
    """A convolution of a network, scheduled by TVM and measured on this machine while the context lasts.

    Args:
        network, layer: its name, and the number of the convolution, from 1.
        store: the cache of measurements, shared by all tunings.
        history: data sets to learn from first; none is all under data/raw that have the space's knobs.
        target: "llvm", its CPU, or "cuda", its GPU of NVIDIA's.
        threads, pin: see `workbench.measure.tvm.open_series`; a GPU has none.
        on_measurement: called with each new measurement.

    Raises:
        UsageError: no such network, layer, target or CPU.
        MissingPackage, BuildError, DeviceError: TVM, a compiler or the GPU is missing.
        StoreError: the store cannot be used.
    """
    count = len(networks.network(network))
    if layer is None or not layer.isdecimal():
        raise UsageError(f"{network} has {count} distinct convolutions; choose one with --layer N, from 1 to {count}")
    workload = networks.layer(network, int(layer)).workload
    if target not in _SPACES:
        raise UsageError(f"target {target!r}; it is {' or '.join(_SPACES)}")
    if target == "cuda" and (threads != 1 or pin):
        raise UsageError("--threads and --pin are a CPU's; leave them out with --target cuda")
    name = _SPACES[target]
    known = [(source, *entry) for source in history or own.measured_sets(CONVOLUTIONS) for entry in tables(source)]
    learnt = [(f"{source}: {other}", found) for source, other, _, found in known if history or found.task.space_name == name]
    with ExitStack() as stack:
        runner: Runner[int]
        if target == "llvm":
            runner = stack.enter_context(tvm.open_series(workload, threads=threads, pin=pin))
            space = runner.space
        else:
            runner = stack.enter_context(cuda.open_series(workload, stack.enter_context(cuda.Session())))
            space = runner.space.restrict(constraint(workload))
        task = TuningTask(f"{network} {layer}", kernel(workload.kernel), workload, runner.device, name)
        answers = Cached(stack.enter_context(Store(store)), runner, on_measurement)
        yield Work(task.name, target, task, answers, space, _others(learnt, task))


def tables(dataset: str) -> list[tuple[str, str, MeasuredTask]]:
    """Name, family and measurements of the layers of a data set; the family is "" where none is known. Raises MissingData where its files are out of reach."""
    loaded = load_dataset(dataset)
    if loaded.kernel.name == "flextensor_conv2d":
        return [(pool.name, pool.family, pool.measured) for pool in yolo_layers(loaded)]
    return [(name_of(table.task.workload), "", table) for table in tasks_of(loaded)]


def _others(known: Sequence[tuple[str, MeasuredTask]], task: TuningTask) -> tuple[tuple[str, MeasuredTask], ...]:
    """Those that are not of the task itself: another workload, or another device."""
    return tuple((name, table) for name, table in known if (table.task.workload, table.task.device.name) != (task.workload, task.device.name))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
