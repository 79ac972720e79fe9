"""Glyphs as hands write them: never twice alike, still the same glyph."""

import numpy as np
import pytest

from hmerctl.train.fonts.drawn import drawn_glyphs
from hmerctl.train.fonts.handwriting import draw_hand, write_glyph

CROSS = [np.array([[0.0, 0.0], [20.0, 20.0]]), np.array([[20.0, 0.0], [0.0, 20.0]])]


def written(strokes, seed: int):
    rng = np.random.default_rng(seed)
    return write_glyph(strokes, draw_hand(rng), rng)


def test_equal_seeds_write_alike_and_others_do_not():
    one, again, other = written(CROSS, 1), written(CROSS, 1), written(CROSS, 2)
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one[0], other[0])


def test_a_hand_does_not_write_the_same_twice():
    rng = np.random.default_rng(0)
    hand = draw_hand(rng)
    assert not np.array_equal(write_glyph(CROSS, hand, rng)[0], write_glyph(CROSS, hand, rng)[0])


@pytest.mark.parametrize("token", ["x", "8", "\\int", "\\frac", ".", "\\ldots", "E", "\\sqrt"])
def test_a_glyph_keeps_about_its_place_and_size(token):
    glyph = drawn_glyphs()[token][0]
    points = np.concatenate(glyph)
    size = max(np.ptp(points, axis=0).max(), 1.0)
    for seed in range(50):
        new = np.concatenate(written(glyph, seed))
        assert np.isfinite(new).all()
        assert np.abs((new.min(0) + new.max(0) - points.min(0) - points.max(0)) / 2).max() < 0.35 * size
        assert 0.5 * size < np.ptp(new, axis=0).max() < 1.9 * size


def test_strokes_are_joined_only_where_they_nearly_meet():
    apart = [np.array([[0.0, 0.0], [20.0, 0.0]]), np.array([[0.0, 20.0], [20.0, 20.0]])]
    meeting = [np.array([[0.0, 0.0], [20.0, 0.0]]), np.array([[20.0, 0.0], [20.0, 20.0]])]
    assert {len(written(apart, seed)) for seed in range(60)} == {2}
    assert {len(written(meeting, seed)) for seed in range(60)} == {1, 2}


def test_the_input_is_left_as_it_was():
    before = [stroke.copy() for stroke in CROSS]
    written(CROSS, 3)
    assert all(np.array_equal(a, b) for a, b in zip(CROSS, before, strict=True))
