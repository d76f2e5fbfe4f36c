"""The convolutions of any PyTorch module: torch.export, TVM's Relax importer, and a walk over the graph.

Torch and TVM share the process here. Nothing is compiled, and 50 fresh processes in each order of import, which exported, imported and then compiled and ran a
kernel through LLVM besides, all ended well (torch 2.13.0, apache-tvm 0.27.0).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.errors import MissingPackage, UsageError
from workbench.kernels import kernel, names
from workbench.kernels.conv_shape import shape_of
from workbench.kernels.networks import Layer
from workbench.schema import Workload

if TYPE_CHECKING:
    import torch

__all__ = ["from_torch"]


def from_torch(module: torch.nn.Module, example_inputs: tuple[Any, ...]) -> tuple[Layer, ...]:
    """The distinct convolutions that a module runs for inputs of these shapes, in order of appearance.

    A convolution that no kernel here can express (conv3d, other types than float32, transposed with groups, dilation or output padding) is left out, and a
    warning names it with its shapes and the reason. A filter that is computed, not a parameter, leaves `names` empty.

    Args:
        module: in evaluation mode; its weights may be anything.
        example_inputs: positional arguments of `forward`; only shapes and types matter.

    Raises:
        UsageError: the module is in training mode, torch.export cannot trace it, or Relax has no equivalent of an operator.
        MissingPackage: torch or TVM is not installed.
    """
    try:
        import torch
        from tvm import relax
        from tvm.relax.frontend.torch import from_exported_program
    except ModuleNotFoundError as error:
        raise MissingPackage.needed_by("from_torch", error) from error
    label = type(module).__name__
    if module.training:
        raise UsageError(f"module {label} is in training mode, where layers such as batch normalisation are other operators; call its eval() first")
    try:
        program = torch.export.export(module, example_inputs)
    except Exception as error:
        raise UsageError(f"torch.export cannot trace module {label}: {_first_line(error)}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's own, of its copy of a graph
            main = from_exported_program(program, keep_params_as_input=True)["main"]
    except Exception as error:
        raise UsageError(f"TVM cannot import module {label} into Relax: {_first_line(error)}") from error
    calls: list[Any] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call) and getattr(expression.op, "name", "").startswith("relax.nn.conv"):
            calls.append(expression)

    relax.analysis.post_order_visit(main, visit)
    return _layers(calls, program.graph_signature.inputs_to_parameters)


def _layers(calls: Sequence[Any], parameters: Mapping[str, str]) -> tuple[Layer, ...]:
    """Equal convolutions together. `parameters` has the path in the module, such as "layer1.0.conv1.weight", of each variable that is a parameter."""
    counts: dict[Workload, int] = {}
    modules: dict[Workload, list[str]] = {}
    for call in calls:
        name = parameters.get(getattr(call.args[1], "name", ""), "").rpartition(".")[0]
        try:
            workload = _workload(call)
        except UsageError as error:
            warnings.warn(f"{_text(call, name)} is left out: {error}", stacklevel=3)
            continue
        counts[workload] = counts.get(workload, 0) + 1
        known = modules.setdefault(workload, [])
        # A module that runs twice is one name.
        if name and name not in known:
            known.append(name)
    return tuple(Layer(workload, count, tuple(modules[workload])) for workload, count in counts.items())


def _workload(call: Any) -> Workload:
    """The workload of a call of relax.nn.conv*. Raises UsageError with the reason where no kernel can express it."""
    kind, attributes = _kind(call), call.attrs
    (n, ci, *size), weight = _shape(call.args[0]), _shape(call.args[1])
    groups = int(attributes.groups)
    if kind == "conv2d" and groups == ci > 1:
        kind, groups = "depthwise_conv2d", 1
    if kind not in names():
        raise UsageError(f"there is no kernel {kind!r}")
    if str(call.args[0].ty.dtype) != "float32":
        raise UsageError(f"it computes in {call.args[0].ty.dtype}, the kernels here in float32")
    co = weight[1] * groups if kind.endswith("_transpose") else weight[0]
    axes = ("h", "w")[-len(size) :]
    params: dict[str, Any] = {"n": n, "ci": ci, "co": co, **dict(zip(axes, size, strict=True))}
    params |= {f"k{axis}": extent for axis, extent in zip(axes, weight[2:], strict=True)}
    before, after = attributes.padding[: len(axes)], attributes.padding[len(axes) :]
    params |= {"stride": _value(attributes.strides), "padding": _value(before if tuple(before) == tuple(after) else attributes.padding)}
    # What a kernel cannot have is an unknown parameter to it.
    dilation, output_padding = _value(attributes.dilation), _value(getattr(attributes, "output_padding", (0,)))
    params |= {"groups": groups} if groups != 1 else {}
    params |= {"dilation": dilation} if dilation not in (1, (1, 1)) else {}
    params |= {"output_padding": output_padding} if output_padding not in (0, (0, 0)) else {}
    workload = kernel(kind).workload(params)
    shape_of(workload)
    return workload


def _kind(call: Any) -> str:
    return str(call.op.name).removeprefix("relax.nn.")


def _shape(expression: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in expression.ty.shape)


def _value(numbers: Sequence[Any]) -> int | tuple[int, ...]:
    """One number in one dimension, as many as there are in two."""
    values = tuple(map(int, numbers))
    return values[0] if len(values) == 1 else values


def _text(call: Any, name: str) -> str:
    data, weight = ("x".join(map(str, _shape(argument))) for argument in call.args[:2])
    return f"{_kind(call)} {name!r} of inputs {data} and filters {weight}" if name else f"a {_kind(call)} of inputs {data} and filters {weight}"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
