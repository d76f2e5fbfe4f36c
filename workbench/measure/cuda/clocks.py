"""What nvidia-smi says of a device while it is measured on: clocks, temperature and power are part of how times came about. Nothing is set."""

from __future__ import annotations

import subprocess
import threading
import time
from typing import Any

__all__ = ["Clocks", "driver_version"]

_QUERY = "clocks.sm,clocks.mem,temperature.gpu,power.draw,utilization.gpu"
_LIMIT_S = 15.0


class Clocks(threading.Thread):
    """Asks every `every_s` seconds, from `start` on until `stop`.

    Args:
        device: number of the device.
        every_s: seconds between two questions.
    """

    def __init__(self, device: int = 0, every_s: float = 10.0) -> None:
        super().__init__(name="clocks", daemon=True)
        self._device, self._every_s = str(device), every_s
        self._ended = threading.Event()
        self._samples: list[list[Any]] = []
        self._begun = time.monotonic()
        self._facts = ""

    def run(self) -> None:
        """See threading.Thread."""
        self._facts = _ask("-q", "-d", "CLOCK,PERFORMANCE,POWER", "-i", self._device)
        while self._facts:  # without nvidia-smi there is nobody to ask
            if answer := _ask(f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits", "-i", self._device):
                self._samples.append([round(time.monotonic() - self._begun, 1), *(value.strip() for value in answer.split(","))])
            if self._ended.wait(self._every_s):
                return

    def stop(self) -> dict[str, Any]:
        """What was seen: `facts` at the start, as nvidia-smi prints them, and `samples` of `columns`, the first of them seconds."""
        self._ended.set()
        return {"facts": self._facts, "columns": ["seconds", *_QUERY.split(",")], "samples": self._samples}


def driver_version(device: int = 0) -> str:
    """The version of NVIDIA's driver, "" without nvidia-smi."""
    return _ask("--query-gpu=driver_version", "--format=csv,noheader", "-i", str(device))


def _ask(*arguments: str) -> str:
    try:
        done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()[:8000] if done.returncode == 0 else ""
