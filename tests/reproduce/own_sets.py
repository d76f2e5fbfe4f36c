"""Data sets under data/raw with invented (synthetic) numbers, in the form in which `workbench measure export` leaves them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.kernels import kernel
from workbench.kernels.halide.autoschedulers import AUTOSCHEDULERS
from workbench.kernels.matrix import INSTANCES
from workbench.schema import Workload

_HEADER = """
kernel = "{kernel}"
parameters = {parameters}
knobs = {knobs}
date = 2026-01-31
driver = ""
compiler = "invented 1.0"
policy = "invented"
command = "none: synthetic numbers"
device = {{ name = "{device}", kind = "{kind}" }}
versions = {{}}
sha256 = {{ "rows.parquet" = "{sha256}" }}
"""


def write(root: Path, name: str, frame: pd.DataFrame, kernel_name: str, parameters: tuple[str, ...], knobs: tuple[str, ...], kind: str = "cpu") -> None:
    """A folder data/raw/<name>."""
    folder = root / "data" / "raw" / name
    folder.mkdir(parents=True)
    frame.to_parquet(folder / "rows.parquet", index=False)
    sha256 = hashlib.sha256((folder / "rows.parquet").read_bytes()).hexdigest()
    device = {"cpu": "laptop", "gpu": "server-gpu"}[kind]
    text = _HEADER.format(kernel=kernel_name, parameters=list(parameters), knobs=list(knobs), device=device, kind=kind, sha256=sha256)
    (folder / "dataset.toml").write_text(text, encoding="utf-8")


def write_matrix(root: Path, name: str, kernel_name: str, rows: int = 300, seed: int = 0, passes: int = 2, kind: str = "cpu") -> None:
    """A matrix set: time by the operation count and a start-up cost with 5% noise a pass, an instance a second, and a last row that failed."""
    frame = pd.DataFrame(INSTANCES[kernel_name].draw(rows + 1, seed))
    law = 1e-9 * np.asarray(kernel(kernel_name).complexity({c: frame[c].to_numpy(dtype=float) for c in frame}), dtype=float) + 2e-6  # type: ignore[misc]
    attempts = law[:, None] * np.exp(0.05 * np.random.default_rng(seed).standard_normal((rows + 1, passes)))
    attempts[-1] = np.nan
    frame = frame.assign(threads=1, status=["ok"] * rows + ["timeout"], time_s=[*attempts[:-1].min(1), np.nan], pass_s=list(attempts))
    frame = frame.assign(timestamp=1e9 + np.arange(rows + 1.0))
    write(root, name, frame, kernel_name, kernel(kernel_name).parameters, ("threads",), kind)


def write_schedules(root: Path, name: str, kernel_name: str, sizes: tuple[int, ...], each: int = 160, without: tuple[str, ...] = ()) -> None:
    """A Halide set: time by the size and two of the knobs, and autoschedulers that take twice the average, but for those that found nothing."""
    rng = np.random.default_rng(1)
    frames, chosen = [], []
    for n in sizes:
        space = kernel(kernel_name).space(Workload(kernel_name, {"n": n}), "workbench")
        decoded = space.decode(space.sample(each, 0))
        knobs = tuple(decoded)
        time = 1e-9 * n**2 * (1 + 3 / np.asarray(decoded[knobs[1]], dtype=float)) * np.exp(0.03 * rng.standard_normal(each))
        frames.append(pd.DataFrame({"n": n, **decoded, "threads": 1, "status": "ok", "time_s": time}))
        for scheduler in AUTOSCHEDULERS:
            failed = scheduler in without
            status = "compile_error" if failed else "ok"
            chosen.append({"n": n, "scheduler": scheduler, "status": status, "time_s": np.nan if failed else 2 * time.mean()})
    write(root, name, pd.concat(frames, ignore_index=True), kernel_name, ("n",), knobs)
    write(root, f"{name}-autoschedulers", pd.DataFrame(chosen), kernel_name, ("n",), ("scheduler",))


def write_server(root: Path, rows: int = 300) -> None:
    """The series "matrix-gpu-server" and "halide-gpu-server" of a GPU, as `workbench measure import-bundle --name server` leaves them."""
    rng = np.random.default_rng(2)
    for kernel_name in INSTANCES:
        for variant, step in (("global", 2e-11), ("shared", 1e-11)):
            frame = pd.DataFrame(INSTANCES[kernel_name].draw(rows, 0))
            work = np.asarray(kernel(kernel_name).complexity({c: frame[c].to_numpy(dtype=float) for c in frame}), dtype=float)  # type: ignore[misc]
            time = (step * work + 3e-6) * np.exp(0.03 * rng.standard_normal(rows))
            copied = time + 1e-5 + 1e-10 * frame["m"].to_numpy()
            frame = frame.assign(status="ok", time_s=time, pass_s=list(time[:, None]), copied_s=copied, timestamp=1e9 + np.arange(float(rows)))
            write(root, f"matrix-gpu-server-{kernel_name}-{variant}", frame, kernel_name, kernel(kernel_name).parameters, (), "gpu")
    frames = []
    for n in (1024, 2048):
        space = kernel("blur_gpu").space(Workload("blur_gpu", {"n": n}), "workbench")
        decoded = space.decode(space.members())
        time = 1e-11 * n**2 * (1 + 8 / np.asarray(decoded["x_tile"] * decoded["vector"], dtype=float)) * np.exp(0.03 * rng.standard_normal(space.size))
        frames.append(pd.DataFrame({"n": n, "space": "workbench", **decoded, "status": "ok", "time_s": time}))
    write(root, "halide-gpu-server-blur_gpu", pd.concat(frames, ignore_index=True), "blur_gpu", ("n",), ("y_split", "x_tile", "vector"), "gpu")


def write_laptop(root: Path, **options: Any) -> None:
    """The series "matrix-cpu-laptop" and "halide-cpu-laptop", whole, and a development series that no table may show."""
    for kernel_name in INSTANCES:
        for library in ("eigen", "boost"):
            write_matrix(root, f"matrix-cpu-laptop-{kernel_name}-{library}", kernel_name, **options)
    write_matrix(root, "matrix-cpu-laptop-dev-mm-eigen", "mm", rows=30, seed=1)
    write_schedules(root, "halide-cpu-laptop-blur", "blur", (256, 512))
    write_schedules(root, "halide-cpu-laptop-fft", "fft", (16, 32, 64), without=("Mullapudi2016",))
