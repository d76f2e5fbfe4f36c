"""Compiling many programs at once: a child process for each processor, and machine code kept by what it depends on."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import BuildError, StoreError
from workbench.measure.isolation import Child, ChildFailure, Closing, plain_environment
from workbench.schema import Status

__all__ = ["Compiled", "Pool", "python_child"]


@dataclass(frozen=True)
class Compiled:
    """How compiling a program ended.

    Attributes:
        status: OK, COMPILE_ERROR or TIMEOUT.
        path: the machine code, None unless status is OK.
        compile_s: seconds it took; None where the machine code was there already, or the compiler did not come to an end.
        error: the reason of a failure.
    """

    status: Status
    path: Path | None = None
    compile_s: float | None = None
    error: str = ""


def python_child(module: str, setup: dict[str, object], *, start_limit_s: float, remedy: str) -> Child:
    """A child process that runs a module of ours; it finds the modules that this process finds, and none that lie in the folder it happens to run in."""
    environment = {**plain_environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", module, json.dumps({"parent": os.getpid(), **setup})]
    return Child(command, env=environment, start_limit_s=start_limit_s, remedy=remedy)


class Pool(Closing):
    """Compiles programs in child processes.

    Args:
        compiler: name in COMPILERS.
        version: what it says of itself: machine code that another version has made is not used.
        architecture: such as "sm_90".
        folder: where machine code is kept; what is there of a program is used again.
        workers: number of child processes.
        limit_s: seconds that a program may take.
    """

    def __init__(self, compiler: str, version: str, architecture: str, folder: Path, *, workers: int = 1, limit_s: float = 10.0) -> None:
        self._version, self._architecture, self._folder, self._limit_s = version, architecture, folder, limit_s
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()
        remedy = "run it again, or name another compiler"
        self._children = [
            python_child("workbench.measure.cuda.compile", {"compiler": compiler}, start_limit_s=60.0, remedy=remedy) for _ in range(max(1, workers))
        ]
        for child in self._children:
            self._idle.put(child)
        self._closed = False
        self._threads = ThreadPoolExecutor(len(self._children), thread_name_prefix="compile")

    def submit(self, source: Callable[[], str], *, limit_s: float | None = None) -> Future[Compiled]:
        """Compile a program, which is called for when its turn comes, within `limit_s` instead of the pool's limit; those that were submitted first come first.

        The result raises BuildError where the compiler does not start, and StoreError where its folder cannot be written.
        """
        return self._threads.submit(self._compile, source, self._limit_s if limit_s is None else limit_s)

    def compile(self, source: str, *, limit_s: float | None = None) -> Compiled:
        """Compile a program and wait for it; see `submit`."""
        return self.submit(lambda: source, limit_s=limit_s).result()

    def close(self) -> None:
        """End the child processes; what was not compiled yet will not be."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        while self._idle.qsize() < len(self._children):  # one that is just starting is not there to be ended yet
            for child in self._children:
                child.kill()
            time.sleep(0.01)
        self._threads.shutdown()
        for child in self._children:
            child.close()

    def _compile(self, called: Callable[[], str], limit_s: float) -> Compiled:
        source = called()
        digest = hashlib.sha256("\0".join((self._version, self._architecture, source)).encode()).hexdigest()[:40]
        target, text = self._folder / f"{digest}.cubin", self._folder / f"{digest}.{threading.get_ident()}.cu"
        if target.is_file():
            return Compiled(Status.OK, target)
        child = self._idle.get()
        try:
            if self._closed:
                raise BuildError("nothing is compiled any more")
            text.write_text(source, encoding="utf-8")
            answer = child.ask({"do": "compile", "source": str(text), "target": str(target), "architecture": self._architecture}, limit_s)
        except ChildFailure as failure:
            return Compiled(Status.TIMEOUT if failure.status is Status.TIMEOUT else Status.COMPILE_ERROR, error=f"the compiler: {failure.reason}")
        except OSError as error:
            raise StoreError(f"{self._folder}: programs cannot be kept there ({error.strerror or error}); name another folder, with free space") from error
        finally:
            self._idle.put(child)
            text.unlink(missing_ok=True)
        if "error" in answer:
            return Compiled(Status.COMPILE_ERROR, error=answer["error"])
        if "failed" in answer:
            return Compiled(Status.COMPILE_ERROR, compile_s=answer["compile_s"], error=answer["failed"])
        return Compiled(Status.OK, target, answer["compile_s"])
