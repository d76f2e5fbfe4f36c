"""MetaTune (sections 4 and 5): the graph model, pre-trained on measured tasks, its head meta-trained with the embedding frozen, and adapted to each batch.

The model sees loop context vectors in their graph and nothing else: neither sizes of a workload nor the device, but for what they do to the loops. The inner
loop and the rows of a task are the authors'; how long to pre-train and how to adapt was chosen on four layers of FlexTensor's set (yolo1 to yolo4), each left
out of the training tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from workbench.errors import DataError, UsageError
from workbench.features.supergraph import COLUMNS, SuperGraphs
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.meta.adapt import adapt
from workbench.meta.heads import Heads, step_sizes
from workbench.meta.maml import Inner, MetaLearner
from workbench.meta.pretrain import pretrain
from workbench.meta.tasks import FewShot, Pool, Protocol
from workbench.models.gcn import HEADS, GraphEmbedding, GraphModel, shares
from workbench.models.scoring import Embedder
from workbench.models.surrogate import Adapted, Estimate, Surrogate, Trials

__all__ = ["MetaTune"]

_Floats = NDArray[np.float32]
_SCHEMA = 1
_LEARNED = "learned step sizes of "  # in a file, before the name of a parameter
_KEPT = 1 << 16  # embeddings of a task's configurations that are kept


@dataclass(frozen=True)
class MetaTune(Surrogate):
    """The paper's cost model. Fitting is the same bit for bit with the same tasks, seed and number of threads.

    Args:
        template: whether graphs are super-graphs (meta-BO-T, meta-RL-T), or the ASTs of their own (meta-BO, meta-RL).
        embedding: columns of the embedding: 128, or the smaller models with 64 or 32.
        protocol: of the few-shot tasks: "paper" mixes 20 kernels, or all there are, with one example each to adapt to and one to judge; "clean" has one kernel
            and 16 of each.
        rows: of each task that are learnt from, drawn by chance (section 6 has 200).
        epochs: of supervised pre-training.
        outer: steps of meta-training, of 32 few-shot tasks each.
        inner: how a few-shot task is adapted to.
        steps, rate, optimiser: of the adaptation to what was measured; all trials so far are learnt from anew, in so many steps. Where `inner` learns step
            sizes, each number's rate is as many times `rate` as meta-training made of the inner rate.
        model: the network, once fitted.
        learned: step sizes over the inner rate, once fitted where `inner` learns them [1, ...] by parameter of the head.
    """

    template: bool = True
    embedding: int = 128
    protocol: Protocol = "paper"
    rows: int = 200
    epochs: int = 60
    outer: int = 1000
    inner: Inner = field(default_factory=Inner)
    steps: int = 100
    rate: float = 3e-4
    optimiser: Literal["sgd", "adam"] = "adam"
    model: GraphModel | None = field(default=None, repr=False, compare=False)
    learned: Mapping[str, Tensor] | None = field(default=None, repr=False, compare=False)
    name = "metatune"

    def __post_init__(self) -> None:
        if self.embedding not in HEADS:
            raise UsageError(f"an embedding of {self.embedding} columns; there are models with {', '.join(map(str, HEADS))}")
        if min(self.rows, self.epochs) < 1 or self.outer < 0:
            raise UsageError(f"{self.rows} rows a task, {self.epochs} epochs and {self.outer} outer steps; at least 1, 1 and 0")

    def fit(self, tasks: Sequence[MeasuredTask], seed: int = 0) -> Self:
        """See `Surrogate`.

        Raises:
            DataError: no tasks, one without graphs or with fewer rows than a few-shot task takes of it.
            TrainingError: a loss that is no finite number.
        """
        if not tasks:
            raise DataError("no measured tasks to learn from; give one at least")
        for measured in tasks:
            if not measured.task.has_graphs:
                raise DataError(f"task {measured.task.name}: its configurations have no super-graphs, which this model looks at; leave the task out")
        rng = np.random.default_rng(seed)
        tables = [measured.rows(rng.permutation(len(measured))[: self.rows]) for measured in tasks]
        slots = np.flatnonzero(np.any([measured.task.supergraphs.present.any(0) for measured in tables], axis=0))
        graphs = [_graphs(measured.task.supergraphs, measured.indices, slots, self.template) for measured in tables]
        there = np.concatenate([given[given[..., -1] > 0, :-1] for given in graphs]).astype(np.float64)
        labels = [measured.label for measured in tables]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = GraphModel(GraphEmbedding(len(COLUMNS), self.embedding, self.template, there.mean(0), there.std(0)))
        pretrain(model, Pool.of([[*pair] for pair in zip(graphs, labels, strict=True)]), epochs=self.epochs, seed=seed)
        model.requires_grad_(False)
        learned = None
        if self.outer:
            embedded = Pool.of([[model.embedding(torch.from_numpy(given)).numpy(), label] for given, label in zip(graphs, labels, strict=True)])
            learner = MetaLearner(Heads.of([model.head]), self.inner, seeds=(seed,))
            learner.train(embedded, self._shots(len(tasks)), self.outer)
            model.head.load_state_dict(learner.heads.network().state_dict())
            if self.inner.learned_rates:
                learned = {name: rate.detach() / self.inner.rate for name, rate in learner.rates.items()}
        return replace(self, model=model, learned=learned)

    def _shots(self, tasks: int) -> FewShot:
        if self.protocol == "clean":
            return FewShot(support=16, query=16)
        published = FewShot.as_published()
        return replace(published, ways=min(published.ways, tasks))

    def adapt(self, task: TuningTask, seed: int = 0) -> Adapted:
        """See `Surrogate`; nothing is drawn."""
        return _Tuned(self, self._fitted(), task)

    def _fitted(self) -> GraphModel:
        if self.model is None:
            raise UsageError(f"{self.name} learns from other tasks first; give them to fit, and use what it returns")
        return self.model

    def save(self, path: Path | str) -> None:
        """Write the fitted model as safetensors with what it was made with, whole or not at all. Raises UsageError before `fit`, or if it cannot be written."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        tensors = {name: tensor.contiguous() for name, tensor in self._fitted().state_dict().items()}
        tensors |= {f"{_LEARNED}{name}": tensor.contiguous() for name, tensor in (self.learned or {}).items()}
        settings = {name: value for name, value in asdict(replace(self, model=None, learned=None)).items() if name not in ("model", "learned")}
        try:
            save_file(tensors, path, {"schema": str(_SCHEMA), "model": self.name, "settings": json.dumps(settings)})
        except (OSError, SafetensorError) as error:
            raise UsageError(f"{path}: {self.name} cannot be written there: {error}") from error

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """What `save` wrote.

        Raises:
            UsageError: no such file.
            DataError: no whole file of such a model.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "pt") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 it is no mapping
            if (about["schema"], about["model"]) != (str(_SCHEMA), cls.name):
                raise DataError(f"{path}: schema {about['schema']} of {about['model']!r}; this workbench reads {_SCHEMA} of {cls.name!r}")
            settings = json.loads(about["settings"])
            found = cls(**{**settings, "inner": Inner(**settings["inner"])})
            model = GraphModel(GraphEmbedding(len(COLUMNS), found.embedding, found.template)).requires_grad_(False).eval()
            learned = {name.removeprefix(_LEARNED): tensors.pop(name) for name in list(tensors) if name.startswith(_LEARNED)}
            model.load_state_dict(tensors)
        except FileNotFoundError:
            raise UsageError(f"{path}: no such file; MetaTune.save writes one") from None
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path}: no saved {cls.name}: {error}") from error
        return replace(found, model=model, learned=learned or None)


class _Tuned(Adapted):
    def __init__(self, recipe: MetaTune, model: GraphModel, task: TuningTask) -> None:
        self._recipe, self._embedder = recipe, Embedder(model.embedding, task.supergraphs)
        self._initial = self._heads = Heads.of([model.head])
        self._rates = step_sizes(self._initial, recipe.rate, last_layer=recipe.inner.last_layer)
        if recipe.learned:
            self._rates = {name: recipe.rate * times for name, times in recipe.learned.items()}
        # The embedding is frozen, so each configuration has one for good.
        self._place: dict[int, int] = {}
        self._embeddings = np.empty((_KEPT, recipe.embedding), dtype=np.float32)

    def update(self, trials: Trials) -> None:
        """See `Adapted`."""
        self._heads = self._initial
        if len(trials):
            given = self._embedded(trials.indices)
            self._heads = adapt(self._initial, [given], trials.label, self._rates, steps=self._recipe.steps, optimiser=self._recipe.optimiser).heads

    def predict(self, indices: ArrayLike) -> Estimate:
        """See `Adapted`; no spread."""
        found = self._heads(self._embedded(np.asarray(indices)))[0].double().numpy()
        return Estimate(found, np.full(len(found), np.nan))

    def _embedded(self, indices: NDArray[np.int64]) -> Tensor:
        wanted = indices.tolist()
        missing = [index for index in dict.fromkeys(wanted) if index not in self._place]
        if len(missing) > _KEPT - len(self._place):
            self._place.clear()
            missing = list(dict.fromkeys(wanted))
        if len(missing) > _KEPT:
            return torch.from_numpy(self._embedder.of(indices))
        if missing:
            first = len(self._place)
            self._embeddings[first : first + len(missing)] = self._embedder.of(np.array(missing, dtype=indices.dtype))
            self._place.update(zip(missing, range(first, first + len(missing)), strict=True))
        return torch.from_numpy(self._embeddings[[self._place[index] for index in wanted]])


def _graphs(graphs: SuperGraphs, indices: NDArray[np.int64], slots: NDArray[np.intp], template: bool) -> _Floats:
    # What a graph embedding takes in, with some slots alone: [n, slots, COLUMNS and the share of the for node].
    found = np.empty((len(indices), len(slots), len(COLUMNS) + 1), dtype=np.float32)
    for places, structure, vectors in graphs.stream(indices):
        found[places, :, :-1] = vectors[:, slots]
        found[places, :, -1] = shares(graphs, structure, template)[slots]
    return found
