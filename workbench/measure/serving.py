"""The other side of `workbench.measure.isolation`: the loop of a child process that answers requests.

Requests and answers are JSON, one a line, on standard input and on what was standard output at the start: whatever a candidate or a compiler prints goes to
standard error. An answer has the request's `id`, and `error` where the candidate failed.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Commands", "die_with_parent", "failed", "serve"]

# What a request's `do` names -> how it is answered.
Commands = Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]


def serve(prepare: Callable[[dict[str, Any]], Commands]) -> None:
    """Answer requests until standard input ends.

    Args:
        prepare: the commands, of the JSON object that is the program's argument. It also has `parent`, the number of the process that is to be served: this one
            ends with it.
    """
    setup = json.loads(sys.argv[1])
    die_with_parent(setup["parent"])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    commands = prepare(setup)
    gc.disable()  # not while something is timed
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps({"id": request["id"], **_answer(commands, request)}) + "\n")
        answers.flush()
        gc.collect()


def _answer(commands: Commands, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one request; what a candidate raises is an answer, not an end."""
    if request.get("kernel") == "ping":
        return {}
    command = commands[request["do"]]
    try:
        return command(request)
    except Exception as error:  # whatever a candidate does wrong is what the answer is about
        return failed(error)


def failed(error: Exception) -> dict[str, Any]:
    """The answer that says why a candidate failed, in one line."""
    return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}


def die_with_parent(parent: int) -> None:
    """A candidate may hang in machine code: only the system can end this process when nobody waits for it any more."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
