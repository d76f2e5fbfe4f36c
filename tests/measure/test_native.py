"""The runner: every fault is a record, every record is in the store before it is handed out, and a store holds one way of measuring."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from workbench.data.store import Store
from workbench.errors import BuildError, UsageError
from workbench.kernels import kernel
from workbench.measure import native
from workbench.measure.native import Instance, Runner, draw
from workbench.measure.timing import Policy
from workbench.schema import Device, Status

DEVICE = Device("some-cpu", "cpu", "Some CPU", max_threads=4)
MV = kernel("mv")


def instance(m: int, threads: int = 1) -> Instance:
    return Instance(MV.workload({"m": m, "n": 2, "d1": 1.0}), threads)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.db") as opened:
        yield opened


def runner(store: Store, command: list[str], **options) -> Runner:
    return Runner(options.pop("library", "eigen"), store, command=command, device=DEVICE, **options)


def test_a_measurement_says_what_was_run_where_and_when(store, fake):
    with runner(store, fake()) as measuring:
        (found,) = measuring.measure([instance(11, threads=3)])
        assert list(store.rows()) == [found]
    assert found.workload == MV.workload({"m": 11, "n": 2, "d1": 1.0})
    assert (found.device, found.space, dict(found.config), found.status, found.error) == ("some-cpu", "eigen", {"threads": 3}, Status.OK, "")
    assert found.times_s == pytest.approx([33e-6, 11e-6, 22e-6])
    assert found.time_s == min(found.times_s)
    assert found.host
    assert found.timestamp is not None
    assert found.timestamp > 1.7e9
    assert found.load is not None


FAULTS = {
    2: ("abort", Status.RUN_ERROR, "SIGABRT"),
    3: ("hang", Status.TIMEOUT, "no answer in 0.7 s"),
    4: ("garbage", Status.RUN_ERROR, "an answer that is none"),
    5: ("clock", Status.RUN_ERROR, "a repeat took 0.0 s: the clock cannot tell"),
    6: ("backwards", Status.RUN_ERROR, "a repeat took -3e-06 s"),
    7: ("nan", Status.RUN_ERROR, "a repeat took nan s"),
    8: ("one time", Status.RUN_ERROR, "1 repeats; the policy takes 3 to 7"),
    9: ("no times", Status.RUN_ERROR, "0 repeats"),
    10: ("text times", Status.RUN_ERROR, "times that are none"),
    11: ("exit", Status.RUN_ERROR, "exit code 3"),
}


def test_a_fault_becomes_a_record_and_the_rest_goes_on(store, fake):
    instances = [instance(m) for m in range(1, 13)]
    with runner(store, fake({m: fault for m, (fault, _, _) in FAULTS.items()}), run_limit_s=0.7) as measuring:
        found = list(measuring.measure(instances))
        assert measuring.restarts == 4  # after abort, hang, garbage and exit
    assert [record.workload.params["m"] for record in found] == list(range(1, 13))
    for record in found:
        m = record.workload.params["m"]
        if m in FAULTS:
            _, status, reason = FAULTS[m]
            assert record.status is status
            assert reason in record.error
            assert (record.time_s, record.times_s) == (None, ())
        else:
            assert record.status is Status.OK
            assert record.time_s == pytest.approx(m * 1e-6)
    assert list(store.rows()) == found


def test_a_wrong_result_is_no_time(store, fake, monkeypatch):
    monkeypatch.setattr(native, "_CHECKED_ONE_IN", 1)
    with runner(store, fake()) as measuring:
        (right,) = measuring.measure([instance(3)])
        monkeypatch.setattr(native, "difference", lambda kernel, params, run: f"{kernel} {run.result.ravel().tolist()}")
        (wrong,) = measuring.measure([instance(4)])
    assert right.status is Status.OK
    assert (wrong.status, wrong.time_s, wrong.error) == (Status.WRONG_RESULT, None, "mv [2.0, 2.0, 2.0, 2.0]")


def test_a_result_that_was_not_handed_back_is_a_wrong_result(store, fake, monkeypatch):
    monkeypatch.setattr(native, "_CHECKED_ONE_IN", 1)
    with runner(store, fake()) as measuring:
        next(measuring.measure([instance(3)]))
        monkeypatch.setattr(Runner, "_attempt", _ask_without_dump(Runner._attempt))
        # Of the same size as the one before, whose result would be right for it.
        (stale,) = measuring.measure([instance(3, threads=2)])
    assert stale.status is Status.WRONG_RESULT
    assert "its result cannot be read" in stale.error


def _ask_without_dump(attempt):
    def changed(self, one):
        ask = self._child.ask
        self._child.ask = lambda request, limit_s: ask({**request, "dump": 0}, limit_s)
        try:
            return attempt(self, one)
        finally:
            self._child.ask = ask

    return changed


def test_a_share_is_checked_and_the_same_one_each_time(store, fake, monkeypatch):
    checked: list[object] = []
    monkeypatch.setattr(native, "difference", lambda kernel, params, run: checked.append(params["m"]) or "")
    instances = [instance(m) for m in range(1, 121)]
    for times in (1, 2):
        with runner(store, fake()) as measuring:
            assert len(list(measuring.measure(instances, times=times))) == 120
    half = len(checked) // 2
    assert 2 <= half <= 14
    assert checked[:half] == checked[half:]


def test_what_is_done_is_left_out(store, fake):
    instances = [instance(m, threads) for m in (1, 2, 3) for threads in (1, 2)]
    with runner(store, fake({2: "clock"})) as measuring:
        attempts = measuring.measure(instances)
        assert [next(attempts).workload.params["m"] for _ in range(3)] == [1, 1, 2]
        attempts.close()
        assert len(store) == 3
    with runner(store, fake({2: "clock"})) as measuring:
        rest = list(measuring.measure(instances))
        assert [(r.workload.params["m"], r.config["threads"]) for r in rest] == [(2, 2), (3, 1), (3, 2)]
        assert list(measuring.measure(instances)) == []
        again = list(measuring.measure(instances[:1], times=2))
        assert [(r.workload.params["m"], r.config["threads"]) for r in again] == [(1, 1)]
        assert list(measuring.measure(instances[:1], times=2)) == []
        assert measuring.attempts(instances) == Counter({instances[0]: 2, **dict.fromkeys(instances[1:], 1)})


def test_two_libraries_share_a_store(store, fake):
    for library in ("eigen", "boost"):
        with runner(store, fake(), library=library) as measuring:
            assert len(list(measuring.measure([instance(5)]))) == 1
    assert [record.space for record in store.rows()] == ["eigen", "boost"]


@pytest.mark.parametrize("change", [{"policy": Policy(repeats=9)}, {"seed": 1}, {"made_by": "workbench measure matrix --seed 1"}])
def test_a_store_holds_one_way_of_measuring(store, fake, change):
    with runner(store, fake()) as measuring:
        list(measuring.measure([instance(5)]))
    with runner(store, fake(), **change) as measuring, pytest.raises(UsageError, match="use another store"):
        list(measuring.measure([instance(6)]))
    assert len(store) == 1


def test_a_program_that_does_not_start_leaves_no_record(store):
    with runner(store, ["no-such-program"]) as measuring, pytest.raises(BuildError, match="does not start"):
        list(measuring.measure([instance(5)]))
    assert len(store) == 0


def test_waiting_threads_sleep_whatever_the_caller_has_set(monkeypatch):
    for name, value in {"OMP_WAIT_POLICY": "active", "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000000", "KMP_BLOCKTIME": "infinite"}.items():
        monkeypatch.setenv(name, value)
    found = {name: value for name, value in native._environment().items() if name.startswith(("OMP", "GOMP", "KMP"))}
    assert found == {"OMP_WAIT_POLICY": "passive", "OMP_DYNAMIC": "false"}
    assert native._environment()["PATH"] == os.environ["PATH"]


def test_both_libraries_get_the_same_inputs():
    eigen, boost = (draw("mm", library, 40, seed=3, max_threads=8) for library in ("eigen", "boost"))
    assert [one.workload for one in eigen] == [one.workload for one in boost]
    assert {one.threads for one in boost} == {1}
    assert {one.threads for one in eigen} == set(range(1, 9))
    assert draw("mm", "eigen", 10, seed=3, max_threads=8) == eigen[:10]
    assert draw("mm", "eigen", 40, seed=4, max_threads=8) != eigen


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("lu", "eigen", 1), "no matrix kernel 'lu'"), (("mm", "mkl", 1), "no library 'mkl'"), (("mm", "eigen", -1), "cannot draw -1")],
)
def test_a_name_or_number_that_cannot_be_used(arguments, said):
    with pytest.raises(UsageError, match=said):
        draw(*arguments)


def test_no_threads_is_refused(store):
    with pytest.raises(UsageError, match="at most 0 threads"):
        draw("mm", "eigen", 1, max_threads=0)
    with pytest.raises(UsageError, match="no library 'mkl'"):
        Runner("mkl", store)
