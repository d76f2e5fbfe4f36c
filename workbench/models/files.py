"""Fitted models as files: JSON with a schema version, written whole or not at all. No pickle; what is read is checked before a model is built from it.

A file holds `schema` (SCHEMA), `workbench` (the version that wrote it) and what the model's own `to_json` gives. Numbers are written so that the same float64
comes back: a loaded model predicts bit for bit what the saved one did.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench import __version__
from workbench.errors import DataError, UsageError
from workbench.features.inputs import Term
from workbench.models.base import CostModel, Floats
from workbench.models.compact import CompactModel
from workbench.models.evidence import SmallNet
from workbench.models.linear import LinearModel
from workbench.models.nnc import Network
from workbench.models.training import n_weights
from workbench.models.trees import TreeModel

__all__ = ["SCHEMA", "Fields", "load_model", "model_of", "model_to_json", "read_json", "save_model", "write_json"]

SCHEMA = 1


def save_model(model: CostModel, path: Path | str) -> None:
    """Write a linear model, network (without its checkpoints) or compact model. The file appears whole or not at all.

    Raises:
        UsageError: trees or another kind of model, a model with a number that is not finite, or a path that cannot be written.
    """
    write_json(Path(path), {"schema": SCHEMA, "workbench": __version__, **model_to_json(model)}, f"model {model.name!r}")


def model_to_json(model: CostModel) -> dict[str, Any]:
    """A linear model, network or compact model as plain JSON types; `model_of` is the inverse. Raises UsageError for trees or another kind of model."""
    if isinstance(model, TreeModel):
        raise UsageError(f"model {model.name!r} is made of trees, which are not saved here: fit it again from its data set and seed, the result is the same")
    if not isinstance(model, LinearModel | Network | CompactModel):
        raise UsageError(f"model {model.name!r} is a {type(model).__name__}; only linear models, networks and compact models are saved")
    return model.to_json()


def write_json(path: Path, record: Mapping[str, Any], what: str) -> None:
    """Write a record, whole or not at all.

    Raises:
        UsageError: a number that is not finite, or a path that cannot be written; the message calls the record `what`.
    """
    try:
        text = json.dumps(record, allow_nan=False, indent=1)
    except ValueError:
        raise UsageError(f"{what} has a number that is not finite, so {path} was not written; fit it again") from None
    try:
        _write(path, text + "\n")
    except OSError as error:
        raise UsageError(f"{path}: {what} cannot be written there: {error.strerror or error}") from error


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def load_model(path: Path | str) -> CostModel:
    """The model of a file that `save_model` wrote; a network comes back without checkpoints.

    Raises:
        UsageError: no such file.
        DataError: names the file and what is wrong with it: not JSON (cut off, say), another schema version, an unknown kind or field, a missing field, a
            number that is not finite, sizes that do not fit each other.
    """
    path = Path(path)
    fields = Fields(path, read_json(path, "save_model writes one"))
    schema = fields.take("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        raise DataError(f"{path}: schema version {schema!r}; this workbench reads version {SCHEMA}")
    fields.text("workbench")
    return model_of(fields)


def read_json(path: Path, hint: str) -> dict[str, Any]:
    """The JSON object of a file; `hint` ends the messages of errors.

    Raises:
        UsageError: no such file, or one that cannot be read.
        DataError: not JSON (cut off, say), or not an object.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; {hint}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not whole JSON ({error}); {hint}") from error
    if not isinstance(record, dict):
        raise DataError(f"{path}: a {type(record).__name__}, not an object; {hint}")
    return record


def model_of(fields: Fields) -> CostModel:
    """The model that `model_to_json` described. Raises DataError as `load_model`."""
    kind = fields.text("kind")
    if kind not in _BUILDERS:
        raise DataError(f"{fields.path}: unknown kind of model {kind!r}; this workbench reads {', '.join(_BUILDERS)}")
    model = _BUILDERS[kind](fields)
    fields.done(f"a {kind} model")
    return model


@dataclass(frozen=True)
class Fields:
    """The fields of a record from a file, each taken out once and checked: what is missing or wrong is a DataError that begins with `path`."""

    path: Path | str
    record: dict[str, Any]

    def done(self, what: str) -> None:
        """Raises DataError if a field was not taken."""
        if self.record:
            raise DataError(f"{self.path}: unknown field {next(iter(self.record))!r} in {what}")

    def take(self, name: str) -> Any:
        """A field of any type."""
        if name not in self.record:
            raise DataError(f"{self.path}: the field {name!r} is missing")
        return self.record.pop(name)

    def wrong(self, name: str, value: Any, wanted: str) -> DataError:
        """The error that `name` is `value` and must be `wanted`."""
        shown = repr(value)
        return DataError(f"{self.path}: {name} is {shown if len(shown) <= 60 else shown[:60] + '...'}; it must be {wanted}")

    def text(self, name: str) -> str:
        """A text."""
        value = self.take(name)
        if not isinstance(value, str):
            raise self.wrong(name, value, "text")
        return value

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.take(name)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def number(self, name: str, positive: bool = False) -> float:
        """A finite number."""
        value = self.take(name)
        if not _finite(value) or (positive and value <= 0):
            raise self.wrong(name, value, "a positive, finite number" if positive else "a finite number")
        return float(value)

    def numbers(self, name: str, count: int, positive: bool = False) -> Floats:
        """A list of `count` finite numbers."""
        values = self.take(name)
        if not isinstance(values, list) or len(values) != count:
            raise self.wrong(name, values if not isinstance(values, list) else f"{len(values)} numbers", f"a list of {count} numbers")
        for place, value in enumerate(values):
            if not _finite(value) or (positive and value <= 0):
                raise self.wrong(f"{name}[{place}]", value, "a positive, finite number" if positive else "a finite number")
        return np.array(values, dtype=np.float64)

    def sizes(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers, 0 or more."""
        values = self.take(name)
        if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in values):
            raise self.wrong(name, values, "a list of sizes")
        return tuple(values)

    def terms(self) -> tuple[Term, ...]:
        """A list of terms over columns."""
        values = self.take("terms")
        if not isinstance(values, list) or not values:
            raise self.wrong("terms", values, "a list of at least one [operation, column]")
        terms = []
        for place, value in enumerate(values):
            if not isinstance(value, list) or len(value) not in (2, 3) or not all(isinstance(part, str) and part for part in value):
                raise self.wrong(f"terms[{place}]", value, "[operation, column] or [operation, column, second column]")
            try:
                terms.append(Term(*value))
            except UsageError as error:
                raise DataError(f"{self.path}: terms[{place}]: {error}") from None
        return tuple(terms)


def _finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _linear(fields: Fields) -> CostModel:
    terms = fields.terms()
    return LinearModel(fields.text("name"), terms, fields.numbers("weights", len(terms)), fields.number("intercept"))


def _network(fields: Fields) -> CostModel:
    terms, layers = fields.terms(), fields.sizes("layers")
    d = len(terms)
    if len(layers) < 2 or layers[0] != d or layers[-1] != 1 or 0 in layers:
        raise fields.wrong("layers", list(layers), f"sizes from {d}, the number of terms, to 1")
    return Network(
        fields.text("name"),
        terms,
        layers,
        fields.numbers("weights", n_weights(layers)),
        fields.numbers("centre", d),
        fields.numbers("scale", d, positive=True),
        fields.number("out_centre"),
        fields.number("out_scale", positive=True),
        fields.flag("log"),
    )


def _compact(fields: Fields) -> CostModel:
    terms, sizes = fields.terms(), fields.sizes("net")
    d = len(terms)
    if len(sizes) != 3 or sizes[0] != d or sizes[1] == 0:
        raise fields.wrong("net", list(sizes), f"[{d}, the number of terms; hidden units; log-linear terms]")
    net = SmallNet(*sizes)
    return CompactModel(
        fields.text("name"),
        terms,
        net,
        fields.numbers("weights", net.n_parameters),
        fields.numbers("centre", d),
        fields.numbers("scale", d, positive=True),
        fields.number("out_centre"),
        fields.number("out_scale", positive=True),
        fields.number("noise"),
    )


_BUILDERS: Mapping[str, Callable[[Fields], CostModel]] = {"linear": _linear, "network": _network, "compact": _compact}
