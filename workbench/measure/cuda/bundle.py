"""A bundle: everything that measuring on another machine needs, in one file.

The file is a zip of three Parquet tables (programs, problems, candidates) and a JSON header. Each table is written and read by itself, and a program that many
candidates share stands there once; the header has the sum of each table, and a zip that was cut short has no directory, so that what is not whole is noticed.
Members are stored as they are: Parquet compresses them (zstd).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import DataError, MissingData, StoreError
from workbench.schema import Value, Workload

__all__ = ["BUNDLE_VERSION", "Bundle", "Candidate", "Identity", "Input", "Launch", "Problem", "Stage", "identity", "read_bundle", "write_bundle"]

BUNDLE_VERSION = 1
_FORMAT = "workbench-cuda-bundle"
_HEADER = "bundle.json"
# What zipfile and json raise for bytes that are no zip of ours (a way of compression that it lacks is a RuntimeError).
_UNREADABLE = (zipfile.BadZipFile, KeyError, TypeError, ValueError, EOFError, RuntimeError, OSError, struct.error, zlib.error)

# What was tried: workload, space and configuration.
Identity = tuple[str, str, str]

_TABLES: Mapping[str, pa.Schema] = {
    "programs.parquet": pa.schema([("source", pa.string())]),
    "problems.parquet": pa.schema(
        [
            ("workload", pa.string()),
            ("inputs", pa.string()),
            ("output", pa.string()),
            ("count", pa.int64()),
            ("reference", pa.string()),
            ("tolerance", pa.float64()),
        ]
    ),
    # `index` is text: a space may have more than 2^63 configurations.
    "candidates.parquet": pa.schema(
        [
            ("group", pa.string()),
            ("problem", pa.int32()),
            ("program", pa.int32()),
            ("space", pa.string()),
            ("index", pa.string()),
            ("config", pa.string()),
            ("launches", pa.string()),
            ("scratch", pa.string()),
            ("copied", pa.bool_()),
            ("label", pa.string()),
        ]
    ),
}


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        kernel: its name.
        grid, block: numbers of blocks and of threads in x, y, z.
        arguments: names of buffers (pointers to float32) and whole numbers of 32 bits, in the kernel's order.
        shared_bytes: dynamic shared memory of a block.
        timed: False for what is done once and counts for nothing, such as winograd's transform of constant weights.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[str | int, ...]
    shared_bytes: int = 0
    timed: bool = True

    def request(self) -> list[Any]:
        """As plain JSON, and as the process that has the GPU reads it."""
        return [self.kernel, list(self.grid), list(self.block), list(self.arguments), self.shared_bytes, self.timed]

    @classmethod
    def parse(cls, record: Sequence[Any]) -> Launch:
        """Inverse of `request`."""
        kernel, grid, block, arguments, shared_bytes, timed = record
        x, y, z = grid
        u, v, w = block
        return cls(str(kernel), (int(x), int(y), int(z)), (int(u), int(v), int(w)), tuple(arguments), int(shared_bytes), bool(timed))


@dataclass(frozen=True)
class Input:
    """A buffer of `count` float32 made from a seed, of which `nonzero` are not zero (`workbench.measure.cuda.inputs`)."""

    name: str
    count: int
    nonzero: int
    seed: int


@dataclass(frozen=True)
class Problem:
    """A workload as a GPU is given it, and what its result is compared with.

    Attributes:
        workload: see `workbench.schema`.
        inputs: its inputs.
        output: name of the buffer of the result.
        count: number of float32 of it.
        reference: launches of the bundle's reference program: of the inputs they make `expected`, the result in double precision, and `size`, the sum of the
            sizes of each element's terms.
        tolerance: the largest right |result - expected| / size.
    """

    workload: Workload
    inputs: tuple[Input, ...]
    output: str
    count: int
    reference: tuple[Launch, ...]
    tolerance: float

    def request(self, reference_cubin: Path) -> dict[str, Any]:
        """As the process that has the GPU reads it."""
        return {
            "key": f"{self.workload.key} {[part.seed for part in self.inputs]}",
            "workload": self.workload.key,
            "inputs": [[part.name, part.count, part.nonzero, part.seed] for part in self.inputs],
            "output": [self.output, self.count],
            "reference": {"cubin": str(reference_cubin), "launches": [launch.request() for launch in self.reference]},
            "tolerance": self.tolerance,
        }


@dataclass(frozen=True)
class Candidate:
    """A program for a problem.

    Attributes:
        group: what stands and falls together: if its first programs are wrong, the others are not tried.
        problem, program: their numbers in the bundle, from 0.
        space, index, config: which configuration it is; see `workbench.schema.Measurement`.
        launches: what it does.
        scratch: name -> number of float32 of each buffer beside input and output.
        copied: whether it is also timed with the copy of its result to the host.
        label: anything that its record should repeat, such as the class it was sampled from.
    """

    group: str
    problem: int
    program: int
    space: str
    index: int | None
    config: Mapping[str, Value]
    launches: tuple[Launch, ...]
    scratch: Mapping[str, int] = field(default_factory=dict)
    copied: bool = False
    label: str = ""


@dataclass(frozen=True)
class Stage:
    """Consecutive candidates that are measured together.

    Attributes:
        name: for the log.
        candidates: how many.
        share: of the time that is left when it begins, how much it may take; what it does not get to comes after the other stages.
    """

    name: str
    candidates: int
    share: float


@dataclass(frozen=True)
class Bundle:
    """What `read_bundle` has read: the candidates in the order in which to measure them, and what they refer to.

    Attributes:
        made_by: the command line that made it.
        notes: traits that a reader of its times must know: group -> sentences.
        sha256: of the file.
        reference: source of the reference program.
    """

    made_by: str
    notes: Mapping[str, Sequence[str]]
    sha256: str
    stages: tuple[Stage, ...]
    problems: list[Problem]
    candidates: list[Candidate]
    reference: str
    _sources: Any

    def source(self, program: int) -> str:
        """CUDA C of a program, or PTX (`compile.is_ptx`)."""
        return str(self._sources[program].as_py())

    @cached_property
    def identities(self) -> list[Identity]:
        """The identity of each candidate."""
        return [identity(self.problems[one.problem].workload.key, one.space, one.index, one.config) for one in self.candidates]


def identity(workload: str, space: str, index: int | None, config: Mapping[str, Any]) -> Identity:
    """What tells a candidate from all others, in this bundle and in others: `workload` is a workload's key."""
    return workload, space, _dumps(dict(sorted(config.items()))) if index is None else f"#{index}"


def write_bundle(
    path: Path,
    *,
    made_by: str,
    stages: Sequence[Stage],
    programs: Iterable[str],
    reference: str,
    problems: Iterable[Problem],
    candidates: Iterable[Candidate],
    notes: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write a bundle, which appears whole or not at all. The arguments are as `Bundle` has them; the stages' candidates follow one another.

    Raises:
        StoreError: the folder cannot be written or the disk is full.
    """
    rows = {
        "programs.parquet": [{"source": source} for source in programs],
        "problems.parquet": [_problem_row(problem) for problem in problems],
        "candidates.parquet": [_candidate_row(candidate) for candidate in candidates],
    }
    parts = {name: _table(rows[name], schema) for name, schema in _TABLES.items()}
    header = {
        "format": _FORMAT,
        "version": BUNDLE_VERSION,
        "made_by": made_by,
        "notes": {group: list(sentences) for group, sentences in (notes or {}).items()},
        "stages": [[stage.name, stage.candidates, stage.share] for stage in stages],
        "reference": reference,
        "sha256": {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()},
    }
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                    archive.writestr(_HEADER, json.dumps(header, indent=1))
                    for part, content in parts.items():
                        archive.writestr(part, content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror or error}); choose a folder that is there and can be written, with free space") from error


def read_bundle(path: Path) -> Bundle:
    """A bundle, checked.

    Raises:
        MissingData: no such file.
        DataError: not a bundle, one that is cut short or was changed, or one of a newer format.
    """
    if not path.is_file():
        raise MissingData(f"{path}: no such file; make a bundle with: workbench measure bundle --output {path}")
    content = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            header = json.loads(archive.read(_HEADER))
            version = header["version"] if header["format"] == _FORMAT else 0
            parts = {name: archive.read(name) for name in _TABLES} if 0 < version <= BUNDLE_VERSION else {}
    except _UNREADABLE as error:
        raise DataError(f"{path}: not a whole bundle, {len(content):,} bytes ({error}); copy it again, or make it anew") from None
    if not parts:
        what = f"a bundle of version {version}; this workbench reads up to version {BUNDLE_VERSION}: update it" if version else "not a bundle"
        raise DataError(f"{path}: {what}, or make the bundle anew")
    for name, part in parts.items():
        if hashlib.sha256(part).hexdigest() != header["sha256"].get(name):
            raise DataError(f"{path}: its {name} is not what the header says; the file was changed or damaged: copy it again, or make it anew")
    try:
        tables = {name: pq.ParquetFile(io.BytesIO(part)).read().cast(_TABLES[name]) for name, part in parts.items()}
        stages = tuple(Stage(str(name), int(candidates), float(share)) for name, candidates, share in header["stages"])
        bundle = Bundle(
            made_by=header["made_by"],
            notes=header["notes"],
            sha256=hashlib.sha256(content).hexdigest(),
            stages=stages,
            problems=[_problem(row) for row in tables["problems.parquet"].to_pylist()],
            candidates=[_candidate(row) for row in tables["candidates.parquet"].to_pylist()],
            reference=header["reference"],
            _sources=tables["programs.parquet"].column("source"),
        )
        _check(bundle)
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: its contents are not those of a bundle ({type(error).__name__}: {error}); make it anew") from error
    return bundle


def _check(bundle: Bundle) -> None:
    """Whether what the candidates refer to is there. Raises ValueError."""
    if sum(stage.candidates for stage in bundle.stages) != len(bundle.candidates):
        raise ValueError(f"its stages have {sum(stage.candidates for stage in bundle.stages)} candidates, the table has {len(bundle.candidates)}")
    for number, candidate in enumerate(bundle.candidates):
        if not (0 <= candidate.problem < len(bundle.problems) and 0 <= candidate.program < len(bundle._sources)):
            raise ValueError(f"candidate {number} refers to problem {candidate.problem} and program {candidate.program}")
        problem = bundle.problems[candidate.problem]
        buffers = {problem.output, *(part.name for part in problem.inputs), *candidate.scratch}
        for launch in candidate.launches:
            if unknown := [argument for argument in launch.arguments if isinstance(argument, str) and argument not in buffers]:
                raise ValueError(f"candidate {number} has no buffer {unknown[0]!r}")
    if len(set(bundle.identities)) != len(bundle.candidates):
        raise ValueError("a candidate is there twice")


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), buffer, compression="zstd", compression_level=12, row_group_size=1000, write_statistics=False)
    return buffer.getvalue()


def _problem_row(problem: Problem) -> dict[str, Any]:
    return {
        "workload": problem.workload.key,
        "inputs": _dumps([[part.name, part.count, part.nonzero, part.seed] for part in problem.inputs]),
        "output": problem.output,
        "count": problem.count,
        "reference": _dumps([launch.request() for launch in problem.reference]),
        "tolerance": problem.tolerance,
    }


def _problem(row: Mapping[str, Any]) -> Problem:
    return Problem(
        workload=Workload.from_key(row["workload"]),
        inputs=tuple(Input(str(name), int(count), int(nonzero), int(seed)) for name, count, nonzero, seed in json.loads(row["inputs"])),
        output=row["output"],
        count=row["count"],
        reference=tuple(map(Launch.parse, json.loads(row["reference"]))),
        tolerance=row["tolerance"],
    )


def _candidate_row(candidate: Candidate) -> dict[str, Any]:
    return {
        "group": candidate.group,
        "problem": candidate.problem,
        "program": candidate.program,
        "space": candidate.space,
        "index": None if candidate.index is None else str(candidate.index),
        "config": _dumps(dict(candidate.config)),
        "launches": _dumps([launch.request() for launch in candidate.launches]),
        "scratch": _dumps(dict(candidate.scratch)),
        "copied": candidate.copied,
        "label": candidate.label,
    }


def _candidate(row: Mapping[str, Any]) -> Candidate:
    return Candidate(
        group=row["group"],
        problem=row["problem"],
        program=row["program"],
        space=row["space"],
        index=None if row["index"] is None else int(row["index"]),
        config={name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(row["config"]).items()},
        launches=tuple(map(Launch.parse, json.loads(row["launches"]))),
        scratch={str(name): int(count) for name, count in json.loads(row["scratch"]).items()},
        copied=row["copied"],
        label=row["label"],
    )


def _dumps(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
