"""Who is tuned after learning from whom. An experiment is a function without arguments, so that any process can make it again from its data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from workbench.data import local
from workbench.data.datasets import load_dataset
from workbench.errors import MissingData
from workbench.kernels.networks import network, networks
from workbench.reproduce import own
from workbench.reproduce.convolutions import name_of
from workbench.reproduce.tuning.live_sets import load_live, session_of
from workbench.reproduce.tuning.pools import Pool, layers, one_device, yolo_layers
from workbench.reproduce.tuning.sessions import Session

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Split",
    "convolution_eight",
    "convolution_ten",
    "cpu_to_titanxp",
    "resnet_cpu",
    "resnet_gpu",
    "resnet_live",
    "titanxp_families",
    "titanxp_layers",
    "titanxp_to_cpu",
]

_TITANXP = "titanxp-conv2d"
_EIGHT = {"kt-convolution-rtx-2080-ti": "RTX 2080 Ti", "kt-convolution-titan-rtx": "TITAN RTX", "kt-convolution-rtx-3090": "RTX 3090"}
_TEN = {
    "kt-convolution-milo-a100": "A100",
    "kt-convolution-milo-a4000": "A4000",
    "kt-convolution-milo-w6600": "W6600",
    "kt-convolution-milo-w7800": "W7800",
}
_NETWORK = "resnet-18"


@dataclass(frozen=True, eq=False)
class Split:
    """A task to tune, and the tasks that were measured before."""

    target: Pool
    history: tuple[Pool, ...]


@dataclass(frozen=True, eq=False)
class Experiment:
    """Tasks, each tuned after learning from others.

    Attributes:
        name: of the cache's folder.
        title: in print.
        source: makes it again.
        splits: none where data are missing; `reason` then says which.
        exhaustive: every configuration was measured, or each that was proposed, so that a search may go where it likes. Else all rank one pool, and a curve
            ends at half of it.
        batch, trials: of a session.
        note: what a reader must know beside every number.
        missing: data set -> why it is out of reach.
        recorded: sessions (framework, task, seed) that were run when the proposals were measured; where there are any, no others are run.
    """

    name: str
    title: str
    source: Callable[[], Experiment]
    splits: tuple[Split, ...] = ()
    reason: str = ""
    exhaustive: bool = False
    batch: int = 16
    trials: int = 200
    note: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[tuple[str, str, int], Session] = field(default_factory=dict)

    def budget(self, pool: Pool) -> int:
        """Trials of a session on a pool."""
        return self.trials if self.exhaustive else min(self.trials, len(pool.measured) // 2)

    @property
    def data_sets(self) -> list[str]:
        """Names of the data sets that it reads."""
        return list(dict.fromkeys(pool.data_set for split in self.splits for pool in (split.target, *split.history)))


_SPARSE = "ranking only: every framework orders the same recorded configurations"


def titanxp_layers() -> Experiment:
    """FlexTensor's YOLO layers on a TITAN Xp, each after all others; near twins of the target stay in the history."""
    return _yolo("titanxp-layers", "YOLO on TITAN Xp, one layer left out", titanxp_layers, lambda target, other: other.name != target.name)


def titanxp_families() -> Experiment:
    """FlexTensor's YOLO layers on a TITAN Xp, each after all that are not of its family."""
    return _yolo("titanxp-families", "YOLO on TITAN Xp, one family left out", titanxp_families, lambda target, other: other.family != target.family)


def resnet_cpu() -> Experiment:
    """ResNet-18 on a CPU after the training kernels on the same."""
    return _own("cpu", resnet_cpu)


def resnet_gpu() -> Experiment:
    """ResNet-18 on a GPU measured with this package, after the training kernels on the same."""
    return _own("gpu", resnet_gpu)


def resnet_live() -> Experiment:
    """Layers of ResNet-18 tuned live on a CPU after the training kernels: every proposal was measured. Of several recordings the one with most sessions."""
    name, title = f"{_NETWORK}-live", "ResNet-18 on a CPU, live: every proposal measured"
    found = [one for one in map(load_live, own.tuned_sets()) if one.network == _NETWORK and one.complete_seeds]
    if not found:
        reason = "not measured yet: workbench measure tuning --pin last, then workbench measure export-tuning --name MACHINE"
        return Experiment(name, title, resnet_live, reason=reason)
    live = max(found, key=lambda one: len(one.sessions))
    counts = {name_of(layer.workload): layer.count for layer in network(_NETWORK)}
    known = [pool for data_set in live.data if data_set in local.folders() for pool in layers(load_dataset(data_set))]
    spreads = {pool.data_set: pool.spread for pool in known}  # each proposal was measured once, on the machine and in the way of those learnt from
    spread = np.concatenate([np.empty(0), *spreads.values()])
    tuned = [replace(pool, spread=spread) for pool in layers(live.dataset, counts) if pool.name in set(live.sessions["task"])]
    # Learnt once for all layers, and again by a run that went on with the rest of them.
    fit_s = live.sessions.groupby(["framework", "seed"])["fit_s"].transform("median")
    sessions = {
        (str(row["framework"]), str(row["task"]), int(row["seed"])): session_of(row, live.tables[str(row["task"])])
        for row in live.sessions.assign(fit_s=fit_s).to_dict("records")
        if row["seed"] in live.complete_seeds
    }
    note = (
        f"live: every proposal was measured, seeds {', '.join(map(str, live.complete_seeds))}; labels are over the best that any session has measured "
        f"of the layer, {sum(map(len, live.tables.values())):,} configurations in all"
    )
    first = live.sessions.iloc[0]
    splits = tuple(Split(target, tuple(known)) for target in tuned)
    title = f"ResNet-18 on one thread of {live.dataset.device.model.split(',')[0]}, live"
    batch, trials = int(first["batch"]), int(first["trials"])
    return Experiment(name, title, resnet_live, splits, exhaustive=True, batch=batch, trials=trials, note=note, recorded=sessions)


def convolution_eight() -> Experiment:
    """Kernel Tuner's convolution with eight knobs, each GPU after the two others."""
    return _gpus("convolution-8-knobs", "Convolution, 8 knobs, one GPU left out", convolution_eight, _EIGHT)


def convolution_ten() -> Experiment:
    """Kernel Tuner's convolution with ten knobs, each GPU after the three others."""
    return _gpus("convolution-10-knobs", "Convolution, 10 knobs, one GPU left out", convolution_ten, _TEN)


def cpu_to_titanxp() -> Experiment:
    """FlexTensor's YOLO layers on a TITAN Xp after the training kernels on a CPU."""
    return _across("cpu-to-titanxp", "YOLO on TITAN Xp after training kernels on a CPU", cpu_to_titanxp, to_gpu=True)


def titanxp_to_cpu() -> Experiment:
    """ResNet-18 on a CPU after FlexTensor's YOLO layers on a TITAN Xp."""
    return _across("titanxp-to-cpu", "ResNet-18 on a CPU after YOLO on TITAN Xp", titanxp_to_cpu, to_gpu=False)


EXPERIMENTS: Mapping[str, Callable[[], Experiment]] = {
    "titanxp-layers": titanxp_layers,
    "titanxp-families": titanxp_families,
    "resnet-18-cpu": resnet_cpu,
    "resnet-18-gpu": resnet_gpu,
    "resnet-18-live": resnet_live,
    "convolution-8-knobs": convolution_eight,
    "convolution-10-knobs": convolution_ten,
    "cpu-to-titanxp": cpu_to_titanxp,
    "titanxp-to-cpu": titanxp_to_cpu,
}


def _yolo(name: str, title: str, source: Callable[[], Experiment], learns: Callable[[Pool, Pool], bool]) -> Experiment:
    try:
        pools = yolo_layers(load_dataset(_TITANXP))
    except MissingData as error:
        return Experiment(name, title, source, reason=f"{_TITANXP} is out of reach", missing={_TITANXP: str(error)})
    splits = tuple(Split(target, tuple(other for other in pools if learns(target, other))) for target in pools)
    return Experiment(name, title, source, splits, note=_SPARSE)


def _gpus(name: str, title: str, source: Callable[[], Experiment], sets: Mapping[str, str]) -> Experiment:
    pools, missing = [], {}
    for data_set, gpu in sets.items():
        try:
            pools.append(one_device(load_dataset(data_set), gpu))
        except MissingData as error:
            missing[data_set] = str(error)
    note = "one workload on several GPUs: it says nothing about networks"
    if len(pools) < 2:
        return Experiment(name, title, source, reason=f"{', '.join(missing)} out of reach", missing=missing, note=note)
    splits = tuple(Split(target, tuple(other for other in pools if other is not target)) for target in pools)
    return Experiment(name, title, source, splits, exhaustive=True, batch=10, note=note, missing=missing)


def _measured_here(kind: str) -> tuple[list[Pool], list[Pool]]:
    # Layers of the network, those for development, and training kernels that were measured with this package: of the devices of that kind which have both, the
    # one with the most rows. Two models may share a name.
    counts = {name_of(layer.workload): layer.count for name in networks() for layer in network(name)}
    by_device: dict[tuple[str, str], list[Pool]] = {}
    for name, folder in local.folders().items():
        header = local.read_header(folder)
        if name.startswith("conv-") and header["device"].kind == kind:
            by_device.setdefault((header["device"].name, header["device"].model), []).extend(layers(load_dataset(name), counts))
    found: tuple[list[Pool], list[Pool]] = ([], [])
    for pools in sorted(by_device.values(), key=lambda pools: -sum(len(pool.measured) for pool in pools)):
        training = [pool for pool in pools if pool.name.startswith("training ")]
        others = [pool for pool in pools if pool.development or pool.name.startswith(f"{_NETWORK} ")]
        if training and others:
            return others, training
        found = (found[0] or others, found[1] or training)
    return found


def _own(kind: str, source: Callable[[], Experiment]) -> Experiment:
    targets, training = _measured_here(kind)
    name = f"{_NETWORK}-{kind}"
    reason = _absent(kind, targets, training)
    if reason:
        return Experiment(name, f"ResNet-18 on a {kind.upper()}", source, reason=reason)
    device = targets[0].device.split(",")[0]
    title = f"ResNet-18 on one thread of {device}" if kind == "cpu" else f"ResNet-18 on {device}"
    return Experiment(name, title, source, _each(targets, training), note=_SPARSE)


def _across(name: str, title: str, source: Callable[[], Experiment], to_gpu: bool) -> Experiment:
    targets, training = _measured_here("cpu")
    yolo = titanxp_layers()
    if yolo.reason:
        return Experiment(name, title, source, reason=yolo.reason, missing=yolo.missing)
    reason = _absent("cpu", targets, training)
    if reason:
        return Experiment(name, title, source, reason=reason)
    on_gpu = [split.target for split in yolo.splits]
    splits = _each(on_gpu, training) if to_gpu else _each(targets, on_gpu)
    return Experiment(name, title, source, splits, note=f"{_SPARSE}; knobs of the two spaces differ")


def _absent(kind: str, targets: list[Pool], training: list[Pool]) -> str:
    lacks = [what for what, pools in (("layers of ResNet-18", targets), ("training kernels", training)) if not pools]
    return f"no {' and no '.join(lacks)} measured on a {kind.upper()} under data/raw" if lacks else ""


def _each(targets: Iterable[Pool], history: Iterable[Pool]) -> tuple[Split, ...]:
    known = tuple(history)
    workloads = {pool.measured.task.workload for pool in known}
    # A layer that is itself a training kernel would be known in advance.
    return tuple(Split(target, known) for target in targets if target.measured.task.workload not in workloads)
