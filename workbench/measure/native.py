"""Measure the matrix kernels on this CPU: instances go in, measurements come out, each of them in the store before it is handed on."""

from __future__ import annotations

import json
import platform
import random
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from workbench.data.store import Store
from workbench.errors import DataError, UsageError
from workbench.kernels.matrix import INSTANCES, KERNELS, LIBRARIES
from workbench.kernels.matrix.reference import difference, read_run
from workbench.measure.build import FLAGS, build, find_compiler
from workbench.measure.host import cpu, load, memory_limit_bytes, processor, usable_cpus
from workbench.measure.isolation import Child, ChildFailure, Closing, checked_cpus, plain_environment
from workbench.measure.provenance import claim
from workbench.measure.timing import Policy, fault
from workbench.schema import Device, Measurement, Status, Workload

__all__ = ["Instance", "Runner", "draw", "open_series", "series"]

# One of so many runs hands its matrices back, to be checked against numpy; which ones depends on the instance only.
_CHECKED_ONE_IN = 20


@dataclass(frozen=True)
class Instance:
    """A workload and the number of threads to run it on."""

    workload: Workload
    threads: int = 1


def draw(kernel: str, library: str, count: int, *, seed: int = 0, max_threads: int | None = None) -> list[Instance]:
    """Instances as in NN+C's Table II: every library gets the same workloads; threads are uniform in 1..`max_threads`, always 1 for a library without.

    Args:
        kernel, library: names in KERNELS and LIBRARIES.
        count: how many; a longer draw begins with a shorter one.
        seed: of the draw.
        max_threads: None is the number of usable CPUs.

    Raises:
        UsageError: an unknown name, or a number that cannot be used.
    """
    if kernel not in KERNELS:
        raise UsageError(f"there is no matrix kernel {kernel!r}; there are {', '.join(KERNELS)}")
    if library not in LIBRARIES:
        raise UsageError(f"there is no library {library!r}; there are {', '.join(LIBRARIES)}")
    most = usable_cpus() if max_threads is None else max_threads
    if most < 1:
        raise UsageError(f"at most {most} threads; use 1 or more")
    generator = random.Random(f"threads {seed}")
    workloads = [KERNELS[kernel].workload(params) for params in INSTANCES[kernel].draw(count, seed)]
    # Drawn where the library has none, too: `threads` does not depend on what was drawn before.
    return [Instance(workload, generator.randint(1, most) if LIBRARIES[library].threads else 1) for workload in workloads]


class Runner(Closing):
    """Runs a library's program and keeps every attempt in a store, under this CPU's name, with the library as the name of the space.

    Args:
        library: "eigen" or "boost".
        store: where measurements go.
        policy: how often a kernel is run.
        run_limit_s: seconds that one instance may take, with the making of its inputs.
        pin: CPUs that the program may run on; none: all.
        seed: of the matrices' contents.
        command: the program, for one that is built already; None builds it when first needed.
        device: None is this machine's CPU.
        made_by: the command line that makes the series, without the number of instances.

    Attributes:
        provenance: what a series of measurements was made with, in texts; the store holds it, and refuses rows made with anything else.
    """

    def __init__(
        self,
        library: str,
        store: Store,
        *,
        policy: Policy | None = None,
        run_limit_s: float = 60.0,
        pin: Sequence[int] = (),
        seed: int = 0,
        command: Sequence[str] | None = None,
        device: Device | None = None,
        made_by: str = "",
    ) -> None:
        if library not in LIBRARIES:
            raise UsageError(f"there is no library {library!r}; there are {', '.join(LIBRARIES)}")
        pin = checked_cpus(pin)  # before a long build
        self.library = LIBRARIES[library]
        self.store = store
        self.policy = policy or Policy()
        self.device = device or cpu()
        self._run_limit_s = run_limit_s
        self._seed = seed
        if command is None:
            compiler = find_compiler()
            headers = {self.library.package: self.library.include}
            command = [str(build(self.library.source, headers, compiler=compiler))]
            made = {"compiler": f"{compiler.version}, {' '.join(FLAGS)}", "headers": f"{self.library.package} {metadata.version(self.library.package)}"}
        else:
            made = {"compiler": "", "headers": ""}
        pinned = f"; pinned to CPU {', '.join(map(str, pin))}" if pin else ""
        self.provenance = {
            **made,
            "policy": f"{self.policy.describe()}{pinned}",
            "device": json.dumps(asdict(self.device)),
            "processor": "" if device else processor(),
            "seed": str(seed),
            "command": made_by,
        }
        self._scratch = tempfile.TemporaryDirectory(prefix="workbench-")
        self._dump = Path(self._scratch.name) / "run.bin"
        remedy = "run the command again, and if that does not help, delete the program: it is then built anew"
        self._child = Child([*command, str(self._dump)], env=_environment(), pin=pin, memory_bytes=memory_limit_bytes(), remedy=remedy)

    def close(self) -> None:
        """End the program; the store stays open."""
        self._child.close()
        self._scratch.cleanup()

    @property
    def restarts(self) -> int:
        """How often the program had to be started again."""
        return max(0, self._child.starts - 1)

    def attempts(self, instances: Iterable[Instance]) -> Counter[Instance]:
        """How many records the store has of each instance."""
        kernels = {instance.workload.kernel for instance in instances}
        return Counter(
            Instance(record.workload, int(record.config["threads"]))  # type: ignore[arg-type]
            for kernel in kernels
            for record in self.store.rows(kernel=kernel, device=self.device.name, space=self.library.name)
            if "threads" in record.config
        )

    def measure(self, instances: Sequence[Instance], *, times: int = 1) -> Iterator[Measurement]:
        """Measure the instances that have fewer than `times` records; each measurement is in the store when it is handed out.

        A crash, a hang, a lack of memory, a wrong result and a clock that stands still are measurements with that status.

        Raises:
            BuildError: the program does not start.
            StoreError: the store cannot be written.
            UsageError: the store has measurements of the kernel that were made otherwise (compiler, policy, seed, ...).
        """
        for kernel in dict.fromkeys(instance.workload.kernel for instance in instances):
            claim(self.store, series(kernel, self.library.name, self.device.name), f"{kernel} in {self.library.name}", self.provenance)
        done = self.attempts(instances)
        for instance in instances:
            if done[instance] < times:
                measurement = self._attempt(instance)
                self.store.add([measurement])
                yield measurement

    def _attempt(self, instance: Instance) -> Measurement:
        identity = zlib.crc32(instance.workload.key.encode())
        check = identity % _CHECKED_ONE_IN == 0
        request = {
            "kernel": instance.workload.kernel,
            **instance.workload.params,
            "threads": instance.threads,
            "seed": (identity + self._seed) % 2**32,
            **asdict(self.policy),
            "dump": int(check),
        }
        self._dump.unlink(missing_ok=True)  # a result that is not written must not be taken from the run before
        begun, before = time.time(), load()
        times: tuple[float, ...] = ()
        try:
            answer = self._child.ask(request, self._run_limit_s)
            times = _times(answer)
            status, reason = self._verdict(instance.workload, answer, times, check)
        except ChildFailure as failure:
            status, reason = failure.status, failure.reason
        ok = status is Status.OK
        return Measurement(
            workload=instance.workload,
            device=self.device.name,
            status=status,
            time_s=self.policy.label(times) if ok else None,
            space=self.library.name,
            config={"threads": instance.threads},
            times_s=times if ok else (),
            error=reason,
            host=platform.node(),
            timestamp=begun,
            load=before,
        )

    def _verdict(self, workload: Workload, answer: Mapping[str, Any], times: tuple[float, ...], check: bool) -> tuple[Status, str]:
        if answer.get("status") != "ok":
            return Status.RUN_ERROR, str(answer.get("error", "the program gave no reason"))[:500]
        if wrong := fault(times, self.policy):
            return Status.RUN_ERROR, wrong
        if check:
            try:
                wrong = difference(workload.kernel, workload.params, read_run(self._dump, workload.kernel, workload.params))
            except (DataError, OSError) as error:
                wrong = f"its result cannot be read: {error}"
            if wrong:
                return Status.WRONG_RESULT, wrong
        return Status.OK, ""


def open_series(kernel: str, library: str, store: Store, *, max_threads: int = 1, seed: int = 0, pin: Sequence[int] = (), run_limit_s: float = 60.0) -> Runner:
    """The runner of the series that `workbench measure matrix` makes with these options: what one of the two has begun, the other goes on with.

    Arguments and errors as of `Runner`, which takes care of one kernel here; `max_threads` is what its instances were drawn with.
    """
    threads = f" --max-threads {max_threads}" if library in LIBRARIES and LIBRARIES[library].threads else ""
    pins = "".join(f" --pin {cpu}" for cpu in dict.fromkeys(pin))
    made_by = f"workbench measure matrix --kernel {kernel} --library {library}{threads} --seed {seed}{pins} --run-limit {run_limit_s:g}"
    return Runner(library, store, run_limit_s=run_limit_s, pin=pin, seed=seed, made_by=made_by)


def series(kernel: str, library: str, device: str) -> str:
    """Name of a store's note on the measurements of a kernel in a library on a device."""
    return f"matrix {kernel} {library} {device}"


def _times(answer: Mapping[str, Any]) -> tuple[float, ...]:
    times = answer.get("times", [])
    if not isinstance(times, list) or not all(isinstance(time, int | float) for time in times):
        raise ChildFailure(Status.RUN_ERROR, f"times that are none: {str(times)[:80]}")
    return tuple(float(time) for time in times)


def _environment() -> dict[str, str]:
    """The plain environment; waiting threads sleep, since two that spin on one CPU cost the work its time."""
    return plain_environment() | {"OMP_WAIT_POLICY": "passive", "OMP_DYNAMIC": "false"}
