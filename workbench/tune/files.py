"""Selectors as files: one JSON object with the models, their variants and where they come from. What is read is checked before a selector is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import DataError, UsageError
from workbench.kernels import kernel
from workbench.kernels.base import Kernel
from workbench.models.compiled import compile_model
from workbench.models.files import Fields, model_of, model_to_json, read_json, write_json
from workbench.schema import Device
from workbench.tune.selector import Selector
from workbench.tune.variants import Number, Source

__all__ = ["FORMAT", "VERSION", "load_selector", "save_selector"]

FORMAT, VERSION = "workbench selector", 2


def save_selector(selector: Selector, path: Path | str) -> None:
    """Write a selector. The file appears whole or not at all.

    Raises:
        UsageError: a model that cannot be saved or has a number that is not finite, or a path that cannot be written.
    """
    record = {
        "format": FORMAT,
        "version": VERSION,
        "workbench": selector.workbench,
        "created": selector.created,
        "kernel": selector.kernel.name,
        "train_s": selector.train_s,
        "notes": list(selector.notes),
        "sources": [_to_json(source) for source in selector.sources],
    }
    write_json(Path(path), record, f"the selector of {selector.kernel.name!r}")


def load_selector(path: Path | str) -> Selector:
    """The selector of a file that `save_selector` wrote: it chooses and predicts bit for bit what the saved one did.

    Raises:
        UsageError: no such file.
        DataError: names the file and what is wrong with it: not JSON (cut off, say), another format or version, an unknown kernel or field, a missing field, a
            number that is not finite, a model whose inputs are no columns of its variants.
    """
    path = Path(path)
    fields = Fields(path, read_json(path, "`workbench train` writes one"))
    if (found := fields.take("format")) != FORMAT:
        raise fields.wrong("format", found, repr(FORMAT))
    if (version := fields.take("version")) != VERSION or isinstance(version, bool):
        raise DataError(f"{path}: version {version!r} of the format; this workbench reads version {VERSION}: train again")
    written, created, name = fields.text("workbench"), fields.text("created"), fields.text("kernel")
    try:
        described = kernel(name)
    except UsageError as error:
        raise DataError(f"{path}: {error}") from None
    train_s, notes = fields.number("train_s"), _texts(fields, "notes")
    records = fields.take("sources")
    if not isinstance(records, list) or not records:
        raise fields.wrong("sources", records, "a list of at least one source")
    sources = tuple(_source(_nested(fields, f"sources[{i}]", record), described) for i, record in enumerate(records))
    fields.done("a selector")
    return Selector(described, sources, created, written, train_s, notes)


def _to_json(source: Source) -> dict[str, Any]:
    plain = {field.name: getattr(source, field.name) for field in dataclasses.fields(source) if field.name not in ("device", "model")}
    return {**plain, "device": dataclasses.asdict(source.device), "model": model_to_json(source.model)}


def _source(fields: Fields, described: Kernel) -> Source:
    knobs, space = _texts(fields, "knobs"), fields.text("space")
    if space and space not in described.spaces:
        raise fields.wrong("space", space, f"one of kernel {described.name!r}: {', '.join(described.spaces) or 'none'}")
    configs = fields.take("configs")
    if not isinstance(configs, list) or not configs or (space and len(configs) > 1):
        raise fields.wrong("configs", configs, "a list of one variant" if space else "a list of at least one variant")
    model = model_of(_nested(fields, "model", fields.take("model")))
    if extra := [c for c in compile_model(model).columns if c not in (*described.parameters, *knobs, "c")]:
        raise DataError(f"{fields.path}: its model reads {extra[0]!r}, which is no parameter of kernel {described.name!r} and no knob ({', '.join(knobs)})")
    ranges = _nested(fields, "ranges", fields.take("ranges"))
    bounds = {name: tuple(ranges.numbers(name, 2).tolist()) for name in described.parameters}
    ranges.done("ranges")
    source = Source(
        data_set=fields.text("data_set"),
        sha256=_mapping(fields, "sha256", lambda value: isinstance(value, str), "a checksum"),
        device=_device(fields),
        library=fields.text("library"),
        threads=_whole(fields, "threads"),
        knobs=knobs,
        space=space,
        configs=tuple(_config(fields, f"configs[{i}]", config, knobs) for i, config in enumerate(configs)),
        averages=tuple(fields.numbers("averages", len(configs), positive=True).tolist()),
        ranges=bounds,
        rows=_whole(fields, "rows") or 0,
        trained=_whole(fields, "trained") or 0,
        seed=_whole(fields, "seed") or 0,
        recipe=fields.text("recipe"),
        mape=_number(fields, "mape"),
        compile_s=_number(fields, "compile_s"),
        model=model,
        measured=_measured(fields, (*described.parameters, *knobs, "time_s")),
    )
    fields.done("a source")
    return source


def _nested(fields: Fields, name: str, record: Any) -> Fields:
    if not isinstance(record, dict):
        raise fields.wrong(name, record, "an object")
    return Fields(f"{fields.path}: {name}", record)


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    values = fields.take(name)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise fields.wrong(name, values, "a list of texts")
    return tuple(values)


def _mapping(fields: Fields, name: str, good: Callable[[Any], bool], wanted: str) -> dict[str, Any]:
    values: dict[str, Any] = _nested(fields, name, fields.take(name)).record
    for key, value in values.items():
        if not good(value):
            raise fields.wrong(f"{name}[{key!r}]", value, wanted)
    return values


def _config(fields: Fields, name: str, record: Any, knobs: tuple[str, ...]) -> Mapping[str, Number]:
    nested = _nested(fields, name, record)
    config = {knob: nested.number(knob) for knob in knobs}
    nested.done("a variant")
    if (threads := config.get("threads", 1)) < 1 or threads != int(threads):
        raise nested.wrong("threads", threads, "a whole number, 1 or more")
    return {knob: _plain(value) for knob, value in config.items()}


def _plain(value: float) -> Number:
    return int(value) if value == int(value) else value


def _measured(fields: Fields, columns: tuple[str, ...]) -> dict[str, tuple[float, ...]]:
    nested = _nested(fields, "measured", fields.take("measured"))
    if not nested.record:
        return {}
    seconds = nested.record.get("time_s")
    rows = len(seconds) if isinstance(seconds, list) else 0
    found = {name: tuple(map(_plain, nested.numbers(name, rows, positive=name == "time_s").tolist())) for name in columns}
    nested.done("measurements")
    if not rows:
        raise nested.wrong("time_s", seconds, "a list of at least one time")
    return found


def _device(fields: Fields) -> Device:
    record = fields.take("device")
    try:
        return Device(**record)
    except (TypeError, DataError) as error:
        raise DataError(f"{fields.path}: device is not one: {error}") from None


def _whole(fields: Fields, name: str) -> int | None:
    value = fields.take(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise fields.wrong(name, value, "a whole number, 0 or more, or null")
    return value


def _number(fields: Fields, name: str) -> float | None:
    if fields.record.get(name, 0) is None:
        fields.take(name)
        return None
    return fields.number(name)
