"""The registry of kernels and what a kernel says of its workloads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from workbench.errors import SpaceError, UsageError
from workbench.kernels import kernel, names
from workbench.kernels.base import Kernel
from workbench.schema import Workload


def test_every_name_gives_its_kernel() -> None:
    assert len(set(names())) == len(names()) == 16
    for name in names():
        found = kernel(name)
        assert isinstance(found, Kernel)
        assert found.name == name
        assert found.title
        assert set(found.threads) | set(found.nests) <= set(found.spaces)
        assert not set(found.optional) & set(found.parameters)


def test_an_unknown_kernel_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no kernel 'conv3d'; there are conv2d, .*conv2d_transpose, .*gemm"):
        kernel("conv3d")


def test_kernels_load_one_family_at_a_time() -> None:
    code = "import sys, workbench.kernels as k; assert 'numpy' not in sys.modules; k.kernel('mm'); assert 'workbench.kernels.conv' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_workload_has_the_kernels_parameters() -> None:
    conv = kernel("conv2d")
    given = {"n": 1, "ci": 3, "h": 8, "w": 8, "co": 4, "kh": 3, "kw": 3, "stride": [1, 1], "padding": 1}
    workload = conv.workload(given)
    assert workload == Workload("conv2d", {**given, "stride": (1, 1), "dilation": (1, 1), "groups": 1})
    with pytest.raises(UsageError, match="no parameter 'batch'; it takes n, ci"):
        conv.workload({**given, "batch": 1})
    with pytest.raises(UsageError, match="parameter 'padding' is missing"):
        conv.workload({k: v for k, v in given.items() if k != "padding"})


def test_the_first_space_is_the_default() -> None:
    convolution = kernel("convolution")
    workload = convolution.workload({"w": 4096, "h": 4096, "kw": 15, "kh": 15})
    assert convolution.space(workload).name == "convolution"
    assert convolution.space(workload, "convolution_milo").name == "convolution_milo"
    with pytest.raises(UsageError, match="no space 'autotvm'; it has convolution, convolution_milo"):
        convolution.space(workload, "autotvm")
    with pytest.raises(UsageError, match="no configuration spaces"):
        kernel("mm").space(Workload("mm", {}))


def test_a_limit_of_threads_counts_the_threads() -> None:
    conv = kernel("conv2d")
    workload = conv.workload({"n": 1, "ci": 64, "h": 56, "w": 56, "co": 64, "kh": 3, "kw": 3, "stride": 1, "padding": 1})
    space = conv.space(workload)
    limited = space.restrict(conv.at_most_threads(256))
    tiles = space.decode(space.sample(2_000, 0))
    threads = tiles["tile_f"][:, 2] * tiles["tile_y"][:, 2] * tiles["tile_x"][:, 2]
    assert (limited.satisfies(space.sample(2_000, 0)) == (threads <= 256)).all()
    assert 0 < (threads <= 256).sum() < 2_000
    with pytest.raises(UsageError, match="no blocks of threads"):
        kernel("blur").at_most_threads(256)
    with pytest.raises(SpaceError, match="positive"):
        conv.at_most_threads(0)
