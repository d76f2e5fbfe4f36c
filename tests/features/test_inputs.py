from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from workbench.data.datasets import Dataset
from workbench.errors import DataError, UsageError
from workbench.features.inputs import OPERATIONS, Term, aligned_terms, columns_of, evaluate, log_terms, raw_terms, schedule_terms, stored_terms, with_complexity
from workbench.kernels import kernel
from workbench.schema import Device

CPU, GPU = Device("invented-cpu", "cpu"), Device("invented-gpu", "gpu")


def dataset(name: str, device: Device, parameters: tuple[str, ...], knobs: tuple[str, ...] = (), **columns: list[float]) -> Dataset:
    frame = pd.DataFrame(columns)
    return Dataset("invented", frame.assign(time_s=1.0, status="ok"), kernel(name), device, parameters, knobs)


MM = dataset("mm", CPU, ("m", "n", "k", "d1", "d2"), ("threads",), m=[16, 17, 2], n=[4, 4, 4], k=[8, 1, 3], d1=[1, 0.5, 1], d2=[1, 1, 0.25], threads=[1, 2, 4])


@pytest.mark.parametrize(
    ("operation", "values", "expected"),
    [
        ("value", [3.5, -1.0], [3.5, -1.0]),
        ("log2", [8.0, 0.25], [3.0, -2.0]),
        ("inverse", [4.0, 0.5], [0.25, 2.0]),
        ("emptied", [1.0, 0.5, 2.0**-20], [-20.0, -1.0, -20.0]),
        ("alignment", [32.0, 24.0, 7.0, 4.0], [1.0, 0.5, 1 / 16, 0.25]),
        ("padding", [32.0, 8.0, 17.0], [0.0, 1.0, np.log2(32 / 17)]),
        ("stored", [1.0, 0.5, 0.25, 2.0**-20], [0.0, 0.0, -2.0, -20.0]),
        ("dense", [1.0, 0.5, 0.25], [1.0, 1.0, 0.0]),
        ("one", [0.0, 1.0, 2.0], [0.0, 1.0, 0.0]),
    ],
)
def test_operations_by_hand(operation: str, values: list[float], expected: list[float]) -> None:
    got = evaluate(pd.DataFrame({"a": values}), [Term(operation, "a")])
    np.testing.assert_allclose(got[:, 0], expected, rtol=1e-15)


def test_overhang_counts_only_what_sticks_out() -> None:
    frame = pd.DataFrame({"s1": [32.0, 4.0, 8.0], "s2": [8.0, 8.0, 8.0]})
    np.testing.assert_array_equal(evaluate(frame, [Term("overhang", "s1", "s2")])[:, 0], [2.0, 0.0, 0.0])


def test_the_codes_of_operations_stay() -> None:
    # Saved structures and the compiled kernel number them: a new one goes to the end.
    assert list(OPERATIONS)[:10] == ["value", "log2", "inverse", "emptied", "alignment", "padding", "overhang", "stored", "dense", "one"]


def test_terms_serialise_and_name_their_columns() -> None:
    terms = [Term("overhang", "s1", "s2"), Term("log2", "s2"), Term("value", "n")]
    assert [Term(*t.to_json()) for t in terms] == terms
    assert columns_of(terms) == ("s1", "s2", "n")


def test_a_knob_that_may_be_0_has_no_logarithm() -> None:
    switched = replace(MM, frame=MM.frame.assign(stored=[0, 1, 0]), knobs=(*MM.knobs, "stored"))
    assert [t.operation for t in log_terms(switched, complexity=True)] == [*["log2"] * 6, "value", "log2"]
    assert np.isfinite(evaluate(switched.frame, log_terms(switched, complexity=False))).all()


def test_term_sets_of_a_cpu() -> None:
    assert [t.column for t in raw_terms(MM, complexity=True)] == ["m", "n", "k", "d1", "d2", "threads", "c"]
    assert [t.column for t in raw_terms(MM, complexity=False)] == ["m", "n", "k", "d1", "d2", "threads"]
    assert {t.operation for t in log_terms(MM, complexity=True)} == {"log2"}
    aligned = aligned_terms(MM)
    assert aligned == [*log_terms(MM, complexity=True), Term("inverse", "threads")]
    emptied = aligned_terms(MM, emptied=True)
    assert [t.column for t in emptied] == [t.column for t in aligned]
    assert [t.column for t in emptied if t.operation == "emptied"] == ["d1", "d2"]


def test_stored_terms_tell_the_dense_program_from_the_sparse_one() -> None:
    terms = stored_terms(MM, complexity=True)
    assert [(t.operation, t.column) for t in terms] == [
        *(("log2", c) for c in ("m", "n", "k")),
        *(("stored", c) for c in ("d1", "d2")),
        *(("log2", c) for c in ("threads", "c")),
        *(("dense", c) for c in ("d1", "d2")),
        ("inverse", "threads"),
    ]
    assert len(stored_terms(MM, complexity=False)) == len(terms) - 1


def test_term_sets_of_a_gpu_leave_densities_and_filters_alone() -> None:
    terms = aligned_terms(dataset("mc", GPU, ("m", "n", "r", "d1"), m=[4], n=[4], r=[3], d1=[1]), emptied=True)
    assert [(t.operation, t.column) for t in terms] == [
        ("log2", "m"),
        ("log2", "n"),
        ("log2", "r"),
        ("log2", "c"),
        ("alignment", "m"),
        ("padding", "m"),
        ("alignment", "n"),
        ("padding", "n"),
    ]


def test_schedule_terms_drop_what_never_varies() -> None:
    knobs = {"s1": [2.0, 4.0], "s2": [2.0, 8.0], "s3": [2.0, 2.0], "s4": [2.0, 4.0]}
    terms = schedule_terms(dataset("blur", CPU, ("n",), tuple(knobs), n=[1024.0, 2048.0], **knobs))
    assert terms == [Term("log2", "n"), Term("log2", "s1"), Term("log2", "s2"), Term("log2", "s4"), Term("overhang", "s1", "s2")]


def test_a_knob_that_may_be_zero_has_no_logarithm_and_with_three_choices_no_order() -> None:
    knobs = {"vector1": [1.0, 4.0, 2.0], "transpose": [0.0, 1.0, 1.0], "parallel": [0.0, 1.0, 2.0]}
    data = dataset("fft", CPU, ("n",), tuple(knobs), n=[16.0, 32.0, 32.0], **knobs)
    terms = schedule_terms(data)
    assert terms == [Term("log2", "n"), Term("log2", "vector1"), Term("value", "transpose"), Term("value", "parallel"), Term("one", "parallel")]
    assert np.isfinite(evaluate(data.frame, terms)).all()


def test_complexity_is_the_sources_own_column_or_the_kernels() -> None:
    np.testing.assert_array_equal(with_complexity(MM).frame["c"], [16 * 4 * 8, 17 * 4, 2 * 4 * 3])
    assert "c" not in MM.frame
    own = replace(MM, frame=MM.frame.assign(c=7.0))
    assert with_complexity(own) is own


def test_faults_are_named() -> None:
    with pytest.raises(UsageError, match="no operation 'sqrt' on columns"):
        Term("sqrt", "m")
    with pytest.raises(DataError, match="'threads' is not a column of the frame; it has m, n"):
        evaluate(MM.frame[["m", "n"]], [Term("log2", "m"), Term("log2", "threads")])
    with pytest.raises(DataError, match=r"row 1: input log2\(m\) is -inf for m = 0\.0"):
        evaluate(pd.DataFrame({"m": [1.0, 0.0]}), [Term("log2", "m")])
    with pytest.raises(DataError, match=r"row 0: input log2\(m\) is nan for m = -3\.0"):
        evaluate(pd.DataFrame({"m": [-3.0]}), [Term("log2", "m")])
    with pytest.raises(DataError, match="no complexity"):
        with_complexity(replace(MM, kernel=replace(MM.kernel, complexity=None)))
    with pytest.raises(DataError, match="no column 'k'"):
        with_complexity(replace(MM, frame=MM.frame.drop(columns="k")))
    with pytest.raises(DataError, match="its input 'd2' is not a column"):
        schedule_terms(replace(MM, frame=MM.frame.drop(columns="d2")))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_operation_hides_an_input_that_is_not_finite(operation: str, value: float) -> None:
    with pytest.raises(DataError, match=f"row 1: a is {value}"):
        evaluate(pd.DataFrame({"a": [1.0, value], "b": [1.0, 1.0]}), [Term(operation, "a", "b" if operation == "overhang" else "")])
