"""MetaTune's surrogate on invented measurements of layers whose graphs are real: what it learns, what stays frozen, seeds, failures, files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from workbench.errors import DataError, TrainingError, UsageError
from workbench.features.tasks import MeasuredTask, TuningTask
from workbench.kernels import kernel
from workbench.kernels.networks import layer
from workbench.meta.maml import Inner
from workbench.models import metatune
from workbench.models.metatune import MetaTune
from workbench.models.surrogate import Trials
from workbench.schema import Device

CPU = Device("invented-cpu", "cpu", max_threads=8)
QUICK = MetaTune(rows=60, epochs=3, outer=3, steps=20)


def invented(number: int, rows: int = 200, seed: int = 0) -> MeasuredTask:
    """A layer of ResNet-18 whose throughput is a law of the innermost loops, with one configuration in ten that fails."""
    task = TuningTask(f"layer {number}", kernel("conv2d"), layer("resnet-18", number).workload, CPU, "workbench-cpu")
    rng = np.random.default_rng([seed, number])
    indices = task.space.sample(rows, rng)
    knobs = dict(zip(task.columns, task.vectors(indices).T, strict=True))
    inner = knobs["knob tile_f.2"] + knobs["knob tile_x.2"]
    valid = rng.random(rows) > 0.1
    throughput = np.where(valid, np.exp(0.3 * (inner - inner.mean()) / inner.std() + 0.02 * rng.standard_normal(rows)), 0.0)
    none = np.full(rows, np.nan)
    return MeasuredTask(task, indices, throughput, valid, none, none, none)


def trials(measured: MeasuredTask, count: int) -> Trials:
    return Trials(measured.indices[:count], measured.throughput[:count], measured.valid[:count])


@pytest.fixture(scope="module")
def history() -> list[MeasuredTask]:
    return [invented(number) for number in (2, 3, 5)]


@pytest.fixture(scope="module")
def target() -> MeasuredTask:
    return invented(6)


@pytest.fixture(scope="module")
def fitted(history: list[MeasuredTask]) -> MetaTune:
    return QUICK.fit(history, seed=1)


def test_it_learns(history: list[MeasuredTask], target: MeasuredTask) -> None:
    """What holds of other layers before a trial, and more of it after some."""
    model = replace(QUICK, rows=100, epochs=20, outer=10, steps=60, protocol="clean").fit(history)
    adapted = model.adapt(target.task)
    rest = slice(100, None)
    before = adapted.predict(target.indices[rest])
    assert np.isnan(before.std).all()
    adapted.update(trials(target, 100))
    after = adapted.predict(target.indices[rest])
    valid = target.valid[rest]
    assert spearmanr(before.mean[valid], target.throughput[rest][valid])[0] > 0.5
    assert np.mean((after.mean - target.label[rest]) ** 2) < np.mean((before.mean - target.label[rest]) ** 2)


@pytest.mark.parametrize("template", [True, False])
@pytest.mark.parametrize("protocol", ["paper", "clean"])
def test_seeds(history: list[MeasuredTask], target: MeasuredTask, template: bool, protocol: str) -> None:
    """Bit for bit by seed, whatever torch has drawn before, in pre-training, meta-training and adaptation."""
    recipe = replace(QUICK, template=template, protocol=protocol)

    def said(seed: int) -> np.ndarray:
        torch.rand(3)
        adapted = recipe.fit(history, seed).adapt(target.task, seed)
        first = adapted.predict(target.indices).mean
        adapted.update(trials(target, 16))
        return np.concatenate([first, adapted.predict(target.indices).mean])

    np.testing.assert_array_equal(said(3), said(3))
    assert (said(3) != said(4)).all()


def test_the_embedding_is_frozen(history: list[MeasuredTask], fitted: MetaTune, target: MeasuredTask) -> None:
    assert fitted.model is not None
    without = replace(QUICK, outer=0).fit(history, seed=1).model
    assert without is not None
    for name, tensor in without.embedding.state_dict().items():
        assert torch.equal(tensor, fitted.model.embedding.state_dict()[name])
    assert not torch.equal(without.head[0].weight, fitted.model.head[0].weight)
    kept = {name: tensor.clone() for name, tensor in fitted.model.state_dict().items()}
    adapted = fitted.adapt(target.task)
    adapted.update(trials(target, 64))
    adapted.predict(target.indices)
    for name, tensor in fitted.model.state_dict().items():
        assert torch.equal(tensor, kept[name])
    # columns are standardised on the training tasks alone
    assert QUICK.model is None
    assert torch.equal(replace(QUICK, epochs=1).fit(history, seed=1).model.embedding.centre, fitted.model.embedding.centre)


def test_adaptation_depends_on_the_trials_alone(fitted: MetaTune, target: MeasuredTask) -> None:
    """Not on batches, nor on what was asked before; each embedding is found once."""
    at_once, bit_by_bit = fitted.adapt(target.task), fitted.adapt(target.task, seed=9)
    at_once.update(trials(target, 48))
    bit_by_bit.predict(target.indices[::-1])
    for count in (16, 32, 48):
        bit_by_bit.update(trials(target, count))
    said = at_once.predict(target.indices).mean
    np.testing.assert_array_equal(bit_by_bit.predict(target.indices).mean, said)
    order = np.random.default_rng(0).permutation(len(target))
    np.testing.assert_allclose(at_once.predict(target.indices[order]).mean, said[order], rtol=1e-5, atol=1e-6)
    assert at_once.predict(target.indices[:0]).mean.shape == (0,)
    # back to what it was before any trial
    at_once.update(Trials.none())
    np.testing.assert_array_equal(at_once.predict(target.indices).mean, fitted.adapt(target.task).predict(target.indices).mean)


def test_embeddings_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch, fitted: MetaTune, target: MeasuredTask) -> None:
    said = fitted.adapt(target.task).predict(target.indices).mean
    asked: list[int] = []
    of = metatune.Embedder.of
    monkeypatch.setattr(metatune.Embedder, "of", lambda self, indices: asked.append(len(indices)) or of(self, indices))
    adapted = fitted.adapt(target.task)
    for _ in range(2):
        np.testing.assert_array_equal(adapted.predict(target.indices).mean, said)
    assert asked == [200]
    monkeypatch.setattr(metatune, "_KEPT", 64)
    adapted, asked[:] = fitted.adapt(target.task), []
    np.testing.assert_allclose(adapted.predict(np.repeat(target.indices[:40], 2)).mean, np.repeat(said[:40], 2), rtol=1e-5)
    np.testing.assert_allclose(adapted.predict(target.indices[30:60]).mean, said[30:60], rtol=1e-5)
    np.testing.assert_allclose(adapted.predict(target.indices[30:60]).mean, said[30:60], rtol=1e-5)
    np.testing.assert_allclose(adapted.predict(target.indices).mean, said, rtol=1e-5)
    assert asked == [40, 20, 200]
    adapted.predict(target.indices[60:100])  # 60 and 40 are more than 64: it begins anew
    adapted.predict(target.indices[60:100])
    assert asked == [40, 20, 200, 40]


def test_failures_alone(fitted: MetaTune, target: MeasuredTask) -> None:
    """They are learnt from as zeros."""
    adapted = fitted.adapt(target.task)
    failed = target.indices[:32]
    before = adapted.predict(failed).mean
    adapted.update(Trials(failed, np.zeros(32), np.zeros(32, dtype=bool)))
    after = adapted.predict(failed).mean
    assert np.isfinite(after).all()
    assert np.abs(after).mean() < np.abs(before).mean()


def test_a_loss_that_is_no_number(history: list[MeasuredTask], target: MeasuredTask) -> None:
    """In training it is said; in a tuning the last weights that gave a number stay."""
    with pytest.raises(TrainingError, match="inner step size"):
        replace(QUICK, inner=Inner(steps=5, rate=1e30)).fit(history)
    adapted = replace(QUICK, rate=1e38, optimiser="sgd").fit(history).adapt(target.task)
    adapted.update(trials(target, 32))
    assert np.isfinite(adapted.predict(target.indices).mean).all()


def test_what_cannot_be_learnt_from(history: list[MeasuredTask], target: MeasuredTask) -> None:
    with pytest.raises(UsageError, match="metatune learns from other tasks first; give them to fit"):
        QUICK.adapt(target.task)
    with pytest.raises(DataError, match="no measured tasks to learn from"):
        QUICK.fit([])
    plain = replace(target.task, name="plain", space_name="autotvm")
    nan = np.full(40, np.nan)
    measured = MeasuredTask(plain, np.arange(40), np.ones(40), np.ones(40, dtype=bool), nan, nan, nan)
    with pytest.raises(DataError, match="task plain: its configurations have no super-graphs"):
        QUICK.fit([*history, measured])
    with pytest.raises(UsageError, match="have no super-graphs"):
        QUICK.fit(history[:1]).adapt(plain)
    with pytest.raises(UsageError, match="kernel 0 has 20 rows, fewer than 16 support and 16 query"):
        replace(QUICK, protocol="clean", rows=20).fit(history)
    with pytest.raises(UsageError, match="an embedding of 48 columns"):
        MetaTune(embedding=48)
    with pytest.raises(UsageError, match="0 rows a task"):
        MetaTune(rows=0)


def test_learned_step_sizes_are_those_of_the_adaptation(history: list[MeasuredTask], target: MeasuredTask, tmp_path: Path) -> None:
    learning = replace(QUICK, inner=Inner(learned_rates=True), outer=30).fit(history)
    assert learning.learned is not None
    assert any((times != 1).any() for times in learning.learned.values())
    learning.save(tmp_path / "model")
    same, unlearnt = MetaTune.load(tmp_path / "model"), replace(learning, learned=None)
    ones = replace(learning, learned={name: torch.ones_like(times) for name, times in learning.learned.items()})
    said = []
    for model in (learning, same, unlearnt, ones):
        adapted = model.adapt(target.task)
        adapted.update(trials(target, 32))
        said.append(adapted.predict(target.indices).mean)
    np.testing.assert_array_equal(said[0], said[1])
    np.testing.assert_array_equal(said[2], said[3])
    assert (said[0] != said[2]).any()
    assert QUICK.fit(history).learned is None


def test_files(fitted: MetaTune, target: MeasuredTask, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]
    loaded = MetaTune.load(path)
    assert loaded == fitted
    both = [model.adapt(target.task) for model in (loaded, fitted)]
    for adapted in both:
        adapted.update(trials(target, 16))
    np.testing.assert_array_equal(*(adapted.predict(target.indices).mean for adapted in both))
    whole = path.read_bytes()
    for wrong in (whole[:-100], whole[:20], b"", whole.replace(b"metatune", b"mutatune"), whole.replace(b"embedding.bias", b"embedding.bios")):
        path.write_bytes(wrong)
        with pytest.raises(DataError, match=r"model\.safetensors"):
            MetaTune.load(path)
    with pytest.raises(UsageError, match="no such file"):
        MetaTune.load(tmp_path / "other")
    with pytest.raises(UsageError, match="cannot be written there"):
        fitted.save(tmp_path / "no" / "folder")
    with pytest.raises(UsageError, match="learns from other tasks first"):
        QUICK.save(path)
