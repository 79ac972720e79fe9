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
from hmerctl.train.config import AugmentConfig, TrainConfig, ViewsConfig
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


FIELDS = ("raster", "size", "inputs", "targets", "dense", "stretched")


def same(a, b):
    return all(torch.equal(getattr(a, n), getattr(b, n)) for n in FIELDS)


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


def test_a_stream_that_starts_later_plans_no_epoch_before_the_one_it_knows(monkeypatch):
    plain = list(itertools.islice(stream().batches(), 40))
    known = plain[30].epoch
    assert known[0] > 1
    resumed = stream()
    planned = []
    plan = resumed.plan

    def watched(epoch):
        planned.append(epoch)
        return plan(epoch)

    monkeypatch.setattr(resumed, "plan", watched)
    later = list(itertools.islice(resumed.batches(30, 1, known), 5))
    assert all(same(a, b) for a, b in zip(plain[30:35], later, strict=True))
    assert min(planned) == known[0]


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
        assert raster[0, :height, :width].max() == 255
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


VIEWS = ViewsConfig(x_scale=3.0, y_scale=2.0)


def test_views_stretch_each_ink_in_one_direction_in_turn():
    """Without distortions the size of every picture tells its stretch; in three epochs an ink has all three."""
    plain = stream(TrainConfig(batch_pixels=60_000, augment=None))
    views = stream(TrainConfig(batch_pixels=60_000, augment=None, views=VIEWS))
    for index, ink in enumerate(INKS[:5]):
        seen = set()
        for epoch in range(3):
            before, after = (s.augmenter(ink, s.view(epoch, index)) for s in (plain, views))
            low, high = (np.maximum(np.concatenate(sample.strokes).max(0), 1e-9) for sample in (before, after))
            seen.add(tuple((high / low).round(6).tolist()))
            assert after.stretched == (not np.array_equal(low, high))
        assert seen == {(1, 1), (3, 1), (1, 2)}


@pytest.mark.parametrize("augment", [None, AugmentConfig(warp=0.0)])
def test_batches_are_planned_with_the_stretched_extent(augment):
    """No picture is scaled down to fit, so none is larger than planned: distortions first, the stretch last."""
    views = stream(TrainConfig(batch_pixels=60_000, augment=augment, views=VIEWS))
    for planned in views.plan(1):
        for index in planned.indices:
            view = views.view(1, index)
            width, height = view.extent(INKS[index].size) + 2 * SPEC.margin + 2
            assert height <= planned.height and width <= planned.width
        assert views.draw(planned, 1).stretched.tolist() == [views.view(1, i).stretched for i in planned.indices]


def test_a_stream_with_views_that_starts_later_gives_the_same_batches():
    config = TrainConfig(batch_pixels=60_000, views=VIEWS)
    plain = list(itertools.islice(stream(config).batches(), 9))
    later = list(itertools.islice(stream(config).batches(4), 5))
    assert all(same(a, b) for a, b in zip(plain[4:], later, strict=True))
    assert {bool(s) for batch in plain for s in batch.stretched} == {True, False}


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
