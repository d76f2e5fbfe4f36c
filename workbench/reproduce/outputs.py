"""What a notebook leaves behind: tables, figures, scorecard rows and where they came from.

    out = Outputs(output_dir, task="nnc-mape")
    data = out.uses(load_dataset("nnc-mm-i5-500"))
    out.table("table06", frame, title="MAPE of matrix-matrix multiplication")
    out.figure("figure02", fig, title="Predicted and measured times")
    out.row("nnc.table06", value=9.1, low=7.8, high=10.5, unit="%", effect=11.0, effect_low=6.0, effect_high=15.0, n_tasks=5)
    out.close()

`close` writes outputs.json last and whole, so that a folder with outputs.json is complete.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from workbench.errors import UsageError
from workbench.paths import project_root
from workbench.reproduce.claims import Row, get_claim

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["OUTPUTS_VERSION", "Outputs", "device_facts", "package_versions", "write_json"]

OUTPUTS_VERSION = 1
_PACKAGES = (
    "numpy",
    "pandas",
    "scipy",
    "scikit-learn",
    "torch",
    "numba",
    "xgboost-cpu",
    "matplotlib",
    "papermill",
    "dask",
    "halide",
    "apache-tvm",
    "botorch",
    "dgl",
)


class Source(Protocol):
    """What `uses` needs of a data set."""

    @property
    def name(self) -> str: ...

    @property
    def sha256(self) -> Mapping[str, str]: ...


S = TypeVar("S", bound=Source)


class Outputs:
    """Collects what a notebook shows, into one folder. Also a context manager that closes itself.

    Args:
        output_dir: folder to write to (made when missing). "" is for a person in JupyterLab: runs/lab/<task>/ in the checkout.
        task: name in the manifest, such as "nnc-mape"; names the folder when `output_dir` is "".
    """

    def __init__(self, output_dir: str | Path = "", task: str = "") -> None:
        self.task = task or Path(os.environ.get("JPY_SESSION_NAME", "notebook")).stem
        self.folder = Path(output_dir) if output_dir else project_root() / "runs" / "lab" / self.task
        self.folder.mkdir(parents=True, exist_ok=True)
        self._started = time.perf_counter()
        self._items: dict[str, dict[str, Any]] = {}
        self._rows: dict[tuple[str, str], Row] = {}
        self._data: dict[str, dict[str, Any]] = {}
        self._missing: dict[str, str] = {}
        self._seeds: list[int] = []

    def uses(self, dataset: S) -> S:
        """Record a data set (its name, source, licence, rows and its files' sha256) and give it back."""
        frame = getattr(dataset, "frame", None)
        self._data[dataset.name] = {
            "sha256": dict(dataset.sha256),
            "source": str(getattr(dataset, "source", "")),
            "licence": str(getattr(dataset, "licence", "")),
            "device": str(getattr(getattr(dataset, "device", None), "name", "")),
            "rows": None if frame is None else len(frame),
        }
        return dataset

    def missing(self, name: str, reason: str | BaseException) -> None:
        """Record an input that is out of reach, with the message that says how to get it (a MissingData error, or its text)."""
        self._missing[name] = str(reason)

    def seeds(self, seeds: Iterable[int]) -> None:
        """Record the seeds that were used."""
        self._seeds.extend(int(seed) for seed in seeds)

    def table(self, id: str, frame: pd.DataFrame, title: str, caption: str = "") -> Path:
        """Write `<id>.csv` (six significant digits, so that a reference table changes only when a result does) and record it."""
        import pandas as pd

        path = self._path(id, ".csv")
        plain = isinstance(frame.index, pd.RangeIndex) and frame.index.name is None
        frame.to_csv(path, index=not plain, float_format="%.6g", lineterminator="\n")
        self._items[id] = {"kind": "table", "title": title, "caption": caption, "files": [path.name]}
        return path

    def figure(self, id: str, figure: Figure, title: str, caption: str = "") -> Path:
        """Write `<id>.png` (200 dpi) and `<id>.svg` (same bytes for the same picture: no date, fixed ids) and record them. Gives the PNG's path."""
        import matplotlib as mpl

        png, svg = self._path(id, ".png"), self._path(id, ".svg")
        with mpl.rc_context({"svg.hashsalt": id}):
            figure.savefig(png, dpi=200, bbox_inches="tight", metadata={"Software": None})
            figure.savefig(svg, bbox_inches="tight", metadata={"Date": None, "Creator": None})
        self._items[id] = {"kind": "figure", "title": title, "caption": caption, "files": [png.name, svg.name]}
        return png

    def row(
        self,
        claim_id: str,
        value: float | None = None,
        low: float | None = None,
        high: float | None = None,
        unit: str = "",
        effect: float | None = None,
        effect_low: float | None = None,
        effect_high: float | None = None,
        numbers: Mapping[str, float] | None = None,
        n_tasks: int | None = None,
        data_sets: Iterable[str] = (),
        devices: Iterable[str] = (),
        note: str = "",
        reason: str | None = None,
        label: str = "",
    ) -> Row:
        """Add a row to the scorecard.

        Args:
            claim_id: in claims.toml, such as "nnc.table06".
            value, low, high: what to print, with its 95% interval over tasks, in `unit`.
            effect, effect_low, effect_high: the quantity that the claim's rule is about, such as MAPE(NN) - MAPE(NN+C) in points, as the claim defines it
                (for a ratio the ratio itself, 1 meaning no effect), with its 95% interval over tasks.
            numbers: for claims with rule "equal": name -> number, by the claim's names.
            n_tasks: how many tasks (data sets, devices, layers) the interval is over.
            data_sets, devices: names.
            note: one line for the reader.
            reason: why this cannot be tested here, naming what is missing; then the verdict says so (a value may still be given).
            label: tells rows of one claim apart, such as "paper protocol" and "clean protocol".

        Raises:
            UsageError: unknown claim (close matches named), a number that is not finite, half an interval, neither number nor reason, or the same row twice.
        """
        claim = get_claim(claim_id)
        # Through float and int: numpy scalars are not JSON.
        given = [None if x is None else float(x) for x in (value, low, high, effect, effect_low, effect_high)]
        row = Row(claim_id, label, given[0], given[1], given[2], unit or claim.unit, given[3], given[4], given[5])
        row = replace(
            row,
            numbers={str(k): float(v) for k, v in (numbers or {}).items()},
            n_tasks=None if n_tasks is None else int(n_tasks),
            data_sets=(data_sets,) if isinstance(data_sets, str) else tuple(map(str, data_sets)),
            devices=(devices,) if isinstance(devices, str) else tuple(map(str, devices)),
            note=note,
            reason=None if reason is None else str(reason),
        )
        if row.value is None and row.effect is None and not row.numbers and not row.reason and claim.rule != "shown":
            raise UsageError(f"row {claim_id}: give a value, an effect or numbers, or the reason why there is none")
        if (claim_id, label) in self._rows:
            raise UsageError(f"row {claim_id} with label {label!r} was given twice; tell the two apart by `label`")
        self._rows[claim_id, label] = row
        return row

    def close(self) -> Path:
        """Write outputs.json. Gives its path."""
        path = self.folder / "outputs.json"
        write_json(
            path,
            {
                "version": OUTPUTS_VERSION,
                "task": self.task,
                "items": self._items,
                "rows": [asdict(row) for row in self._rows.values()],
                "data": self._data,
                "missing": self._missing,
                "seeds": self._seeds,
                "kernel_wall_s": round(time.perf_counter() - self._started, 3),
                "kernel_peak_mb": _peak_mb(),
                "versions": package_versions(),
                "device": device_facts(),
            },
        )
        return path

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()

    def _path(self, id: str, suffix: str) -> Path:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", id):
            raise UsageError(f"output id {id!r}: use small letters, digits and _, such as table06")
        if id in self._items:
            raise UsageError(f"output {id!r} was given twice; give the second another id")
        return self.folder / f"{id}{suffix}"


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write JSON so that a reader, or a crash, sees the old file or the new one, never half of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(record, file, indent=1, ensure_ascii=False, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def package_versions() -> dict[str, str]:
    """Versions of Python and of the main packages that are installed, without importing them."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def device_facts() -> dict[str, Any]:
    """The machine that this process runs on: CPU model, cores it may use, system."""
    model = platform.processor()
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        model = found.group(1).strip() if found else model
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": model or platform.machine(), "cores": cores, "system": f"{platform.system()} {platform.machine()}"}


def _peak_mb() -> float | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return round(peak / (1024**2 if platform.system() == "Darwin" else 1024), 1)
