"""Views of a task: the same numbers as the features that they are made of, by name."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.errors import SpaceError, UsageError
from workbench.features.curves import CurveVectors
from workbench.features.knobs import KnobVectors
from workbench.features.loops import LoopVectors
from workbench.features.tasks import TuningTask
from workbench.features.views import VIEWS, View
from workbench.kernels import kernel
from workbench.schema import Device

GPU = Device("invented-gpu", "gpu", peak_gflops=1e3, bandwidth_gb_s=100.0)
CHOICES = ("auto_unroll_max_step", "unroll_explicit")


@pytest.fixture(scope="module")
def task() -> TuningTask:
    found = kernel("conv2d")
    shape = {"n": 1, "ci": 16, "h": 12, "w": 12, "co": 32, "kh": 3, "kw": 3, "stride": 1, "padding": 1}
    return TuningTask("layer", found, found.workload(shape), GPU, "workbench-gpu")


def test_they_are_what_they_are_made_of(task: TuningTask) -> None:
    indices = task.space.sample(700, 0)
    knobs = KnobVectors(task.space)
    choices = knobs.of(indices)[:, [knobs.columns.index(name) for name in CHOICES]]
    loops = LoopVectors(task.kernel, task.workload, task.space_name, logarithms=True).of(indices).reshape(700, -1)
    np.testing.assert_array_equal(View(task, "itervar").of(indices), np.concatenate([loops, choices], axis=1))
    curves = CurveVectors(task.kernel, task.workload, task.space_name).of(indices)
    np.testing.assert_array_equal(View(task, "curve").of(indices), np.concatenate([curves, choices], axis=1))
    np.testing.assert_array_equal(View(task, "knobs").of(indices), knobs.of(indices))
    np.testing.assert_array_equal(View(task, "vectors").of(indices), task.vectors(indices))


@pytest.mark.parametrize("kind", VIEWS)
def test_columns_by_name(task: TuningTask, kind: str) -> None:
    view, indices = View(task, kind), task.space.sample(20, 1)
    table = view.of(indices)
    assert table.shape == (20, len(view.columns))
    assert len(set(view.columns)) == len(view.columns)
    wanted = (view.columns[-1], "no such column", view.columns[7], view.columns[3])
    found = view.of(indices, wanted)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[:, [0, 2, 3]], table[:, [-1, 7, 3]])
    assert (found[:, 1] == 0).all()
    assert view.of([], wanted).shape == (0, 4)
    assert view.of(indices, ()).shape == (20, 0)
    with pytest.raises(SpaceError, match="index -1 is out of range"):
        view.of([-1])


def test_two_structures_have_the_same_columns() -> None:
    image = kernel("convolution")
    task = TuningTask("image", image, image.workload({"w": 64, "h": 48, "kw": 5, "kh": 3}), GPU, "convolution_milo")
    view, indices = View(task, "itervar"), task.space.sample(200, 0)
    shared = task.space.decode(indices)["use_shmem"] == 1
    table = view.of(indices)
    assert 0 < shared.sum() < 200
    fetched = [i for i, name in enumerate(view.columns) if name == "fetch_data.y length"]
    assert (table[shared][:, fetched] > 0).all()
    assert (table[~shared][:, fetched] == 0).all()
    assert view.columns[-len(task.space.names) :] == KnobVectors(task.space).columns


def test_what_cannot_be(task: TuningTask) -> None:
    with pytest.raises(UsageError, match="no features 'loops'; choose one of itervar, curve, knobs, vectors"):
        View(task, "loops")
    gemm = kernel("gemm")
    with pytest.raises(UsageError, match="the space 'clblast' of kernel 'gemm' have no loop nests"):
        View(TuningTask("gemm", gemm, gemm.workload({"m": 64, "n": 64, "k": 64}), GPU), "itervar")
