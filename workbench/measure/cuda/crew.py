"""Child processes of one kind that work side by side, each for one request at a time."""

from __future__ import annotations

import json
import os
import queue
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from workbench.errors import BuildError
from workbench.measure.isolation import Child, Closing, plain_environment

__all__ = ["Crew", "python_child"]

T = TypeVar("T")


def python_child(module: str, setup: Mapping[str, Any], *, start_limit_s: float, remedy: str) -> Child:
    """A child process that runs a module of ours; it finds the modules that this process finds, and none that lie in the folder it happens to run in."""
    environment = {**plain_environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", module, json.dumps({"parent": os.getpid(), **setup})]
    return Child(command, env=environment, start_limit_s=start_limit_s, remedy=remedy)


class Crew(Closing):
    """Processes that run a module.

    Args:
        module: its name; see `python_child`.
        setup: what it is told.
        size: number of processes; each starts with its first request.
        start_limit_s: seconds that it may take to start.
        remedy: what to do where it does not start.
    """

    def __init__(self, module: str, setup: Mapping[str, Any], *, size: int, start_limit_s: float = 60.0, remedy: str = "run it again") -> None:
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()
        self._children = [python_child(module, setup, start_limit_s=start_limit_s, remedy=remedy) for _ in range(max(1, size))]
        for child in self._children:
            self._idle.put(child)
        self._threads = ThreadPoolExecutor(len(self._children))
        self._closed = False

    def submit(self, work: Callable[[Child], T]) -> Future[T]:
        """Have one of the processes asked by `work`, in the order of submission."""
        return self._threads.submit(self._work, work)

    def close(self) -> None:
        """End the processes; what has not begun yet is not done. Closing twice is harmless."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        while self._idle.qsize() < len(self._children):  # one that is just starting is not there to be ended yet
            for child in self._children:
                child.kill()
            time.sleep(0.01)
        self._threads.shutdown()
        for child in self._children:
            child.close()

    def _work(self, work: Callable[[Child], T]) -> T:
        child = self._idle.get()
        try:
            if self._closed:
                raise BuildError("the processes that would do it have been ended")
            return work(child)
        finally:
            self._idle.put(child)
