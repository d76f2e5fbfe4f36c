"""`workbench space`: look into the configuration space of a workload."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.errors import SpaceError, UsageError

if TYPE_CHECKING:
    from workbench.kernels.base import Kernel
    from workbench.schema import Value
    from workbench.space import Space

__all__ = ["app"]

app = typer.Typer(name="space", no_args_is_help=True, help="Size, samples and knob values of a workload's configuration space.")

# With spaces, so that help breaks its lines where JSON allows it.
_WORKLOAD = '\'{"n": 1, "ci": 64, "h": 56, "w": 56, "co": 64, "kh": 3, "kw": 3, "stride": [1, 1], "padding": [1, 1]}\''

KindOption = Annotated[str, typer.Option("--kind", help="Name of the kernel, such as conv2d, depthwise_conv2d, conv2d_winograd.")]
WorkloadOption = Annotated[str, typer.Option("--workload", help="Parameters of the workload as a JSON object.")]
NameOption = Annotated[str | None, typer.Option("--space", help="Name of the space where the kernel has more than one (default: its first).")]
ThreadsOption = Annotated[int | None, typer.Option("--max-threads", help="Only configurations with at most this many threads a block.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command(epilog=f"Example: workbench space decode --kind conv2d --workload {_WORKLOAD} --index 123456 --json")
def decode(
    kind: KindOption,
    workload: WorkloadOption,
    index: Annotated[str, typer.Option("--index", help="Index of the configuration, from 0 to the size of the space minus 1.", metavar="<int>")],
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the knob values of one configuration."""
    _, space = _open(kind, workload, name)
    try:
        number = int(index)
    except ValueError:
        raise SpaceError(f"--index is {index!r}; it is a whole number from 0 to {space.size - 1}") from None
    config = space.config(number)
    _show([config], [number], config if as_json else None, f"{kind} · space {space.name} · index {number:,} of {space.size:,}")


@app.command(epilog=f"Example: workbench space size --kind conv2d --workload {_WORKLOAD}")
def size(kind: KindOption, workload: WorkloadOption, name: NameOption = None, as_json: JsonOption = False) -> None:
    """Print how many configurations the space has, and how many options each knob."""
    _, space = _open(kind, workload, name)
    if as_json:
        options = dict(zip(space.names, space.radix, strict=True))
        print(json.dumps({"space": space.name, "signature": space.signature, "size": space.size, "options": options}))
        return
    _table(
        f"{kind} · space {space.name} · {space.size:,} configurations",
        ("knob", "options"),
        [(knob, str(count)) for knob, count in zip(space.names, space.radix, strict=True)],
    )
    for constraint in space.constraints:
        print(f"within the size, the constraint: {constraint.text}")


@app.command(epilog=f"Example: workbench space sample --kind conv2d --workload {_WORKLOAD} --count 3 --seed 1 --max-threads 1024 --json")
def sample(
    kind: KindOption,
    workload: WorkloadOption,
    count: Annotated[int, typer.Option("--count", help="How many different configurations.")] = 10,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the random generator.")] = 0,
    max_threads: ThreadsOption = None,
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print random configurations that meet the constraints."""
    kernel, space = _open(kind, workload, name)
    if max_threads is not None:
        space = space.restrict(kernel.at_most_threads(max_threads, space.name))
    indices = [int(i) for i in space.sample(count, seed)]
    configs = [space.config(i) for i in indices]
    rows = [{"index": i, **config} for i, config in zip(indices, configs, strict=True)]
    _show(configs, indices, rows if as_json else None, f"{kind} · space {space.name} · {count:,} of {space.size:,}")


def _open(kind: str, text: str, name: str | None) -> tuple[Kernel, Space]:
    from workbench.kernels import kernel

    found = kernel(kind)
    try:
        params = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"--workload is not JSON ({error.msg} at character {error.pos}): {text[:80]!r}") from None
    if not isinstance(params, dict):
        raise UsageError(f"--workload is a JSON object of parameters, not {text[:80]!r}")
    return found, found.space(found.workload(params), name)


def _show(configs: list[dict[str, Value]], indices: list[int], document: Any, title: str) -> None:
    if document is not None:
        print(json.dumps(document))
    elif len(configs) == 1:
        _table(title, ("knob", "value"), [(knob, _text(value)) for knob, value in configs[0].items()])
    else:
        columns = ("index", *configs[0]) if configs else ("index",)
        _table(title, columns, [(str(i), *map(_text, config.values())) for i, config in zip(indices, configs, strict=True)])


def _text(value: Value) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == "index")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
