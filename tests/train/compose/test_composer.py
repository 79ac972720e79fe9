"""Composed training inks: labels and symbols agree, sizes are known beforehand, the seed decides everything."""

from collections import Counter

import numpy as np
import pytest
import torch
from formulas import training_set

from hmerctl.runtime.errors import ConfigError, DataError
from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.augment import Augmenter
from hmerctl.train.batches import BatchStream
from hmerctl.train.compose.composer import Composer, learned_composer
from hmerctl.train.compose.grammar import GrammarConfig
from hmerctl.train.config import TrainConfig
from hmerctl.train.inks import InkBank, Relabeller
from hmerctl.train.latex import normalise
from hmerctl.train.symbols import drawn_symbols

SPEC = RasterSpec()


@pytest.fixture(scope="module")
def inks():
    return training_set()


@pytest.fixture(scope="module")
def composer(inks) -> Composer:
    return learned_composer(inks, InkBank(inks), CROHME, SPEC)


def stream(inks, composer, share, epochs=1, **more) -> BatchStream:
    bank = InkBank(inks)
    config = TrainConfig(composed=share, composed_epochs=epochs, batch_pixels=100_000)
    augmenter = Augmenter(config.augment, bank, Relabeller(CROHME, bank))
    return BatchStream(inks, augmenter, config, SPEC, 8, composer=composer, **more)


def test_symbols_are_those_of_the_label_and_own_all_strokes(composer):
    for seed in range(100):
        composition = composer.compose((seed,))
        ink = composer.ink(composition)
        assert normalise(composition.tokens) == composition.tokens == tuple(CROHME.decode(ink.tokens.tolist()))
        assert Counter(CROHME.decode(ink.symbol_token.tolist())) == drawn_symbols(composition.tokens)
        assert sorted(set(ink.stroke_symbol.tolist())) == list(range(len(ink.symbol_token)))
        assert len(ink.stroke_symbol) == len(ink.lengths)
        assert ink.lengths.sum() == len(ink.points)


def test_the_size_is_known_before_the_points(composer):
    for seed in range(50):
        composition = composer.compose((seed,))
        ink = composer.ink(composition)
        np.testing.assert_allclose(ink.points.min(0), 0.0, atol=1e-9)
        np.testing.assert_allclose(np.maximum(ink.size, 1.0), composition.size, atol=1e-9)


def test_equal_seeds_give_equal_inks_and_others_do_not(inks, composer):
    again = learned_composer(inks, InkBank(inks), CROHME, SPEC)
    one, two = composer.ink(composer.compose((1, 2))), again.ink(again.compose((1, 2)))
    np.testing.assert_array_equal(one.points, two.points)
    np.testing.assert_array_equal(one.tokens, two.tokens)
    assert {composer.compose((i,)).tokens for i in range(20)} != {composer.compose((1,)).tokens}


def test_symbols_are_as_large_as_in_real_inks(inks, composer):
    def typical(ink):
        starts = np.cumsum(ink.lengths) - ink.lengths
        sides = np.maximum.reduceat(ink.points, starts) - np.minimum.reduceat(ink.points, starts)
        return np.median(sides.max(1))

    real = np.median([typical(ink) for ink in inks])
    composed = np.median([typical(composer.ink(composer.compose((i,)))) for i in range(60)])
    assert 0.7 * real < composed < 1.4 * real


def test_nothing_is_larger_than_the_largest_raster(inks):
    long = GrammarConfig(longer=1.0, stretch=30.0, max_tokens=150)
    composer = learned_composer(inks, InkBank(inks), CROHME, RasterSpec(max_width=300), long)
    room = np.array([300, SPEC.max_height]) - 2 * SPEC.margin - 2 + 1e-6
    assert all((composer.compose((i,)).size <= room).all() for i in range(30))


def test_a_dataset_without_symbols_is_refused(inks):
    with pytest.raises(DataError, match="symbol groups"):
        learned_composer(inks, InkBank([]), CROHME, SPEC)


def test_an_epoch_has_every_ink_once_and_the_wanted_share_composed(inks, composer):
    batches = stream(inks, composer, 0.5).plan(3)
    seen = Counter(i for batch in batches for i in batch.indices)
    assert set(range(2 * len(inks))) == set(seen)
    assert all(seen[i] == 1 for i in seen if i >= len(inks))


def test_epochs_have_different_compositions(inks, composer):
    s = stream(inks, composer, 0.5)
    labels = [[c.tokens for c in s.compositions(epoch)] for epoch in (0, 1, 0)]
    assert labels[0] == labels[2] != labels[1]


def test_epochs_may_share_their_compositions_but_not_their_distortions(inks, composer):
    s = stream(inks, composer, 0.5, epochs=2)
    labels = [[c.tokens for c in s.compositions(epoch)] for epoch in (0, 1, 2)]
    assert labels[0] == labels[1] != labels[2]
    assert not np.array_equal(s.view(0, len(inks)).matrix, s.view(1, len(inks)).matrix)


def test_without_a_share_batches_are_those_of_a_stream_without_a_composer(inks, composer):
    one, two = stream(inks, None, 0.0).batches(), stream(inks, composer, 0.0).batches()
    for _ in range(4):
        a, b = next(one), next(two)
        assert torch.equal(a.raster, b.raster)
        assert torch.equal(a.targets, b.targets)


def test_a_stream_resumed_at_any_batch_goes_on_alike(inks, composer):
    whole = stream(inks, composer, 0.4).batches()
    expected = [next(whole) for _ in range(12)]
    resumed = stream(inks, composer, 0.4).batches(start=9)
    for batch in expected[9:]:
        other = next(resumed)
        assert torch.equal(batch.raster, other.raster)
        assert torch.equal(batch.targets, other.targets)
        assert torch.equal(batch.dense, other.dense)


def test_two_processes_share_the_batches_of_one(inks, composer):
    parts = [stream(inks, composer, 0.4, rank=rank, devices=2) for rank in (0, 1)]
    plans = [part.plan(1) for part in parts]
    assert plans[0] == plans[1]
    for planned in plans[0][:4]:
        one, two = (part.draw(planned, 1) for part in parts)
        assert one.tokens_in_batch == two.tokens_in_batch
        assert int((one.targets > 0).sum() + (two.targets > 0).sum()) == one.tokens_in_batch


def test_a_share_of_everything_is_refused():
    with pytest.raises(ConfigError, match="composed"):
        TrainConfig(composed=1.0)
