"""Evaluation reads with any engine what greedy decoding in PyTorch reads, and forces targets through the steps."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from synthetic import TINY, make_dataset
from typed import as_a

from hmerctl.export.reference import TorchEngine
from hmerctl.runtime.buckets import bucket_for, pad
from hmerctl.runtime.decode import DecodeOptions
from hmerctl.runtime.errors import DataError
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.load import load_raster
from hmerctl.runtime.raster import RasterSpec, draw
from hmerctl.runtime.reading import second_spec
from hmerctl.runtime.recognizer import Recognizer
from hmerctl.runtime.vocabulary import CROHME, EOS, SOS
from hmerctl.train.config import load_preset
from hmerctl.train.dataset import ExpressionDataset
from hmerctl.train.decoding import greedy
from hmerctl.train.evaluate import load_readings, read_dataset, save_readings, score_readings
from hmerctl.train.models.recognizer import Recognizer as Model
from hmerctl.train.models.transformer import TransformerDecoder
from hmerctl.train.prepare import prepare_pictures


def test_reading_agrees_with_greedy_and_with_teacher_forcing(tmp_path):
    torch.manual_seed(0)
    model = Model(load_preset("edge", TINY).model, CROHME).eval()
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


def test_a_target_longer_than_the_decoder_writes_has_no_log_probs(tmp_path):
    engine = TorchEngine(Model(load_preset("edge", TINY).model, CROHME).eval())
    expression = ExpressionDataset(make_dataset(tmp_path / "d", 1))[0]
    steps = DecodeOptions.max_steps
    targets = [replace(expression, tokens=("x",) * count) for count in (steps - 1, steps)]
    fits, too_long = read_dataset(engine, targets, CROHME, RasterSpec())
    assert len(fits.target_log_probs) == steps and too_long.target_log_probs == ()


def pictures(folder: Path, inks: list[Ink]) -> list[Path]:
    """Three inks drawn with a pen of 5 pixels, as files of the kinds that people have."""
    folder.mkdir()
    paper = [Image.fromarray(255 - draw([s * 3 for s in ink.strokes], 5, 12)) for ink in inks]
    files = [folder / name for name in ("black.bmp", "clear.png", "turned.jpg", "deep.png", "large.png")]
    paper[0].convert("1").save(files[0])
    ink = Image.new("RGBA", paper[1].size, (10, 20, 90, 0))
    ink.putalpha(Image.fromarray(255 - np.asarray(paper[1])))
    ink.save(files[1])
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    paper[2].convert("RGB").rotate(90, expand=True).save(files[2], exif=exif, quality=80)
    Image.fromarray(np.asarray(paper[0]).astype(np.uint16) * 250).save(files[3])
    paper[1].resize((paper[1].width * 2, paper[1].height * 2)).save(files[4])
    return files


def test_a_dataset_of_pictures_is_read_as_their_files_are(tmp_path, bundle, inks, monkeypatch):
    """By the model's own contract, in both looks: nothing is drawn before, nothing is drawn from a drawing."""
    files = pictures(tmp_path / "files", inks)
    most = Image.open(files[4]).width * Image.open(files[4]).height // 2
    for module in ("runtime.picture", "train.prepare"):  # the last one is reduced
        monkeypatch.setattr(f"hmerctl.{module}.WORK_PIXELS", most)
    (tmp_path / "captions.txt").write_text("".join(f"{file.stem}\tx\n" for file in files))
    prepare_pictures(tmp_path / "files", tmp_path / "captions.txt", tmp_path / "data")
    dataset = ExpressionDataset(tmp_path / "data")
    spec = RasterSpec(symbol_extent=24, stroke_extent=20)
    bundle = replace(bundle, manifest=bundle.manifest.model_copy(update={"preprocessing": spec}))
    recognizer = Recognizer(bundle, beams=2, reread=1.0)
    options = replace(recognizer.options, reread_extents=(18, 15))
    recognizer.options = options
    reader = read_dataset(recognizer.engine, dataset, bundle.vocabulary, spec, options, bundle.padding())
    readings = {reading.id: reading for reading in reader}
    assert len(readings) == len(files)
    chosen = set()
    for file in files:
        result, reading = recognizer.recognize(file), readings[file.stem]
        assert tuple(token.token for token in result.tokens) == reading.tokens
        assert (result.log_prob, result.stop) == (reading.features["log_prob"], reading.stop)
        rasters = [load_raster(file, each).pixels for each in (spec, second_spec(spec, options))]
        chosen |= {i for i in range(2) if np.array_equal(result.raster.pixels, rasters[i])}
    assert chosen == {0, 1}, "each look is better somewhere"
    for expression in dataset:
        file = next(file for file in files if file.stem == expression.id)
        assert np.array_equal(expression.drawn(spec).pixels, load_raster(file, spec).pixels)


def test_readings_of_other_data_or_none_at_all_are_refused_in_one_line(tmp_path):
    dataset = ExpressionDataset(make_dataset(tmp_path / "d", 2))
    with pytest.raises(DataError, match="cannot be read"):
        load_readings(tmp_path / "none.jsonl", dataset)
    for text, message in (("{}", "not readings"), ("[", "not readings"), ("", "other data")):
        (tmp_path / "bad.jsonl").write_text(text)
        with pytest.raises(DataError, match=message):
            load_readings(tmp_path / "bad.jsonl", dataset)
