"""Evaluation reads with any engine what greedy decoding in PyTorch reads, and forces targets through the steps."""

import numpy as np
import pytest
import torch
from synthetic import TINY, make_dataset
from typed import as_a

from hmerctl.export.reference import TorchEngine
from hmerctl.runtime.buckets import bucket_for, pad
from hmerctl.runtime.errors import DataError
from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.vocabulary import CROHME, EOS, SOS
from hmerctl.train.config import load_preset
from hmerctl.train.dataset import ExpressionDataset
from hmerctl.train.decoding import greedy
from hmerctl.train.evaluate import load_readings, read_dataset, save_readings, score_readings
from hmerctl.train.models.recognizer import Recognizer
from hmerctl.train.models.transformer import TransformerDecoder


def test_reading_agrees_with_greedy_and_with_teacher_forcing(tmp_path):
    torch.manual_seed(0)
    model = Recognizer(load_preset("edge", TINY).model, CROHME).eval()
    decoder = as_a(TransformerDecoder, model.decoder)
    decoder.output.bias.data[EOS] = 1.5  # so that a random model comes to an end now and then
    dataset = ExpressionDataset(make_dataset(tmp_path / "d", 6))
    readings = list(read_dataset(TorchEngine(model), dataset, CROHME, RasterSpec()))
    for index, reading in enumerate(readings):
        pixels = dataset[index].drawn(RasterSpec()).pixels
        raster, size = map(torch.from_numpy, pad(pixels, bucket_for(pixels)))
        if reading.stop == "eos":
            assert CROHME.encode(reading.tokens) == greedy(model, raster, size)[0]
        ids = CROHME.encode(reading.target)
        with torch.no_grad():
            logits = model(raster, size, torch.tensor([[SOS, *ids]]))
        expected = logits.log_softmax(2)[0].gather(1, torch.tensor([*ids, EOS])[:, None])[:, 0]
        np.testing.assert_allclose(reading.target_log_probs, expected, atol=1e-4)
    save_readings(tmp_path / "readings.jsonl", readings)
    assert load_readings(tmp_path / "readings.jsonl", dataset) == readings
    scores = score_readings(readings)
    assert scores.expressions == 6
    forced = np.concatenate([r.target_log_probs for r in readings])
    np.testing.assert_allclose(as_a(float, scores.perplexity), np.exp(-forced.mean()), rtol=1e-6)


def test_readings_of_other_data_or_none_at_all_are_refused_in_one_line(tmp_path):
    dataset = ExpressionDataset(make_dataset(tmp_path / "d", 2))
    with pytest.raises(DataError, match="cannot be read"):
        load_readings(tmp_path / "none.jsonl", dataset)
    for text, message in (("{}", "not readings"), ("[", "not readings"), ("", "other data")):
        (tmp_path / "bad.jsonl").write_text(text)
        with pytest.raises(DataError, match=message):
            load_readings(tmp_path / "bad.jsonl", dataset)
