import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyphrase.errors import BadInput
from polyphrase.latent.ragged import Ragged

masks = st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=6).filter(
    lambda rows: any(map(any, rows))
)


@given(masks, st.booleans())
def test_blocks_hold_each_real_position_once_and_in_order(
    rows: list[list[bool]], exact: bool
) -> None:
    mask = torch.tensor(rows)
    ragged = Ragged(mask, width=2, exact=exact)
    padded = torch.arange(mask.numel() * 2, dtype=torch.float64).view(*mask.shape, 2) + 1
    blocks = ragged.split(padded.requires_grad_())
    assert [block.shape[:2] for block in blocks] == ragged.sizes
    sentences = [sentence for block in blocks for sentence in block]
    for index, real in enumerate(mask):
        if real.any():
            assert any(torch.equal(padded[index, real], sentence) for sentence in sentences)

    joined = ragged.join(blocks)
    assert torch.equal(joined, padded * mask.unsqueeze(-1))
    joined.square().sum().backward()
    assert padded.grad is not None
    assert torch.equal(padded.grad, 2 * padded * mask.unsqueeze(-1))

    sums = ragged.join_sentences([block.sum((1, 2)) for block in blocks])
    torch.testing.assert_close(sums, (padded * mask.unsqueeze(-1)).sum((1, 2)))


@given(masks)
def test_leading_dimensions_stay_in_front(rows: list[list[bool]]) -> None:
    mask = torch.tensor(rows)
    ragged = Ragged(mask, width=3)
    padded = torch.randn(4, *mask.shape, 3)
    assert torch.equal(ragged.join(ragged.split(padded)), padded * mask.unsqueeze(-1))


def test_blocks_are_bounded() -> None:
    ragged = Ragged(torch.ones(10, 512), width=768)
    assert ragged.sizes == [(1, 512)] * 10
    assert len(Ragged(torch.ones(16, 50), width=768).sizes) == 1


def test_a_batch_of_pads_is_refused() -> None:
    with pytest.raises(BadInput, match="no position"):
        Ragged(torch.zeros(2, 3), width=1)
