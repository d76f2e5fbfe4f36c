"""`workbench reproduce` and `workbench report`: run the papers' notebooks, and show how the results compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["app"]

app = typer.Typer()

_Profile = Annotated[str, typer.Option("--profile", "-p", help="smoke (minutes, does it run), standard, or paper (the papers' counts, hours).")]
_ManifestFile = Annotated[Path | None, typer.Option("--manifest", help="Another manifest, to run notebooks of your own.", exists=True, dir_okay=False)]


@app.command(epilog="Example: workbench reproduce 'nnc-*' --profile smoke")
def reproduce(
    tasks: Annotated[list[str] | None, typer.Argument(help="Names or patterns of tasks; all when none is given.")] = None,
    profile: _Profile = "standard",
    force: Annotated[bool, typer.Option("--force", help="Run also what is cached.")] = False,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="Notebooks at once (default: one a core).")] = None,
    scheduler: Annotated[str | None, typer.Option("--scheduler", help="Use another Dask cluster, such as tcp://host:8786.")] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Serve Dask's dashboard on loopback.")] = False,
    save_reference: Annotated[bool, typer.Option("--save-reference", help="Copy the finished runs to figures/ (profile paper).")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the tasks and end.")] = False,
    manifest_file: _ManifestFile = None,
) -> None:
    """Run the papers' notebooks and end with the scorecard.

    Finished tasks are cached; after Ctrl-C or a crash the same command goes on where it stopped.
    The exit code is 0 when all tasks ended well, 1 when one failed, 2 for a mistake in the call, 130 after Ctrl-C.
    """
    from rich.console import Console

    from workbench.errors import UsageError
    from workbench.paths import project_root
    from workbench.reproduce.manifest import load_manifest

    root, manifest = project_root(), load_manifest(manifest_file)
    selected = manifest.select(tasks or [])
    manifest.profile(profile)
    if show:
        for task in selected:
            typer.echo(f"{task.name:<24} {task.notebook:<40} {', '.join(task.items)}")
        return
    if save_reference and profile != "paper":
        raise UsageError(f"--save-reference needs --profile paper, not {profile}: a reference run has the papers' counts")

    from workbench.reproduce import run
    from workbench.reproduce.progress import RunView
    from workbench.reproduce.report import print_scorecard, write_html
    from workbench.reproduce.scorecard import build_scorecard

    errors = Console(stderr=True)
    try:
        with RunView(errors) as view:
            records = run.reproduce(root, manifest, profile, selected, view, force=force, jobs=jobs, scheduler=scheduler, dashboard=dashboard)
    except run.Interrupted as interrupted:
        kept = [str(record["task"]) for record in interrupted.records if record["status"] in ("ok", "cached")]
        errors.print(f"interrupted; kept: {', '.join(kept) or 'nothing yet'}. The same command goes on from here.")
        raise typer.Exit(130) from None
    failed = [record for record in records if record["status"] not in ("ok", "cached")]
    if save_reference:
        for folder in run.save_reference(root, profile, [task for task in selected if task.name not in {record["task"] for record in failed}]):
            errors.print(f"saved {folder.relative_to(root)}", highlight=False)
    scorecard = build_scorecard(root, profile)
    print_scorecard(scorecard, _wide(Console()))
    page = write_html(root, manifest, scorecard)
    typer.echo(f"\n{len(records) - len(failed)} of {len(records)} tasks ended well; every figure and table: {page}")
    if failed:
        for record in failed:
            typer.echo(f"failed: {record['task']}: {(record.get('error') or {}).get('text', record['status'])}", err=True)
        raise typer.Exit(1)


@app.command(epilog="Example: workbench report --json | jq '.rows[] | [.item, .verdict]'")
def report(
    as_json: Annotated[bool, typer.Option("--json", help="Print every row as JSON.")] = False,
    profile: Annotated[str | None, typer.Option("--profile", "-p", help="Fresh runs of this profile only (default: the newest of each task).")] = None,
    results: Annotated[bool, typer.Option("--results", help="Write RESULTS.md from the reference run in figures/.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Write runs/report.html.")] = False,
    sessions: Annotated[bool, typer.Option("--sessions", help="Keep the tuning sessions of the reports in data/sessions.")] = False,
    manifest_file: _ManifestFile = None,
) -> None:
    """Show every claim beside the reference run and the newest run, with a verdict."""
    import json

    from rich.console import Console

    from workbench.paths import project_root
    from workbench.reproduce.manifest import load_manifest
    from workbench.reproduce.report import print_scorecard, write_html, write_results
    from workbench.reproduce.scorecard import build_scorecard

    root, manifest = project_root(), load_manifest(manifest_file)
    if profile is not None:
        manifest.profile(profile)
    scorecard = build_scorecard(root, profile)
    written = [write_results(root, manifest)] if results else []
    written += [write_html(root, manifest, scorecard)] if html else []
    if sessions:
        from workbench.reproduce.tuning import archive
        from workbench.reproduce.tuning.contenders import contenders
        from workbench.reproduce.tuning.engine import kept_sessions
        from workbench.reproduce.tuning.experiments import EXPERIMENTS

        made = [made for make in EXPERIMENTS.values() if not (made := make()).reason and not made.recorded]
        kept = {experiment.name: found for experiment in made if (found := kept_sessions(experiment, contenders()))}
        written += [archive.write(name, found) for name, found in kept.items()]
    if as_json:
        typer.echo(json.dumps(scorecard.to_json(), indent=1, ensure_ascii=False))
    elif written:
        for path in written:
            typer.echo(f"wrote {path}")
    else:
        print_scorecard(scorecard, _wide(Console()))


def _wide(console: Console) -> Console:
    if not console.is_terminal:
        console.width = 200
    return console
