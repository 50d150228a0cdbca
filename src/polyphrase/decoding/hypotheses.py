"""What a search returns."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Hypotheses:
    """Finished outputs for each row of a memory, best first.

    Attributes:
        tokens: `[R, n, T]`, the end token and what follows it included as padding.
        log_probability: log p(y | z), `[R, n]`.
        score: what the search ranked by, `[R, n]`; -inf where there is no hypothesis.
    """

    tokens: Tensor
    log_probability: Tensor
    score: Tensor
