"""Figures of the validation sample: they are those of the scorers, and forcing in a batch is forcing one by one."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tiny import VOCABULARY

from hmerctl.export.reference import TorchEngine
from hmerctl.export.source import Source
from hmerctl.train.decoding import greedy
from hmerctl.train.evaluate import target_log_probs
from hmerctl.train.validation import Read, ValidationBatch, figures, read_batch, scores


def batch_of(labels: Sequence[Sequence[str]]) -> ValidationBatch:
    rng = np.random.default_rng(0)
    raster = torch.zeros(len(labels), 1, 64, 128)
    size = torch.tensor([[40 + 8 * i, 90 + 10 * i] for i in range(len(labels))], dtype=torch.int32)
    for i, (height, width) in enumerate(size.tolist()):
        raster[i, 0, :height, :width] = torch.from_numpy(rng.random((height, width), np.float32) > 0.8)
    return ValidationBatch(raster, size, [VOCABULARY.encode(label) for label in labels])


def test_a_batch_is_decoded_and_forced_as_its_members_alone(source: Source) -> None:
    batch = batch_of([["x"], ["x", "^", "{", "2", "}"]])
    read = read_batch(source.model, batch)
    assert [r.target for r in read] == [("x",), ("x", "^", "{", "2", "}")]
    decoded = greedy(source.model, batch.raster, batch.size)
    assert [list(r.tokens) for r in read] == [VOCABULARY.decode(ids) for ids in decoded]
    engine = TorchEngine(source.model)
    for i, label in enumerate(batch.labels):
        memory = engine.encode(batch.raster[i : i + 1].numpy(), batch.size[i : i + 1].numpy())
        expected = target_log_probs(engine, memory, label)
        assert read[i].log_probs == pytest.approx(expected, abs=1e-4)


def test_figures_are_those_of_the_scorers() -> None:
    read = [
        Read(("x", "+", "1"), ("x", "+", "1"), (-0.1, -0.2, -0.3, -0.4)),
        Read(("a", "=", "b"), ("a", "=", "6"), (-1.0, -1.0, -1.0, -1.0)),
        Read(("a", "=", "b", "+", "2"), ("a",), (-0.5,) * 6),
    ]
    found, full = figures(read), scores(read)
    assert found["exprate"] == pytest.approx(100 / 3) and found["within_1"] == found["within_2"]
    assert found["within_1"] == pytest.approx(200 / 3) == 100 * full.token.within_1
    assert found["edit_distance"] == pytest.approx(5 / 3) == full.edit_distance
    assert found["edit_similarity"] == pytest.approx(100 * full.edit_similarity)
    assert found["perplexity"] == pytest.approx(full.perplexity) == pytest.approx(np.exp(8 / 14))
    assert found["bleu4"] == pytest.approx(full.bleu4)
