"""How a series was measured, kept as a note in its store: what was measured otherwise does not join it, and a data set states it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from workbench.errors import DataError, UsageError

if TYPE_CHECKING:
    from workbench.data.store import Store

__all__ = ["claim", "recorded"]

# What every series states; a runner may add to it.
_STATED = ("compiler", "policy", "device", "seed", "command")


def claim(store: Store, series: str, title: str, provenance: Mapping[str, str]) -> None:
    """Keep how a series is measured, or compare it with what is kept.

    Args:
        store: where the series is.
        series: name of its note.
        title: what is measured, for the message.
        provenance: how, in texts.

    Raises:
        UsageError: the store has measurements of the series that were made otherwise (compiler, policy, seed, ...).
    """
    kept = json.loads(store.note(series, json.dumps(provenance, sort_keys=True)) or "{}")
    for key, value in provenance.items():
        if kept.get(key, value) != value:  # an earlier version may not have stated it
            raise UsageError(f"{store.path}: its measurements of {title} have {key} {kept[key]!r}, these would have {value!r}; use another store")


def recorded(store: Store, series: str, title: str) -> dict[str, str]:
    """How a series was measured. Raises DataError where the store does not say it, or not whole."""
    note = store.note(series)
    if note is None:
        raise DataError(f"{store.path}: it does not say how {title} was measured; measure it with `workbench measure`, into a store of its own")
    try:
        provenance = {str(key): str(value) for key, value in json.loads(note).items()}
        json.loads(provenance["device"])
    except (ValueError, AttributeError, KeyError) as error:
        raise DataError(f"{store.path}: its note on how {title} was measured cannot be read ({error!r}); restore the store from a copy") from error
    if missing := [key for key in _STATED if key not in provenance]:
        raise DataError(f"{store.path}: its note on how {title} was measured lacks {', '.join(missing)}; restore the store from a copy")
    return provenance
