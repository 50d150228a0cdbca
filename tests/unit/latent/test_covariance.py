import pytest
import torch
from torch import Tensor

from polyphrase.errors import NotPositiveDefinite
from polyphrase.latent import covariance
from polyphrase.latent.covariance import Factor, factorise, gram, squared_distances


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def spread(x: Tensor) -> Tensor:
    """A positive definite matrix from any."""
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


@pytest.mark.parametrize("elements", [1, 10, 10**6])
def test_gram_and_its_gradient(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    monkeypatch.setattr(covariance, "CHUNK_ELEMENTS", elements)
    x = random(5, 4, 3).requires_grad_()
    torch.testing.assert_close(gram(x), x @ x.mT)
    assert torch.autograd.gradcheck(gram, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_gram_of_any_precision_is_computed_in_float64(dtype: torch.dtype) -> None:
    x = torch.randn(2, 4, 30).to(dtype).requires_grad_()
    products = gram(x)
    products.sum().backward()
    assert torch.equal(products, x.double() @ x.double().mT)
    assert x.grad is not None
    assert x.grad.dtype == dtype


def test_distances_of_equal_points_are_zero() -> None:
    x = 10 * torch.randn(1, 1, 700) + 1e-3 * torch.arange(3).view(1, 3, 1)
    x = torch.cat((x, x), 1)
    squares = squared_distances(gram(x))
    exact = torch.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist") ** 2
    assert torch.equal(squares == 0, exact == 0)
    torch.testing.assert_close(squares, exact, rtol=1e-6, atol=0)


def test_a_factor_holds_what_it_says() -> None:
    matrix = spread(random(3, 4, 4))
    for factor, a in (
        (factorise(matrix, str), matrix),
        (factorise(matrix, str).correlation(), torch.stack([_correlation(m) for m in matrix])),
    ):
        torch.testing.assert_close(factor.matrix, a)
        torch.testing.assert_close(factor.cholesky, torch.linalg.cholesky(a))
        torch.testing.assert_close(factor.precision, torch.linalg.inv(a))
        torch.testing.assert_close(factor.logdet, torch.logdet(a))
        torch.testing.assert_close(factor.variance, a.diagonal(dim1=1, dim2=2))
    noise = random(2, 3, 4, 5)
    torch.testing.assert_close(factor.colour(noise), factor.cholesky @ noise)


def _correlation(matrix: Tensor) -> Tensor:
    deviation = matrix.diagonal().sqrt()
    return matrix / torch.outer(deviation, deviation)


def test_a_diagonal_factor_is_the_full_one() -> None:
    variance = torch.rand(2, 4, dtype=torch.float64) + 0.1
    short, full = Factor.of_variance(variance), factorise(torch.diag_embed(variance), str)
    assert full.full
    assert not short.full
    for name in ("matrix", "cholesky", "precision"):
        torch.testing.assert_close(torch.diag_embed(getattr(short, name)), getattr(full, name))
    torch.testing.assert_close(short.logdet, full.logdet)
    noise = random(2, 4, 3)
    torch.testing.assert_close(short.colour(noise), full.colour(noise))


@pytest.mark.parametrize("part", ["cholesky", "precision", "logdet"])
def test_gradients_through_the_factorisation(part: str) -> None:
    def function(x: Tensor) -> Tensor:
        return getattr(factorise(spread(x), str), part)

    assert torch.autograd.gradcheck(function, random(2, 4, 4).requires_grad_())


def test_jitter_is_added_where_it_is_needed_alone() -> None:
    good, singular = spread(random(4, 4)), torch.full((4, 4), 2.0, dtype=torch.float64)
    factor = factorise(torch.stack((good, singular)), str)
    assert torch.equal(factor.matrix[0], good)
    added = factor.matrix[1] - singular
    assert torch.equal(added, torch.diag(added.diagonal()))
    assert 0 < float(added.diagonal().max()) <= 2 * covariance.JITTERS[-1]
    assert all(torch.isfinite(part).all() for part in factor)


def test_what_no_jitter_helps_is_an_error_that_names_it() -> None:
    matrix = torch.diag(torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)).unsqueeze(0)
    with pytest.raises(NotPositiveDefinite, match=r"the kernel X of a sentence with N = 3 is not"):
        factorise(matrix, lambda: "the kernel X")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_run_that_diverged_is_told_so(value: float) -> None:
    matrix = torch.eye(3, dtype=torch.float64).unsqueeze(0).clone()
    matrix[0, 2, 1] = matrix[0, 1, 2] = value
    with pytest.raises(
        NotPositiveDefinite, match=r"X of .* N = 3 holds .* diverged: lower the lea"
    ):
        factorise(matrix, lambda: "the kernel X")
