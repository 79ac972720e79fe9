"""How a recogniser joins its parts: where positions act, and every combination trains and decodes alike."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import ModuleList
from typed import as_a

from hmerctl.runtime.errors import ConfigError
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.train.decoding import advance, zero_state
from hmerctl.train.models.attention_gru import AttentionGRUDecoder
from hmerctl.train.models.recognizer import ModelConfig, Recognizer
from hmerctl.train.models.relative import RelativeBias
from hmerctl.train.models.transformer import TransformerDecoder

VOCABULARY = Vocabulary(("a", "b", "c", "d", "e"))
EDGE = {"name": "edge", "stem": 4, "middle": 4, "middle_blocks": 1, "top": 8, "top_blocks": 1, "channels": 16}
TRANSFORMER = {"name": "transformer", "layers": 3, "heads": 2, "width": 8, "inner": 8, "dropout": 0.0}
REFINED = {**TRANSFORMER, "refinement": 3}
GRU = {"name": "attention-gru", "width": 10, "embedding": 8, "attention": 6, "dropout": 0.0}


def recognizer(position: dict, context: dict, decoder: dict) -> Recognizer:
    """A tiny model, weights that start at zero made random."""
    torch.manual_seed(0)
    model = Recognizer(ModelConfig(EDGE, position, context, decoder), VOCABULARY).eval()
    for parameter in model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter)
    return model


def picture() -> tuple[Tensor, Tensor]:
    """Two pictures of one bucket, the second with padding."""
    size = torch.tensor([[32, 64], [20, 41]], dtype=torch.int32)
    raster = torch.rand(2, 1, 32, 64)
    raster[1, :, 20:], raster[1, :, :, 41:] = 0, 0
    return raster, size


def test_positions_on_features_reach_keys_and_values_through_the_context() -> None:
    model = recognizer({"name": "sinusoidal"}, {"name": "bigru"}, GRU)
    features, mask = model.features(*picture())
    expected = model.context(model.position(features, mask), mask)
    memory = model.remember(features, mask)
    assert torch.allclose(memory["values_0"], expected.flatten(2).transpose(1, 2))


def test_positions_on_keys_leave_the_values_alone() -> None:
    """Paper 2, section 2.2: ``key = key + pos_emb``, the value as it is."""
    model = recognizer({"name": "sinusoidal", "on": "keys"}, {"name": "bigru"}, GRU)
    features, mask = model.features(*picture())
    mixed = model.context(features, mask)
    memory = model.remember(features, mask)
    assert torch.allclose(memory["values_0"], mixed.flatten(2).transpose(1, 2))
    placed = model.position(mixed, mask).flatten(2).transpose(1, 2)
    assert torch.allclose(memory["keys_0"], as_a(AttentionGRUDecoder, model.decoder).key(placed), atol=1e-6)


@pytest.mark.parametrize("context", [{"name": "none"}, {"name": "self-attention", "heads": 2, "inner": 8}])
@pytest.mark.parametrize(
    "decoder", [TRANSFORMER, REFINED, {**REFINED, "refinement_rank": 2}, GRU, {**GRU, "coverage": 3}]
)
def test_relative_bias_steps_equal_teacher_forcing(context: dict, decoder: dict) -> None:
    """The step looks from where the step before it looked, and so does every place of the parallel form."""
    model = recognizer({"name": "relative", "reach_rows": 2, "reach_columns": 3}, context, decoder)
    raster, size = picture()
    memory = model.encode(raster, size)
    tokens = torch.randint(3, 8, (2, 6))
    logits = model.decoder(memory, tokens)
    state = zero_state(model.decoder, 2, 4, 8, 16, raster)
    for i, token in enumerate(tokens.int().unbind(1)):
        log_probs, outputs, attention = model.decoder.step(memory, token, torch.tensor([i], dtype=torch.int32), state)
        advance(model.decoder, state, outputs, i)
        assert (log_probs - logits[:, i].log_softmax(1)).abs().max() < 1e-5
        assert torch.allclose(attention.sum(1), torch.ones(2), atol=1e-5)


def test_relative_bias_changes_what_is_read() -> None:
    plain = recognizer({"name": "none"}, {"name": "none"}, TRANSFORMER)
    biased = recognizer({"name": "relative"}, {"name": "none"}, TRANSFORMER)
    biased.load_state_dict(plain.state_dict(), strict=False)
    tokens = torch.randint(3, 8, (2, 6))
    assert not torch.allclose(plain(*picture(), tokens), biased(*picture(), tokens), atol=1e-3)
    with torch.no_grad():
        for bias in as_a(ModuleList, as_a(TransformerDecoder, biased.decoder).relative):
            as_a(RelativeBias, bias).table.zero_()
    raster, size = picture()
    assert torch.allclose(plain(raster, size, tokens), biased(raster, size, tokens), atol=1e-5)


def test_relative_bias_needs_more_than_one_layer() -> None:
    with pytest.raises(ConfigError, match="at least 2 layers"):
        recognizer({"name": "relative"}, {"name": "none"}, {**TRANSFORMER, "layers": 1})


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ({"name": "multi-scale", "max_rows": 31}, "max_rows = 31 is too few, the largest raster has 32 rows"),
        ({"name": "timing", "max_columns": 159}, "max_columns = 159 is too few, the largest raster has 160 columns"),
        ({"name": "sum", "parts": [{"name": "learned", "max_rows": 8}]}, "name = 'sum': max_rows = 8 is too few"),
    ],
)
def test_a_position_table_smaller_than_the_largest_raster_is_refused(position: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        recognizer(position, {"name": "none"}, TRANSFORMER)


def test_an_option_that_a_part_does_not_have_is_refused_in_one_line() -> None:
    encoder = {"name": "edge", "inputs": 6}
    with pytest.raises(ConfigError, match=r"\[model.encoder\] name = 'edge': unknown option 'inputs'; known"):
        Recognizer(ModelConfig(encoder=encoder), VOCABULARY)


@pytest.mark.parametrize("position", ["none", "multi-scale", "relative", "sum"])
@pytest.mark.parametrize("context", ["none", "bigru", "md-gru", "md-lstm", "self-attention"])
@pytest.mark.parametrize("decoder", [TRANSFORMER, {**GRU, "coverage": 3}])
def test_every_combination_trains_and_ignores_the_bucket(position: str, context: str, decoder: dict) -> None:
    options = {"heads": 2, "inner": 8, "windows": [[3, 5], [0, 0]]} if context == "self-attention" else {}
    model = recognizer({"name": position}, {"name": context, **options}, decoder)
    (raster, size), tokens = picture(), torch.randint(3, 8, (2, 5))
    logits = model(raster, size, tokens)
    wider = model(nn.functional.pad(raster, (0, 32, 0, 16)), size, tokens)
    assert (logits - wider).abs().max() < 1e-4
    model.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(raster, size, tokens).flatten(0, 1)
    nn.functional.cross_entropy(logits.float(), torch.randint(0, 8, (10,))).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
