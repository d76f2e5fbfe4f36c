"""A Kernel: what can be measured. Its parameters, its complexity f(K, H), its floating-point operations, its named configuration spaces and loop nests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any

from workbench.errors import UsageError
from workbench.schema import Value, Workload

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from workbench.loopnest import NestBatch
    from workbench.space import Constraint, Space

__all__ = ["Kernel", "whole"]


@dataclass(frozen=True)
class Kernel:
    """A family of workloads.

    Attributes:
        name: short name, the `kernel` of its workloads ("mm", "conv2d").
        title: the name in print.
        parameters: names of the workload's parameters, all needed.
        complexity: number of operations that NN+C feeds to its network, of a mapping of parameters (scalars or arrays); None where none is defined.
        flop: floating-point operations of one run, of the same mapping; None where the count is not known.
        spaces: space name -> function of the workload giving its `Space`; the first is the one meant when none is named.
        optional: parameters that a workload may leave out, with the value they then have.
        threads: space name -> the knobs whose product is the number of threads of a GPU block, with the tile that counts (None: the value itself).
        nests: space name -> function of the workload, the space and indices [n] in it, giving the loop nests of those configurations.
    """

    name: str
    title: str
    parameters: tuple[str, ...]
    complexity: Callable[[Mapping[str, Any]], Any] | None = None
    flop: Callable[[Mapping[str, Any]], Any] | None = None
    spaces: Mapping[str, Callable[[Workload], Space]] = field(default_factory=dict)
    optional: Mapping[str, Value] = field(default_factory=dict)
    threads: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    nests: Mapping[str, Callable[[Workload, Space, ArrayLike], NestBatch]] = field(default_factory=dict)

    def workload(self, params: Mapping[str, Any]) -> Workload:
        """A workload of this kernel: lists become tuples, optional parameters get their values. Raises UsageError for a missing or unknown parameter."""
        takes = ", ".join(self.parameters) + (f" and may have {', '.join(self.optional)}" if self.optional else "")
        for name in params:
            if name not in self.parameters and name not in self.optional:
                raise UsageError(f"kernel {self.name!r} has no parameter {name!r}; it takes {takes}")
        for name in self.parameters:
            if name not in params:
                raise UsageError(f"kernel {self.name!r}: parameter {name!r} is missing; it takes {takes}")
        return Workload(self.name, {k: tuple(v) if isinstance(v, list) else v for k, v in {**self.optional, **params}.items()})

    def space(self, workload: Workload, name: str | None = None) -> Space:
        """The configuration space `name` of a workload (None: the first). Raises UsageError for a name the kernel does not have."""
        return self.spaces[self._space_name(name)](workload)

    def at_most_threads(self, limit: int, name: str | None = None) -> Constraint:
        """The constraint that a block of the space `name` has at most `limit` threads. Raises UsageError where the space has no blocks of threads."""
        from workbench.space import product_at_most

        name = self._space_name(name)
        if name not in self.threads:
            raise UsageError(f"space {name!r} of kernel {self.name!r} has no blocks of threads to limit")
        return product_at_most(limit, "threads", self.threads[name])

    def loop_nest(self, workload: Workload, indices: ArrayLike, name: str | None = None) -> NestBatch:
        """The loop nests of the configurations `indices` [n] in the space `name` of a workload (None: the first).

        Raises:
            UsageError: the space is not there, or has no loop nests.
            SpaceError: an index is not in the space.
        """
        space = self.space(workload, name)
        if space.name not in self.nests:
            has = f"; those of {', '.join(self.nests)} have" if self.nests else ""
            raise UsageError(f"configurations of the space {space.name!r} of kernel {self.name!r} have no loop nests{has}")
        return self.nests[space.name](workload, space, indices)

    def _space_name(self, name: str | None) -> str:
        if not self.spaces or (name is not None and name not in self.spaces):
            has = f"space {name!r}; it has {', '.join(self.spaces)}" if self.spaces else "configuration spaces"
            raise UsageError(f"kernel {self.name!r} has no {has}")
        return next(iter(self.spaces)) if name is None else name


def whole(workload: Workload, name: str) -> int:
    """A parameter that is a positive whole number. Raises UsageError if it is missing or anything else."""
    value = workload.params.get(name)
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{workload.kernel}: {name} is {value!r}; it is a whole number of at least 1")
    return int(value)
