"""Halide's own autoschedulers, the baselines of NN+C's variant selection: Mullapudi2016 is the paper's, the other two came later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.errors import UsageError

if TYPE_CHECKING:
    import halide as hl

__all__ = ["AUTOSCHEDULERS", "apply"]

AUTOSCHEDULERS = ("Mullapudi2016", "Adams2019", "Li2018")

_loaded: set[str] = set()


def apply(pipeline: hl.Pipeline, scheduler: str, parallelism: int) -> str:
    """Give `pipeline` the schedule that an autoscheduler chooses for this machine, and return that schedule as Halide's C++ text.

    Args:
        pipeline: a pipeline without a schedule, whose inputs and outputs have estimates.
        scheduler: one of AUTOSCHEDULERS.
        parallelism: threads that the schedule is meant for.

    Raises:
        UsageError: there is no such autoscheduler.
        halide.HalideError: it finds no schedule.
    """
    from pathlib import Path

    import halide as hl

    if scheduler not in AUTOSCHEDULERS:
        raise UsageError(f"there is no autoscheduler {scheduler!r}; there are {', '.join(AUTOSCHEDULERS)}")
    if scheduler not in _loaded:
        folders = [Path(hl.install_dir()) / name for name in ("lib64", "lib")]
        found = [path for folder in folders for path in folder.glob(f"libautoschedule_{scheduler.lower()}.*")]
        if not found:
            raise UsageError(f"Halide's plug-in {scheduler} is not in {hl.install_dir()}; install the wheel: pip install halide")
        hl.load_plugin(str(found[0]))
        _loaded.add(scheduler)
    parameters = {"parallelism": str(parallelism)}
    if scheduler == "Mullapudi2016":
        # Halide's generic machine: a last cache of 16 MiB, and a load as dear as 40 operations.
        parameters |= {"last_level_cache_size": str(16 << 20), "balance": "40"}
    chosen = pipeline.apply_autoscheduler(hl.get_jit_target_from_environment(), hl.AutoschedulerParams(scheduler, parameters))
    return str(chosen.schedule_source)
