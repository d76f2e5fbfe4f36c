"""Whatever a child process does to itself becomes a status and a reason, and the next request is answered."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from workbench.errors import BuildError, UsageError
from workbench.measure.isolation import Child, ChildFailure
from workbench.schema import Status

GOOD, BAD = 7, 13


def request(m: int, **more: object) -> dict[str, object]:
    return {"kernel": "mv", "m": m, "n": 2, "d1": 1.0, "dump": 0, **more}


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process ends within some time; one that has ended and waits to be asked for its exit code counts as gone."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_one_process_answers_many_requests(fake, tmp_path):
    with Child([*fake(), str(tmp_path / "dump")]) as child:
        assert child.pid is None
        assert [child.ask(request(m), 10)["times"][1] for m in (3, 4, 5)] == pytest.approx([3e-6, 4e-6, 5e-6])
        assert child.starts == 1
        pid = child.pid
        assert pid is not None
    assert gone(pid)
    child.close()


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("abort", Status.RUN_ERROR, "SIGABRT"),
        ("exit", Status.RUN_ERROR, "exit code 3; its last words: 'last word'"),
        ("hang", Status.TIMEOUT, "no answer in 0.5 s"),
        ("sleep", Status.TIMEOUT, "no answer in 0.5 s"),
        ("garbage", Status.RUN_ERROR, "an answer that is none: 'Segmentation fault"),
        ("flood", Status.RUN_ERROR, "more than 1,048,576 bytes"),
        ("stale", Status.RUN_ERROR, "an answer that is none"),
        ("list", Status.RUN_ERROR, "an answer that is none: '[1, 2]'"),
        ("close", Status.TIMEOUT, "closed its output and did not end"),
    ],
)
def test_a_fault_is_a_failure_and_the_next_request_is_answered(fake, tmp_path, fault, status, reason):
    with Child([*fake({BAD: fault}), str(tmp_path / "dump")]) as child:
        child.ask(request(GOOD), 10)
        pid = child.pid
        assert pid is not None
        with pytest.raises(ChildFailure) as failure:
            child.ask(request(BAD), 0.5)
        assert failure.value.status is status
        assert reason in failure.value.reason
        assert gone(pid)
        assert child.ask(request(GOOD), 10)["status"] == "ok"
        assert child.starts == 2


def test_too_much_memory_is_refused_and_the_process_lives(fake, tmp_path):
    with Child([*fake({BAD: "allocate"}), str(tmp_path / "dump")], memory_bytes=1 << 30) as child:
        assert child.ask(request(BAD), 30) == {"id": 2, "status": "run_error", "error": "out of memory"}
        assert child.ask(request(GOOD), 10)["status"] == "ok"
        assert child.starts == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, Status.RUN_ERROR), (signal.SIGSTOP, Status.TIMEOUT)])
def test_a_signal_from_outside(fake, tmp_path, number, status):
    with Child([*fake({BAD: "sleep"}), str(tmp_path / "dump")]) as child:
        child.ask(request(GOOD), 10)
        pid = child.pid
        assert pid is not None
        threading.Timer(0.2, os.kill, (pid, number)).start()
        with pytest.raises(ChildFailure) as failure:
            child.ask(request(BAD), 1.5)
        assert failure.value.status is status
        if number == signal.SIGKILL:
            assert "SIGKILL (killed from outside, or for lack of memory)" in failure.value.reason
        assert gone(pid)
        assert child.ask(request(GOOD), 10)["status"] == "ok"


def test_what_a_process_started_ends_with_it(fake, tmp_path):
    with Child([*fake({BAD: "orphan"}), str(tmp_path / "pid")]) as child:
        with pytest.raises(ChildFailure):
            child.ask(request(BAD), 2)
        assert gone(int((tmp_path / "pid").read_text()))


def test_an_interrupted_request_leaves_no_late_answer(fake, tmp_path, monkeypatch):
    with Child([*fake(), str(tmp_path / "dump")]) as child:
        child.ask(request(GOOD), 10)
        pid = child.pid
        assert pid is not None

        def interrupt(*_: object) -> bytes:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(child, "_line", interrupt)
            with pytest.raises(KeyboardInterrupt):
                child.ask(request(GOOD), 10)
        assert gone(pid)
        assert child.ask(request(5), 10)["times"][1] == pytest.approx(5e-6)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["no-such-program"], "No such file"),
        ([sys.executable, "-c", "raise SystemExit('needs libgomp')"], "exit code 1; its last words: 'needs libgomp'"),
        ([sys.executable, "-c", "print('hello')"], "an answer that is none: 'hello'"),
    ],
)
def test_a_program_that_does_not_start_is_an_error(command, reason):
    with Child(command, remedy="sell it") as child, pytest.raises(BuildError) as error:
        child.ask(request(GOOD), 10)
    assert reason in str(error.value)
    assert command[0] in str(error.value)
    assert str(error.value).endswith("; sell it")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin")
def test_a_process_runs_where_it_is_pinned(fake, tmp_path):
    cpu = min(os.sched_getaffinity(0))
    with Child([*fake(), str(tmp_path / "dump")], pin=(cpu,)) as child:
        child.ask(request(GOOD), 10)
        assert child.pid is not None
        assert os.sched_getaffinity(child.pid) == {cpu}
    with pytest.raises(UsageError, match="cannot pin to CPU 9999"):
        Child(["true"], pin=(9999,))
