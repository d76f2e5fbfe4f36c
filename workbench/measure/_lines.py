"""A child process that speaks JSON lines: started, asked with a limit of time, and ended whatever it is doing."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Ended", "LineProcess", "TookTooLong"]


class TookTooLong(Exception):
    """No reply within the limit; the process has been killed."""


class Ended(Exception):
    """The process ended without a reply; the message says how, with the end of its standard error."""


class LineProcess:
    """A child process in a session of its own, so that an interrupt from the terminal reaches the parent only.

    Args:
        command: program and arguments.
        environment: the child's environment variables.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0, env=dict(environment), start_new_session=True
        )
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line. A process that is gone is noticed by `receive`."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def receive(self, limit_s: float) -> dict[str, Any]:
        """The next line. Raises TookTooLong after `limit_s` seconds and Ended where there will be none; the process is gone in both cases."""
        assert self._process.stdout is not None
        end = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, end - time.monotonic())):
                    self.kill()
                    raise TookTooLong
                chunk = os.read(self._process.stdout.fileno(), 1 << 16)
                if not chunk:
                    raise Ended(self._epitaph())
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def kill(self) -> None:
        """End the process and all it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _epitaph(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        self.kill()
        how = "closed its output" if code is None else f"ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"{how}: {said[-1][:300]}" if said else how
