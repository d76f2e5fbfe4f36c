"""Embeddings of many configurations of one task, for a cost model that scores them by the thousand.

`workbench.models.gcn` multiplies the vectors of all loops. Most of their numbers are zeros or constants of the task: here those are multiplied once, what a
knob changes is taken from where it is computed, and convolution, ReLU and readout go through it in one pass, 64 configurations side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from workbench.errors import MissingPackage
from workbench.features.loops import Table
from workbench.features.supergraph import SuperGraphs
from workbench.models.gcn import GraphEmbedding, shares

__all__ = ["Embedder"]

_Floats = NDArray[np.float32]
_Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Loops:
    # The loops of a structure: the rows of its table that vary, loop by loop, where each loop's begin [loops + 1], what each row is multiplied by
    # [rows, hidden], what the constants of each loop give [loops, hidden], the share of its `for` node [loops], and how many nodes see no features.
    rows: _Integers
    starts: _Integers
    weight: _Floats
    constant: _Floats
    shares: _Floats
    bare: float


class Embedder:
    """What a graph embedding says of configurations of a task: the same numbers as the embedding itself, but for rounding.

    Args:
        embedding: over all columns of a super-graph; its weights are those of now.
        graphs: of the task.

    Raises:
        MissingPackage: numba is not installed.
    """

    def __init__(self, embedding: GraphEmbedding, graphs: SuperGraphs) -> None:
        self._graphs, self._template, self._nodes = graphs, embedding.template, embedding.nodes
        with torch.no_grad():
            self._weight: _Floats = (embedding.scale[:, None] * embedding.weight).numpy()
            self._centre: _Floats = (embedding.centre @ (embedding.scale[:, None] * embedding.weight)).numpy()
            self._readout = (embedding.bias.numpy().copy(), embedding.gate.weight[0].numpy().copy(), embedding.gate.bias.item())
        self._loops: dict[int, _Loops] = {}
        self._embed = _compiled()

    def of(self, indices: ArrayLike) -> _Floats:
        """Embeddings [n, embedding] of configurations `indices` [n]. Raises SpaceError for an index that is not in the space."""
        given = np.asarray(indices)
        found = np.empty((len(given), 2 * len(self._centre)), dtype=np.float32)
        for places, structure, table in self._graphs.tables(given):
            if structure not in self._loops:
                self._loops[structure] = self._of_structure(structure, table)
            loops = self._loops[structure]
            self._embed(table.numbers, loops.rows, loops.starts, loops.weight, loops.constant, loops.shares, loops.bare, *self._readout, places, found)
        return found

    def _of_structure(self, structure: int, table: Table) -> _Loops:
        share = shares(self._graphs, structure, self._template)
        there = np.flatnonzero(share)
        rows = np.flatnonzero(table.varies)
        rows = rows[np.argsort(table.places[rows, 0], kind="stable")]
        nodes, columns = table.places[rows].T
        vector = table.rows(0, 1)[0].copy()
        vector[nodes, columns] = 0
        return _Loops(
            rows,
            np.searchsorted(nodes, np.append(there, len(share))).astype(np.int64),
            self._weight[columns],
            vector[there] @ self._weight - self._centre,
            share[there],
            float(1 if self._nodes is None else self._nodes - 2 * len(there)),
        )


_SIDE = 64  # configurations that are gone through side by side: their numbers of one loop, sums and maxima fit into the nearest cache


def _embed(
    numbers: _Floats,
    rows: _Integers,
    starts: _Integers,
    weight: _Floats,
    constant: _Floats,
    share: _Floats,
    bare: float,
    bias: _Floats,
    gate: _Floats,
    gate_bias: float,
    places: _Integers,
    found: _Floats,
) -> None:
    # Numbers [rows, configurations] -> embeddings [configurations, 2 hidden], written to `found` at `places`. See `GraphEmbedding.forward`.
    hidden, zero, one, half, opening = len(bias), np.float32(0), np.float32(1), np.float32(0.5), np.float32(gate_bias)
    x = np.zeros((4, _SIDE), np.float32)
    z = np.empty((hidden, _SIDE), np.float32)
    total = np.empty((hidden, _SIDE), np.float32)
    largest = np.empty((hidden, _SIDE), np.float32)
    own = np.empty(_SIDE, np.float32)
    around = np.empty(_SIDE, np.float32)
    empty = opening
    for h in range(hidden):
        empty += max(bias[h], zero) * gate[h]
    empty = np.float32(bare) / (one + np.exp(-empty))
    for first in range(0, len(places), _SIDE):
        count = min(_SIDE, len(places) - first)
        for h in range(hidden):
            total[h] = empty * max(bias[h], zero)
            largest[h] = zero
        for loop in range(len(share)):
            for h in range(hidden):
                z[h] = constant[loop, h]
            for row in range(starts[loop], starts[loop + 1], 4):
                several = min(4, starts[loop + 1] - row)
                for j in range(several):
                    for i in range(count):
                        x[j, i] = numbers[rows[row + j], first + i]
                if several == 4:
                    for h in range(hidden):
                        w0, w1, w2, w3 = weight[row, h], weight[row + 1, h], weight[row + 2, h], weight[row + 3, h]
                        for i in range(_SIDE):
                            z[h, i] += x[0, i] * w0 + x[1, i] * w1 + x[2, i] * w2 + x[3, i] * w3
                else:
                    for j in range(several):
                        for h in range(hidden):
                            w = weight[row + j, h]
                            for i in range(_SIDE):
                                z[h, i] += x[j, i] * w
            own[:] = opening
            around[:] = opening
            s = share[loop]
            for h in range(hidden):
                b, g = bias[h], gate[h]
                for i in range(_SIDE):
                    own[i] += max(z[h, i] * half + b, zero) * g
                    around[i] += max(z[h, i] * s + b, zero) * g
            for i in range(_SIDE):
                own[i] = one / (one + np.exp(-own[i]))
                around[i] = one / (one + np.exp(-around[i]))
            for h in range(hidden):
                b = bias[h]
                for i in range(_SIDE):
                    total[h, i] += own[i] * max(z[h, i] * half + b, zero) + around[i] * max(z[h, i] * s + b, zero)
                    largest[h, i] = max(largest[h, i], z[h, i])
        for i in range(count):
            for h in range(hidden):
                found[places[first + i], h] = total[h, i]
                found[places[first + i], hidden + h] = max(largest[h, i] * half + bias[h], zero)


@cache
def _compiled() -> Any:
    try:
        import numba
    except ImportError as error:
        raise MissingPackage("scoring of graphs needs the package 'numba', which is not installed; run: pip install numba") from error
    types = numba.types
    floats, table, integers = (types.Array(types.float32, 1, "C"), types.Array(types.float32, 2, "C"), types.Array(types.int64, 1, "C"))
    given = types.Array(types.float32, 2, "A")
    signature = types.void(
        given, integers, integers, table, table, floats, types.float64, floats, floats, types.float64, types.Array(types.int64, 1, "A"), table
    )
    # Numbers are finite, and without NaN or a sign of zero a maximum is one instruction. Sums keep their order.
    arithmetic: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "nnan", "nsz"}}
    try:
        return numba.njit(signature, cache=True, nogil=True, **arithmetic)(_embed)
    except Exception:
        # The cache only saves time: no writable folder, a full disk or a damaged file must not stop a prediction. A real fault shows again below.
        return numba.njit(signature, nogil=True, **arithmetic)(_embed)
