"""KL divergences from the posterior to the prior, in float64: every closed form is here.

The posterior of dimension d is N(mean_d, diag(t_d) M diag(t_d)) over the positions of a sentence,
M its base covariance and t² = exp(log_ratio); a Gaussian prior is N(mean_d − δ_d, A).

Shapes: G sentences of equal length, n positions, D dimensions.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import BadInput
from .covariance import Factor, chunks, diagonal, factorise, gram
from .distributions import Gaussian, Mixture, Posterior


def kl(q: Posterior, p: Gaussian | Mixture, z: Tensor | None = None) -> Tensor:
    """KL[q ‖ p] in nats per sentence, [G].

    To a mixture it is -H[q] - log p(z), with the entropy in closed form and one sample z of q,
    [G, n, D]. To a Gaussian, with P = A⁻¹ and ∘ the elementwise product:

    ½ [ Σ_d t_dᵀ(P∘M)t_d + Σ_d δ_dᵀPδ_d − nD + D log(|A|/|M|) − Σ log t² ]
    """
    if isinstance(p, Mixture):
        if z is None:
            raise BadInput("the KL to a mixture has no closed form: give it a sample z")
        return -entropy(q) - p.log_density(z).sum(-1)
    n, dimensions = q.mean.shape[-2:]
    spread = _Spread.apply(_weights(p.covariance, q.base), q.log_ratio)
    quadratic = _Quadratic.apply(p.covariance.precision, q.mean, p.mean)
    logdets = dimensions * (p.covariance.logdet - q.base.logdet - n)
    return 0.5 * (spread + quadratic + logdets)


@torch.no_grad()
def kl_per_dimension(q: Posterior, p: Gaussian) -> Tensor:
    """The terms of `kl`, one for each dimension, [G, D]."""
    ratio, delta = (0.5 * q.log_ratio.double()).exp(), _difference(q, p).double()
    trace = (ratio * _times(_weights(p.covariance, q.base), ratio)).sum(-2)
    quadratic = (delta * _times(p.covariance.precision, delta)).sum(-2)
    logdets = (p.covariance.logdet - q.base.logdet - delta.shape[-2]).unsqueeze(-1)
    return 0.5 * (trace + quadratic + logdets - q.log_ratio.sum(-2, dtype=torch.float64))


def kl_of_sum(q: Posterior, p: Gaussian) -> Tensor:
    """The KL of one scalar per position, u = Σ_d z_d, as in the code released with the paper, [G].

    The prior's covariance is D A, the posterior's Q = M ∘ Σ_d t_d t_dᵀ. It is never more than `kl`,
    and bounds nothing of what z carries in the other D − 1 directions.
    """
    n, dimensions = q.mean.shape[-2:]
    if q.base.full:
        products = gram((0.5 * q.log_ratio).exp())
        posterior = factorise(q.base.matrix * products, lambda: "the summed posterior")
    else:
        variance = q.log_ratio.exp().sum(-1, dtype=torch.float64)
        posterior = Factor.of_variance(q.base.matrix * variance)
    trace = _total(_weights(p.covariance, posterior))
    delta = _difference(q, p).sum(-1, keepdim=True, dtype=torch.float64)
    quadratic = _Quadratic.apply(p.covariance.precision, delta, None)
    logdets = p.covariance.logdet - posterior.logdet + n * (math.log(dimensions) - 1)
    return 0.5 * ((trace + quadratic) / dimensions + logdets)


def mean_field_floor(q: Posterior, p: Gaussian | Mixture) -> Tensor:
    """½ D [ log|A| + Σ_i log Pᵢᵢ ], the least KL that independent positions can reach, [G].

    0 for a correlated posterior, and for a prior whose positions are independent.
    """
    if q.base.full or isinstance(p, Mixture):
        return torch.zeros_like(q.base.logdet)
    independent = diagonal(p.covariance.precision).log().sum(-1)
    return 0.5 * q.mean.shape[-1] * (p.covariance.logdet + independent)


def entropy(q: Posterior) -> Tensor:
    """H[q] = ½ [ nD (1 + log 2π) + D log|M| + Σ log t² ], [G]."""
    n, dimensions = q.mean.shape[-2:]
    constant = n * (1 + math.log(2 * math.pi))
    return 0.5 * (dimensions * (constant + q.base.logdet) + _total(q.log_ratio))


def _difference(q: Posterior, p: Gaussian) -> Tensor:
    return q.mean if p.mean is None else q.mean - p.mean


def _weights(prior: Factor, base: Factor) -> Tensor:
    """P∘M, or its diagonal where one of the two is diagonal."""
    if prior.full == base.full:
        return prior.precision * base.matrix
    return diagonal(prior.precision) * base.variance


def _total(x: Tensor) -> Tensor:
    """The sum over all but sentences, [G]."""
    return x.flatten(1).sum(-1, dtype=torch.float64)


def _times(weights: Tensor, x: Tensor) -> Tensor:
    return weights @ x if weights.dim() == 3 else weights.unsqueeze(-1) * x


class _Quadratic(torch.autograd.Function):
    """Σ_d δ_dᵀ W δ_d, [G], for δ = x − y and symmetric W [G, n, n] or its diagonal [G, n].

    x and y [G, n, D] are of any dtype; only they are kept, and no float64 copy of them.
    """

    @staticmethod
    def forward(ctx: Any, weights: Tensor, x: Tensor, y: Tensor | None) -> Tensor:
        products = torch.empty_like(weights)
        for chunk in chunks(x):
            _products(_subtract(x, y, chunk), out=products[chunk])
        ctx.save_for_backward(weights, products, x, y)
        return _total(weights * products)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        weights, products, x, y = ctx.saved_tensors
        gradient = _like(gradient, weights)
        weights = 2 * gradient * weights
        of_x = x.new_empty(x.shape)
        for chunk in chunks(x):
            of_x[chunk] = _times(weights[chunk], _subtract(x, y, chunk))
        of_y = None if y is None else -of_x.to(y.dtype)
        return gradient * products, of_x, of_y


class _Spread(torch.autograd.Function):
    """Σ_d t_dᵀ W t_d − Σ log t², [G], for W as above and log t² [G, n, D] of any dtype."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, log_ratio: Tensor) -> Tensor:
        products = torch.empty_like(weights)
        logs = weights.new_empty(log_ratio.shape[:-1])
        for chunk in chunks(log_ratio):
            _products(_ratio(log_ratio[chunk]), out=products[chunk])
            torch.sum(log_ratio[chunk], -1, dtype=torch.float64, out=logs[chunk])
        ctx.save_for_backward(weights, products, log_ratio)
        return _total(weights * products) - _total(logs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        weights, products, log_ratio = ctx.saved_tensors
        scale = _like(gradient, weights)
        result = log_ratio.new_empty(log_ratio.shape)
        for chunk in chunks(log_ratio):
            ratio = _ratio(log_ratio[chunk])
            of_half = _times((scale * weights)[chunk], ratio).mul_(ratio)
            result[chunk] = of_half.sub_(gradient[chunk, None, None])
        return scale * products, result


def _subtract(x: Tensor, y: Tensor | None, chunk: slice) -> Tensor:
    return x[chunk].double() if y is None else x[chunk].double() - y[chunk]


def _ratio(log_ratio: Tensor) -> Tensor:
    return (0.5 * log_ratio).exp().double()


def _products(x: Tensor, out: Tensor) -> None:
    """Σ_d x_d x_dᵀ, or its diagonal where there is room for no more."""
    if out.dim() == 3:
        torch.bmm(x, x.mT, out=out)
    else:
        torch.sum(x.square(), -1, out=out)


def _like(gradient: Tensor, weights: Tensor) -> Tensor:
    return gradient.view(-1, *[1] * (weights.dim() - 1))
