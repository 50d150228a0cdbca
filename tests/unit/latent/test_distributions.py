import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from polyphrase.latent.covariance import Factor, factorise
from polyphrase.latent.distributions import Mixture, Posterior


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_the_mixture_is_that_of_torch_distributions() -> None:
    mean, log_variance, z = random(5, 3), random(5, 3), random(2, 4, 3)
    theirs = MixtureSameFamily(
        Categorical(logits=torch.zeros(5).double()),
        Independent(Normal(mean, (0.5 * log_variance).exp()), 1),
    )
    mixture = Mixture(mean, log_variance)
    torch.testing.assert_close(mixture.log_density(z), theirs.log_prob(z))
    torch.testing.assert_close(
        mixture.log_density(z.float()), theirs.log_prob(z), rtol=1e-5, atol=0
    )
    torch.testing.assert_close(mixture.variance(), theirs.variance)
    same = Mixture(mean[:1].expand(5, -1), log_variance[:1].expand(5, -1))
    one = Mixture(mean[:1], log_variance[:1])
    torch.testing.assert_close(same.log_density(z), one.log_density(z))


@pytest.mark.parametrize("spread", [0.0, 1.0, 7.0])
@pytest.mark.parametrize("full", [True, False])
def test_samples_have_the_posterior_s_covariance(full: bool, spread: float) -> None:
    n, d, count = 3, 2, 100_000
    x = random(1, n, n)
    matrix = x @ x.mT + 0.3 * torch.eye(n).double()
    base = factorise(matrix, str) if full else Factor.of_variance(matrix.diagonal(dim1=1, dim2=2))
    q = Posterior(random(1, n, d), random(1, n, d), base)
    z = q.sample(random(count, 1, n, d), math.sqrt(spread))[:, 0]
    t = (0.5 * q.log_ratio[0]).exp()
    for k in range(d):
        expected = spread * torch.outer(t[:, k], t[:, k])
        expected = expected * (matrix[0] if full else torch.diag(matrix[0].diagonal()))
        deviation = expected.diagonal().sqrt()
        bound = 5 * torch.outer(deviation, deviation) / count**0.5 * math.sqrt(2)
        assert ((z[..., k].mT.cov() - expected).abs() <= bound + 1e-12).all()
        assert (
            (z[..., k].mean(0) - q.mean[0, :, k]).abs() <= 5 * deviation / count**0.5 + 1e-12
        ).all()
