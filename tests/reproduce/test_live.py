"""Matrix kernels measured into a store, with a program that only says so: what becomes a row, and that nothing is measured twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.data.store import Store
from workbench.errors import DataError
from workbench.measure import native
from workbench.reproduce.live import measure_instances

FAKE = Path(__file__).parents[1] / "measure" / "fake_program.py"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, str]], None]:
    """Lets a program stand for the library's that takes m microseconds for m rows, and misbehaves for the numbers of rows given."""

    def stand(faults: dict[int, str]) -> None:
        command = [sys.executable, "-I", "-S", str(FAKE), json.dumps({str(m): fault for m, fault in faults.items()})]

        def open_series(kernel: str, library: str, store: Store, **options: Any) -> native.Runner:
            return native.Runner(library, store, command=command, made_by=kernel)

        monkeypatch.setattr(native, "open_series", open_series)

    return stand


def test_a_row_is_an_input_with_all_its_attempts(tmp_path: Path, program: Callable[[dict[int, str]], None]) -> None:
    drawn = [instance.workload.params["m"] for instance in native.draw("mv", "eigen", 6)]
    program({drawn[2]: "exit"})
    with Store(tmp_path / "s.db") as store:
        found = measure_instances(store, "mv", "eigen", 6, passes=2)
        before = len(store)
        assert before == 6 * 2 + 1  # and one input again
        assert measure_instances(store, "mv", "eigen", 6, passes=2).data.frame.equals(found.data.frame)
        assert len(store) == before
        firsts = [record.timestamp for record in list(store.rows())[:6]]
        assert measure_instances(store, "mv", "eigen", 2, passes=2).data.frame["m"].tolist() == drawn[:2]
    frame = found.data.frame
    assert frame["m"].tolist() == drawn[:2] + drawn[3:]  # a failure has no time to learn from
    assert np.allclose(frame["time_s"], frame["m"] * 1e-6)
    assert [len(times) for times in frame["pass_s"]] == [3, 2, 2, 2, 2]
    assert frame["timestamp"].tolist() == firsts[:2] + firsts[3:]
    assert found.data.inputs == ("m", "n", "d1", "threads")
    assert found.measuring_s > 0
    assert found.build_s >= 0


def test_nothing_but_failures_is_one_line(tmp_path: Path, program: Callable[[dict[int, str]], None]) -> None:
    program({instance.workload.params["m"]: "exit" for instance in native.draw("mv", "eigen", 3)})  # type: ignore[misc]
    with Store(tmp_path / "s.db") as store, pytest.raises(DataError, match=r"mv in eigen: none of 3 inputs has a time; the first says: run_error, .*last word"):
        measure_instances(store, "mv", "eigen", 3)
