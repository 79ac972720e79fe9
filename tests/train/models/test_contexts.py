"""Contexts over the flattened map: the BiGRU reads row by row and holds its state on padding."""

import pytest
import torch
from torch import Tensor, nn
from typed import as_a

from hmerctl.train.models.contexts import BiGRU
from hmerctl.train.models.parts import build

CHANNELS = 8


def bigru(residual: bool = False) -> BiGRU:
    torch.manual_seed(0)
    return as_a(BiGRU, build("context", {"name": "bigru", "residual": residual}, channels=CHANNELS)).eval()


def reference(part: BiGRU) -> nn.GRU:
    """PyTorch's own bidirectional GRU with the same weights."""
    gru = nn.GRU(CHANNELS, CHANNELS // 2, batch_first=True, bidirectional=True)
    for scan, suffix in ((part.ahead, ""), (part.back, "_reverse")):
        for ours, theirs in (("weight_input", "weight_ih"), ("weight_hidden", "weight_hh")):
            setattr(gru, f"{theirs}_l0{suffix}", getattr(scan, ours))
        for ours, theirs in (("bias_input", "bias_ih"), ("bias_hidden", "bias_hh")):
            setattr(gru, f"{theirs}_l0{suffix}", getattr(scan, ours))
    return gru


def test_bigru_is_a_bidirectional_gru_over_the_rows() -> None:
    part, x = bigru(), torch.randn(2, CHANNELS, 3, 5)
    expected, _ = reference(part)(x.flatten(2).transpose(1, 2))
    out = part(x, torch.ones(2, 1, 3, 5))
    assert (out - expected.transpose(1, 2).unflatten(2, (3, 5))).abs().max() < 1e-6


@pytest.mark.parametrize("valid", [(3, 5), (1, 5), (3, 1), (2, 4)])
def test_padding_is_passed_over_exactly(valid: tuple[int, int]) -> None:
    """The backward scan does not start in padding, and no row's scan is disturbed by the padding at its end."""
    part, (rows, columns) = bigru(), valid
    x = torch.randn(1, CHANNELS, rows, columns)
    alone = part(x, torch.ones(1, 1, rows, columns))
    padding = (0, 7 - columns, 0, 5 - rows)
    mask = nn.functional.pad(torch.ones(1, 1, rows, columns), padding)
    padded = part(nn.functional.pad(x, padding), mask)
    assert (
        torch.equal(padded[:, :, :rows, :columns], alone)
        or (padded[:, :, :rows, :columns] - alone).abs().max() < 1e-6
    )
    assert not (padded * (1 - mask)).any()


def test_the_scan_holds_its_state_over_long_padding() -> None:
    """1,000 padded cells move the state by nothing, in float32 to the bit."""
    scan = bigru().ahead
    valid = torch.cat([torch.randn(6, 1, CHANNELS), torch.zeros(6, 1, 1)], 2)
    hold = torch.cat([torch.zeros(1000, 1, CHANNELS), torch.ones(1000, 1, 1)], 2)
    states = scan(torch.cat([valid, hold]))
    assert torch.equal(states[6:], states[5:6].expand(1000, -1, -1))


def test_every_cell_hears_every_other() -> None:
    part, x = bigru(), torch.randn(1, CHANNELS, 3, 4, requires_grad=True)
    part(x, torch.ones(1, 1, 3, 4))[0, :, 1, 2].sum().backward()
    assert (as_a(Tensor, x.grad).abs().sum(1) > 0).all()


def test_residual_adds_the_cells_themselves() -> None:
    x, mask = torch.randn(1, CHANNELS, 3, 4), torch.ones(1, 1, 3, 4)
    assert torch.allclose(bigru(True)(x, mask), x + bigru()(x, mask), atol=1e-6)


def test_it_trains_also_under_autocast() -> None:
    part = bigru().train()
    x = torch.randn(2, CHANNELS, 3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = part(x.bfloat16(), torch.ones(2, 1, 3, 4))
    out.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in part.parameters())
