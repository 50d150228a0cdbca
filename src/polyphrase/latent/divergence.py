"""KL divergences from the posterior to the prior, in float64: every closed form is here.

Shapes: G sentences of equal length, n positions, D dimensions. P is the prior's precision [G, n, n]
(`None` for I); the posterior of dimension d is N(mean_d, diag(t_d) M diag(t_d)), with M its base
covariance, [G, n, n] or as a diagonal [G, n], and t = exp(log_ratio / 2), [G, n, D].
"""

import math

import torch
from torch import Tensor

from .covariance import gram


def gaussian_kl(
    precision: Tensor | None, base: Tensor, logdets: Tensor, delta: Tensor, log_ratio: Tensor
) -> Tensor:
    """½ [ Σ_d t_dᵀ(P∘M)t_d + Σ_d δ_dᵀPδ_d − nD + D log(|A|/|M|) − Σ log t² ], nats per sentence, [G].

    Args:
        precision: P = A⁻¹.
        base: M.
        logdets: log|A| − log|M|, [G].
        delta: δ, the posterior's mean less the prior's, [G, n, D].
        log_ratio: log t², [G, n, D].
    """
    n, dimensions = delta.shape[-2:]
    if precision is None:
        quadratic = _total(delta.square())
    else:
        quadratic = _inner(precision, gram(delta))
    if precision is None or base.dim() == 2:
        variance = base if base.dim() == 2 else _diagonal(base)
        weights = variance if precision is None else variance * _diagonal(precision)
        trace = (weights * log_ratio.exp().sum(-1, dtype=torch.float64)).sum(-1)
    else:
        trace = _inner(precision * base, gram((0.5 * log_ratio).exp()))
    return 0.5 * (trace + quadratic + dimensions * (logdets - n) - _total(log_ratio))


def _diagonal(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1)


def _inner(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(-1).sum(-1)


def _total(x: Tensor) -> Tensor:
    return x.sum(-1, dtype=torch.float64).sum(-1)


def entropy(logdet: Tensor, log_ratio: Tensor) -> Tensor:
    """½ [ nD (1 + log 2π) + D log|M| + Σ log t² ], [G]."""
    n, dimensions = log_ratio.shape[-2:]
    constant = n * dimensions * (1 + math.log(2 * math.pi))
    return 0.5 * (constant + dimensions * logdet + _total(log_ratio))
