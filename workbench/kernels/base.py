"""A Kernel: what can be measured. Its parameters, its complexity f(K, H), its floating-point operations and its named configuration spaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.errors import UsageError
from workbench.schema import Workload

if TYPE_CHECKING:
    from workbench.space import Space

__all__ = ["Kernel"]


@dataclass(frozen=True)
class Kernel:
    """A family of workloads.

    Attributes:
        name: short name, the `kernel` of its workloads ("mm", "conv2d").
        title: the name in print.
        parameters: names of the workload's parameters.
        complexity: number of operations that NN+C feeds to its network, of a mapping of parameters (scalars or arrays); None where none is defined.
        flop: floating-point operations of one run, of the same mapping; None where the count is not known.
        spaces: space name -> function of the workload giving its `Space`.
    """

    name: str
    title: str
    parameters: tuple[str, ...]
    complexity: Callable[[Mapping[str, Any]], Any] | None = None
    flop: Callable[[Mapping[str, Any]], Any] | None = None
    spaces: Mapping[str, Callable[[Workload], Space]] = field(default_factory=dict)

    def space(self, workload: Workload, name: str) -> Space:
        """The configuration space `name` of a workload. Raises UsageError for a name the kernel does not have."""
        if name not in self.spaces:
            raise UsageError(f"kernel {self.name!r} has no space {name!r}; it has {', '.join(sorted(self.spaces)) or 'none'}")
        return self.spaces[name](workload)
