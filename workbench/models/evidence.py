"""Bayesian fitting of very small networks: batched Levenberg-Marquardt with evidence regularisation and a Student-t loss.

The objective of one network is  beta/2 sum_i w_i v_i r_i^2 + 1/2 sum_g alpha_g |theta_g|^2  over standardised inputs and target. The precisions alpha (a
group per input, one for the biases, one for the output weights) and beta follow MacKay's evidence updates (Neural Computation 4, 1992), the v_i reweight
residuals as a Student-t likelihood does, and the optimiser is Levenberg-Marquardt: with at most 75 weights the full Gauss-Newton matrix is cheap. Splits
and restarts are one batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["EvidenceFit", "SmallNet", "fit_evidence"]


@dataclass(frozen=True)
class SmallNet:
    """f(z) = [logsumexp_k(P_k z + p_k) or b] + w . tanh(W z + a), as a flat vector of parameters.

    Attributes:
        inputs: number of inputs d.
        hidden: tanh units h.
        terms: number K of log-linear terms; 0 gives the plain one-hidden-layer network with an output bias.
    """

    inputs: int
    hidden: int
    terms: int = 0

    @property
    def n_parameters(self) -> int:
        """Fitted numbers: h(d + 2) + 1, or h(d + 2) + K(d + 1)."""
        return self.hidden * (self.inputs + 2) + (self.terms * (self.inputs + 1) if self.terms else 1)

    def split(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Views of theta [B, p]: W [B, h, d], a [B, h], w [B, h], P [B, K, d], p [B, K] (P is empty and p [B, 1] the bias when there are no terms).

        Of derivatives by them [B, p, n] the same, with n at the end.
        """
        d, h, k = self.inputs, self.hidden, self.terms
        sizes = [h * d, h, h, k * d, k or 1]
        w1, a, w2, p1, p0 = theta.split(sizes, 1)
        return w1.unflatten(1, (h, d)), a, w2, p1.unflatten(1, (k, d)) if k else p1, p0

    def value(self, theta: Tensor, z: Tensor) -> Tensor:
        """Outputs [B, n] for parameters theta [B, p] and inputs z [B, n, d]."""
        return self.forward(theta, z.mT)[0]

    def forward(self, theta: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs [B, n] for inputs z [B, d, n], with what `jacobian` needs of their making: tanh units [B, h, n] and linear terms [B, K, n]."""
        w1, a, w2, p1, p0 = self.split(theta)
        units = torch.baddbmm(a[..., None], w1, z).tanh_()
        out = (w2[:, None] @ units)[:, 0]
        if not self.terms:
            return out + p0, units, p1[..., None]
        linear = torch.baddbmm(p0[..., None], p1, z)
        return out + torch.logsumexp(linear, 1), units, linear

    def jacobian(self, theta: Tensor, z: Tensor, units: Tensor, linear: Tensor) -> Tensor:
        """Derivatives [B, p, n] of the outputs by the parameters, from what `forward` has made of the same theta and z."""
        jacobian = z.new_empty(len(theta), self.n_parameters, z.shape[2])
        # Each part is computed in its place.
        w1, a, w2, p1, p0 = self.split(jacobian)
        w2.copy_(units)
        torch.mul(1 - units * units, self.split(theta)[2][..., None], out=a)
        torch.mul(a[:, :, None], z[:, None], out=w1)
        if self.terms:
            p0.copy_(torch.softmax(linear, 1))
            torch.mul(p0[:, :, None], z[:, None], out=p1)
        else:
            p0.fill_(1)
        return jacobian

    def initial(self, batch: int, generator: torch.Generator) -> Tensor:
        """Random starting parameters [batch, p]."""
        d, h, k = self.inputs, self.hidden, self.terms
        scale = [torch.full((h * d,), 1.2 / d**0.5), torch.full((h,), 0.8), torch.full((h,), 0.7 / h**0.5)]
        scale += [torch.full((k * d,), 1 / d**0.5), torch.ones(k)] if k else [torch.full((1,), 0.1)]
        return torch.randn(batch, self.n_parameters, generator=generator, dtype=torch.float64) * torch.cat(scale).double()

    def groups(self) -> Tensor:
        """One-hot membership [p, g] of the regularisation groups; a row of zeros is a free parameter (the output bias)."""
        d, h, k = self.inputs, self.hidden, self.terms
        ids = list(range(d)) * h + [d] * h + [d + 1] * h
        ids += list(range(d + 2, 2 * d + 2)) * k + [2 * d + 2] * k if k else [-1]
        index = torch.tensor(ids)
        return (index[:, None] == torch.arange(int(index.max()) + 1)).double()


@dataclass(frozen=True)
class EvidenceFit:
    """Result of `fit_evidence`, best restart of each problem.

    Attributes:
        theta: parameters [problems, p].
        score: Laplace log evidence of every restart, up to a constant (without evidence, minus its objective), [problems, restarts].
        noise: standard deviation of the standardised target's noise [problems].
        effective: effective number of parameters [problems].
    """

    theta: Tensor
    score: Tensor
    noise: Tensor
    effective: Tensor


def _student_weights(residual: Tensor, nu: float) -> Tensor:
    scale = 1.4826 * residual.abs().median(1, keepdim=True).values + 1e-3
    return (nu + 1) / (nu + (residual / scale) ** 2)


@torch.inference_mode()
def fit_evidence(
    net: SmallNet,
    z: Tensor,
    y: Tensor,
    weight: Tensor | None = None,
    *,
    restarts: int = 6,
    steps: int = 70,
    nu: float | None = 3.0,
    robust_from: int = 15,
    evidence: bool = True,
    seed: int = 0,
) -> EvidenceFit:
    """Fit `net` to every problem of a batch and keep the restart of highest evidence.

    Args:
        z: inputs [problems, n, d], standardised, float64.
        y: target [problems, n], standardised.
        weight: weight of each row [problems, n]; ones if None.
        restarts: random starts of each problem.
        steps: Levenberg-Marquardt steps.
        nu: degrees of freedom of the Student-t loss, None for a Gaussian one.
        robust_from: step at which the reweighting begins (before, the fit is too far off for residuals to mean outliers).
        evidence: re-estimate the precisions; without, they stay at 0.01 and 1 (a fixed ridge), which is for ablations.
        seed: of the starting points.
    """
    problems = z.shape[0]
    z, y = z.double(), y.double()
    weight = torch.ones_like(y) if weight is None else weight.double()
    zb, yb, wb = (t.repeat_interleave(restarts, 0) for t in (z.mT.contiguous(), y, weight))
    batch = problems * restarts
    # Every problem starts from the same points: its result does not depend on what else is in the batch.
    theta = net.initial(restarts, torch.Generator().manual_seed(seed)).repeat(problems, 1)
    member = net.groups()
    size = member.sum(0)
    free = int((member.sum(1) == 0).sum())
    alpha = torch.full((batch, member.shape[1]), 0.01, dtype=torch.float64)
    beta = torch.ones(batch, dtype=torch.float64)
    damping = torch.full((batch,), 0.1, dtype=torch.float64)
    gamma = size.expand(batch, -1)
    rows = wb.clone()
    # J diag(rows) J^T and J diag(rows) res of every fit.
    gram = wb.new_empty(batch, theta.shape[1], theta.shape[1])
    pull = torch.empty_like(theta)

    def objective(r: Tensor, t: Tensor) -> Tensor:
        return beta * (rows * r * r).sum(1) + (alpha @ member.T * t * t).sum(1)

    def take_products() -> None:
        weighted = jac * rows[moved, None]
        gram[moved] = weighted @ jac.mT
        pull[moved] = (res[moved, None] @ weighted.mT)[:, 0]

    def hessian() -> Tensor:
        h = beta[:, None, None] * gram
        h.diagonal(dim1=1, dim2=2).add_(alpha @ member.T)
        return h

    # A step moves some two fits of three. Only they have another Jacobian, other weights of their rows and other products than before.
    moved = torch.arange(batch)
    out, *made = net.forward(theta, zb)
    res = out - yb
    jac = net.jacobian(theta, zb, *made)
    for step in range(steps):
        if nu is not None and step >= robust_from:
            if step == robust_from:  # all rows are weighted anew
                moved = torch.arange(batch)
                jac = net.jacobian(theta, zb, *net.forward(theta, zb)[1:])
            rows[moved] = wb[moved] * _student_weights(res[moved], nu)
        take_products()
        h = hessian()
        gradient = beta[:, None] * pull + alpha @ member.T * theta
        before = objective(res, theta)
        diagonal = h.diagonal(dim1=1, dim2=2)
        diagonal.add_(damping[:, None] * (diagonal + 1e-6) + 1e-9)
        factor, _ = torch.linalg.cholesky_ex(h)
        trial = theta - torch.cholesky_solve(gradient[..., None], factor)[..., 0]
        out, *made = net.forward(trial, zb)
        trial_res = out - yb
        after = objective(trial_res, trial)
        better = (after < before) & torch.isfinite(after)
        theta = torch.where(better[:, None], trial, theta)
        res = torch.where(better[:, None], trial_res, res)
        damping = torch.where(better, (damping * 0.4).clamp_min(1e-8), (damping * 4).clamp_max(1e6))
        moved = better.nonzero()[:, 0]
        jac = net.jacobian(theta[moved], zb[moved], *(part[moved] for part in made))
        if evidence and step >= 10 and step % 2 == 0:
            take_products()
            gamma = (size - alpha * (_inverse_diagonal(hessian()) @ member)).clamp_min(1e-3)
            alpha = (gamma / (theta**2 @ member + 1e-8)).clamp(1e-4, 1e6)
            spread = (rows * res * res).sum(1) + 1e-9
            beta = ((rows.sum(1) - gamma.sum(1) - free).clamp_min(20) / spread).clamp(1e-2, 1e6)
    take_products()
    precision = alpha @ member.T
    log_prior = torch.where(precision > 0, precision.clamp_min(1e-12).log(), 0).sum(1)
    laplace = 0.5 * (-objective(res, theta) + rows.sum(1) * beta.log() + log_prior - torch.linalg.slogdet(hessian())[1])
    score = laplace if evidence else -objective(res, theta)
    score = torch.where(torch.isfinite(score), score, -torch.inf).view(problems, restarts)
    best = score.argmax(1) + torch.arange(problems) * restarts
    return EvidenceFit(theta[best], score, beta[best].rsqrt(), gamma.sum(1)[best] + free)


def _inverse_diagonal(matrix: Tensor) -> Tensor:
    """Diagonal [B, p] of the inverse of symmetric positive definite matrices [B, p, p]; a hair of jitter keeps a near-singular one from stopping the batch."""
    identity = torch.eye(matrix.shape[1], dtype=matrix.dtype)
    factor, info = torch.linalg.cholesky_ex(matrix + 1e-9 * identity)
    if bool((info > 0).any()):
        return torch.linalg.pinv(matrix + 1e-9 * identity, hermitian=True).diagonal(dim1=1, dim2=2)
    return torch.linalg.solve_triangular(factor, identity, upper=False).square_().sum(1)
