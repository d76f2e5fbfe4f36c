"""`workbench measure bundle | run-bundle | import-bundle`: measure on a GPU that is in another machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workbench.measure.cuda.draft import Draft

__all__ = ["app"]

app = typer.Typer()

_KINDS = ("matrix", "blur", "convolutions")
# Of the time that is left, for each kind but the last. Matrix kernels and blur take no compiler: they are measured while the first convolutions are compiled.
_FIRST_SHARE = 0.25


@app.command(epilog="Example: workbench measure bundle --kernels matrix --instances 500 --output matrix.bundle")
def bundle(
    kernels: Annotated[
        list[str], typer.Option("--kernels", help="matrix (NN+C's, in CUDA), blur (in Halide's schedules), or convolutions (in TVM's); may be given again.")
    ],
    output: Annotated[Path, typer.Option("--output", help="The bundle: one file.")],
    instances: Annotated[int, typer.Option("--instances", min=1, help="Instances of each matrix kernel: those of workbench measure matrix.")] = 500,
    configurations: Annotated[int, typer.Option("--configurations", min=1, help="Configurations of each convolution, and of blur at each size.")] = 100,
    size: Annotated[list[int] | None, typer.Option("--size", help="Side of blur's images, may be given again (default: the paper's, 1,024 to 32,768).")] = None,
    network: Annotated[
        list[str] | None, typer.Option("--network", help="Convolutions of this network only, may be given again; training: MetaTune's training kernels.")
    ] = None,
    arch: Annotated[str, typer.Option("--arch", help="The oldest architecture that convolutions and blur should run on.")] = "sm_80",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw and of the inputs.")] = 0,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Processes that make programs (default: the CPUs that may be used).")] = None,
) -> None:
    """Put programs, inputs and what results are compared with into one file, to be measured where the GPU is.

    Needs no GPU. There, with this package's files, Python, numpy, pyarrow and a CUDA driver, nothing else has to be installed:
    python -m workbench.measure.cuda.run BUNDLE --out RESULTS --budget-s 540
    """
    from workbench.measure.cuda import matrix
    from workbench.measure.cuda.draft import Draft

    for kind in kernels:
        if kind not in _KINDS:
            raise UsageError(f"--kernels {kind!r}; it is {', '.join(_KINDS[:-1])} or {_KINDS[-1]}")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"--output {output}: the folder {output.absolute().parent} is not there; make it first")
    draft = Draft()
    made_by = "workbench measure bundle"
    ordered = [kind for kind in _KINDS if kind in kernels]
    shares = {kind: _FIRST_SHARE if kind != ordered[-1] else 1.0 for kind in ordered}
    if "matrix" in kernels:
        matrix.add(draft, instances, seed, share=shares["matrix"])
        made_by += f" --kernels matrix --instances {instances}"
    if "blur" in kernels:
        _add_blur(draft, size or [], configurations, arch, seed, workers, shares["blur"])
        made_by += f" --kernels blur --configurations {configurations} --arch {arch}{''.join(f' --size {n}' for n in size or [])}"
    if "convolutions" in kernels:
        _add_convolutions(draft, network or [], configurations, arch, seed, workers)
        made_by += f" --kernels convolutions --configurations {configurations} --arch {arch}{''.join(f' --network {name}' for name in network or [])}"
    draft.write(output, f"{made_by} --seed {seed}")
    stages = ", ".join(f"{stage.name} {stage.candidates:,}" for stage in draft.stages)
    print(f"{output}: {len(draft.candidates):,} candidates ({stages}), {output.stat().st_size / 1e6:.1f} MB")
    print(f"where the GPU is: python -m workbench.measure.cuda.run {output.name} --out RESULTS --budget-s 540")


def _add_blur(draft: Draft, sizes: Sequence[int], configurations: int, arch: str, seed: int, workers: int | None, share: float) -> None:
    from tqdm.auto import tqdm

    from workbench.kernels.blur import SIZES
    from workbench.measure.cuda import blur
    from workbench.measure.host import usable_cpus

    with tqdm(desc="schedules", unit="schedule", disable=None) as bar:
        missing = blur.add(draft, sizes or SIZES, configurations, arch=arch, seed=seed, share=share, workers=workers or usable_cpus(), told=bar.update)
    _tell_missing(missing)


def _add_convolutions(draft: Draft, chosen: Sequence[str], configurations: int, arch: str, seed: int, workers: int | None) -> None:
    from tqdm.auto import tqdm

    from workbench.kernels import networks
    from workbench.measure.cuda import convolutions
    from workbench.measure.host import usable_cpus
    from workbench.schema import Workload

    workloads: dict[Workload, None] = {}
    for name in chosen or [*networks.networks(), "training"]:
        if name == "training":
            workloads |= dict.fromkeys(networks.training_kernels())
        else:
            workloads |= dict.fromkeys(layer.workload for layer in (*networks.network(name), *networks.winograd_layers(name)))
    with tqdm(total=configurations * len(workloads), desc="programs", unit="program", disable=None) as bar:
        missing = convolutions.add(draft, list(workloads), configurations, arch=arch, seed=seed, workers=workers or usable_cpus(), told=bar.update)
    _tell_missing(missing)


def _tell_missing(missing: Mapping[str, int]) -> None:
    for reason, count in sorted(missing.items(), key=lambda item: -item[1])[:5]:
        print(f"  {count:,} configurations left out: {reason}")


@app.command("run-bundle", epilog="Example: workbench measure run-bundle matrix.bundle --out results --budget-s 540")
def run_bundle(
    path: Annotated[Path, typer.Argument(metavar="BUNDLE", help="What `workbench measure bundle` has made.", exists=True, dir_okay=False)],
    out: Annotated[Path, typer.Option("--out", help="Folder for the results.")],
    budget_s: Annotated[float, typer.Option("--budget-s", min=1.0, help="Seconds after which all has ended.")] = 540.0,
    skip_done: Annotated[
        list[Path] | None, typer.Option("--skip-done", help="Folder of earlier results, not to be measured again; may be given again.")
    ] = None,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Compiling processes (default: the CPUs minus two).")] = None,
    group: Annotated[list[str] | None, typer.Option("--group", help="Only these groups, such as mm-global or conv2d; may be given again.")] = None,
    flush: Annotated[bool, typer.Option("--flush", help="Empty the caches before every run that is timed.")] = False,
    cubins: Annotated[Path | None, typer.Option("--cubins", help="Folder where machine code is kept and found again.")] = None,
) -> None:
    """Measure a bundle on this machine's GPU, within a budget of time.

    Every record is on the disk before the next candidate begins; with --skip-done the next run goes on. The same without the packages of this command line:
    python -m workbench.measure.cuda.run.
    """
    from workbench.measure.cuda import run

    options = run.Options(budget_s=budget_s, done=skip_done or (), workers=workers, groups=group or (), flush=flush, cubins=cubins)
    code = run.run_bundle(path, out, options)
    if code:
        raise typer.Exit(code)


@app.command("import-bundle", epilog="Example: workbench measure import-bundle results --name h200")
def import_bundle(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS", help="Folders that runs have written, in their order.", exists=True, file_okay=False)],
    name: Annotated[str, typer.Option("--name", help="The device in the data sets' names, such as conv-gpu-NAME-conv2d.")],
    note: Annotated[list[str] | None, typer.Option("--note", metavar="TEXT", help="A sentence for the notes of each; may be given several times.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace data sets of these names.")] = False,
) -> None:
    """Make data sets of what runs on a GPU have brought back, as folders under data/raw: `workbench data list` shows them, and models can learn from them.

    What several runs have measured becomes one row: its time is the least of all attempts.
    """
    from workbench.measure.cuda.importing import import_results
    from workbench.paths import project_root

    root = project_root() / "data" / "raw"
    for dataset, rows in import_results(results, name, root, notes=note or (), replace=replace).items():
        print(f"{root / dataset}: {rows:,} rows")
