"""A small convolution on a board behind TVM's RPC tracker; tracker and board are child processes here, on the loopback interface."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from invented_runner import WORKLOAD

from workbench.data.store import Store
from workbench.errors import DeviceError
from workbench.measure.replay import Cached
from workbench.measure.rpc import Runner
from workbench.measure.rpc_worker import repeats
from workbench.measure.runner import candidates
from workbench.measure.timing import Policy
from workbench.measure.tvm import Limits
from workbench.schema import Device, Status

BOARD = Device("invented-board", "cpu")
needs_tvm = pytest.mark.skipif(find_spec("tvm") is None, reason="TVM is not installed")


def started(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, "-P", "-m", module, *arguments], env=env, start_new_session=True, stderr=subprocess.DEVNULL)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def tracker() -> Iterator[str]:
    """The address of a tracker with one board of the key "board"."""
    port = free_port()
    processes = [started("tvm.exec.rpc_tracker", "--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1), "--silent")]
    address = f"127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the tracker does not start"
                time.sleep(0.1)
        board = ("--tracker", address, "--key", "board", "--port", str(free_port()), "--parent", str(os.getpid()))
        processes.append(started("workbench.measure.rpc_board", *board))
        yield address
    finally:
        for process in processes:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def runner(tracker: str, template: str = "", **options: object) -> Runner:
    named = {"template": template} if template else {}
    return Runner(WORKLOAD, tracker, "board", BOARD, limits=Limits(run_s=2.0, build_s=60.0, start_s=120.0), ahead=0, **named, **options)  # type: ignore[arg-type]


@needs_tvm
def test_candidates_are_built_here_and_checked_and_timed_on_the_board(tracker: str, tmp_path: Path) -> None:
    with runner(tracker) as board, Store(tmp_path / "s.db") as store:
        wanted = candidates(board.space, 5)
        answer = Cached(store, board)(wanted)  # type: ignore[arg-type]
        found = list(store.rows())
        assert "RPC tracker" in board.provenance["policy"]
    assert answer.valid.all()
    assert [(m.index, m.status, m.error, m.device) for m in found] == [(index, Status.OK, "", "invented-board") for index in wanted]
    for m in found:
        assert m.time_s is not None
        assert 1e-7 < m.time_s < 0.1
        assert 1 <= len(m.times_s) <= 7
        assert min(m.times_s) == m.time_s


@needs_tvm
def test_a_fault_on_the_board_is_a_record_and_the_board_stays(tracker: str) -> None:
    with runner(tracker, "faulty_rpc:Faulty") as board:
        crash, hang, nothing, *fine = board.measure(candidates(board.space, 5))
        children = board.pids
    assert (crash.status, crash.error[:9]) == (Status.RUN_ERROR, "running: ")
    assert (hang.status, hang.error) == (Status.TIMEOUT, "running: no end in 2 s on the board")
    assert (nothing.status, nothing.error[:43]) == (Status.WRONG_RESULT, "running: 512 of 512 values are not written ")
    assert [(m.status, m.error) for m in fine] == [(Status.OK, "")] * 2
    assert len(children) == 2


def test_no_tracker_is_an_error_of_one_line() -> None:
    for address, why in [(f"127.0.0.1:{free_port()}", "Connection refused"), ("somewhere", "not HOST:PORT"), ("127.0.0.1:tracker", "invalid literal")]:
        with pytest.raises(DeviceError, match=rf"no RPC tracker at '{address}' \(.*{why}.*tvm\.exec\.rpc_tracker"):
            runner(address)


@needs_tvm
@pytest.mark.slow
def test_no_board_is_an_error_of_one_line(tracker: str) -> None:
    with (
        Runner(WORKLOAD, tracker, "no such board", BOARD, limits=Limits(start_s=20.0, build_s=60.0), ahead=0) as board,
        pytest.raises(DeviceError, match="no board 'no such board' of the tracker at 127"),
    ):
        list(board.measure(candidates(board.space, 1)))


def test_repeats_are_as_many_as_here() -> None:
    policy = Policy(repeats=7, at_least=3, limit_s=0.5, batch_s=5e-5)
    assert repeats(policy, 1e-3, math.inf) == (7, 1)
    assert repeats(policy, 1e-5, math.inf) == (7, 5)
    assert repeats(policy, 0.2, math.inf) == (3, 1)
    assert repeats(policy, 0.2, 0.1) == (1, 1)
    assert repeats(policy, 0.03, 0.02) == (4, 1)
    assert repeats(policy, 0.0, math.inf) == (7, 1)
