"""AutoTVM's JSON logs: whole tuner trajectories with their failures, and TopHub's files of best configurations.

Two layouts exist: version 0.1 with one-letter keys ("i", "r", "v"), 0.2 with "input", "config", "result". Both hold a task, the index of a configuration, its
knobs ("entity") and the outcome: costs in seconds, an error number, the seconds that the whole attempt took, a time stamp.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.data.text import read_text
from workbench.errors import DataError
from workbench.schema import Status

__all__ = ["ERRORS", "read"]

SLOWEST_S = 1e4

# AutoTVM's MeasureErrorNo: number -> (name, status). An instantiation error is a configuration that the template or the verifier refused.
ERRORS: Mapping[int, tuple[str, Status]] = {
    0: ("", Status.OK),
    1: ("INSTANTIATION_ERROR", Status.INVALID_CONFIG),
    2: ("COMPILE_HOST", Status.COMPILE_ERROR),
    3: ("COMPILE_DEVICE", Status.COMPILE_ERROR),
    4: ("RUNTIME_DEVICE", Status.RUN_ERROR),
    5: ("WRONG_ANSWER", Status.WRONG_RESULT),
    6: ("BUILD_TIMEOUT", Status.TIMEOUT),
    7: ("RUN_TIMEOUT", Status.TIMEOUT),
    8: ("UNKNOWN_ERROR", Status.RUN_ERROR),
}

Row = dict[str, Any]


def read(path: Path | str) -> pd.DataFrame:
    """Read a log as a tidy frame, a row a trial in the order of the file.

    Returns:
        `line` (from 0), `target`, `task`, `template` ("direct", "winograd"; "" where the log has none), `dtype`, `args` (the task's arguments as JSON), the
        workload where the task is a matrix product (`batch`, `m`, `n`, `k`) or an NCHW convolution (`n`, `ci`, `h`, `w`, `co`, `kh`, `kw`, strides, padding,
        dilation, `groups`), `index` of the configuration, its knobs (`tile_x_0`, ...), `time_s` (mean of the costs, NaN unless ok), `time_s_min`, `n_rep`,
        `elapsed_s`, `timestamp`, `status`, `error_no`, `error`. A column that not every task has is nullable.
        Matrix products have `gflop` too.

    Raises:
        DataError: names file, line, field and value of what is wrong.

    Warns:
        UserWarning: a torn last line was left out.
    """
    path = Path(path)
    rows: list[Row] = []
    lines = read_text(path).split("\n")
    last = max((i for i, text in enumerate(lines) if text.strip()), default=-1)
    for i, text in enumerate(lines):
        if not text.strip() or text.startswith("#"):
            continue
        try:
            record = json.loads(text)
        except json.JSONDecodeError as error:
            if i == last and rows and text.lstrip().startswith("{"):
                warnings.warn(f"{path}: left out the torn last line {i + 1}: {text[:60]!r}", UserWarning, stacklevel=2)
                continue
            raise DataError(f"{path}: line {i + 1}, column {error.colno}: not JSON: {error.msg}: {text[:60]!r}") from error
        try:
            rows.append({"line": i, **_row(record)})
        except (KeyError, IndexError, TypeError, ValueError) as error:
            what = f"no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)
            raise DataError(f"{path}: line {i + 1}: not a record of AutoTVM ({what}): {text[:60]!r}") from error
    if not rows:
        raise DataError(f"{path}: no records; expected a line of JSON a trial")
    return _frame(rows)


def _row(record: Any) -> Row:
    if not isinstance(record, dict):
        raise TypeError(f"a record is a mapping, not {record!r}")
    if "input" in record:
        (target, task, args), config, result = record["input"][:3], record["config"], record["result"]
        index, entity, template = config["index"], config["entity"], ""
    else:
        (target, task, args), config, result = record["i"][:3], record["i"][5], record["r"]
        index, entity, template = config["i"], config["e"], config["t"]
    if type(index) is not int or index < 0:
        raise ValueError(f"the index of the configuration is {index!r}")
    return {
        "target": _text(target, "target"),
        "task": _text(task, "task"),
        "template": _text(template, "template"),
        "args": json.dumps(args),
        **_workload(task, args),
        "index": index,
        **_knobs(entity),
        **_outcome(result),
    }


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, not text")
    return value


def _tensor(value: Any, dimensions: int) -> tuple[list[int], str]:
    kind, shape, dtype = value
    if kind != "TENSOR" or len(shape) != dimensions or not all(type(size) is int and size > 0 for size in shape):
        raise ValueError(f"expected a tensor of {dimensions} dimensions, not {value!r}")
    return shape, dtype


def _workload(task: str, args: Sequence[Any]) -> Row:
    """Sizes of the tasks whose arguments are known; no columns for another task."""
    if task.startswith("dense_"):
        (m, k), dtype = _tensor(args[0], 2)
        (n, _), _ = _tensor(args[1], 2)
        return {"dtype": dtype, "batch": 1, "m": m, "n": n, "k": k, "gflop": 2 * m * n * k / 1e9}
    if task.startswith("batch_matmul"):
        (batch, m, k), dtype = _tensor(args[0], 3)
        (_, n, _), _ = _tensor(args[1], 3)
        return {"dtype": dtype, "batch": batch, "m": m, "n": n, "k": k, "gflop": 2 * batch * m * n * k / 1e9}
    if task in ("topi_nn_conv2d", "topi_nn_depthwise_conv2d_nchw") or task.startswith(("conv2d_nchw", "depthwise_conv2d_nchw")):
        return _convolution(task, args)
    return {}


def _convolution(task: str, args: Sequence[Any]) -> Row:
    (n, ci, h, w), dtype = _tensor(args[0], 4)
    (co, per_group, kh, kw), _ = _tensor(args[1], 4)
    if "depthwise" in task:
        co, groups = ci * per_group, ci
    else:
        groups = ci // per_group
    stride_h, stride_w = args[2]
    pads = args[3] if isinstance(args[3], list) else [args[3]] * 2
    top, left, bottom, right = pads if len(pads) == 4 else [*pads, *pads]
    dilation_h, dilation_w = args[4] if len(args) > 4 and isinstance(args[4], list) else (1, 1)
    sizes = {"n": n, "ci": ci, "h": h, "w": w, "co": co, "kh": kh, "kw": kw, "stride_h": stride_h, "stride_w": stride_w}
    sizes |= {"pad_top": top, "pad_left": left, "pad_bottom": bottom, "pad_right": right, "dilation_h": dilation_h, "dilation_w": dilation_w, "groups": groups}
    return {"dtype": dtype, **sizes}


def _knobs(entity: Any) -> Row:
    row: Row = {}
    for name, kind, value in entity:
        if kind == "sp":
            row |= {f"{name}_{j}": part for j, part in enumerate(value)}
        else:
            row[name] = value if isinstance(value, int | float | str) else json.dumps(value)
    return row


def _outcome(result: Any) -> Row:
    costs, error_no, elapsed_s, timestamp = result
    if type(error_no) is not int or error_no not in ERRORS:
        raise ValueError(f"error number {error_no!r}, known are 0 to {max(ERRORS)}")
    error, status = ERRORS[error_no]
    row: Row = {"time_s": math.nan, "time_s_min": math.nan, "n_rep": 0}
    if status is Status.OK:
        if not costs:
            raise ValueError("a success without costs")
        for cost in costs:
            if isinstance(cost, bool) or not isinstance(cost, int | float) or not (math.isfinite(cost) and cost > 0):
                raise ValueError(f"cost {cost!r} is not a positive, finite number of seconds")
            if cost > SLOWEST_S:
                raise ValueError(f"cost {cost!r} s is beyond {SLOWEST_S:g} s; the unit looks wrong")
        row = {"time_s": math.fsum(costs) / len(costs), "time_s_min": min(costs), "n_rep": len(costs)}
    elif messages := [str(cost) for cost in costs if not isinstance(cost, int | float)]:
        error = f"{error}: {messages[0]}"
    return row | {"elapsed_s": float(elapsed_s), "timestamp": float(timestamp), "status": str(status), "error_no": error_no, "error": error}


def _frame(rows: list[Row]) -> pd.DataFrame:
    names = list(dict.fromkeys(name for row in rows for name in row))
    heads = ["line", "target", "task", "template", "dtype", "args"]
    tails = ["time_s", "time_s_min", "n_rep", "elapsed_s", "timestamp", "status", "error_no", "error"]
    order = [*heads, *(name for name in names if name not in heads + tails), *tails]
    data = {}
    for name in order:
        values = [row.get(name) for row in rows]
        whole = all(value is None or type(value) is int for value in values)
        data[name] = pd.array(values, dtype="Int64") if whole and None in values else pd.Series(values)
    return pd.DataFrame(data)
