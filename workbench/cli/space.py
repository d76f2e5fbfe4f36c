"""`workbench space`: look into the configuration space of a workload, and at the workloads that networks consist of."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.errors import SpaceError, UsageError

if TYPE_CHECKING:
    from workbench.kernels.base import Kernel
    from workbench.kernels.networks import Layer
    from workbench.schema import Value
    from workbench.space import Space

__all__ = ["app"]

app = typer.Typer(name="space", no_args_is_help=True, help="Size, samples and knob values of a workload's configuration space; the workloads of networks.")

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


@app.command(epilog="Example: workbench space networks --json")
def networks(as_json: JsonOption = False) -> None:
    """List the networks whose convolutions are known: how many they have, how many differ, and their work."""
    from workbench.kernels import networks as known

    records = []
    for name in known.networks():
        layers = known.network(name)
        records.append(
            {"network": name, "convolutions": _count(layers), "distinct": len(layers), "winograd": len(known.winograd_layers(name)), "gflop": _gflop(layers)}
        )
    if as_json:
        print(json.dumps(records))
        return
    rows = [(*(str(record[column]) for column in ("network", "convolutions", "distinct", "winograd")), f"{record['gflop']:.3f}") for record in records]
    _table("networks at 1 x 3 x 224 x 224", ("network", "convolutions", "distinct", "winograd", "GFLOP"), rows)


@app.command(epilog="Example: workbench space network resnet-18 --json")
def network(
    name: Annotated[str, typer.Argument(help="Name of a network, as `workbench space networks` shows them.")],
    winograd: Annotated[bool, typer.Option("--winograd", help="The layers that are also in the set as conv2d_winograd.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the distinct convolutions of a network: shape, how often each runs, GFLOP of one run. With --json the parameters are what --workload takes."""
    from workbench.kernels import networks as known

    layers = known.winograd_layers(name) if winograd else known.network(name)
    if as_json:
        print(json.dumps([_record(number, layer) for number, layer in enumerate(layers, 1)]))
        return
    if not layers:
        print(f"{name} has no layer as conv2d_winograd in the set")
        return
    title = f"{name} · {layers[0].workload.kernel} · {_count(layers)} convolutions, {len(layers)} distinct, {_gflop(layers):.3f} GFLOP"
    columns = ("layer", "input", "filters", "stride", "padding", "count", "GFLOP", "modules")
    _table(title, columns, [_row(number, layer) for number, layer in enumerate(layers, 1)])


def _count(layers: Sequence[Layer]) -> int:
    return sum(layer.count for layer in layers)


def _gflop(layers: Sequence[Layer]) -> float:
    return sum(layer.count * layer.flop for layer in layers) / 1e9


def _record(number: int, layer: Layer) -> dict[str, Any]:
    """A layer in plain JSON types."""
    work = {"kernel": layer.workload.kernel, "params": dict(layer.workload.params)}
    return {"layer": number, "id": layer.id, **work, "count": layer.count, "gflop": layer.flop / 1e9, "modules": layer.names}


def _row(number: int, layer: Layer) -> tuple[str, ...]:
    p = layer.workload.params
    shape = (f"{p['ci']}x{p['h']}x{p['w']}", f"{p['co']}x{p['kh']}x{p['kw']}", _text(p["stride"]), _text(p["padding"]))
    return (str(number), *shape, str(layer.count), f"{layer.flop / 1e9:.3f}", " ".join(layer.names))


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
        table.add_column(column, overflow="fold", no_wrap=column in ("index", "input", "filters"))
    for row in rows:
        table.add_row(*row)
    # Piped output is not a terminal of 80 columns: nothing is cut.
    Console(width=None if sys.stdout.isatty() else 160).print(table)
