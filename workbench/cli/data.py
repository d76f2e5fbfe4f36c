"""`workbench data`: the catalogue of data sets, others' files by checksum, audits, and conversions."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.errors import DataError, MissingData, UsageError

__all__ = ["app"]

app = typer.Typer(name="data", no_args_is_help=True, help="Data sets: list, fetch, verify, audit and import measurements.")

Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Names of data sets, as `workbench data list` shows them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list", epilog="Example: workbench data list --json")
def list_(as_json: AsJson = False) -> None:
    """Show every data set: kernel, device, rows, licence, and whether its files are at hand."""
    from workbench.data import datasets

    records = [{**datasets.describe(name), "available": _state(name)[0]} for name in datasets.names()]
    if as_json:
        _print_json(records)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for column in ("name", "kernel", "device", "rows", "licence", "files"):
        table.add_column(column, justify="right" if column == "rows" else "left", no_wrap=column == "name")
    for record in records:
        table.add_row(record["name"], record["kernel"], record["device"]["name"], f"{record['rows']:,}", record["licence"], record["available"])
    # Piped output is not a terminal of 80 columns: nothing is cut.
    Console(width=None if sys.stdout.isatty() else 160).print(table)


@app.command(epilog="Example: workbench data fetch nnc-mm-i5-500 titanxp-conv2d")
def fetch(names: Names = None, everything: Annotated[bool, typer.Option("--all", help="Every data set of the catalogue.")] = False) -> None:
    """Bring the files of data sets within reach: from the cache, a mirror (WORKBENCH_MIRROR) or the network; each is checked by its sha256."""
    from workbench.data import datasets, registry

    if everything == bool(names):
        raise UsageError("name data sets or give --all, one of the two; `workbench data list` shows the names")
    chosen = datasets.names() if everything else list(names or ())
    files = {name: datasets.files_of(name) for name in chosen}
    missing = []
    for name, wanted in files.items():
        try:
            for file in wanted:
                registry.fetch(file, dataset=name)
        except MissingData as error:
            missing.append(name)
            print(f"{name}: out of reach")
            reason = error
        else:
            print(f"{name}: {len(wanted)} file{'s' if len(wanted) != 1 else ''} at hand")
    if missing:
        raise MissingData(f"{len(missing)} of {len(files)} data sets are out of reach; the last of them: {reason}")


@app.command(epilog="Example: workbench data verify nnc-mm-i5-500")
def verify(names: Names = None) -> None:
    """Check the files at hand against their sha256, of all data sets if none is named; never uses the network. Fails if one is wrong or a named one missing."""
    from workbench.data import datasets

    files = {name: datasets.files_of(name) for name in names or datasets.names()}
    wrong, absent = [], []
    for name in files:
        state, reason = _state(name)
        if reason:
            wrong.append(reason)
        if state == "missing":
            absent.append(name)
        print(f"{name}: {state}")
    if wrong:
        raise DataError(f"{len(wrong)} data sets have a wrong file: {wrong[0]}")
    if names and absent:
        raise MissingData(f"{', '.join(absent)}: files are missing; run: workbench data fetch {' '.join(absent)}")


@app.command(epilog="Example: workbench data audit halide-blur-i5 --json")
def audit(name: Annotated[str, typer.Argument(help="Name of a data set.")], as_json: AsJson = False) -> None:
    """Are the times of a data set labels? Signal, order, repeats, impossible configurations, speed against the peak. Exit code 1 unless it passes."""
    from workbench.audit import audit as run_audit
    from workbench.data.datasets import load_dataset

    report = run_audit(load_dataset(name))
    if as_json:
        _print_json(report.to_dict())
    else:
        for line in _audit_lines(report.to_dict()):
            print(line)
    if not report.passed:
        raise typer.Exit(1)


@app.command("import", epilog="Example: workbench data import cache.json.gz --format kernel-tuner --output cache.parquet")
def import_(
    file: Annotated[Path, typer.Argument(help="File to read.")],
    format: Annotated[str, typer.Option("--format", help="nnc, halide, kernel-tuner, autotvm or flextensor.")],
    output: Annotated[Path, typer.Option("--output", help="Parquet file to write.")],
    layout: Annotated[str | None, typer.Option("--layout", help="Columns of an nnc or halide file; default: what the authors' file name says.")] = None,
) -> None:
    """Read a file of measurements as a tidy table (time_s, status, parameters, knobs) and write it as Parquet."""
    from workbench.data.datasets import read_file

    if output.suffix != ".parquet":
        raise UsageError(f"output {str(output)!r}: the table is written as Parquet; give a name that ends in .parquet")
    if not output.parent.is_dir():
        raise UsageError(f"output {str(output)!r}: there is no folder {str(output.parent)!r}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame = read_file(file, format, layout)
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    partial = output.with_name(f".{output.name}.partial")
    try:
        frame.to_parquet(partial, compression="zstd", index=False)
        partial.replace(output)
    except OSError as error:
        raise UsageError(f"output {str(output)!r} cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    ok = int((frame["status"] == "ok").sum())
    print(f"{output}: {len(frame):,} rows, {ok:,} ok, {len(frame) - ok:,} failed")


def _state(name: str) -> tuple[str, str]:
    """Where the files of a data set are and "", or "WRONG" and what is wrong with one."""
    try:
        return _place(name), ""
    except DataError as error:
        return "WRONG", str(error)


def _place(name: str) -> str:
    """Where the files of a data set are: "own", "cache", "mirror", "cache and mirror" or "missing". Raises DataError for a wrong sha256."""
    from workbench.data import datasets, local, registry

    files = datasets.files_of(name)
    if not files:
        folder = local.folders()[name]
        local.verify_files(folder, local.read_header(folder))
        return "own"
    cache = registry.cache_folder()
    places = set()
    for file in files:
        path = registry.locate(file)
        if path is None:
            return "missing"
        places.add("cache" if path.is_relative_to(cache) else "mirror")
    return " and ".join(sorted(places))


def _audit_lines(report: dict[str, Any]) -> list[str]:
    def number(value: float | None) -> str:
        return "unknown" if value is None else f"{value:.2f}"

    lines = [
        f"{report['name']}: {report['verdict'].replace('failed', 'FAILED')}",
        f"  rows: {report['rows']:,}, timed {report['timed_rows']:,}",
        f"  signal: R2 of log time from inputs {number(report['signal_r2'])}",
        f"  order: R2 of log time from position {number(report['order_r2'])}, beyond the inputs {number(report['order_beyond_r2'])}",
    ]
    return [*lines, *(f"  reason: {reason}" for reason in report["reasons"]), *(f"  note: {note}" for note in report["notes"])]


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))
