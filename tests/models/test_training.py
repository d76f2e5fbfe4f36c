from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from workbench.models.training import forward, initial, n_weights, train, value_and_gradient


@pytest.fixture(scope="module")
def problem() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(5)
    x = torch.randn(4, 60, 3, generator=g)
    return x, torch.sin(x[..., 0]) + 0.5 * x[..., 1] * x[..., 2]


def plain(theta: Tensor, x: Tensor, layers: tuple[int, ...]) -> Tensor:
    """One network, layer by layer, as one would write it first."""
    at = 0
    for i, (a, b) in enumerate(pairwise(layers)):
        weights, bias = theta[at : at + a * b].reshape(a, b), theta[at + a * b : at + (a + 1) * b]
        at += (a + 1) * b
        x = x @ weights + bias
        if i < len(layers) - 2:
            x = torch.relu(x)
    return x[:, 0]


@pytest.mark.parametrize("layers", [(3, 1), (3, 7, 1), (3, 5, 4, 1), (3, 15, 15, 1)])
def test_gradient_equals_torch_func(layers: tuple[int, ...], problem: tuple[Tensor, Tensor]) -> None:
    x, y = problem
    theta = initial(layers, range(4)) + 0.05
    loss = lambda t, u, v: ((plain(t, u, layers) - v) ** 2).mean()  # noqa: E731
    gradient, value = torch.func.vmap(torch.func.grad_and_value(loss))(theta, x, y)
    got_value, got = value_and_gradient(theta, x, y, layers)
    torch.testing.assert_close(got, gradient, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got_value, value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(forward(theta, x, layers), torch.func.vmap(lambda t, u: plain(t, u, layers))(theta, x), rtol=1e-5, atol=1e-6)


def test_initial_weights_are_glorot_uniform_with_zero_biases() -> None:
    theta = initial((100, 50, 1), [3, 4])
    limit = math.sqrt(6 / 150)
    first = theta[:, :5000]
    assert first.abs().max() <= limit
    assert first.std() == pytest.approx(limit / math.sqrt(3), rel=0.03)
    assert (theta[:, 5000:5050] == 0).all()
    assert (theta[:, -1] == 0).all()
    assert not torch.equal(theta[0], theta[1])
    assert torch.equal(initial((100, 50, 1), [4])[0], theta[1])


def test_a_network_does_not_depend_on_the_rest_of_its_batch(problem: tuple[Tensor, Tensor]) -> None:
    x, y = problem
    together = train(x, y, (3, 7, 1), [1, 2, 3, 4], lr=0.01, epochs=200)
    for i in range(4):
        alone = train(x[i : i + 1], y[i : i + 1], (3, 7, 1), [i + 1], lr=0.01, epochs=200)
        torch.testing.assert_close(alone.theta[0], together.theta[i], rtol=2e-6, atol=2e-6)
    pair = train(x[2:], y[2:], (3, 7, 1), [3, 4], lr=0.01, epochs=200)
    torch.testing.assert_close(pair.theta, together.theta[2:], rtol=2e-6, atol=2e-6)


def test_the_same_seed_gives_the_same_network_and_another_one_another(problem: tuple[Tensor, Tensor]) -> None:
    x, y = problem
    runs = [train(x[:1], y[:1], (3, 7, 1), [seed], lr=0.01, epochs=50).theta for seed in (1, 1, 2)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@pytest.mark.parametrize("cosine", [False, True])
def test_the_loss_falls(cosine: bool, problem: tuple[Tensor, Tensor]) -> None:
    x, y = problem
    layers = (3, 9, 1)
    before, _ = value_and_gradient(initial(layers, range(4)), x, y, layers)
    done = train(x, y, layers, range(4), lr=0.02, epochs=400, cosine=cosine)
    assert (done.loss < 0.3 * before).all()
    after, _ = value_and_gradient(done.theta, x, y, layers)
    assert torch.equal(after, done.loss)


def test_steps_equal_torchs_adam(problem: tuple[Tensor, Tensor]) -> None:
    x, y = problem
    layers = (3, 7, 1)
    theta = initial(layers, [9]).requires_grad_()
    optimiser = torch.optim.Adam([theta], lr=0.01, eps=1e-7)
    for _ in range(30):
        optimiser.zero_grad()
        ((forward(theta, x[:1], layers) - y[:1]) ** 2).mean().backward()
        optimiser.step()
    torch.testing.assert_close(train(x[:1], y[:1], layers, [9], lr=0.01, epochs=30).theta, theta.detach(), rtol=1e-3, atol=1e-4)


def test_a_cosine_schedule_ends_with_steps_of_nothing(problem: tuple[Tensor, Tensor]) -> None:
    x, y = problem
    done = train(x, y, (3, 7, 1), range(4), lr=0.1, epochs=50, cosine=True, checkpoints=50)
    steps = (done.checkpoints[1:] - done.checkpoints[:-1]).abs().amax((1, 2))
    assert steps[-1] == 0
    assert steps[-2] < 0.02 * steps[5]


def test_checkpoints_are_evenly_spaced_and_end_with_the_result(problem: tuple[Tensor, Tensor]) -> None:
    x, y = problem
    done = train(x, y, (3, 7, 1), range(4), lr=0.01, epochs=40, checkpoints=4)
    assert done.checkpoints.shape == (4, 4, n_weights((3, 7, 1)))
    assert torch.equal(done.checkpoints[-1], done.theta)
    assert torch.equal(done.checkpoints[1], train(x, y, (3, 7, 1), range(4), lr=0.01, epochs=20).theta)
    assert train(x, y, (3, 7, 1), range(4), lr=0.01, epochs=3).checkpoints.numel() == 0
