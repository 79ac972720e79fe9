"""The attention GRU decoder: the hand-written cell, the formulas, and one step equal to the whole sequence."""

import itertools

import pytest
import torch
from torch import Tensor
from typed import as_a

from hmerctl.train.decoding import advance, zero_state
from hmerctl.train.models.attention_gru import AttentionGRUDecoder, GRUCell
from hmerctl.train.models.parts import build
from hmerctl.train.models.relative import RelativeBias

CHANNELS, VOCABULARY, ROWS, COLUMNS = 12, 20, 3, 5
SIZES = {"width": 10, "embedding": 8, "attention": 6, "dropout": 0.0}
VARIANTS = [*itertools.product((0, 4), (False, True))]


def decoder(coverage: int = 0, relative: bool = False) -> AttentionGRUDecoder:
    torch.manual_seed(0)
    part = build(
        "decoder", {"name": "attention-gru", **SIZES, "coverage": coverage, "coverage_kernel": 3},
        channels=CHANNELS, vocabulary=VOCABULARY,
    )  # fmt: skip
    made = as_a(AttentionGRUDecoder, part)
    if relative:
        made.add_relative_bias((2, 3))
        torch.nn.init.normal_(as_a(RelativeBias, made.relative).table)
    return made.eval()


def picture(batch: int = 2, rows: int = ROWS, columns: int = COLUMNS) -> tuple[Tensor, Tensor]:
    """Features and mask; the last row and the last two columns of all but the first picture are padding."""
    mask = torch.ones(batch, 1, rows, columns)
    mask[1:, :, -1:], mask[1:, :, :, -2:] = 0, 0
    return torch.randn(batch, CHANNELS, rows, columns) * mask, mask


def run(part: AttentionGRUDecoder, memory: dict[str, Tensor], tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Steps over tokens (beam, time): log-probabilities (beam, time, vocabulary), attention (beam, time, cells)."""
    rows, columns = memory["memory_mask"].shape[2:]
    state = zero_state(part, len(tokens), rows, columns, 16, memory["keys_0"])
    scores, looks = [], []
    for i, token in enumerate(tokens.int().unbind(1)):
        log_probs, outputs, attention = part.step(memory, token, torch.tensor([i], dtype=torch.int32), state)
        advance(part, state, outputs, i)
        scores.append(log_probs)
        looks.append(attention)
    return torch.stack(scores, 1), torch.stack(looks, 1)


def test_the_cell_is_a_gru_cell() -> None:
    ours, theirs = GRUCell(7, 5), torch.nn.GRUCell(7, 5)
    ours.input_gates.weight, ours.input_gates.bias = theirs.weight_ih, theirs.bias_ih
    ours.hidden_gates.weight, ours.hidden_gates.bias = theirs.weight_hh, theirs.bias_hh
    x, hidden = torch.randn(4, 7), torch.randn(4, 5)
    assert (ours(x, hidden) - theirs(x, hidden)).abs().max() < 1e-6


def test_the_first_step_is_the_formula() -> None:
    """u = tanh(W h + U d + b), a = softmax(u . u_w), s = sum a h, the symbol from s, d and the token before."""
    part, (features, mask) = decoder(), picture(1)
    token = torch.tensor([7], dtype=torch.int32)
    memory = part.memory(features, features, mask)
    state = zero_state(part, 1, ROWS, COLUMNS, 16, features)
    log_probs, outputs, attention = part.step(memory, token, torch.tensor([0], dtype=torch.int32), state)
    cells = features[0].flatten(1).T
    embedded = part.embed.weight[7]
    d = part.cell(torch.cat([embedded, torch.zeros(CHANNELS)])[None], torch.zeros(1, 10))[0]
    u = (cells @ part.key.weight.T + part.query.weight @ d + part.key.bias).tanh()
    a = (u @ part.score.weight[0]).softmax(0)
    s = a @ cells
    mixed = part.from_glimpse.weight @ s + part.from_glimpse.bias + part.from_state.weight @ d
    expected = part.output((mixed + part.from_token.weight @ embedded).tanh()).log_softmax(0)
    assert torch.allclose(attention[0], a, atol=1e-6) and torch.allclose(log_probs[0], expected, atol=1e-5)
    assert torch.allclose(outputs["hidden"][0], d, atol=1e-6) and torch.allclose(outputs["glimpse"][0], s, atol=1e-6)


@pytest.mark.parametrize(("coverage", "relative"), VARIANTS)
def test_steps_equal_teacher_forcing(coverage: int, relative: bool) -> None:
    part, (features, mask) = decoder(coverage, relative), picture()
    memory = part.memory(features, features, mask)
    tokens = torch.randint(3, VOCABULARY, (2, 7))
    stepped, _ = run(part, memory, tokens)
    assert (part(memory, tokens).log_softmax(2) - stepped).abs().max() < 1e-5


@pytest.mark.parametrize(("coverage", "relative"), VARIANTS)
def test_beams_of_one_picture_equal_pictures_of_their_own(coverage: int, relative: bool) -> None:
    part, (features, mask) = decoder(coverage, relative), picture()
    memory = part.memory(features[1:], features[1:], mask[1:])
    tokens = torch.randint(3, VOCABULARY, (3, 5))
    alone = {name: tensor.repeat(3, *[1] * (tensor.ndim - 1)) for name, tensor in memory.items()}
    assert torch.allclose(run(part, memory, tokens)[0], run(part, alone, tokens)[0], atol=1e-5)


@pytest.mark.parametrize(("coverage", "relative"), VARIANTS)
def test_attention_sums_to_one_over_valid_cells_and_padding_changes_nothing(coverage: int, relative: bool) -> None:
    part, (features, mask) = decoder(coverage, relative), picture()
    tokens = torch.randint(3, VOCABULARY, (2, 6))
    scores, attention = run(part, part.memory(features, features, mask), tokens)
    assert torch.allclose(attention.sum(2), torch.ones(2, 6), atol=1e-5)
    assert not (attention * (1 - mask.flatten(2))).any()
    wider = [torch.nn.functional.pad(t, (0, 4, 0, 2)) for t in (features, mask)]
    padded, _ = run(part, part.memory(wider[0], wider[0], wider[1]), tokens)
    assert (scores - padded).abs().max() < 1e-5


def test_coverage_counts_what_was_spent() -> None:
    part, (features, mask) = decoder(4), picture()
    memory = part.memory(features, features, mask)
    state = zero_state(part, 2, ROWS, COLUMNS, 16, features)
    total = torch.zeros(2, 1, ROWS, COLUMNS)
    for i in range(4):
        token = torch.tensor([5, 6], dtype=torch.int32)
        _, outputs, attention = part.step(memory, token, torch.tensor([i], dtype=torch.int32), state)
        advance(part, state, outputs, i)
        total += attention.unflatten(1, (1, ROWS, COLUMNS))
        assert torch.allclose(state["spent"], total, atol=1e-6)


def test_keys_carry_the_positions_and_values_do_not() -> None:
    part, (features, mask) = decoder(), picture()
    memory = part.memory(features, features + 1, mask)
    assert torch.allclose(memory["values_0"].transpose(1, 2).unflatten(2, (ROWS, COLUMNS)), features)
    assert torch.allclose(memory["keys_0"], part.key((features + 1).flatten(2).transpose(1, 2)))


@pytest.mark.parametrize(("coverage", "relative"), VARIANTS)
def test_it_trains(coverage: int, relative: bool) -> None:
    part, (features, mask) = decoder(coverage, relative).train(), picture()
    logits = part(part.memory(features, features, mask), torch.randint(3, VOCABULARY, (2, 6)))
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(3, VOCABULARY, (12,))).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in part.parameters())
