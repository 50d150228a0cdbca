"""The posterior q(z|h) (paper, section 3): two linear layers, f_μ and f_σ²."""

from torch import Tensor, nn
from torch.nn import functional

from .linear import apply, projection


class PosteriorNetwork(nn.Module):
    """The mean f_μ(h) and log-variance log f_σ²(h) of each position, both linear in h.

    Where they start at the prior both are zero at first, and add to the prior's mean and to the
    logarithm of its variance. A prior that knows nothing of h has no mean that lets h through:
    there the mean starts at h, with a root mean square of 1 at each position, and the variance at
    1, so that z carries the source from the first step on.

    Shapes: G sentences of equal length, n positions, D_h encoder and D latent dimensions.
    """

    def __init__(
        self, hidden_size: int, size: int, *, start_at_prior: bool, prior_sees_h: bool
    ) -> None:
        super().__init__()
        self.start_at_prior = start_at_prior
        self.mean = nn.Linear(hidden_size, size)
        self.log_variance = nn.Linear(hidden_size, size)
        self.projection: nn.Module | None = None
        if start_at_prior:
            for parameter in self.parameters():
                nn.init.zeros_(parameter)
            if not prior_sees_h:
                self.projection = projection(hidden_size, size)

    def forward(self, states: Tensor, prior_mean: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and log-variance at states [G, n, D_h], the latter relative to a prior that sees h.

        Args:
            states: of the encoder.
            prior_mean: [G, n, D], of a prior that sees h.
        """
        mean = apply(self.mean, states)
        if self.projection is not None:
            start = apply(self.projection, states)
            mean = mean + functional.rms_norm(start, start.shape[-1:])
        elif self.start_at_prior and prior_mean is not None:
            mean = mean + prior_mean
        return mean, apply(self.log_variance, states)
