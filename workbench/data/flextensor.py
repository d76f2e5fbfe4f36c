"""FlexTensor's record of conv2d on a TITAN Xp: configurations as anonymous 27-vectors, whose layer and knob order must be inferred.

A line is `[[vector, ...], [milliseconds, ...]]`; `Infinity` stands for a failure. A vector is the concatenation of eight knobs in an order that changes
from block to block of lines: 4-way tiles of n, f, y, x, 3-way tiles of c, r, s, and an unroll pair. A layer and an order explain a line if for every
vector the products of its tiles are the layer's extents and the unroll pair is one of those FlexTensor tries. Consecutive lines with an explanation in
common form a block; a block of fewer than three lines, or one that several orders or extents explain, is left out. y and x, and r and s, are equal in
every layer, so that either may be the other.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.data.text import read_text
from workbench.errors import DataError
from workbench.kernels.conv import macs, output_size
from workbench.kernels.recorded import YOLO
from workbench.schema import Status, Workload

__all__ = ["KNOBS", "read"]

WIDTH = 27
MS_PER_S = 1e3
SLOWEST_MS = 1e7
MAX_THREADS = 1024
THREAD_PART = 2
UNROLL_STEPS = (0, 1, 512, 1500)
SHORTEST_BLOCK = 3

# Knob -> number of entries, in the order in which permutations are tried.
KNOBS = {"n": 4, "f": 4, "y": 4, "x": 4, "c": 3, "r": 3, "s": 3, "u": 2}
COLUMNS = {knob: tuple(f"tile_{knob}_{i}" for i in range(size)) for knob, size in KNOBS.items()} | {"u": ("unroll_max_step", "unroll_explicit")}


def _extents(layer: Workload) -> dict[str, int]:
    """Loop -> number of iterations."""
    p = layer.params
    height, width = output_size(p)
    return {"n": p["n"], "f": p["co"], "y": height, "x": width, "c": p["ci"], "r": p["kh"], "s": p["kw"]}


LAYERS = tuple(YOLO.values())
NAMES = tuple(YOLO)
EXTENTS = tuple(_extents(layer) for layer in LAYERS)

Explanation = tuple[str, int]  # knob order, place in YOLO


def read(path: Path | str) -> pd.DataFrame:
    """Read the text file and infer layer and knob order of each block.

    Returns:
        A row a vector of every explained block, in the order of the file: `layer`, `n`, `ci`, `h`, `w`, `co`, `kh`, `kw`, `stride`, `padding`, `oh`,
        `ow`, `knob_order`, `tile_n_0` .. `tile_s_2` (outermost first; part 2 of a 4-way tile is the thread index), `unroll_max_step`, `unroll_explicit`,
        `gflop`, `block`, `line` (from 0), `slot` (place in the line), `time_s` (NaN unless ok), `status`, `error`. Where two layers have the same loops
        ("yolo14|yolo15"), `h`, `w` and `stride` are -1. `frame.attrs["vectors"]` is the number of vectors in the file, explained or not.

    Raises:
        DataError: names file, line and value of what is wrong, or says that no block could be explained.

    Warns:
        UserWarning: a torn last line was left out.
    """
    path = Path(path)
    vectors, times, line, slot = _vectors(path)
    starts = np.flatnonzero(np.diff(line, prepend=-1))
    explanations, explained = _explanations(vectors, starts)
    rows_of = np.append(starts, len(line))
    parts = []
    for number, (first, last, shared) in enumerate(_blocks(explained)):
        candidates = [explanations[i] for i in np.flatnonzero(shared)]
        layers = sorted({layer for _, layer in candidates})
        if len({tuple(EXTENTS[i].values()) for i in layers}) > 1 or len({order for order, _ in candidates}) > 1:
            continue
        rows = slice(rows_of[first], rows_of[last])
        parts.append(_block(vectors[rows], times[rows], candidates[0][0], layers).assign(block=np.int32(number), line=line[rows], slot=slot[rows]))
    if not parts:
        raise DataError(f"{path}: none of the {len(vectors)} vectors belongs to a block of {SHORTEST_BLOCK} lines that one layer and knob order explain")
    frame = pd.concat(parts, ignore_index=True)
    ends = ["block", "line", "slot", "time_s", "status", "error"]
    frame = frame[[*(name for name in frame.columns if name not in ends), *ends]]
    frame.attrs = {"vectors": len(vectors)}
    return frame


def _vectors(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Vectors [n, 27], milliseconds [n] (inf for a failure), line and slot [n]."""
    lines = read_text(path).split("\n")
    last = max((i for i, text in enumerate(lines) if text.strip()), default=-1)
    vectors: list[list[int]] = []
    times: list[float] = []
    line: list[int] = []
    slot: list[int] = []
    for i, text in enumerate(lines):
        if not text.strip():
            continue
        try:
            configs, costs = _line(path, i, text)
        except json.JSONDecodeError as error:
            if i == last and i > 0 and error.pos >= len(text.rstrip()) - 1:
                warnings.warn(f"{path}: left out the torn last line {i + 1}: {text[:60]!r}", UserWarning, stacklevel=3)
                continue
            raise DataError(f"{path}: line {i + 1}, column {error.colno}: not JSON: {error.msg}: {text[:60]!r}") from error
        vectors += configs
        times += costs
        line += [i] * len(costs)
        slot += range(len(costs))
    if not vectors:
        raise DataError(f"{path}: no vectors; expected lines of [[vector, ...], [milliseconds, ...]]")
    return _checked_vectors(path, vectors, line), np.array(times, dtype=np.float64), np.array(line, dtype=np.int32), np.array(slot, dtype=np.int32)


def _line(path: Path, i: int, text: str) -> tuple[list[list[int]], list[float]]:
    value = json.loads(text)
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(part, list) for part in value) and len(value[0]) == len(value[1])):
        raise DataError(f"{path}: line {i + 1}: expected [[vector, ...], [milliseconds, ...]] with as many times as vectors: {text[:60]!r}")
    configs, costs = value
    for j, (config, cost) in enumerate(zip(configs, costs, strict=True)):
        if not isinstance(config, list) or len(config) != WIDTH:
            width = len(config) if isinstance(config, list) else "no"
            raise DataError(f"{path}: line {i + 1}, vector {j}: {width} entries, expected {WIDTH}: {str(config)[:60]}")
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not cost > 0:
            raise DataError(f"{path}: line {i + 1}, time {j}: {cost!r} is no positive number of milliseconds (Infinity is a failure)")
        if SLOWEST_MS < cost < math.inf:
            raise DataError(f"{path}: line {i + 1}, time {j}: {cost!r} ms would be {cost / MS_PER_S:g} s; the unit looks wrong")
    return configs, costs


def _checked_vectors(path: Path, vectors: list[list[int]], line: list[int]) -> np.ndarray:
    try:
        table = np.array(vectors)
    except ValueError:
        table = np.array(None)
    if table.dtype.kind == "i" and (table >= 0).all():
        return table.astype(np.int32)
    i = next(i for i, vector in enumerate(vectors) for x in vector if type(x) is not int or not 0 <= x < 2**31)
    raise DataError(f"{path}: line {line[i] + 1}: a vector has whole numbers of at least 0, not {vectors[i]}")


def _explanations(vectors: np.ndarray, starts: np.ndarray) -> tuple[list[Explanation], np.ndarray]:
    """Every (knob order, layer) that explains a line, and [lines, explanations] whether it does.

    A knob at an offset fits a line whatever the other knobs are, so orders are built knob by knob and given up when no line is left.
    """
    fits: dict[tuple[str, int], np.ndarray] = {}
    for knob, size in KNOBS.items():
        for offset in range(WIDTH - size + 1):
            part = vectors[:, offset : offset + size]
            if knob == "u":
                good = (np.isin(part[:, 0], UNROLL_STEPS) & (part[:, 1] <= 1))[:, None].repeat(len(LAYERS), axis=1)
            else:
                good = part.astype(np.int64).prod(axis=1)[:, None] == np.array([extents[knob] for extents in EXTENTS])
            fits[knob, offset] = np.logical_and.reduceat(good, starts, axis=0)
    found: list[Explanation] = []
    columns: list[np.ndarray] = []
    for order, good in _orders("", 0, np.ones((len(starts), len(LAYERS)), dtype=bool), fits):
        for layer in np.flatnonzero(good.any(axis=0)):
            found.append((order, int(layer)))
            columns.append(good[:, layer])
    return found, np.column_stack(columns) if columns else np.zeros((len(starts), 0), dtype=bool)


def _orders(order: str, offset: int, good: np.ndarray, fits: dict[tuple[str, int], np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    if len(order) == len(KNOBS):
        yield order, good
        return
    for knob, size in KNOBS.items():
        # y and x have equal extents, and so have r and s: only one of the two orders is tried.
        if knob in order or (knob == "x" and "y" not in order) or (knob == "s" and "r" not in order):
            continue
        left = good & fits[knob, offset]
        if left.any():
            yield from _orders(order + knob, offset + size, left, fits)


def _blocks(explained: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Maximal runs of lines with an explanation in common: first line, line after the last, shared explanations."""
    i = 0
    while i < len(explained):
        shared = explained[i]
        j = i + 1
        while shared.any() and j < len(explained) and (shared & explained[j]).any():
            shared = shared & explained[j]
            j += 1
        if shared.any() and j - i >= SHORTEST_BLOCK:
            yield i, j, shared
        i = j


def _block(vectors: np.ndarray, times: np.ndarray, order: str, layers: list[int]) -> pd.DataFrame:
    p, extents = LAYERS[layers[0]].params, EXTENTS[layers[0]]
    facts = {name: p[name] for name in ("n", "ci", "h", "w", "co", "kh", "kw")}
    # FlexTensor's layers have one stride and one padding for both directions.
    facts |= {name: p[name][0] for name in ("stride", "padding")}  # type: ignore[index]
    if len(layers) > 1:
        facts |= {"h": -1, "w": -1, "stride": -1}
    data: dict[str, Any] = {"layer": "|".join(NAMES[i] for i in layers)}
    data |= {name: np.int32(value) for name, value in facts.items()}  # type: ignore[arg-type]
    data |= {"oh": np.int32(extents["y"]), "ow": np.int32(extents["x"])}
    data["knob_order"] = order
    offset, at = 0, {}
    for knob in order:
        at[knob] = offset
        offset += KNOBS[knob]
    for knob, names in COLUMNS.items():
        data |= {name: vectors[:, at[knob] + i] for i, name in enumerate(names)}
    frame = pd.DataFrame(data, index=range(len(vectors)))
    ok = np.isfinite(times)
    threads = math.prod(vectors[:, at[knob] + THREAD_PART].astype(np.int64) for knob in "fyx")
    frame["gflop"] = 2 * macs(p) / 1e9
    frame["time_s"] = np.where(ok, times, np.nan) / MS_PER_S
    # The file says only that a configuration failed; what no GPU can launch is known to be invalid.
    frame["status"] = np.where(ok, str(Status.OK), np.where(threads > MAX_THREADS, str(Status.INVALID_CONFIG), str(Status.RUN_ERROR)))
    frame["error"] = np.where(ok, "", np.where(threads > MAX_THREADS, f"over {MAX_THREADS} threads a block", "no reason recorded"))
    return frame
