"""A record as a row of a table and back."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from workbench.data.rows import COLUMNS, from_row, to_row
from workbench.schema import Measurement, Status, Workload


@pytest.mark.parametrize("index", [None, 0, 2**70])
def test_a_record_comes_back_from_a_table(index: int | None) -> None:
    workload = Workload("conv2d", {"n": 1})
    measured = Measurement(workload, "some-gpu", Status.OK, 2e-5, space="by-hand", index=index, config={"tile": (1, 2)}, times_s=(2e-5, 3e-5))
    record = measured.to_json()
    assert set(record) == {"version", *COLUMNS}
    (row,) = pa.Table.from_pylist([to_row(record)], schema=pa.schema(list(COLUMNS.items()))).to_pylist()
    assert Measurement.from_json({**from_row(row), "version": record["version"]}) == measured


def test_what_is_no_number_is_no_row() -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_row({"index": None, "config": {"knob": float("nan")}})


def test_it_needs_pyarrow_only() -> None:
    listed = "import sys, workbench.data.rows; print(*{name.partition('.')[0] for name in sys.modules} & {'pandas', 'numpy', 'scipy', 'torch', 'tvm'})"
    done = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True)
    assert "pandas" not in done.stdout.split()
