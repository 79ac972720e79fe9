"""Batches are planned: fixed shapes, every ink once an epoch, the same on every machine and after a resume."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import SHAPES, ink_of

from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.vocabulary import CROHME, EOS, PAD, SOS
from hmerctl.train.augment import Augmenter, draw_view
from hmerctl.train.batches import BatchStream, bucket_of, fit, mark_cells
from hmerctl.train.config import AugmentConfig, TrainConfig
from hmerctl.train.inks import InkBank, Relabeller, prepare

SPEC = RasterSpec()


def training_inks(count=30):
    rng = np.random.default_rng(3)
    out = []
    for i in range(count):
        tokens = rng.choice(list(SHAPES), size=rng.integers(1, 8)).tolist()
        out.append(prepare(ink_of(tokens, rng, f"e{i}"), tokens, CROHME, SPEC))
    return out


INKS = training_inks()


def stream(config=None, **kwargs):
    config = config or TrainConfig(batch_pixels=60_000)
    bank = InkBank(INKS)
    return BatchStream(INKS, Augmenter(config.augment, bank, Relabeller(CROHME, bank)), config, SPEC, 8, **kwargs)


def same(a, b):
    return all(torch.equal(getattr(a, n), getattr(b, n)) for n in ("raster", "size", "inputs", "targets", "dense"))


def test_every_ink_is_seen_in_every_epoch():
    for epoch in range(3):
        assert {i for batch in stream().plan(epoch) for i in batch.indices} == set(range(len(INKS)))


def test_epochs_differ_in_order_and_distortion():
    one, two = next(stream().batches(0)), next(stream().batches(len(stream().plan(0))))
    assert one.raster.shape != two.raster.shape or not torch.equal(one.raster, two.raster)


def test_a_stream_that_starts_later_gives_the_same_batches():
    plain = list(itertools.islice(stream().batches(), 12))
    later = list(itertools.islice(stream().batches(5), 7))
    assert all(same(a, b) for a, b in zip(plain[5:], later, strict=True))


def test_workers_that_take_turns_give_the_same_order():
    plain = list(itertools.islice(stream().batches(), 6))
    even = list(itertools.islice(stream().batches(0, 2), 3))
    odd = list(itertools.islice(stream().batches(1, 2), 3))
    turns = [b for pair in zip(even, odd, strict=True) for b in pair]
    assert all(same(a, b) for a, b in zip(plain, turns, strict=True))


def test_devices_share_a_batch_without_overlap():
    whole = stream(devices=2).plan(0)[0]
    parts = [stream(rank=r, devices=2).draw(whole, 0) for r in range(2)]
    assert sum(len(p.raster) for p in parts) == len(whole.indices)
    assert parts[0].tokens_in_batch == parts[1].tokens_in_batch
    assert parts[0].tokens_in_batch == sum(int((p.targets != PAD).sum()) for p in parts)


def test_inputs_are_the_targets_shifted_by_one():
    batch = next(stream().batches())
    for inputs, targets in zip(batch.inputs, batch.targets, strict=True):
        n = int((targets != PAD).sum())
        assert inputs[0] == SOS and targets[n - 1] == EOS
        assert torch.equal(inputs[1:n], targets[: n - 1])


def test_ink_lies_inside_the_size_and_padding_is_empty():
    batch = next(stream().batches())
    for raster, (height, width) in zip(batch.raster, batch.size.tolist(), strict=True):
        assert raster[0, :height, :width].max() == 1
        assert raster[0, height:].sum() == 0 and raster[0, :, width:].sum() == 0


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.floats(1, 3000), st.floats(1, 600))
def test_any_ink_is_made_to_fit_its_bucket(seed, width, height):
    rng = np.random.default_rng(seed)
    strokes = [rng.random((int(rng.integers(1, 5)), 2)) * (width, height) - 5 for _ in range(3)]
    bucket = bucket_of(height, width)
    fitted = np.concatenate(fit(strokes, *bucket, margin=6))
    assert fitted.min() >= 0
    assert fitted[:, 0].max() <= bucket[1] - 14 + 1e-6 and fitted[:, 1].max() <= bucket[0] - 14 + 1e-6


def test_a_long_segment_marks_every_cell_it_crosses():
    cells = np.zeros((2, 8), np.int64)
    mark_cells(cells, [np.array([[0.0, 0.0], [57.0, 0.0]])], np.array([9]), margin=0, stride=8)
    assert cells.tolist() == [[9] * 8, [0] * 8]


def test_a_view_without_distortion_changes_nothing():
    bank = InkBank(INKS)
    sample = Augmenter(None, bank, Relabeller(CROHME, bank))(INKS[0], draw_view(None, (1,), 2.0))
    assert np.array_equal(np.concatenate(sample.strokes), INKS[0].points)
    assert np.array_equal(sample.tokens, INKS[0].tokens)


def test_relabelled_symbols_and_label_change_together():
    """Every class of the label is found on the ink, as often as the label has it."""
    bank = InkBank(INKS)
    augmenter = Augmenter(AugmentConfig(relabel=1.0), bank, Relabeller(CROHME, bank))
    changed = 0
    for i, ink in enumerate(INKS):
        sample = augmenter(ink, draw_view(AugmentConfig(), (1, i), 2.0))
        changed += not np.array_equal(sample.tokens, ink.tokens)
        strokes_of = {t: len(SHAPES[CROHME.decode([t])[0]]) for t in set(sample.tokens.tolist())}
        for token, strokes in strokes_of.items():
            assert np.sum(sample.classes == token) == strokes * np.sum(sample.tokens == token)
    assert changed


@pytest.mark.parametrize("token", ["1", "+"])
def test_the_bank_draws_an_ink_of_the_class_at_the_wanted_size(token):
    bank = InkBank(INKS)
    entry = bank.by_class[CROHME.ids[token]][0]
    strokes = bank.draw(CROHME.ids[token], entry.size * 2, np.random.default_rng(0))
    assert strokes is not None
    points = np.concatenate(strokes)
    assert (points.max(0) - points.min(0)).max() == pytest.approx(2 * entry.size.max())
