"""MAML by torch.func: the gradient of `higher`, and what each option means. All numbers are invented."""

from __future__ import annotations

import dataclasses
import gc
import tracemalloc

import numpy as np
import psutil
import pytest
import torch
from higher_maml import higher_gradient
from torch import nn

from workbench.errors import DataError, TrainingError, UsageError
from workbench.meta.adapt import adapt
from workbench.meta.dense import dense_layers
from workbench.meta.heads import Heads, smooth_l1
from workbench.meta.maml import Inner, MetaLearner
from workbench.meta.tasks import FewShot, Pool

SHOTS = FewShot(5, 5)


def head() -> nn.Module:
    """The paper's: embedding 128, then 128-64-1."""
    return nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))


def squared(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (outputs - labels).square()


def examples(tasks: int, shots: int, width: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(tasks, shots, width, generator=g), torch.rand(tasks, shots, generator=g)


def gradient(learner: MetaLearner, support: tuple[torch.Tensor, torch.Tensor], query: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Outer gradient of an ensemble's first network."""
    parts = [([x.expand(len(learner.heads), *x.shape)], y.expand(len(learner.heads), *y.shape)) for x, y in (support, query)]
    names = learner.heads.trained(learner.frozen)
    tensors = torch.autograd.grad(learner.losses(*parts).sum(), [learner.heads.parameters[n] for n in names])
    return {name: t[0] for name, t in zip(names, tensors, strict=True)}


class General(nn.Sequential):
    """A network that is not known to be a stack of linear layers, so torch.func takes its derivatives."""


@pytest.mark.parametrize("kind", [nn.Sequential, General], ids=["slopes written out", "torch.func"])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_outer_gradient_is_that_of_higher(steps, kind):
    heads = Heads.initial(lambda: kind(*head()), [7, 8])
    assert bool(dense_layers(heads.net)) == (kind is nn.Sequential)
    support, query = examples(4, 6, 128, 0), examples(4, 9, 128, 1)
    ours = gradient(MetaLearner(heads, Inner(steps, 0.1)), support, query)
    reference = higher_gradient(heads.network(), support, query, steps, 0.1)
    assert ours.keys() == reference.keys()
    largest = max(g.abs().max() for g in reference.values())
    for name, g in reference.items():
        assert (ours[name] - g).abs().max() < 1e-5 * largest, name


@pytest.mark.parametrize("second_order", [True, False])
@pytest.mark.parametrize("loss", [smooth_l1, squared, lambda o, y: (o - o.mean(-1, keepdim=True) - y).abs().amax(-1)], ids=["smooth", "squared", "of all"])
def test_written_out_slopes_are_those_of_torch_func(second_order, loss):
    """With several networks, with support and query of different sizes, and with a loss of all outputs at once."""
    nets = [nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 1)) for _ in range(3)]
    g = torch.Generator().manual_seed(0)
    support, query = (([torch.randn(3, 4, n, 6, generator=g)], torch.randn(3, 4, n, generator=g)) for n in (7, 11))
    learners = [MetaLearner(Heads.of([kind(*net) for net in nets]), Inner(3, 0.2, second_order), loss=loss) for kind in (nn.Sequential, General)]
    losses = [learner.losses(support, query) for learner in learners]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
    slopes = [torch.autograd.grad(value.sum(), list(learner.heads.parameters.values())) for learner, value in zip(learners, losses, strict=True)]
    for ours, reference in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "net",
    [
        nn.Linear(3, 1),
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)),
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 1)),
        nn.Sequential(nn.Linear(3, 1), nn.ReLU()),
    ],
    ids=["no stack", "tanh", "two outputs", "no bias", "ends in ReLU"],
)
def test_other_networks_are_left_to_torch_func(net):
    assert dense_layers(net) == []


def test_one_linear_layer_is_a_stack_too():
    assert dense_layers(nn.Sequential(nn.Linear(3, 1))) == ["0"]
    heads, (support, query) = Heads.of([nn.Sequential(nn.Linear(3, 1))]), (examples(4, 5, 3, 0), examples(4, 5, 3, 1))
    ours, reference = gradient(MetaLearner(heads, Inner(2, 0.1)), support, query), higher_gradient(heads.network(), support, query, 2, 0.1)
    for name, g in reference.items():
        torch.testing.assert_close(ours[name], g, rtol=1e-4, atol=1e-6)


def test_first_order_is_the_gradient_at_the_adapted_weights():
    heads = Heads.initial(head, [3])
    support, query = examples(1, 6, 128, 0), examples(1, 6, 128, 1)
    ours = gradient(MetaLearner(heads, Inner(3, 0.1, second_order=False)), support, query)
    learner = MetaLearner(heads, Inner(3, 0.1))
    there = adapt(heads, [support[0][0]], support[1][0], learner.rates, steps=3).heads.network()
    smooth_l1(there(query[0][0])[:, 0], query[1][0]).mean().backward()
    for name, p in there.named_parameters():
        torch.testing.assert_close(ours[name], p.grad, rtol=1e-4, atol=1e-7)
    second = gradient(learner, support, query)
    assert max((ours[n] - second[n]).abs().max() for n in ours) > 1e-4


def test_with_the_last_layer_alone_the_others_learn_but_do_not_adapt(sinusoids, small_net):
    learner = MetaLearner(Heads.initial(small_net, [0]), Inner(2, 0.05, last_layer=True))
    assert list(learner.rates) == ["4.weight", "4.bias"]
    before = learner.heads.copy()
    learner.train(sinusoids, SHOTS, 2)
    assert all((learner.heads.parameters[n] != before.parameters[n]).any() for n in before.parameters)
    x, y = sinusoids.inputs[0][:20], sinusoids.labels[:20]
    after = adapt(learner.heads, [x], y, learner.rates, steps=2).heads
    assert [n for n in after.parameters if (after.parameters[n] != learner.heads.parameters[n]).any()] == ["4.weight", "4.bias"]


def test_step_sizes_learn_where_asked(sinusoids, small_net):
    learner = MetaLearner(Heads.initial(small_net, [0, 1]), Inner(1, 0.01, learned_rates=True))
    assert {n: r.shape for n, r in learner.rates.items()} == {n: p.shape for n, p in learner.heads.parameters.items()}
    learner.train(sinusoids, SHOTS, 3)
    assert all((r != 0.01).any() for r in learner.rates.values())
    fixed = MetaLearner(Heads.initial(small_net, [0]), Inner(1, 0.01))
    fixed.train(sinusoids, SHOTS, 1)
    assert all((r == torch.tensor(0.01)).all() for r in fixed.rates.values())


def test_frozen_parameters_stay_and_embedded_features_do_the_same(sinusoids):
    """Freezing a network's beginning by name, or giving what it makes of the inputs: the head learns the same."""

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Sequential(nn.Linear(1, 16), nn.Tanh()), nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(x))

    heads = Heads.initial(Whole, [5])
    one = heads.network()
    learner = MetaLearner(heads, Inner(2, 0.05), frozen=("embedding.",))
    losses = learner.train(sinusoids, SHOTS, 5)
    assert all(torch.equal(learner.heads.parameters[n], p) == n.startswith("embedding.") for n, p in heads.parameters.items())
    with torch.no_grad():
        features = one.embedding(torch.from_numpy(sinusoids.inputs[0])).numpy()
    alone = MetaLearner(Heads.of([one.head]), Inner(2, 0.05))
    np.testing.assert_allclose(losses, alone.train(dataclasses.replace(sinusoids, inputs=(features,)), SHOTS, 5), rtol=1e-4)


def test_an_ensemble_learns_what_its_networks_learn_alone(sinusoids, small_net):
    together = MetaLearner(Heads.initial(small_net, [4, 9]), Inner(2, 0.02), seeds=(4, 9))
    losses = together.train(sinusoids, SHOTS, 5)
    for place, seed in enumerate((4, 9)):
        alone = MetaLearner(Heads.initial(small_net, [seed]), Inner(2, 0.02), seeds=(seed,))
        np.testing.assert_allclose(alone.train(sinusoids, SHOTS, 5)[:, 0], losses[:, place], rtol=1e-4)
    assert (losses[:, 0] != losses[:, 1]).all()


def test_a_seed_gives_the_same_weights_bit_for_bit(sinusoids, small_net):
    learners = [MetaLearner(Heads.initial(small_net, [1, 2]), Inner(2, 0.01)) for _ in range(2)]
    losses = [learner.train(sinusoids, SHOTS, 10) for learner in learners]
    np.testing.assert_array_equal(*losses)
    assert all(torch.equal(p, learners[1].heads.parameters[n]) for n, p in learners[0].heads.parameters.items())


def test_meta_learning_pays_after_adaptation(sinusoids, small_net):
    """On sinusoids that were not seen: the adapted error falls below that of the same network pre-trained on all (0 inner steps) and adapted as far."""
    rng = np.random.default_rng(5)
    unseen = [(rng.uniform(1, 5), rng.uniform(0, np.pi), rng.uniform(-5, 5, (10, 1))) for _ in range(20)]
    grid = torch.linspace(-5, 5, 50)[:, None]
    errors = {}
    for steps in (0, 1):
        learner = MetaLearner(Heads.initial(small_net, [0]), Inner(steps, 0.02), loss=squared, rate=3e-3)
        learner.train(sinusoids, FewShot(10, 10), 200, tasks=25)
        found = []
        for amplitude, phase, x in unseen:
            after = adapt(learner.heads, [x.astype(np.float32)], amplitude * np.sin(x[:, 0] - phase), learner.rates, steps=5, loss=squared).heads
            found.append(float(((after(grid)[0] - amplitude * torch.sin(grid[:, 0] - phase)) ** 2).mean()))
        errors[steps] = np.mean(found)
    assert errors[1] < 0.7 * errors[0]


def test_training_that_is_taken_up_again_goes_on_bit_for_bit(tmp_path, sinusoids, small_net):
    def fresh() -> MetaLearner:
        return MetaLearner(Heads.initial(small_net, [1, 2]), Inner(2, 0.01, learned_rates=True))

    whole, first, second = fresh(), fresh(), fresh()
    losses = whole.train(sinusoids, SHOTS, 7)
    begun = first.train(sinusoids, SHOTS, 3, checkpoint=tmp_path / "run.pt", every=2)
    second.load(tmp_path / "run.pt")
    assert second.step == 3
    np.testing.assert_array_equal(np.concatenate([begun, second.train(sinusoids, SHOTS, 4)]), losses)
    for mine, theirs in ((whole.heads.parameters, second.heads.parameters), (whole.rates, second.rates)):
        assert all(torch.equal(mine[n], theirs[n]) for n in mine)
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]


def test_a_checkpoint_that_cannot_be_gone_on_from_says_why(tmp_path, small_net):
    learner = MetaLearner(Heads.initial(small_net, [1]), Inner(1, 0.01))
    path = tmp_path / "run.pt"
    with pytest.raises(UsageError, match="no such checkpoint"):
        learner.load(path)
    learner.save(path)
    content = path.read_bytes()
    for cut in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(DataError, match="not a whole checkpoint") as caught:
            learner.load(path)
        assert "\n" not in str(caught.value)
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"its training has inner = .*'rate': 0.01.*, this one .*'rate': 0.02"):
        MetaLearner(Heads.initial(small_net, [1]), Inner(1, 0.02)).load(path)
    torch.save({"schema": 1, "kind": "meta-training", "settings": learner._settings(), "state": {"step": 1}}, path)
    with pytest.raises(DataError, match="without all of its fields"):
        learner.load(path)
    with pytest.raises(UsageError, match="cannot be written there"):
        learner.save(tmp_path / "nowhere" / "run.pt")


def test_a_loss_that_is_no_number_says_at_which_step_and_keeps_the_last_good_weights(sinusoids, small_net):
    learner = MetaLearner(Heads.initial(small_net, [1, 2]), Inner(1, 0.01), loss=lambda outputs, labels: torch.exp(200 * (outputs - labels)))
    with pytest.raises(TrainingError, match=r"outer step \d+: the (loss|gradient) of the network with seed \d is (inf|nan).*kept"):
        learner.train(sinusoids, SHOTS, 50)
    assert all(p.isfinite().all() for p in learner.heads.parameters.values())
    calm = MetaLearner(Heads.initial(small_net, [1]), Inner(1, 0.01))
    calm.train(sinusoids, SHOTS, 2)
    before = calm.heads.copy()
    broken = Pool(sinusoids.inputs, np.full_like(sinusoids.labels, np.nan), sinusoids.starts)
    with pytest.raises(TrainingError, match="outer step 2: the loss of the network with seed 0 is nan; those after 1 steps are kept"):
        calm.train(broken, SHOTS, 1)
    assert calm.step == 1
    assert any((calm.heads.parameters[n] != p).any() for n, p in before.parameters.items())
    assert np.isfinite(calm.train(sinusoids, SHOTS, 2)).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"seeds": (1, 2)}, "2 seeds for 1 networks"),
        ({"frozen": ("gone.",)}, "no parameter begins with 'gone.'"),
        ({"frozen": ("0.", "2.", "4.")}, "nothing is left to train"),
        ({"rate": 0.0}, "both are positive"),
        ({"inner": Inner(1, -1.0)}, "a step size of -1.0"),
    ],
)
def test_what_cannot_be_trained_is_refused(small_net, arguments, said):
    with pytest.raises(UsageError, match=said):
        MetaLearner(Heads.initial(small_net, [0]), **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nn.Sequential, General], ids=["slopes written out", "torch.func"])
def test_memory_is_flat_over_500_outer_steps(sinusoids, small_net, kind):
    """Neither Python's objects nor the process's pages grow from the 50th step to the 500th."""
    learner = MetaLearner(Heads.initial(lambda: kind(*small_net()), [0]), Inner(2, 0.01))
    process = psutil.Process()
    tracemalloc.start()
    try:
        learner.train(sinusoids, SHOTS, 50)
        gc.collect()
        objects, pages = tracemalloc.get_traced_memory()[0], process.memory_info().rss
        learner.train(sinusoids, SHOTS, 450)
        gc.collect()
        grown, grown_pages = tracemalloc.get_traced_memory()[0] - objects, process.memory_info().rss - pages
    finally:
        tracemalloc.stop()
    print(f"objects {grown / 1024:.0f} KiB, pages {grown_pages / 1024:.0f} KiB")
    assert grown < 200 * 1024
    assert grown_pages < 8 * 1024 * 1024
