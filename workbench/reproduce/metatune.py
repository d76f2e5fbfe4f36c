"""What the MetaTune notebooks share: the search spaces of real layers, and the training kernels beside the ranges of the paper."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.errors import UsageError
from workbench.kernels import kernel
from workbench.kernels.conv import GPU
from workbench.kernels.conv_shape import shape_of
from workbench.kernels.limits import constraint
from workbench.kernels.networks import Layer, network, networks, training_kernels
from workbench.reproduce.claims import paper_table
from workbench.schema import Workload

__all__ = ["few_shot_task", "knob_counts", "layers_with", "training_ranges"]


def knob_counts(workload: Workload, space: str) -> dict[str, int]:
    """Options of every knob of a workload's space, in the order of the knobs. Raises UsageError for a space that the workload does not have."""
    return {knob.name: knob.count for knob in kernel(workload.kernel).space(workload, space).knobs}


def layers_with(counts: Mapping[str, int], space: str) -> list[tuple[str, int, Layer]]:
    """Network, number and layer of every convolution of the networks whose knobs have these numbers of options, in whatever order they are named."""
    return [(name, number, layer) for name in networks() for number, layer in enumerate(network(name), 1) if knob_counts(layer.workload, space) == dict(counts)]


def training_ranges() -> pd.DataFrame:
    """The training kernels beside the ranges of MetaTune's Table 2.

    Returns:
        A row a kind: kind, kernels, then for input size, input channels and output channels the least and the largest and the paper's range as text,
        kernel_size, stride and padding as text, and outside, how many kernels lie outside a range of the paper.
    """
    printed = paper_table(2, "metatune")
    kinds: dict[str, list[Workload]] = {}
    for workload in training_kernels():
        kinds.setdefault(workload.kernel, []).append(workload)
    rows = []
    for kind, members in kinds.items():
        paper = printed.loc["1-d" if kind.startswith("conv1d") else "2-d"]
        shapes = [shape_of(workload) for workload in members]
        values = {"size": [s.size[-1] for s in shapes], "ci": [s.ci for s in shapes], "co": [s.co for s in shapes]}
        row: dict[str, object] = {"kind": kind, "kernels": len(members)}
        outside = np.zeros(len(members), dtype=bool)
        for name, found in values.items():
            low, high = int(paper[f"{name} from"]), int(paper[f"{name} to"])
            row |= {name: f"{min(found)} to {max(found)}", f"{name}, paper": f"{low} to {high}"}
            outside |= (np.array(found) < low) | (np.array(found) > high)
        for name, parts in (("filter", [s.filter for s in shapes]), ("stride", [s.stride for s in shapes]), ("padding", [s.padding for s in shapes])):
            row[name] = ", ".join(str(value) for value in sorted({int(np.max(part)) for part in parts}))
        rows.append(row | {"outside": int(outside.sum())})
    return pd.DataFrame(rows)


def few_shot_task(ways: int, shots: int, seed: int) -> list[tuple[Workload, NDArray[np.int64]]]:
    """A task for meta-learning: `shots` configurations [shots] of each of `ways` training kernels of different kinds, drawn at random.

    Configurations are of the space "workbench-gpu" and keep within the limits of every CUDA device.

    Raises:
        UsageError: more ways than kinds.
    """
    rng = np.random.default_rng(seed)
    kernels = training_kernels()
    kinds = list(dict.fromkeys(workload.kernel for workload in kernels))
    if not 1 <= ways <= len(kinds):
        raise UsageError(f"a task of {ways} ways; the training kernels have {len(kinds)} kinds")
    task = []
    for kind in rng.permutation(kinds)[:ways]:
        workload = kernels[rng.choice([place for place, member in enumerate(kernels) if member.kernel == kind])]
        task.append((workload, kernel(workload.kernel).space(workload, GPU).restrict(constraint(workload)).sample(shots, rng)))
    return task
