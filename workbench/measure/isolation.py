"""A long-lived child process that answers one JSON line for each JSON line: what it does to itself, it does not do to us.

A crash, a hang, a lack of memory and a garbled answer become a `ChildFailure` with the Status to record; the next request starts a fresh child.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from workbench.errors import BuildError, UsageError
from workbench.schema import Status

if TYPE_CHECKING:
    from typing import Self  # which Python 3.10 lacks: this module also runs on machines that have a GPU and nothing of ours

__all__ = ["Child", "ChildFailure", "Closing", "checked_cpus", "plain_environment"]

_LONGEST_ANSWER = 1 << 20  # bytes
_KEPT_COMPLAINT = 4096  # bytes of standard error


class ChildFailure(Exception):
    """A request without an answer: the status that its record gets, and the reason."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Closing(ABC):
    """What holds a child process: at the end of a `with` block it is closed."""

    @abstractmethod
    def close(self) -> None:
        """End the child process. Closing twice is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def plain_environment() -> dict[str, str]:
    """Our environment without what would steer threads and memory from outside: the same program has the same time wherever it is measured from.

    A Dask worker, for one, sets MALLOC_TRIM_THRESHOLD_: memory then goes back to the system after each use, and a Halide schedule with a large tile takes up
    to 3.5 times as long (Blur at n = 2,048).
    """
    steering = ("OMP_", "GOMP_", "KMP_", "HL_", "TVM_", "MALLOC_", "GLIBC_TUNABLES")
    return {name: value for name, value in os.environ.items() if not name.startswith(steering)}


class Child(Closing):
    """The program `command`, started with the first request and again after each failure.

    Args:
        command: program and arguments. It reads requests from standard input until that ends and answers on standard output.
        env: its whole environment; None is ours.
        pin: numbers of the CPUs that it may run on; none: all of ours.
        memory_bytes: the address space that it may have (on Linux; other systems have no such limit from outside); None: no limit.
        start_limit_s: seconds for the answer to the first request, {"kernel": "ping"}, which shows that the program starts at all.
        remedy: what to do where it does not start, for the message.

    Raises:
        UsageError: CPUs that are not there, or that this system cannot pin to.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        pin: Sequence[int] = (),
        memory_bytes: int | None = None,
        start_limit_s: float = 30.0,
        remedy: str = "run it again",
    ) -> None:
        self.command = list(command)
        self.starts = 0
        self._env = env
        self._pin = checked_cpus(pin)
        self._memory_bytes = memory_bytes
        self._start_limit_s = start_limit_s
        self._remedy = remedy
        self._process: subprocess.Popen[bytes] | None = None
        self._selector: selectors.BaseSelector | None = None
        self._id = 0
        self._answered = b""
        self._complaint = b""

    @property
    def pid(self) -> int | None:
        """Number of the running process, None while there is none."""
        return self._process.pid if self._process else None

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """The answer to a request, which gets an `id` of its own.

        Raises:
            ChildFailure: no answer in `limit_s` seconds, or none that is JSON with that id; the process is gone then, with all that it started.
            BuildError: the program does not start.
        """
        if self._process is None:
            self._start()
        try:
            return self._exchange(request, limit_s)
        except BaseException:
            # After Ctrl-C too: an answer that comes late would be taken for the next one's.
            self.close()
            raise

    def kill(self) -> None:
        """End the process from another thread than the one that asks it, whose request fails then."""
        if (process := self._process) is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process and all that it started. Closing twice is harmless."""
        self.kill()
        process, self._process = self._process, None
        if process is None:
            return
        process.wait()
        if self._selector is not None:
            self._selector.close()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _start(self) -> None:
        self._answered = self._complaint = b""
        try:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=dict(self._env) if self._env is not None else None,
                start_new_session=True,  # so that it can be ended with its own children
            )
        except OSError as error:
            raise BuildError(f"{self.command[0]}: does not start ({error.strerror or error}); {self._remedy}") from error
        self._process = process
        self.starts += 1
        self._selector = selectors.DefaultSelector()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ)
        try:
            # Before the first request it has one thread, whose limits the later ones inherit.
            if self._pin:
                os.sched_setaffinity(process.pid, self._pin)
            if self._memory_bytes is not None and sys.platform == "linux":
                import resource

                resource.prlimit(process.pid, resource.RLIMIT_AS, (self._memory_bytes, self._memory_bytes))
            self._exchange({"kernel": "ping"}, self._start_limit_s)
        except (ChildFailure, OSError) as error:
            self.close()
            raise BuildError(f"{self.command[0]}: does not start ({error}); {self._remedy}") from error
        except BaseException:
            self.close()
            raise

    def _exchange(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        self._id += 1
        deadline = time.monotonic() + limit_s
        with suppress(BrokenPipeError):  # a child that is gone: reading says why
            process.stdin.write(json.dumps({"id": self._id, **request}, allow_nan=False).encode() + b"\n")
        line = self._line(process, deadline, limit_s)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or answer.get("id") != self._id:
            raise ChildFailure(Status.RUN_ERROR, f"an answer that is none: {line[:80].decode(errors='replace')!r}{self._said()}")
        return answer

    def _line(self, process: subprocess.Popen[bytes], deadline: float, limit_s: float) -> bytes:
        """The next line of standard output; keeps the end of standard error on the way."""
        assert self._selector is not None
        while b"\n" not in self._answered:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ChildFailure(Status.TIMEOUT, f"no answer in {limit_s:g} s{self._said()}")
            for key, _ in self._selector.select(left):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    self._selector.unregister(key.fileobj)
                elif key.fileobj is process.stdout:
                    self._answered += data
                else:
                    self._complaint = (self._complaint + data)[-_KEPT_COMPLAINT:]
            if len(self._answered) > _LONGEST_ANSWER:
                raise ChildFailure(Status.RUN_ERROR, f"an answer of more than {_LONGEST_ANSWER:,} bytes, beginning {self._answered[:80]!r}")
            if b"\n" not in self._answered and process.stdout not in [key.fileobj for key in self._selector.get_map().values()]:
                raise ChildFailure(*self._end(process, deadline))
        line, _, self._answered = self._answered.partition(b"\n")
        return line

    def _end(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[Status, str]:
        """How a process ended that has closed its standard output."""
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return Status.TIMEOUT, f"it closed its output and did not end{self._said()}"
        if process.stderr is not None:
            with suppress(OSError, ValueError):
                self._complaint = (self._complaint + (process.stderr.read() or b""))[-_KEPT_COMPLAINT:]
        if code >= 0:
            return Status.RUN_ERROR, f"it ended with exit code {code}{self._said()}"
        number = -code
        name = signal.Signals(number).name if number in {member.value for member in signal.Signals} else f"signal {number}"
        why = " (killed from outside, or for lack of memory)" if number == signal.SIGKILL else ""
        return Status.RUN_ERROR, f"it was ended by {name}{why}{self._said()}"

    def _said(self) -> str:
        lines = self._complaint.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"; its last words: {last[:200]!r}" if last else ""


def checked_cpus(pin: Sequence[int]) -> tuple[int, ...]:
    """Numbers of CPUs to pin to, each once. Raises UsageError for one that this process may not use, or where the system cannot pin."""
    if not pin:
        return ()
    if not hasattr(os, "sched_setaffinity"):
        raise UsageError("this system cannot pin a process to a CPU; leave the pinning out")
    there = os.sched_getaffinity(0)
    if missing := sorted(set(pin) - there):
        raise UsageError(f"cannot pin to CPU {missing[0]}; this process may use {', '.join(map(str, sorted(there)))}")
    return tuple(dict.fromkeys(pin))
