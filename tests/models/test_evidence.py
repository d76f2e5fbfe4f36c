from __future__ import annotations

import pytest
import torch

from workbench.models.evidence import SmallNet, fit_evidence

NETS = [SmallNet(4, 3), SmallNet(1, 1), SmallNet(3, 2, 4), SmallNet(5, 6, 1)]


@pytest.mark.parametrize("net", NETS, ids=str)
def test_jacobian_equals_torch_func(net: SmallNet) -> None:
    g = torch.Generator().manual_seed(2)
    theta, z = net.initial(3, g), torch.randn(3, 11, net.inputs, generator=g, dtype=torch.float64)
    out, *made = net.forward(theta, z.mT)
    jacobian = net.jacobian(theta, z.mT, *made).mT
    expected = torch.func.vmap(torch.func.jacrev(lambda t, u: net.value(t[None], u[None])[0]))(theta, z)
    torch.testing.assert_close(jacobian, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(out, net.value(theta, z), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("net", NETS, ids=str)
def test_every_parameter_is_counted_and_regularised_once(net: SmallNet) -> None:
    assert net.initial(1, torch.Generator().manual_seed(0)).shape == (1, net.n_parameters)
    assert sum(part.numel() for part in net.split(torch.zeros(1, net.n_parameters, dtype=torch.float64))) == net.n_parameters
    member = net.groups()
    assert member.shape[0] == net.n_parameters
    # The output bias alone is free, and there is one only without log-linear terms.
    assert member.sum(1).tolist() == [1.0] * (net.n_parameters - 1) + [1.0 if net.terms else 0.0]
    assert (member.sum(0) > 0).all()


def test_values_by_hand() -> None:
    theta = torch.tensor([[0.5, -1.0, 0.25, 2.0, 3.0]], dtype=torch.float64)
    z = torch.tensor([[[0.3, 0.7]]], dtype=torch.float64)
    hidden = torch.tanh(torch.tensor(0.5 * 0.3 - 0.7 + 0.25, dtype=torch.float64))
    torch.testing.assert_close(SmallNet(2, 1).value(theta, z)[0, 0], 2 * hidden + 3)
    mixed = torch.cat([theta[:, :4], torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.1, 0.2]], dtype=torch.float64)], 1)
    lines = torch.tensor([0.3 + 0.1, 0.7 + 0.2], dtype=torch.float64)
    torch.testing.assert_close(SmallNet(2, 1, 2).value(mixed, z)[0, 0], 2 * hidden + lines.exp().sum().log())


def noisy(seed: int, outliers: float = 0.0, n: int = 200) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """An invented smooth function of three inputs, its noisy measurements and its true values."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(1, n, 3, generator=g, dtype=torch.float64)
    true = torch.tanh(1.5 * z[..., 0] - z[..., 1]) + 0.5 * z[..., 2]
    y = true + 0.05 * torch.randn(1, n, generator=g, dtype=torch.float64)
    gross = torch.rand(1, n, generator=g) < outliers
    return z, torch.where(gross, y + 4, y), true


def error(z: torch.Tensor, y: torch.Tensor, true: torch.Tensor, nu: float | None) -> float:
    net = SmallNet(3, 4)
    done = fit_evidence(net, z, y, nu=nu, restarts=4, steps=50)
    return float((net.value(done.theta, z) - true).pow(2).mean().sqrt())


def test_a_small_function_is_recovered_and_its_noise_estimated() -> None:
    z, y, true = noisy(1)
    net = SmallNet(3, 4)
    done = fit_evidence(net, z, y, nu=None, restarts=4, steps=60)
    assert (net.value(done.theta, z) - true).pow(2).mean().sqrt() < 0.025
    assert done.noise[0] == pytest.approx(0.05, rel=0.25)
    assert 4 < done.effective[0] <= net.n_parameters
    assert done.score.shape == (1, 4)
    fresh_z, _, fresh = noisy(2)
    assert (net.value(done.theta, fresh_z) - fresh).pow(2).mean().sqrt() < 0.04


def test_a_student_loss_ignores_gross_outliers() -> None:
    cases = [noisy(seed, outliers=0.05) for seed in (3, 4, 5)]
    robust = [error(*case, nu=3.0) for case in cases]
    plain = [error(*case, nu=None) for case in cases]
    assert max(robust) < 0.05
    assert sum(robust) < 0.5 * sum(plain)


def test_weights_of_rows_count() -> None:
    z, y, true = noisy(6)
    wrong = torch.where(z[..., 0] > 1, y + 3, y)
    weight = torch.where(z[..., 0] > 1, 0.0, 1.0).double()
    net = SmallNet(3, 4)
    done = fit_evidence(net, z, wrong, weight, nu=None, restarts=2, steps=40)
    seen = weight > 0
    assert (net.value(done.theta, z) - true)[seen].pow(2).mean().sqrt() < 0.04


def test_a_problem_does_not_depend_on_its_batch_and_seeds_repeat() -> None:
    cases = [noisy(seed) for seed in (7, 8, 9)]
    z, y = torch.cat([c[0] for c in cases]), torch.cat([c[1] for c in cases])
    net = SmallNet(3, 2)
    together = fit_evidence(net, z, y, restarts=2, steps=20)
    again = fit_evidence(net, z, y, restarts=2, steps=20)
    assert torch.equal(together.theta, again.theta)
    for i in range(3):
        alone = fit_evidence(net, z[i : i + 1], y[i : i + 1], restarts=2, steps=20)
        torch.testing.assert_close(net.value(alone.theta, z[i : i + 1])[0], net.value(together.theta, z)[i], rtol=1e-6, atol=1e-6)
    other = fit_evidence(net, z, y, restarts=2, steps=20, seed=1)
    assert not torch.equal(other.theta, together.theta)


def test_a_fit_alone_that_a_step_does_not_move() -> None:
    """A step that one fit refuses moves none where it is alone, and the others where there are more."""
    cases = [noisy(seed) for seed in (10, 12, 13)]
    z, y = torch.cat([c[0] for c in cases]), torch.cat([c[1] for c in cases])
    net = SmallNet(3, 2, 2)
    together = fit_evidence(net, z, y, restarts=1, steps=60)
    for i in range(3):
        alone = fit_evidence(net, z[i : i + 1], y[i : i + 1], restarts=1, steps=60)
        torch.testing.assert_close(alone.score[0], together.score[i], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(net.value(alone.theta, z[i : i + 1])[0], net.value(together.theta, z)[i], rtol=1e-6, atol=1e-6)


def test_evidence_prunes_an_input_that_says_nothing() -> None:
    g = torch.Generator().manual_seed(11)
    z = torch.randn(1, 150, 3, generator=g, dtype=torch.float64)
    y = z[..., 0] + 0.1 * torch.randn(1, 150, generator=g, dtype=torch.float64)
    net = SmallNet(3, 3)
    sensitivity = []
    for evidence in (True, False):
        theta = fit_evidence(net, z, y, nu=None, restarts=3, steps=60, evidence=evidence).theta
        moved = z.clone()
        moved[..., 2] += 1
        sensitivity.append(float((net.value(theta, moved) - net.value(theta, z)).abs().mean()))
    assert sensitivity[0] < 0.02
    assert sensitivity[0] < sensitivity[1]
