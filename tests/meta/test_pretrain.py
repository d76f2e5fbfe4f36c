"""Supervised pre-training. All numbers are invented."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from workbench.errors import TrainingError, UsageError
from workbench.meta.pretrain import pretrain
from workbench.meta.tasks import Pool


@pytest.fixture(scope="module")
def bends() -> Pool:
    """Two kernels, one with twice the other's rows, of one law."""
    rng = np.random.default_rng(0)
    kernels = []
    for rows in (100, 200):
        x = rng.uniform(-2, 2, (rows, 2))
        kernels.append([x, np.sin(x[:, 0]) + 0.5 * x[:, 1]])
    return Pool.of(kernels)


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))


def state(module: nn.Module) -> list[torch.Tensor]:
    return [t.detach().clone() for t in module.state_dict().values()]


def test_it_learns_and_repeats_bit_for_bit(bends):
    one, again, other = net(), net(), net()
    losses = pretrain(one, bends, epochs=30, batch=32, rate=1e-2)
    assert losses[-1] < 0.05 * losses[0]
    np.testing.assert_array_equal(pretrain(again, bends, epochs=30, batch=32, rate=1e-2), losses)
    assert all(map(torch.equal, state(one), state(again)))
    assert (pretrain(other, bends, epochs=30, batch=32, rate=1e-2, seed=1) != losses).any()


def test_each_epoch_sees_every_row_once(bends):
    seen: list[torch.Tensor] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Parameter(torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x[:, 0])
            return x[:, 0] * self.one

    pretrain(Watched(), bends, epochs=2, batch=128)
    assert [len(rows) for rows in seen] == [128, 128, 44] * 2
    first, second = torch.cat(seen[:3]), torch.cat(seen[3:])
    rows = torch.from_numpy(bends.inputs[0][:, 0]).sort().values
    assert torch.equal(first.sort().values, rows)
    assert torch.equal(second.sort().values, rows)
    assert not torch.equal(first, second)


def test_gradients_are_clipped(bends):
    norms: list[float] = []
    module = net()
    original = nn.utils.clip_grad_norm_

    def watched(parameters, largest):
        before = original(parameters, largest)
        norms.append(float(torch.stack([p.grad.norm() for p in parameters]).norm()))
        return before

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.utils, "clip_grad_norm_", watched)
        pretrain(module, bends, epochs=1, clip=0.01)
    assert norms
    assert max(norms) <= 0.01 * 1.001


def test_dropout_follows_the_seed_and_leaves_torch_s_generator_alone(bends):
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 32), nn.Dropout(0.5), nn.Linear(32, 1))

    one, again = make(), make()
    before = torch.random.get_rng_state()
    pretrain(one, bends, epochs=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(5)
    pretrain(again, bends, epochs=2)
    assert all(map(torch.equal, state(one), state(again)))
    assert not one.training


def test_a_loss_that_is_no_number_keeps_the_last_good_weights(bends):
    module = net()

    def steep(outputs, labels):
        return torch.exp(400 * (outputs - labels))

    with pytest.raises(TrainingError, match=r"pre-training step \d+, epoch \d+: the (loss|norm of the gradient) is (inf|nan)"):
        pretrain(module, bends, epochs=100, rate=0.1, loss=steep)
    assert all(t.isfinite().all() for t in state(module))
    assert not module.training


def test_after_an_update_that_spoilt_the_weights_those_before_it_come_back(bends):
    module, calls = net(), 0

    def late(outputs, labels):
        nonlocal calls
        calls += 1
        return (outputs - labels).square() * (np.nan if calls == 4 else 1.0)

    with pytest.raises(TrainingError, match=r"pre-training step 3, epoch 0: the loss is nan"):
        pretrain(module, bends, epochs=1, batch=32, loss=late)
    third = net()
    order = torch.from_numpy(np.random.default_rng([0, 0]).permutation(300))
    descent = torch.optim.Adam(third.parameters(), lr=1e-3)
    for rows in order.split(32)[:2]:
        descent.zero_grad()
        (third(torch.from_numpy(bends.inputs[0])[rows])[:, 0] - torch.from_numpy(bends.labels)[rows]).square().mean().backward()
        nn.utils.clip_grad_norm_(third.parameters(), 10.0)
        descent.step()
    assert all(map(torch.equal, state(module), state(third)))


@pytest.mark.parametrize("change", [{"epochs": 0}, {"batch": 0}, {"rate": 0.0}, {"clip": -1.0}])
def test_numbers_that_are_not_positive_are_refused(bends, change):
    with pytest.raises(UsageError, match="all are positive"):
        pretrain(net(), bends, **({"epochs": 1} | change))


def test_a_network_without_parameters_is_refused(bends):
    with pytest.raises(UsageError, match="0 parameters"):
        pretrain(nn.ReLU(), bends, epochs=1)
