"""Online adaptation, against torch's own optimisers. All numbers are invented."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from workbench.errors import DataError, UsageError
from workbench.meta.adapt import adapt
from workbench.meta.heads import Heads, smooth_l1, step_sizes


@pytest.fixture
def heads(small_net) -> Heads:
    return Heads.initial(small_net, [0, 1, 2])


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (64, 1)).astype(np.float32)
    return x, np.sin(x[:, 0])


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_every_network_goes_the_way_of_torch_s_optimiser(heads, data, optimiser):
    x, y = data
    weights = np.linspace(0, 1, 64)
    found = adapt(heads, [x], y, step_sizes(heads, 0.01), steps=20, optimiser=optimiser, weights=weights)
    share = torch.from_numpy(weights / weights.sum()).float()
    for place in range(3):
        net = heads.network(place)
        descent = (torch.optim.SGD if optimiser == "sgd" else torch.optim.Adam)(net.parameters(), lr=0.01)
        for step in range(20):
            descent.zero_grad()
            value = (share * smooth_l1(net(torch.from_numpy(x))[:, 0], torch.from_numpy(y))).sum()
            assert value.item() == pytest.approx(found.losses[step, place], rel=1e-3)
            value.backward()
            descent.step()
        for name, p in net.named_parameters():
            torch.testing.assert_close(found.heads.parameters[name][place], p.detach(), rtol=1e-3, atol=1e-4)
    assert found.steps.tolist() == [20] * 3


def test_it_fits_leaves_the_given_weights_alone_and_repeats_bit_for_bit(heads, data):
    x, y = data
    before = heads.copy()
    one, again = (adapt(heads, [x], y, step_sizes(heads, 0.01), steps=50, optimiser="adam") for _ in range(2))
    assert (one.losses[-1] < 0.2 * one.losses[0]).all()
    np.testing.assert_array_equal(one.losses, again.losses)
    assert all(torch.equal(p, heads.parameters[n]) for n, p in before.parameters.items())
    assert all(torch.equal(p, again.heads.parameters[n]) for n, p in one.heads.parameters.items())


def test_an_example_without_weight_does_not_count(heads, data):
    x, y = data
    rates, weights = step_sizes(heads, 0.05), (np.arange(64) < 32).astype(float)
    spoilt = np.where(weights > 0, y, 50.0)
    some, alone = adapt(heads, [x], spoilt, rates, steps=5, weights=weights), adapt(heads, [x[:32]], y[:32], rates, steps=5)
    for name, p in alone.heads.parameters.items():
        torch.testing.assert_close(some.heads.parameters[name], p, rtol=1e-4, atol=1e-5)


def test_a_network_that_diverges_keeps_its_last_good_weights_and_the_others_go_on(data):
    x, y = data
    heads = Heads.of([nn.Linear(1, 1), nn.Linear(1, 1)])
    rates = {name: torch.stack([torch.full(p.shape[1:], 0.1), torch.full(p.shape[1:], 1e15)]) for name, p in heads.parameters.items()}
    found = adapt(heads, [x], y, rates, steps=30, loss=lambda outputs, labels: (outputs - labels).square())
    good = int(found.steps[1])
    assert found.steps[0] == 30
    assert good < 30
    assert np.isfinite(found.losses[: good + 1, 1]).all()
    assert not np.isfinite(found.losses[good + 1, 1])
    assert all(p.isfinite().all() for p in found.heads.parameters.values())
    shorter = adapt(heads, [x], y, rates, steps=good, loss=lambda outputs, labels: (outputs - labels).square())
    assert all(torch.equal(p[1], shorter.heads.parameters[n][1]) for n, p in found.heads.parameters.items())
    assert found.losses[-1, 0] < found.losses[0, 0]


def test_no_steps_give_the_networks_back(heads, data):
    found = adapt(heads, [data[0]], data[1], step_sizes(heads, 0.1), steps=0)
    assert found.losses.shape == (1, 3)
    assert all(torch.equal(p, found.heads.parameters[n]) for n, p in heads.parameters.items())


def test_outputs_of_an_ensemble_are_those_of_its_networks(heads, data):
    x = torch.from_numpy(data[0])
    outputs = heads(x)
    assert outputs.shape == (3, 64)
    for place in range(3):
        torch.testing.assert_close(outputs[place], heads.network(place)(x)[:, 0].detach())


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"labels": np.ones(3)}, DataError, r"\[64\] rows of inputs and 3 labels"),
        ({"inputs": [np.ones((0, 1))], "labels": np.ones(0)}, DataError, "at least 1"),
        ({"labels": np.full(64, np.inf)}, DataError, "label 0 is inf"),
        ({"weights": np.zeros(64)}, DataError, "with a sum above 0"),
        ({"weights": -np.ones(64)}, DataError, "numbers of 0 or more"),
        ({"rates": {"gone": torch.ones(3)}}, UsageError, "a step size for 'gone'"),
        ({"steps": -1}, UsageError, "-1 steps"),
        ({"optimiser": "other"}, UsageError, "of 'sgd' or 'adam'"),
    ],
)
def test_what_cannot_be_adapted_to_is_refused(heads, data, change, error, said):
    given = {"inputs": [data[0]], "labels": data[1], "rates": step_sizes(heads, 0.1), "steps": 2} | change
    with pytest.raises(error, match=said):
        adapt(heads, **given)


def test_no_networks_are_refused():
    with pytest.raises(UsageError, match="0 networks"):
        Heads.of([])
    with pytest.raises(UsageError, match="at least one, with parameters"):
        Heads.of([nn.ReLU()])
