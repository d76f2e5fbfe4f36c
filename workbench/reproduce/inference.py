"""How long one prediction takes (NN+C, Figure 5): the same input through each way of running the models, timed in turn on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import torch

from workbench.features.inputs import evaluate
from workbench.models.compiled import compile_model
from workbench.models.nnc import Network
from workbench.models.training import forward
from workbench.models.trees import TreeModel

__all__ = ["time_ways", "ways"]


def ways(network: Network, forest: TreeModel, row: pd.DataFrame, rows: int = 10_000) -> dict[str, tuple[Callable[[], object], int]]:
    """Callables that make one prediction each, or `rows` of them in a compiled loop, with the number of predictions a call makes.

    Args:
        network: NN+C. forest: NLR+C. Both take their inputs as plain numbers.
        row: one row of a frame, with c.
        rows: predictions in the compiled loop.
    """
    x = evaluate(row, network.terms)
    theta = torch.from_numpy(network.weights[None].astype(np.float32))
    z = torch.from_numpy(((x - network.centre) / network.scale)[None].astype(np.float32))
    compiled = compile_model(network)
    values = row[list(compiled.columns)].to_numpy(dtype=float)
    many = np.repeat(values, rows, axis=0)
    one = tuple(values[0].tolist())
    inputs = evaluate(row, forest.terms)
    return {
        "NLR+C, scikit-learn": (lambda: forest.estimator.predict(inputs), 1),
        "NN+C, PyTorch": (lambda: forward(theta, z, network.layers), 1),
        "NN+C, compiled, one call": (lambda: compiled.predict_one(*one), 1),
        "NN+C, compiled, in a loop": (lambda: compiled.predict(many), rows),
    }


def time_ways(calls: Mapping[str, tuple[Callable[[], object], int]], repeats: int = 15, target_s: float = 0.02) -> pd.DataFrame:
    """Time each way, interleaved so that a drift of the machine's speed meets all of them.

    Args:
        calls: as `ways` gives them.
        repeats: timings of each way.
        target_s: each timing makes as many calls as take about this long.

    Returns:
        A row a way and repeat: way, repeat, time_us (microseconds a prediction).
    """
    loops: dict[str, int] = {}
    for way, (call, _) in calls.items():
        call()  # the first call compiles or allocates
        start = time.perf_counter()
        call()
        loops[way] = max(1, round(target_s / max(time.perf_counter() - start, 1e-7)))
    records = []
    with torch.inference_mode():
        for repeat in range(repeats):
            for way, (call, predictions) in calls.items():
                start = time.perf_counter()
                for _ in range(loops[way]):
                    call()
                records.append((way, repeat, (time.perf_counter() - start) / (loops[way] * predictions) * 1e6))
    return pd.DataFrame(records, columns=["way", "repeat", "time_us"])
