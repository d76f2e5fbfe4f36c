"""Results of the first series on a GPU, made before there were bundles: convolutions and matrix kernels in files of their own, and `device.json`.

Convolutions have the space "workbench-gpu", whose knobs and order of indices they share; they are named as `workbench.kernels.networks.by_id` names them. That
series counted the operations of transposed convolutions by positions of the output; no count of it is taken over, the import counts by the kernel itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import DataError, WorkbenchError
from workbench.kernels import kernel, networks
from workbench.kernels.conv import GPU
from workbench.kernels.matrix import KERNELS as MATRIX
from workbench.measure.cuda.gpu import device_of
from workbench.schema import Measurement, Status

__all__ = ["is_early", "read"]

_PARTS = ("conv", "nnc")
_STATUSES = {
    "ok": Status.OK,
    "compile_error": Status.COMPILE_ERROR,
    "launch_error": Status.RUN_ERROR,
    "wrong_result": Status.WRONG_RESULT,
    "timeout": Status.TIMEOUT,
}
# What device.json calls differently.
_FACTS = {"sm_count": "multiprocessors", "mem_clock_khz": "memory_clock_khz", "mem_bus_bits": "memory_bus_bits"}
_FACTS |= {"cc_major": "compute_capability_major", "cc_minor": "compute_capability_minor"}
# A column of a file -> the detail of a record, and its factor.
_DETAILS = {"regs": "registers", "shared_bytes": "shared_bytes", "local_bytes": "local_bytes", "max_threads": "max_threads", "cubin_bytes": "cubin_bytes"}
_DETAILS |= {"inner_k": "calls", "t_s": "elapsed_s", "gpu_process": "gpu_process", "cls": "label"}
_WITHOUT_NUMBER = 1e38  # stands for an error that is not finite

_POLICY = (
    "time_s is the minimum of times_s: up to 20 repeats (convolutions; 5 beyond 12 ms, 3 beyond 100 ms, 1 beyond 400 ms) or 7 (matrix kernels) between CUDA "
    "events, each the mean of as many runs as take 250 us (matrix kernels: 60 us, at most 20), with the queue filled behind a spinning kernel and the caches "
    "as the run before left them; the output of every convolution, and of every fortieth instance of a matrix kernel, was compared with a direct computation"
)
_NOTES = ("relative_error is the largest error of an output relative to its largest element.",)
_MATRIX_NOTES = (
    "Matrices are dense and in single precision; the density of an input concerns its contents only, and is met in the mean. The filter of mc is not turned.",
    "copied_s is the least time of a run with the copy of its result to the host's pageable memory, by the host's clock, as the paper's GPU times are.",
)
_WINOGRAD_NOTES = ("Winograd's transform of the weights, which are constant, is not part of the time; the other four of its kernels are.",)


def is_early(folder: Path) -> bool:
    """Whether a folder has results of that series."""
    return any(path.is_file() for part in _PARTS for path in _paths(folder, part))


def read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """How the results were made, and its records, as `workbench.measure.cuda.records.read_results` gives them; what was not tried is left out.

    Raises:
        DataError: a file that cannot be read, or a configuration that its index does not stand for.
    """
    try:
        told = json.loads((folder / "device.json").read_text(encoding="utf-8"))
        device = asdict(device_of(_facts(told["info"])))
        header = {
            "made_by": "run_on_gpu.py",
            "policy": _POLICY,
            "compiler": next(" ".join(part[:2]) for part in told["compilers"] if part[0] == told["compiler"]),
            "driver": f"CUDA {told['info']['driver_cuda'] // 1000}.{told['info']['driver_cuda'] % 1000 // 10}",
            "device": device,
            "versions": {"python": told["python"]},
            "notes": {
                "": _NOTES,
                "conv2d_winograd": _WINOGRAD_NOTES,
                **{f"{name}-{variant}": _MATRIX_NOTES for name in MATRIX for variant in ("global", "shared")},
            },
        }
        begun = float(told["started_unix"])
    except (OSError, KeyError, ValueError, TypeError, StopIteration) as error:
        raise DataError(
            f"{folder / 'device.json'}: it does not say how the results were made ({type(error).__name__}: {error}); copy the folder again"
        ) from error
    workloads = networks.by_id()
    records = []
    for part in _PARTS:
        path, rows = _rows(folder, part)
        for number, row in enumerate(rows):
            if row.get("status") == "skipped":
                continue
            try:
                fields, details = _convolution(row, workloads) if part == "conv" else _matrix(row)
                records.append(_record(row, fields, details, device["name"], begun))
            except (KeyError, ValueError, TypeError, WorkbenchError) as error:
                raise DataError(f"{path}: row {number} is not a measurement ({type(error).__name__}: {error})") from error
    return header, records


def _paths(folder: Path, part: str) -> tuple[Path, Path]:
    """Where a part's rows are: in the file of a run that ended, or in that of one that was cut short."""
    return folder / f"{part}_measurements.parquet", folder / f"{part}_partial.jsonl"


def _rows(folder: Path, part: str) -> tuple[Path, list[dict[str, Any]]]:
    whole, lines = _paths(folder, part)
    if whole.is_file():
        try:
            return whole, pq.ParquetFile(whole).read().to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{whole}: not a Parquet file ({error}); copy it again") from error
    if not lines.is_file():
        return whole, []
    try:
        # The last line may have been cut short.
        return lines, [json.loads(line) for line in lines.read_text(encoding="utf-8").split("\n")[:-1]]
    except ValueError as error:
        raise DataError(f"{lines}: not lines of JSON ({error}); copy it again") from error


def _facts(info: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": info["name"], **{_FACTS.get(name, name): value for name, value in info["attributes"].items()}}


def _convolution(row: Mapping[str, Any], workloads: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    workload = workloads[row["wid"]]
    config = {name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(row["config"]).items()}
    if kernel(workload.kernel).space(workload, GPU).config(row["index"]) != config:
        raise ValueError(f"index {row['index']} of {row['wid']} does not stand for {row['config']}")
    return {"workload": workload, "space": GPU, "index": row["index"], "config": config, "times_us": row.get("times_us")}, {"group": workload.kernel}


def _matrix(row: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    workload = MATRIX[row["kernel"]].workload({name: row[name] for name in MATRIX[row["kernel"]].parameters})
    details: dict[str, Any] = {"group": f"{row['kernel']}-{row['variant']}"}
    if row["status"] == "ok" and row.get("copy_us"):
        seconds = [1e-6 * time for time in row["copy_us"]]
        details |= {"copied_s": min(seconds), "copied_times_s": seconds}
    return {"workload": workload, "space": row["variant"], "times_us": row.get("kernel_us")}, details


def _record(row: Mapping[str, Any], fields: dict[str, Any], details: dict[str, Any], device: str, begun: float) -> dict[str, Any]:
    status = _STATUSES[row["status"]]
    times = tuple(1e-6 * time for time in fields.pop("times_us") or ()) if status is Status.OK else ()
    error = "" if status is Status.OK else ": ".join(filter(None, (row.get("stage"), row.get("error")))) or row["status"]
    measurement = Measurement(
        device=device,
        status=status,
        time_s=min(times, default=None),
        times_s=times,
        compile_s=row.get("compile_s"),
        error=error,
        timestamp=begun + float(row["t_s"]),
        **{name: value for name, value in fields.items() if name != "times_us"},
    )
    details |= {detail: row[column] for column, detail in _DETAILS.items() if row.get(column) is not None}
    if row.get("first_us") is not None:
        details["first_s"] = 1e-6 * row["first_us"]
    if row.get("rel_err") is not None and row["rel_err"] < _WITHOUT_NUMBER:
        details["relative_error"] = row["rel_err"]
    if status is not Status.OK and row.get("stage"):
        details["stage"] = row["stage"]
    return {**measurement.to_json(), "details": details}
