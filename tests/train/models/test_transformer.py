"""The Transformer decoder's refinement: a whole kernel, or a column and a row in its place."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from hmerctl.train.models.transformer import Refinement, TransformerConfig, TransformerDecoder, separate

CONFIG = TransformerConfig(layers=3, heads=2, width=8, inner=8, dropout=0.0, refinement=3)
FULL = 15
"""Rank of a kernel of 3 outputs and 4 inputs, 5 x 5: min(4 * 5, 3 * 5)."""


def composed(column: Tensor, row: Tensor) -> Tensor:
    """The kernel (outputs, inputs, height, width) that two one-dimensional ones make together."""
    return torch.einsum("riy,orx->oiyx", column[..., 0], row[:, :, 0])


@given(st.integers(0, 10_000), st.integers(1, 20))
def test_a_separated_kernel_misses_just_the_singular_values_beyond_its_rank(seed: int, rank: int) -> None:
    """Eckart and Young 1936: the squared error of the nearest matrix of a rank is the sum of the others' squares."""
    torch.manual_seed(seed)
    kernel = torch.randn(3, 4, 5, 5)
    column, row = separate(kernel, rank)
    assert column.shape == (rank, 4, 5, 1) and row.shape == (3, rank, 1, 5)
    values = torch.linalg.svdvals(kernel.permute(1, 2, 0, 3).reshape(20, 15).double())
    error = (composed(column, row) - kernel).square().sum()
    assert error == pytest.approx(float(values[rank:].square().sum()), abs=1e-4)


def test_column_and_row_convolve_as_their_kernel_does_on_the_border_too() -> None:
    torch.manual_seed(1)
    whole, parts = Refinement(2, 3, 0), Refinement(2, 3, FULL)
    spread, separated = whole.spread, parts.spread
    assert isinstance(spread, nn.Conv2d) and isinstance(separated, nn.Sequential)
    column, row = separate(spread.weight.detach(), FULL)
    separated.load_state_dict({"0.weight": column, "1.weight": row, "1.bias": spread.bias})
    parts.to_heads = whole.to_heads
    nn.init.normal_(whole.to_heads.weight)
    spent = torch.rand(2, 4, 3, 7)
    expected = F.conv2d(F.conv2d(spent, spread.weight, spread.bias, padding=2).relu(), whole.to_heads.weight)
    assert torch.allclose(parts(spent), expected, atol=1e-5)
    assert torch.allclose(whole(spent), expected, atol=1e-5)


def test_weights_with_a_whole_kernel_are_adapted_to_a_rank() -> None:
    torch.manual_seed(2)
    whole = TransformerDecoder(CONFIG, 6, 9)
    for layer in whole.blocks[1:]:
        assert layer.refinement is not None
        nn.init.normal_(layer.refinement.to_heads.weight)
    parts = TransformerDecoder(TransformerConfig(**{**vars(CONFIG), "refinement_rank": FULL}), 6, 9).eval()
    weights = {f"decoder.{name}": value for name, value in whole.state_dict().items()}
    adapted = {name.removeprefix("decoder."): value for name, value in parts.adapted(weights).items()}
    parts.load_state_dict(adapted)  # strict: nothing is missing and nothing left over
    assert parts.adapted(adapted) == adapted  # weights of this form already stay as they are
    features, mask = torch.randn(2, 6, 3, 5), torch.ones(2, 1, 3, 5)
    tokens = torch.randint(3, 9, (2, 6))
    expected = whole.eval()(whole.memory(features, features, mask), tokens)
    assert torch.allclose(parts(parts.memory(features, features, mask), tokens), expected, atol=1e-4)
