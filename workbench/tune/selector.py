"""The selector: which variant of a kernel is predicted to be the fastest for given inputs, and whether it pays to ask."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import SpaceError, UsageError
from workbench.kernels.base import Kernel
from workbench.models.base import Floats
from workbench.models.compiled import Alternatives, compile_alternatives, compile_model
from workbench.schema import Value, Workload
from workbench.space import Space
from workbench.tune.variants import Choice, Number, Source, Variant, complete, duration

__all__ = ["DRAWN", "ENUMERATED", "Selector", "index_in"]

# A space of at most so many combinations is searched whole, of a larger one so many schedules are drawn.
ENUMERATED, DRAWN = 1 << 20, 200_000
_SEED = 0
# Sizes of a kernel with a space whose rows are kept: each takes some megabytes.
_KEPT = 16


@dataclass(frozen=True)
class Selector:
    """Trained models of one kernel, ready to be asked which variant is the fastest.

    `choose` is the quick way: plain numbers in, a variant out, one compiled call. `select` says more about the answer, `ranking` gives several.

    Attributes:
        kernel: what is to be run.
        sources: a model for each data set with its variants.
        created: date and time (UTC, ISO 8601) of the training.
        workbench: version of the package that trained.
        train_s: seconds that training took.
        notes: what a reader must know of the data, a sentence each.
    """

    kernel: Kernel
    sources: tuple[Source, ...]
    created: str
    workbench: str
    train_s: float
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the numbers that `choose` takes, in order."""
        return self.kernel.parameters

    def at_most(self, threads: int) -> Selector:
        """The same without the variants of more threads. Raises UsageError if none is left."""
        kept = []
        for source in self.sources:
            places = [i for i, config in enumerate(source.configs) if (source.variant(config).threads or 1) <= threads]
            if places:
                configs, averages = (tuple(values[i] for i in places) for values in (source.configs, source.averages))
                kept.append(replace(source, configs=configs, averages=averages))  # type: ignore[arg-type]
        if not kept:
            least = min(source.variant(config).threads or 1 for source in self.sources for config in source.configs)
            raise UsageError(f"no variant of {self.kernel.name!r} runs on {threads} threads; the least is {least}")
        return replace(self, sources=tuple(kept))

    def choose(self, *values: float) -> Variant:
        """The variant that is predicted to be the fastest.

        The first call for new inputs of a kernel with a space (Halide's sizes n) prepares its rows; later ones are warm.

        Args:
            values: the kernel's parameters, in the order of `parameters`.

        Raises:
            UsageError: another number of values, or values of which no model makes a number.
        """
        table = self._fixed or self._table(values)
        try:
            place = table.call(*values)
        except (TypeError, ValueError):
            raise UsageError(f"kernel {self.kernel.name!r} takes {len(self.parameters)} numbers ({', '.join(self.parameters)}), not {values!r}") from None
        if place < 0:
            raise UsageError(f"kernel {self.kernel.name!r}: no model makes a number of {', '.join(map(_pair, self.parameters, values))}")
        return table.variants[place]

    def select(self, inputs: Mapping[str, Number]) -> Choice:
        """The variant to run, its runner-up, and what it gains over the default beside what asking costs.

        Args:
            inputs: the kernel's parameters; densities and the stride s may be left out and are then 1.

        Raises:
            UsageError: an unknown or missing parameter, or a value that cannot be one.
        """
        given = complete(self.kernel, inputs)
        values = tuple(given.values())
        table = self._table(values)
        times, order = self._ranked(table, values, 2)
        best, second = int(order[0]), int(order[1]) if len(order) > 1 else None
        chosen = float(times[best])
        ranked = [(table.variants[int(i)], float(times[i])) for i in order]
        default_s = float(times[table.default]) if table.default is not None else None
        gain = max(0.0, default_s - chosen) if default_s is not None else None
        cost = self._cost(table, values)
        compile_s = self._source_of(table.variants[best]).compile_s
        return Choice(
            variant=table.variants[best],
            predicted_s=chosen,
            runner_up=None if second is None else table.variants[second],
            runner_up_s=None if second is None else float(times[second]),
            default=None if table.default is None else table.variants[table.default],
            default_s=default_s,
            gain_s=gain,
            cost_s=cost,
            pays=gain is not None and gain > cost,
            variants=len(times),
            compile_s=compile_s,
            runs_to_pay=math.ceil((cost + (compile_s or 0.0)) / gain) if gain else None,
            notes=(*self._outside(given), *self._close(ranked), *_never(default_s, cost), *table.notes, *self.notes),
        )

    def ranking(self, inputs: Mapping[str, Number], count: int = 5) -> list[tuple[Variant, float]]:
        """The `count` variants of the least predicted seconds with these seconds, fastest first. Raises UsageError as `select`."""
        values = tuple(complete(self.kernel, inputs).values())
        table = self._table(values)
        times, order = self._ranked(table, values, count)
        return [(table.variants[int(i)], float(times[i])) for i in order]

    @cached_property
    def cost_s(self) -> float:
        """Seconds of one warm answer of `choose` on this machine, measured when first asked for: at the middle of the training rows' ranges."""
        ranges = [self._range(name) for name in self.parameters]
        values = tuple(round(math.sqrt(low * high)) if low >= 1 else low for low, high in ranges)
        return self._cost(self._table(values), values)

    # Tables of variants

    @cached_property
    def _fixed(self) -> _Table | None:
        """The one table of a kernel whose variants do not depend on the inputs."""
        return None if any(source.space for source in self.sources) else self._built(())

    @cached_property
    def _tables(self) -> dict[tuple[float, ...], _Table]:
        return {}

    def _table(self, values: tuple[float, ...]) -> _Table:
        if self._fixed is not None:
            return self._fixed
        if values not in self._tables:
            built = self._built(values)
            while len(self._tables) >= _KEPT:
                del self._tables[next(iter(self._tables))]
            self._tables[values] = built
        return self._tables[values]

    def _built(self, values: tuple[float, ...]) -> _Table:
        """Rows for all variants, and the place of the default: the least average of those that can run."""
        groups, rows, notes = [], [], []
        default, least, start = None, math.inf, 0
        for source in self.sources:
            if source.space:
                workload = self.kernel.workload(dict(zip(self.parameters, values, strict=True)))
                frame, first, note = _candidates(self.kernel, workload, source)
                notes += [text for text in note if text not in notes]  # two data sets of one space say the same
            else:
                frame = pd.DataFrame(source.configs, columns=list(source.knobs), index=range(len(source.configs)))
                first = int(np.argmin(source.averages))
            if first is not None and min(source.averages) < least:
                default, least = start + first, min(source.averages)
            groups.append((compile_model(source.model), frame))
            rows.append(_Variants(source, frame[list(source.knobs)]))
            start += len(frame)
        alternatives = compile_alternatives(groups, self.parameters, self.kernel.complexity)
        variants = rows[0] if len(rows) == 1 else _Joined(rows)
        if len(variants) <= 64:
            # Made beforehand: a variant is then a look-up, not an object to build.
            return _Table(alternatives.call, alternatives, tuple(variants[i] for i in range(len(variants))), default, tuple(notes))
        return _Table(alternatives.call, alternatives, variants, default, tuple(notes))

    def _ranked(self, table: _Table, values: tuple[float, ...], count: int) -> tuple[Floats, npt.NDArray[np.intp]]:
        times = table.alternatives.times(*values)
        if np.isnan(times).all():
            raise UsageError(f"kernel {self.kernel.name!r}: no model makes a number of {', '.join(map(_pair, self.parameters, values))}")
        keys = np.where(np.isnan(times), np.inf, times)
        first = np.argpartition(keys, count - 1)[:count] if count < len(keys) else np.arange(len(keys))
        order = first[np.lexsort((first, keys[first]))]
        return times, order[np.isfinite(keys[order])]

    def _source_of(self, variant: Variant) -> Source:
        return next(source for source in self.sources if source.data_set == variant.data_set)

    # Cost and ranges

    def _cost(self, table: _Table, values: tuple[float, ...]) -> float:
        if table.cost_s is None:
            table.cost_s = _seconds(lambda: self.choose(*values))
        return table.cost_s

    def _range(self, name: str) -> tuple[float, float]:
        found = [source.ranges[name] for source in self.sources]
        return min(low for low, _ in found), max(high for _, high in found)

    def _outside(self, given: Mapping[str, Number]) -> list[str]:
        """A sentence for each parameter that lies outside the training rows of a source."""
        notes = []
        for name, value in given.items():
            beyond = [source for source in self.sources if not source.ranges[name][0] <= value <= source.ranges[name][1]]
            if beyond:
                low, high = min(s.ranges[name][0] for s in beyond), max(s.ranges[name][1] for s in beyond)
                names = ", ".join(source.data_set for source in beyond)
                notes.append(f"{name} = {value:g} is outside {low:g} to {high:g}, the training rows of {names}: predictions there are guesses.")
        return notes

    def _close(self, ranked: Sequence[tuple[Variant, float]]) -> list[str]:
        """A sentence where the models cannot tell the first two apart. Of schedules it would be said each time: the first of thousands are always close."""
        if len(ranked) < 2 or any(self._source_of(variant).space for variant, _ in ranked):
            return []
        apart = 100 * (ranked[1][1] / ranked[0][1] - 1)
        error = max(self._source_of(variant).mape or 0.0 for variant, _ in ranked)
        return [f"The runner-up is predicted {apart:.3g}% slower, and the models err by {error:.3g}%: either may be faster."] if apart < error else []


@dataclass
class _Table:
    """The variants of some inputs, packed: `call` is their compiled function, `cost_s` the seconds of an answer once they were measured."""

    call: Callable[..., int]
    alternatives: Alternatives
    variants: Sequence[Variant] | _Variants | _Joined
    default: int | None
    notes: tuple[str, ...]
    cost_s: float | None = None


@dataclass(frozen=True)
class _Variants:
    """The variants of a source by place, each made when it is asked for."""

    source: Source
    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, place: int) -> Variant:
        config = {str(name): self.frame[name].iloc[place].item() for name in self.frame.columns}
        return self.source.variant(config)


@dataclass(frozen=True)
class _Joined:
    """The variants of several sources one after another."""

    parts: Sequence[_Variants]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, place: int) -> Variant:
        for part in self.parts:
            if place < len(part):
                return part[place]
            place -= len(part)
        raise IndexError(place)


def _candidates(kernel: Kernel, workload: Workload, source: Source) -> tuple[pd.DataFrame, int | None, list[str]]:
    """Knob values of the schedules to compare, the place of the default among them (None where it is no schedule of this workload), and notes."""
    space: Space = kernel.space(workload, source.space)
    notes = []
    if space.size <= ENUMERATED:
        indices = space.members(ENUMERATED)
    else:
        indices = space.sample(DRAWN, _SEED)
        notes.append(f"The space has {space.size:,} combinations; {len(indices):,} schedules drawn at random were compared.")
    default = index_in(space, source.configs[int(np.argmin(source.averages))])
    if default is not None:
        indices = np.concatenate([[default], indices[indices != default]])
    return pd.DataFrame(space.decode(indices)), None if default is None else 0, notes


def index_in(space: Space, config: Mapping[str, Value]) -> int | None:
    """The index of a configuration, None where the space has none that meets its constraints."""
    try:
        index = space.index(config)
    except SpaceError:
        return None
    return index if space.satisfies([index])[0] else None


def _never(default_s: float | None, cost: float) -> list[str]:
    if default_s is None or default_s > cost:
        return []
    return [f"Even the default takes only {duration(default_s)}, no more than asking ({duration(cost)}): it never pays to ask for one run of inputs so small."]


def _pair(name: str, value: float) -> str:
    return f"{name} = {value}"


def _seconds(call: Callable[[], object], batches: int = 5, least_s: float = 2e-3) -> float:
    """Median seconds of a warm call; each batch takes about `least_s` or one call."""
    call()
    loops = 1
    times: list[float] = []
    while len(times) < batches:
        start = time.perf_counter()
        for _ in range(loops):
            call()
        took = time.perf_counter() - start
        if took < least_s / 2 and not times:
            loops *= 2
        else:
            times.append(took / loops)
    return float(np.median(times))
