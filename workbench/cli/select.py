"""`workbench train` and `workbench select`: models of a kernel's variants, and the variant to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.tune.select import Choice, Selector, Variant
    from workbench.tune.trial import Trial

__all__ = ["app"]

app = typer.Typer()

KernelOption = Annotated[str, typer.Option("--kernel", help="mm, mv, mc or mp (matrix kernels), blur or fft (Halide).")]
DataOption = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="NAME", help="Data set to train on; give it again for more (default: all under data/raw of this machine's device)."),
]


@app.command(epilog="Example: workbench train --kernel mv --data nnc-mv-i5-500 --output mv.json")
def train(
    kernel: KernelOption,
    data: DataOption = None,
    rows: Annotated[int, typer.Option("--rows", help="Training rows of each data set; the others tell the error.")] = 250,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw and of the fit.")] = 0,
    output: Annotated[Path | None, typer.Option("--output", help="The file to write (default: KERNEL.json).")] = None,
) -> None:
    """Train a model for each data set of a kernel and write them to one JSON file for `workbench select --models`."""
    from workbench.data.datasets import load_dataset
    from workbench.kernels import kernel as kernel_of
    from workbench.tune.select import default_data, save_selector, train_selector

    described = kernel_of(kernel)
    names, note = (list(dict.fromkeys(data)), "") if data else default_data(described)
    datasets = [load_dataset(name) for name in names]
    if other := next((d for d in datasets if d.kernel.name != kernel), None):
        raise UsageError(f"data set {other.name!r} is of kernel {other.kernel.name!r}, not {kernel!r}")
    selector = train_selector(datasets, train=rows, seed=seed)
    path = output or Path(f"{kernel}.json")
    save_selector(selector, path)
    for source in selector.sources:
        left = source.rows - source.trained
        error = f"{source.mape:.2f}% on the {left:,} others (MAPE without the fastest 30%)" if source.mape is not None else "unknown: too few rows were left"
        print(f"{source.data_set}: {source.trained} of {source.rows:,} rows trained a model of {source.model.n_parameters} weights; error {error}")
    for line in (*selector.notes, *([note] if note else [])):
        print(f"note: {line}")
    print(f"trained in {selector.train_s:.2f} s: {path}")


@app.command(
    epilog="Example: workbench select --kernel mm --m 512 --n 512 --k 512",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def select(
    context: typer.Context,
    kernel: KernelOption,
    density: Annotated[float | None, typer.Option("--density", help="Density of every matrix that is not given by --d1, --d2 (default: 1).")] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Only variants of at most so many threads.")] = None,
    models: Annotated[Path | None, typer.Option("--models", help="File that `workbench train` wrote (default: trained on the data sets, and cached).")] = None,
    data: DataOption = None,
    count: Annotated[int, typer.Option("--count", min=1, help="How many variants to show, fastest first.")] = 5,
    tries: Annotated[
        int | None, typer.Option("--try", min=1, metavar="N", help="blur, fft: build, check and time N schedules here, and take the fastest.")
    ] = None,
    pin: Annotated[
        list[int] | None,
        typer.Option("--pin", metavar="CPU", help="With --try, run on this CPU only; give it again for more of them (default: the last, one a thread)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which variant of a kernel is predicted to be the fastest: library, threads, device, schedule. Nothing is run, except with --try.

    The kernel's parameters are options of their own: --m 512 --n 512 --k 512 for mm, --n 1024 for blur. Densities and the stride s may be left out.
    With --try 12 twelve schedules are built, checked and timed on this machine, one after another. The first is the one predicted to be the fastest, and of
    three one is what the networks rank first; the others a Gaussian process chooses, which knows every schedule that was measured and learns from each try. The
    three fastest then take turns, and the answer is the one with the least time, with what trying cost and after how many runs it is paid for.
    """
    from workbench.kernels import kernel as kernel_of
    from workbench.tune.select import default_selector, load_selector
    from workbench.tune.train import recipe_of
    from workbench.tune.variants import complete

    described = kernel_of(kernel)
    recipe_of(described)  # of a kernel without models no parameters are asked for
    if tries is not None:
        from workbench.tune.trial import check_tryable

        check_tryable(kernel)
    elif pin:
        raise UsageError("--pin says where --try runs its schedules; without --try nothing is run")
    given = _parameters(context.args)
    if density is not None:
        densities = [name for name in described.parameters if name in ("d1", "d2") and name not in given]
        if not densities:
            raise UsageError(f"kernel {kernel!r} has no density left for --density; its parameters are {', '.join(described.parameters)}")
        given |= dict.fromkeys(densities, density)
    inputs = complete(described, given)
    if models is not None and data:
        raise UsageError("--models names trained models and --data what to train on; give one of the two")
    selector = load_selector(models) if models is not None else default_selector(kernel, data or ())
    if selector.kernel.name != kernel:
        raise UsageError(f"{models}: its models are of kernel {selector.kernel.name!r}, not {kernel!r}")
    if threads is not None:
        selector = selector.at_most(threads)
    if tries is not None:
        _try(selector, inputs, tries, pin, as_json)
        return
    choice, ranking = selector.select(inputs), selector.ranking(inputs, count)
    if as_json:
        print(json.dumps(_document(selector, inputs, choice, ranking)))
    else:
        _show(selector, inputs, choice, ranking)


def _try(selector: Selector, inputs: dict[str, int | float], count: int, pin: list[int] | None, as_json: bool) -> None:
    from workbench.tune.trial import try_variants

    trial = try_variants(selector, inputs, count, pin=pin)
    if as_json:
        ranking = [(attempt.variant, attempt.predicted_s) for attempt in trial.attempts]
        print(json.dumps({**_document(selector, inputs, trial.asked, ranking), "trial": _trial_document(trial)}))
    else:
        _show_trial(selector, inputs, trial)


def _parameters(words: Sequence[str]) -> dict[str, int | float]:
    """`--m 512 --d1=0.5` as numbers."""
    given: dict[str, int | float] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise UsageError(f"{word!r} is no option; a parameter of the kernel is given as --name number")
        if not equals:
            if not rest:
                raise UsageError(f"--{name} has no value")
            text = rest.pop(0)
        try:
            number = float(text)
        except ValueError:
            raise UsageError(f"--{name} is {text!r}; it is a number") from None
        if name in given:
            raise UsageError(f"--{name} is given twice")
        given[name] = int(number) if number.is_integer() else number
    return given


def _show(selector: Selector, inputs: dict[str, int | float], choice: Choice, ranking: Sequence[tuple[Variant, float]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from workbench.tune.variants import duration

    workload = " ".join(f"{name}={value:g}" for name, value in inputs.items())
    table = Table(title=f"{selector.kernel.name} {workload} · {choice.variants:,} variant{'s' if choice.variants != 1 else ''}", title_justify="left")
    for column in ("variant", "predicted"):
        table.add_column(column, overflow="fold", justify="right" if column == "predicted" else "left")
    for variant, seconds in ranking:
        table.add_row(str(variant), duration(seconds))
    Console().print(table)
    print(f"run: {choice.variant}")
    print(_worth(choice))
    _show_sources(selector, [variant for variant, _ in ranking], choice.notes)


def _show_trial(selector: Selector, inputs: dict[str, int | float], trial: Trial) -> None:
    from rich.console import Console
    from rich.table import Table

    from workbench.tune.variants import duration

    workload = " ".join(f"{name}={value:g}" for name, value in inputs.items())
    title = f"{selector.kernel.name} {workload} · {len(trial.attempts)} of {trial.asked.variants:,} variants, tried here"
    table = Table(title=title, title_justify="left")
    for column in ("variant", "by", "predicted", "measured", "in turns", "status"):
        table.add_column(column, overflow="fold", justify="right" if column in ("predicted", "measured", "in turns") else "left")
    for attempt in trial.attempts:
        measured = "" if attempt.measured_s is None else duration(attempt.measured_s)
        turns = duration(min(attempt.turns_s)) if attempt.turns_s else ""
        table.add_row(str(attempt.variant), attempt.by, duration(attempt.predicted_s), measured, turns, str(attempt.status))
    Console().print(table)
    for attempt in trial.attempts:
        if attempt.error:
            print(f"{attempt.status}: {attempt.variant}: {attempt.error}")
    print(f"run: {trial.chosen.variant}")
    print(_paid(trial))
    _show_sources(selector, [attempt.variant for attempt in trial.attempts], (*trial.notes, *trial.asked.notes))


def _show_sources(selector: Selector, shown: Sequence[Variant], notes: Sequence[str]) -> None:
    for source in selector.sources:
        if source.data_set in {variant.data_set for variant in shown}:
            error = f"errs by {source.mape:.3g}% on the rows that did not train" if source.mape is not None else "has no rows left to tell its error"
            print(f"predicted from: {source.data_set}, whose model {error}")
    for note in notes:
        print(f"note: {note}")


def _paid(trial: Trial) -> str:
    from workbench.tune.variants import duration

    costs = f"trying cost {duration(trial.cost_s)}, asking costs {duration(trial.asked.cost_s)}"
    if trial.gain_s is None:
        return f"the first choice fails here ({trial.first.status}), which only trying tells; {costs}"
    if trial.runs_to_pay is None:
        return f"no other is faster than the first choice, so trying gained nothing here; {costs}"
    once = "" if trial.first.turns_s else ", which was measured once"
    gain = f"{duration(trial.gain_s)} a run less than the first choice ({100 * trial.gain_s / (trial.first.least_s or 1.0):.2g}%{once})"
    return f"{gain}; {costs}: trying pays after {trial.runs_to_pay:,} run{'s' if trial.runs_to_pay != 1 else ''}"


def _worth(choice: Choice) -> str:
    from workbench.tune.variants import duration

    asking = f"asking from Python costs {duration(choice.cost_s)}"
    if choice.default is None or choice.default_s is None or choice.gain_s is None:
        return f"gain unknown: the schedule that is best on average cannot run these inputs; {asking}"
    if choice.variant == choice.default:
        return f"it is the one that is best on average, so asking gains nothing here; {asking}"
    gain = f"{duration(choice.gain_s)} a run less than the best on average ({choice.default}, {duration(choice.default_s)}); {asking}"
    compiling = f" and compiling {duration(choice.compile_s)}" if choice.compile_s else ""
    return f"{gain}{compiling}: it pays after {choice.runs_to_pay:,} run{'s' if choice.runs_to_pay != 1 else ''}" if choice.runs_to_pay else gain


def _document(selector: Selector, inputs: dict[str, int | float], choice: Choice, ranking: Sequence[tuple[Variant, float]]) -> dict[str, Any]:
    import dataclasses

    return {
        "kernel": selector.kernel.name,
        "inputs": inputs,
        **dataclasses.asdict(choice),
        "sources": [{"data_set": source.data_set, "trained": source.trained, "mape": source.mape} for source in selector.sources],
        "ranking": [{**dataclasses.asdict(variant), "predicted_s": seconds} for variant, seconds in ranking],
    }


def _trial_document(trial: Trial) -> dict[str, Any]:
    import dataclasses

    def flat(attempt: Any) -> dict[str, Any]:
        record = dataclasses.asdict(attempt)
        return {**record.pop("variant"), **record, "status": str(attempt.status)}

    return {
        "attempts": [flat(attempt) for attempt in trial.attempts],
        "chosen": flat(trial.chosen),
        "gain_s": trial.gain_s,
        "cost_s": trial.cost_s,
        "runs_to_pay": trial.runs_to_pay,
        "notes": trial.notes,
    }
