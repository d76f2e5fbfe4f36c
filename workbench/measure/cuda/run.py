"""Measure a bundle on this machine's GPU within a budget of time: `python -m workbench.measure.cuda.run BUNDLE --out FOLDER --budget-s 540`.

Needed are Python 3.10, numpy, pyarrow, a CUDA driver and a compiler (the package nvidia-cuda-nvrtc, which torch brings, or a CUDA toolkit); of this package its
files. Every record is on the disk before the next candidate begins. Exit codes: 0 measured, or as much as the budget allowed; 2 nothing can be measured here;
3 the first programs of most groups are wrong, and nothing else was measured; 4 it did not end by itself within the budget; 130 it was stopped.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from workbench.errors import StoreError, UsageError, WorkbenchError
from workbench.measure.cuda.bundle import Bundle, read_bundle
from workbench.measure.cuda.clocks import Clocks, driver_version
from workbench.measure.cuda.gpu import POLICY, describe_policy, device_of, open_gpu
from workbench.measure.cuda.measuring import Clock, Log, Measuring
from workbench.measure.cuda.records import Results, identity_of, read_results, right_groups
from workbench.measure.cuda.schedule import Schedule
from workbench.measure.host import usable_cpus

__all__ = ["Options", "main", "run_bundle"]

# Nothing can be measured here.
ABSENT = 2

# Of every group.
_NOTES = ("relative_error is the largest error of an output relative to the sum of the sizes of its terms; each was compared with a direct computation.",)


@dataclass(frozen=True)
class Options:
    """How a bundle is measured.

    Attributes:
        budget_s: seconds after which all has ended.
        done: folders of earlier results; what stands there is not measured again.
        workers: number of compiling processes; None is the number of CPUs minus two.
        compile_limit_s, run_limit_s: seconds that a program, and a candidate's run with its checks, may take.
        compiler: a name in `compile.COMPILERS`; None takes the first that works.
        device: number of the device.
        cubins: folder where machine code is kept and found again; None keeps none.
        flush: whether the caches are emptied before every run that is timed.
        groups: only candidates of these groups; none: all.
        most: at most so many candidates; None: all.
    """

    budget_s: float = 540.0
    done: Sequence[Path] = ()
    workers: int | None = None
    compile_limit_s: float = 10.0
    run_limit_s: float = 20.0
    compiler: str | None = None
    device: int = 0
    cubins: Path | None = None
    flush: bool = False
    groups: Sequence[str] = ()
    most: int | None = None


def run_bundle(path: Path, out: Path, options: Options) -> int:
    """Measure the candidates of a bundle in their order until the budget ends, and return the exit code.

    Raises:
        UsageError: options that cannot be used, or a folder that has other results.
        MissingData, DataError: the bundle or earlier results cannot be read.
        DeviceError, BuildError: no GPU or no compiler.
        StoreError: the results cannot be written.
    """
    clock = Clock(options.budget_s)
    bundle = read_bundle(path)
    for group in options.groups:
        if group not in {candidate.group for candidate in bundle.candidates}:
            raise UsageError(f"{path}: it has no group {group!r}; it has {', '.join(sorted({candidate.group for candidate in bundle.candidates}))}")
    earlier = [entry for folder in options.done for entry in read_results(folder)[1]]
    done = {identity_of(entry) for entry in earlier}
    wanted = [
        number
        for number, candidate in enumerate(bundle.candidates)
        if bundle.identities[number] not in done and (not options.groups or candidate.group in options.groups)
    ][: options.most]
    try:
        out.mkdir(parents=True, exist_ok=True)
        log = Log(out / "log.txt", clock)
    except OSError as error:
        raise StoreError(f"{out}: cannot be written ({error.strerror or error}); name a folder that can be written") from error
    with ExitStack() as stack:
        stack.callback(log.close)
        folder = options.cubins or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="workbench-cuda-", ignore_cleanup_errors=True)))
        folder.mkdir(parents=True, exist_ok=True)
        workers = options.workers or max(1, usable_cpus() - 2)
        log.say(f"bundle {path.name}: {len(bundle.candidates):,} candidates, {len(done):,} measured earlier, {len(wanted):,} to measure; {workers} compilers")
        gpu, pool, facts = open_gpu(
            folder, compiler=options.compiler, device=options.device, flush=options.flush, workers=workers, limit_s=options.compile_limit_s
        )
        stack.enter_context(pool)
        stack.enter_context(gpu)
        header = _header(bundle, facts, options)
        results = Results(out, header, going_on=any(folder.resolve() == out.resolve() for folder in options.done))
        schedule = Schedule(bundle, wanted, right_groups(earlier))
        run = Measuring(bundle, schedule, gpu, pool, results, log, clock, options.run_limit_s, header["device"]["name"])
        return run.all(out, header, Clocks(options.device))


def _header(bundle: Bundle, facts: dict[str, Any], options: Options) -> dict[str, Any]:
    """How the results of this run are made."""
    return {
        "bundle": bundle.sha256,
        "made_by": bundle.made_by,
        "notes": {**bundle.notes, "": _NOTES},
        "policy": describe_policy(POLICY, options.flush),
        "compiler": facts["compiler"],
        "driver": ", ".join(filter(None, (driver_version(options.device), f"CUDA {facts['driver_cuda'] // 1000}.{facts['driver_cuda'] % 1000 // 10}"))),
        "device": asdict(device_of(facts)),
        "facts": facts,
        "started": time.time(),
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in ("numpy", "pyarrow")}},
        "options": {"budget_s": options.budget_s, "compile_limit_s": options.compile_limit_s, "run_limit_s": options.run_limit_s},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m workbench.measure.cuda.run", description="Measure a bundle on this machine's GPU.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--budget-s", type=_positive, default=Options.budget_s, help="seconds after which all has ended (default: %(default)g)")
    parser.add_argument("--skip-done", type=Path, action="append", default=[], help="folder of earlier results, not to be measured again; may be given again")
    parser.add_argument("--workers", type=int, help="compiling processes (default: the CPUs minus two)")
    parser.add_argument("--compile-limit-s", type=_positive, default=Options.compile_limit_s)
    parser.add_argument("--run-limit-s", type=_positive, default=Options.run_limit_s)
    parser.add_argument("--compiler", help="nvrtc or nvcc (default: the first that works)")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--cubins", type=Path, help="folder where machine code is kept and found again")
    parser.add_argument("--flush", action="store_true", help="empty the caches before every run that is timed")
    parser.add_argument("--group", action="append", default=[], help="only these groups; may be given again")
    parser.add_argument("--most", type=int, help="at most so many candidates")
    given = parser.parse_args(arguments)
    options = Options(
        budget_s=given.budget_s,
        done=given.skip_done,
        workers=given.workers,
        compile_limit_s=given.compile_limit_s,
        run_limit_s=given.run_limit_s,
        compiler=given.compiler,
        device=given.device,
        cubins=given.cubins,
        flush=given.flush,
        groups=given.group,
        most=given.most,
    )
    try:
        return run_bundle(given.bundle, given.out, options)
    except WorkbenchError as error:
        print(f"workbench: {' '.join(str(error).split())}", file=sys.stderr)
        return ABSENT


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


_positive.__name__ = "positive number"


if __name__ == "__main__":
    sys.exit(main())
