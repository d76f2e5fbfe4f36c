"""Measure TVM's convolutions on a board: candidates are built here, and run and timed where an RPC tracker of TVM's has a board free.

The board runs `workbench.measure.rpc_board`, and knows the tracker: `python -m tvm.exec.rpc_tracker --host 127.0.0.1 --port 9190`.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.errors import DeviceError
from workbench.measure import tvm
from workbench.measure.isolation import Child, ChildFailure
from workbench.schema import Device, Status, Workload

__all__ = ["Runner"]

_EXPIRED = "RPCSessionTimeoutError"  # what TVM's server answers when a session has taken too long
_AT_ONCE_S = 5.0  # a tracker that is there answers within it


class Runner(tvm.Runner):
    """Measures configurations of one workload on boards of one key; see `workbench.measure.tvm.Runner`.

    A candidate has a session of its own, which the board ends when it has run for `limits.run_s` seconds: building, running and what a program breaks there are
    as they would be here. Its output comes back and is compared with numpy's.

    Args:
        workload: a convolution that the space "workbench-cpu" has.
        tracker: "HOST:PORT".
        key: of the boards.
        device: what such a board is; records are of it.
        target: the board's, in TVM's JSON, such as '{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}'; "" is this machine's processor.
        link: the command that links for the board; none finds this machine's.
        options: of the other runner: policy, limits, hopeless, ahead, seed, memory_bytes, template, threads, made_by.

    Raises:
        DeviceError: no tracker there; in `measure`: no board of the key became free within `limits.start_s` seconds.
    """

    def __init__(self, workload: Workload, tracker: str, key: str, device: Device, *, target: str = "", link: Sequence[str] = (), **options: Any) -> None:
        host, _, port = tracker.rpartition(":")
        try:
            if not host or not 0 < int(port) < 1 << 16:
                raise ValueError("not HOST:PORT")
            socket.create_connection((host, int(port)), _AT_ONCE_S).close()
        except (OSError, ValueError) as error:
            start = "python -m tvm.exec.rpc_tracker --host 127.0.0.1 --port 9190"
            raise DeviceError(f"no RPC tracker at {tracker!r} ({error}); start one, `{start}`, and give its address as HOST:PORT") from error
        self._tracker, self._key = (host, int(port)), key
        super().__init__(workload, device=device, target=target, link=link, **options)
        self.provenance["policy"] += f"; on a board of the key {key!r} of an RPC tracker, by TVM's time evaluator, after a warm-up of two calls"

    def _start_worker(self, programs: str, threads: int, pin: Sequence[int], memory_bytes: int) -> Child:
        return self._child("rpc_worker", {"tracker": self._tracker, "key": self._key}, threads, pin, memory_bytes)

    def _time(self, path: Path, limit_s: float | None = None) -> tuple[float, ...]:
        self._connect()
        try:
            # The board's own limit comes first: it ends the program and leaves the child that asked.
            return super()._time(path, 1.5 * self.limits.run_s)
        except ChildFailure as failure:
            if _EXPIRED in failure.reason:
                raise ChildFailure(Status.TIMEOUT, f"no end in {self.limits.run_s:g} s on the board") from failure
            raise

    def _connect(self) -> None:
        try:
            answer = self._worker.ask({"do": "connect", "limit_s": self.limits.run_s}, self.limits.start_s)
        except ChildFailure as failure:
            answer = {"error": failure.reason}
        if "error" in answer:
            where = ":".join(map(str, self._tracker))
            raise DeviceError(f"no board {self._key!r} of the tracker at {where} became free ({answer['error']}); is one running, and the tracker?")
