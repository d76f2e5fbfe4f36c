"""The command line: `workbench data|space|measure|train|select|tune|reproduce|report`.

Each module of this package holds the commands of one part and exports `app`, a Typer application; `build` joins them. They import what is heavy inside
their functions, so that `workbench --help` stays quick.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from workbench.errors import MissingPackage, WorkbenchError

__all__ = ["build", "main"]

# A module whose `app` has a name becomes a group of that name; the commands of one without a name stand at the top.
PARTS = ("workbench.cli.data", "workbench.cli.space", "workbench.cli.measure", "workbench.cli.select", "workbench.cli.tune", "workbench.cli.reproduce")


class OneLineErrors(TyperGroup):
    """A command group that turns an error of the user's into one line on stderr and a non-zero exit; a fault of ours keeps its traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command; with `standalone_mode` end the process with its exit code, else let errors through."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except typer.Abort:
            code = _complain("aborted", 1)
        except typer.TyperException as error:
            code = _complain(error.format_message(), getattr(error, "exit_code", 2))
        except WorkbenchError as error:
            code = _complain(str(error), 2)
        except ModuleNotFoundError as error:
            if not error.name or error.name.partition(".")[0] == "workbench":
                raise
            code = _complain(str(MissingPackage.needed_by("this command", error)), 2)
        sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int) -> int:
    # A bare `workbench` shows its help, which reaches this point as an error without text.
    line = " ".join(message.split())
    if line:
        print(f"workbench: {line}", file=sys.stderr)
    return code


def build() -> typer.Typer:
    """The application with the commands of every part."""
    app = typer.Typer(
        name="workbench",
        cls=OneLineErrors,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Learned kernel-performance models and auto-tuning: data sets, configuration spaces, and two papers reproduced from raw measurements.",
        epilog="Example: workbench reproduce --profile smoke",
    )

    @app.callback()
    def workbench() -> None:
        pass

    for name in PARTS:
        app.add_typer(importlib.import_module(name).app)
    return app


def main() -> None:
    """Entry point of the `workbench` command."""
    build()(prog_name="workbench")
