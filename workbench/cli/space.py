"""`workbench space`: look into the configuration space of a workload."""

from __future__ import annotations

import typer

__all__ = ["app"]

app = typer.Typer(name="space", no_args_is_help=True, help="Size, samples and knob values of a workload's configuration space.")


