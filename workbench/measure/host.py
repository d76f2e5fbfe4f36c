"""What this machine is: the device that its measurements are recorded under."""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from pathlib import Path

from workbench.schema import Device

__all__ = ["cpu", "cpu_identity", "last_cpu", "last_cpus", "load", "memory_limit_bytes", "processor", "usable_cpus"]


def usable_cpus() -> int:
    """Number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def last_cpu() -> tuple[int, ...]:
    """The last CPU that this process may use, as what to pin to: the first has the most other work. None where the system cannot pin."""
    return last_cpus(1)


def last_cpus(count: int) -> tuple[int, ...]:
    """The last `count` CPUs that this process may use, or all of them where there are no more. None where the system cannot pin."""
    return tuple(sorted(os.sched_getaffinity(0))[-count:]) if hasattr(os, "sched_getaffinity") else ()


def cpu() -> Device:
    """This machine's CPU: the name is its model in lower case, such as "intel-core-i5-7360u"."""
    model = _facts().get("model name") or platform.processor() or platform.machine() or "cpu"
    words = re.sub(r"\((r|tm)\)|\bcpu\b|\bprocessor\b|@.*", " ", model, flags=re.IGNORECASE)
    return Device(re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "cpu", "cpu", model, max_threads=usable_cpus())


def cpu_identity() -> str:
    """Text that differs between CPUs for which a compiler's "native" code differs."""
    facts = _facts()
    return "|".join(
        [platform.machine(), *(facts.get(name, "") for name in ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features"))]
    )


def processor() -> str:
    """Vendor, family, model and stepping of this machine's CPU, "" where the system does not say: a virtual machine may give every CPU the same name."""
    facts = _facts()
    parts = {"": "vendor_id", "family ": "cpu family", "model ": "model", "stepping ": "stepping"}
    return " ".join(f"{word}{facts[key]}" for word, key in parts.items() if key in facts)


def load() -> float | None:
    """Load average over the last minute, None where the system has none."""
    with suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return None


def memory_limit_bytes() -> int:
    """Address space that a measured program may have: beyond it an allocation fails there, where the whole machine would go to the disk otherwise."""
    import psutil  # not where only a GPU is

    return int(psutil.virtual_memory().total * 0.8)


def _facts() -> dict[str, str]:
    """The first CPU's lines of /proc/cpuinfo; nothing on a system without it."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
        return {name.strip(): value.strip() for name, _, value in pairs}
    return {}
