"""A child process that speaks JSON lines: started with the first request, asked with a limit of time, and ended whatever it is doing."""

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

from workbench.errors import UsageError, WorkbenchError
from workbench.schema import Status

__all__ = ["Child", "ChildFailure"]


class ChildFailure(Exception):
    """A request without an answer, after which the process is gone: what that makes of the request, and how it came about."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Child:
    """A process in a session of its own, so that an interrupt from the terminal reaches the parent only; after a failure the next request starts another.

    Args:
        command: program and arguments.
        env: the child's environment variables.
        pin: processors that it may use; none: all of the parent's.
        memory_bytes: address space that it may have.
        start_limit_s: seconds for the answer to {"kernel": "ping"}, the first request.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], pin: Sequence[int] = (), memory_bytes: int | None = None, start_limit_s: float = 30.0
    ) -> None:
        if pin and not hasattr(os, "sched_setaffinity"):
            raise UsageError("this system cannot pin a process to a processor; measure without")
        if pin and (unknown := sorted(set(pin) - os.sched_getaffinity(0))):
            raise UsageError(f"cannot pin to processor {unknown[0]}; this process may use {sorted(os.sched_getaffinity(0))}")
        self.starts = 0
        self._command, self._env, self._pin, self._memory_bytes, self._start_limit_s = list(command), dict(env), tuple(pin), memory_bytes, start_limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._buffer = b""
        self._id = 0

    @property
    def pid(self) -> int | None:
        """Process id, None while there is no process."""
        return self._process.pid if self._process else None

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """The answer to a request. Raises ChildFailure where there is none in `limit_s` seconds, and WorkbenchError where the process does not start."""
        if self._process is None:
            self._start()
        try:
            return self._exchange(request, limit_s)
        except BaseException:
            self.close()  # after Ctrl-C too: a late answer would be taken for the next one's
            raise

    def close(self) -> None:
        """End the process and all it started, at once."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _start(self) -> None:
        self._buffer = b""
        self._errors.truncate(0)
        self._process = process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0, env=self._env, start_new_session=True
        )
        self.starts += 1
        try:
            if self._pin:
                os.sched_setaffinity(process.pid, self._pin)
            if self._memory_bytes is not None:
                import resource

                if hasattr(resource, "prlimit"):
                    resource.prlimit(process.pid, resource.RLIMIT_AS, (self._memory_bytes, self._memory_bytes))
            self._exchange({"kernel": "ping"}, self._start_limit_s)
        except BaseException as error:
            self.close()
            if isinstance(error, ChildFailure | OSError):
                raise WorkbenchError(f"the process that measures did not start: {error}") from error
            raise

    def _exchange(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        self._id += 1
        with contextlib.suppress(BrokenPipeError):  # a process that is gone: reading says why
            process.stdin.write(json.dumps({"id": self._id, **request}).encode() + b"\n")
        answer = json.loads(self._line(process, limit_s))
        if not isinstance(answer, dict) or answer.get("id") != self._id:
            raise ChildFailure(Status.RUN_ERROR, "an answer to another request")
        return answer

    def _line(self, process: subprocess.Popen[bytes], limit_s: float) -> bytes:
        assert process.stdout is not None
        end = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise ChildFailure(Status.TIMEOUT, f"no answer in {limit_s:g} s")
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                if not chunk:
                    raise ChildFailure(Status.RUN_ERROR, self._epitaph(process))
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _epitaph(self, process: subprocess.Popen[bytes]) -> str:
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        how = f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        said = self._errors.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(said) if line.strip()), "")
        return f"{how}: {last[:300]}" if last else how
