"""Variant selection: which library, number of threads, device and schedule to run a kernel with.

    best_variant("mm", {"m": 512, "n": 512, "k": 512}).variant      # trains on the data sets at hand once, then reads the cache

Where many answers are needed, keep a selector: `selector = train_selector([...])`, then `selector.choose(512, 512, 512, 1.0, 1.0)`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench import __version__
from workbench.data import datasets, local, registry
from workbench.errors import UsageError, WorkbenchError
from workbench.kernels import kernel as kernel_of
from workbench.kernels.base import Kernel
from workbench.kernels.matrix import KERNELS
from workbench.measure.host import cpu
from workbench.tune.files import VERSION, load_selector, save_selector
from workbench.tune.selector import Selector
from workbench.tune.train import TRAIN, recipe_of, space_of, train_selector
from workbench.tune.variants import Choice, Number, Variant

__all__ = ["Choice", "Selector", "Variant", "best_variant", "default_data", "default_selector", "load_selector", "save_selector", "train_selector"]

_ready: dict[str, Selector] = {}


def best_variant(
    kernel: str, inputs: Mapping[str, Number], *, threads: int | None = None, data: Sequence[str] = (), models: Path | str | None = None
) -> Choice:
    """The variant of a kernel that is predicted to be the fastest for some inputs, with its runner-up, what it gains, and whether it pays to ask.

    Args:
        kernel: name of a matrix kernel ("mm", "mv", "mc", "mp") or of a Halide kernel ("blur", "fft").
        inputs: its parameters; densities and the stride s may be left out and are then 1.
        threads: only variants of at most so many.
        data: names of the data sets to train on; none of them are all of this kernel that were measured on this machine (see `default_data`).
        models: a file of `save_selector` to read instead of training.

    Raises:
        UsageError: an unknown kernel or parameter, or no data set of the kernel at hand (the message says how to measure).
        DataError: a data set or file that cannot be used.
    """
    selector = load_selector(models) if models is not None else default_selector(kernel, data)
    if selector.kernel.name != kernel:
        raise UsageError(f"{models}: its models are of kernel {selector.kernel.name!r}, not {kernel!r}")
    return (selector if threads is None else selector.at_most(threads)).select(inputs)


def default_data(kernel: Kernel) -> tuple[list[str], str]:
    """Names of the data sets under `data/raw` that hold variants of a kernel: those of this machine's device, else all, and then a note that says so.

    Raises UsageError where there is none: the message names the commands that measure the kernel.
    """
    recipe_of(kernel)
    found = {}
    for name, folder in local.folders().items():
        header = local.read_header(folder)
        if header["kernel"] == kernel.name and _holds_variants(kernel, header["knobs"]):
            found[name] = header["device"].name
    if not found:
        group = "matrix" if kernel.name in KERNELS else "halide"
        what = "--library eigen" if group == "matrix" else f"{' '.join(f'--{name} 128' for name in kernel.parameters)} --schedules 400"
        raise UsageError(
            f"there are no measurements of {kernel.name!r} under data/raw; make them with: workbench measure {group} --kernel {kernel.name} {what}, "
            f"then: workbench measure export runs/measure/{group}.db --name {group}-cpu-here"
        )
    here = cpu().name
    own = [name for name, device in found.items() if device == here]
    if own:
        return own, ""
    return list(found), f"No data set of {kernel.name!r} was measured on this machine ({here}); these are of {', '.join(sorted(set(found.values())))}."


def _holds_variants(kernel: Kernel, knobs: Sequence[str]) -> bool:
    try:
        space_of(kernel, knobs)
    except UsageError:
        return False
    return True


def default_selector(kernel: str, data: Sequence[str] = ()) -> Selector:
    """The selector of a kernel's data sets: trained once, then read from the user's cache folder as long as data, recipe and version are the same.

    Args:
        kernel: its name.
        data: names of data sets; none are those of `default_data`.

    Raises:
        UsageError: an unknown kernel, or no data set of it.
        DataError, MissingData: a data set that cannot be read.
    """
    described = kernel_of(kernel)
    names, note = (list(dict.fromkeys(data)), "") if data else default_data(described)
    key = _key(described, names)
    path = registry.cache_folder() / "selectors" / f"{kernel}-{key}.json"
    if key not in _ready:
        try:
            _ready[key] = load_selector(path)
        except WorkbenchError:
            # Not there yet, or damaged: it is only a cache.
            _ready[key] = _trained(described, names, path)
    selector = _ready[key]
    if not note:
        return selector
    return Selector(selector.kernel, selector.sources, selector.created, selector.workbench, selector.train_s, (*selector.notes, note))


def _trained(kernel: Kernel, names: Sequence[str], path: Path) -> Selector:
    for name in names:
        if (found := datasets.describe(name)["kernel"]) != kernel.name:
            raise UsageError(f"data set {name!r} is of kernel {found!r}, not {kernel.name!r}")
    selector = train_selector([datasets.load_dataset(name) for name in names])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_selector(selector, path)
    except (OSError, UsageError):
        pass  # the next process trains again
    return selector


def _key(kernel: Kernel, names: Sequence[str]) -> str:
    """32 digits that change with the data, the recipe (the code of models and their inputs), the number of training rows, the package or the file format."""
    digest = hashlib.sha256(f"{__version__} {VERSION} {TRAIN} {type(recipe_of(kernel)).__name__}".encode())
    package = Path(__file__).parents[1]
    for path in sorted([*(package / "models").glob("*.py"), *(package / "features").glob("*.py")]):
        digest.update(path.read_bytes())
    for name in names:
        digest.update(name.encode() + b"\0")
        for file in datasets.describe(name)["files"]:
            digest.update(f"{file['key']} {file['sha256']}\0".encode())
    return digest.hexdigest()[:32]
