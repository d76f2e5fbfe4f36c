"""The child process of `workbench.measure.rpc` that asks boards: it sends libraries, has them run and timed there, and compares their output here.

It runs as `python -m workbench.measure.rpc_worker JSON`, where the JSON has the tracker's address and the key of the boards. Requests:

    prepare  the inputs of a `workload` with a `seed`, and the output that is expected
    connect  a board of the tracker's, for `limit_s` seconds; it waits until one is free
    run      the library `path` on that board, timed by `policy`; nothing slower than `slowest_s` a call for long

A session serves one library: what a candidate does to a board's process, the next one does not see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench.measure.serving import Commands, serve
from workbench.measure.timing import CONFIRMED_S, Policy
from workbench.measure.tvm_builder import without_torch
from workbench.measure.tvm_worker import difference
from workbench.schema import Workload

__all__ = ["repeats"]


def repeats(policy: Policy, first_s: float, slowest_s: float) -> tuple[int, int]:
    """How many times are taken of a program whose first call took so long, and of how many calls each is the mean, as `time_program` would do it nearby."""
    calls = max(1, math.ceil(policy.batch_s / first_s)) if first_s > 0 else 1
    fitting = math.ceil(policy.limit_s / (first_s * calls)) if first_s > 0 else policy.repeats
    times = min(policy.repeats, max(policy.at_least, fitting))
    return (min(times, math.ceil(CONFIRMED_S / first_s)) if first_s > slowest_s else times), calls


class _Worker:
    def __init__(self, tracker: tuple[str, int], key: str) -> None:
        without_torch()
        import tvm
        from tvm import rpc

        self._rpc, self._tensor = rpc, tvm.runtime.tensor
        self._tracker, self._key = tracker, key
        self._session: Any = None

    def prepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from workbench.kernels import conv_reference

        workload = Workload.from_key(request["workload"])
        data, weight = conv_reference.inputs(workload, request["seed"])
        self._expected = conv_reference.reference(workload, data, weight)
        self._inputs = [data, weight, np.full(self._expected.shape, np.nan, dtype=np.float32)]
        return {}

    def connect(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._session = None
        self._session = self._rpc.connect_tracker(*self._tracker).request(self._key, session_timeout=request["limit_s"], max_retry=1)
        return {}

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        session, self._session = self._session, None
        path = Path(request["path"])
        session.upload(str(path))
        module, device = session.load_module(path.name), session.cpu()
        arguments = [self._tensor(array, device=device) for array in self._inputs]
        first_s = module.time_evaluator("main", device, number=1, repeat=1)(*arguments).results[0]
        slowest_s = math.inf if request["slowest_s"] is None else request["slowest_s"]
        times, calls = repeats(Policy(**request["policy"]), first_s, slowest_s)
        found = module.time_evaluator("main", device, number=calls, repeat=times)(*arguments).results
        return {"times_s": list(found), "wrong": difference(arguments[2].numpy(), self._expected)}


def _prepare(setup: dict[str, Any]) -> Commands:
    host, port = setup["tracker"]
    worker = _Worker((host, port), setup["key"])
    return {"prepare": worker.prepare, "connect": worker.connect, "run": worker.run}


if __name__ == "__main__":
    serve(_prepare)
