"""Expressions from fonts: every token can be written, no data are needed, the seed decides everything."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from typed import as_a

from hmerctl.runtime.ink import Ink
from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.fonts.drawn import drawn_glyphs
from hmerctl.train.fonts.hands import WORDS, FontHands, font_composer, font_origin
from hmerctl.train.latex import normalise
from hmerctl.train.symbols import drawn_symbols

DRAWN = sorted(set(CROHME.tokens) - {"{", "}", "^", "_", "\\limits"})


@pytest.fixture(scope="module")
def hands() -> FontHands:
    return FontHands()


@pytest.fixture(scope="module")
def composer():
    return font_composer(CROHME, RasterSpec())


def test_every_token_has_a_glyph_and_nearly_all_several(hands):
    assert hands.tokens == set(DRAWN)
    single = [token for token in DRAWN if token not in WORDS and len(hands.ways(token)) < 2]
    assert single == []


@pytest.mark.parametrize("token", DRAWN)
def test_every_token_is_written(hands, token):
    writer = hands.draw(Random(1))
    for _ in range(5):
        glyph = writer.draw(token)
        assert len(glyph.points) == sum(glyph.lengths) > 1
        assert np.isfinite(glyph.points).all()
        np.testing.assert_allclose(glyph.points.min(0), 0, atol=1e-9)
        np.testing.assert_allclose(glyph.points.max(0), (glyph.width, glyph.height), atol=1e-9)
    assert (glyph.hook > 0) == (token == "\\sqrt")


def test_a_writer_keeps_to_few_ways_and_writers_differ(hands):
    assert len({len(hands.draw(Random(seed)).draw("4").lengths) for seed in range(20)}) > 1
    writer = hands.draw(Random(3))
    one, two = writer.draw("x"), writer.draw("x")
    assert not (one.points.shape == two.points.shape and np.array_equal(one.points, two.points))


def test_words_are_wide_and_have_their_letters(hands):
    glyph = hands.draw(Random(0)).draw("\\sin")
    assert glyph.width > glyph.height
    assert len(glyph.lengths) >= 3


def test_sizes_and_heights_are_those_of_the_fonts(hands):
    figures = hands.statistics()
    assert figures.size["x"].middle < figures.size["2"].middle <= figures.size["("].middle
    assert figures.offset["g"].middle > figures.offset["x"].middle > figures.offset["2"].middle
    assert abs(figures.offset["+"].middle) < 0.1


def test_labels_symbols_and_strokes_agree(composer):
    for seed in range(60):
        expression = composer.expression((seed,))
        assert normalise(expression.tokens) == expression.tokens
        assert Counter(symbol.label for symbol in expression.ink.symbols) == drawn_symbols(expression.tokens)
        owned = sorted(s for symbol in expression.ink.symbols for s in symbol.strokes)
        assert owned == list(range(len(expression.ink.strokes)))
        assert all(np.isfinite(stroke).all() for stroke in expression.ink.strokes)


def test_equal_seeds_give_equal_expressions(composer):
    again = font_composer(CROHME, RasterSpec())
    for seed in range(5):
        one, two = composer.expression((seed,)), again.expression((seed,))
        assert one.tokens == two.tokens
        assert all(
            np.array_equal(a, b) for a, b in zip(as_a(Ink, one.ink).strokes, as_a(Ink, two.ink).strokes, strict=True)
        )


def test_the_first_drawn_root_has_a_hook_for_sure():
    """A writer falls back on it when a distorted root has lost its hook."""
    points = np.concatenate(drawn_glyphs()["\\sqrt"][0])
    lowest = points[points[:, 1].argmax(), 0]
    top = points[(points[:, 1] < points[:, 1].min() + 5) & (points[:, 0] > lowest), 0]
    assert 0.08 < (top.min() - points[:, 0].min()) / np.ptp(points[:, 0]) < 0.65


def test_the_origin_names_the_fonts(tmp_path):
    origin = font_origin([tmp_path / "mine.svg"])
    assert "Hershey" in origin.name
    assert "mine" in origin.name
    assert "CC-BY-NC" not in as_a(str, origin.licence)
