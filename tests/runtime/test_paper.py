"""Ink apart from paper, and how thick the pen was."""

import numpy as np
import pytest

from hmerctl.runtime.paper import estimate_pen_width, find_ink
from hmerctl.runtime.raster import draw

RNG = np.random.default_rng(3)
LINES = [np.array([[0.0, 0], [60, 10]]), np.array([[20.0, -30], [30, 50]]), np.array([[70.0, 0], [90, 40], [50, 45]])]


@pytest.mark.parametrize("pen", [2, 3, 4, 6, 10, 20])
def test_pen_width(pen):
    turned = [np.array([[0, 0], [15 * pen * np.cos(a), 15 * pen * np.sin(a)]]) for a in RNG.uniform(0, 3.14, 20)]
    found = [estimate_pen_width(draw([line], pen, 6) >= 128) for line in turned]
    assert np.mean(found) == pytest.approx(pen, rel=0.05)
    assert np.allclose(found, pen, rtol=0.15)


def page(pen: float, margin: int, ink: float, paper: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    coverage = draw(LINES, pen, margin) / 255
    grey = paper + (ink - paper) * coverage + RNG.normal(0, noise, coverage.shape)
    return np.clip(grey, 0, 255).astype(np.uint8), coverage >= 0.5


@pytest.mark.parametrize(
    ("pen", "margin", "ink", "paper", "noise"),
    [
        (4, 20, 0, 255, 0),
        (4, 20, 255, 0, 0),
        (4, 20, 60, 200, 6),
        (4, 20, 220, 60, 6),  # chalk
        (4, 400, 60, 200, 6),  # a little ink on much paper
        (5, 60, 150, 210, 6),  # a pencil
        (6, 60, 60, 200, 20),  # hardly any light
        (8, 60, 60, 180, 35),  # less
        (4, 1, 0, 255, 0),  # no paper around
        (12, 5, 0, 255, 0),  # two fifths of it ink
    ],
)
def test_ink_is_found(pen, margin, ink, paper, noise):
    grey, truth = page(pen, margin, ink, paper, noise)
    found = find_ink(grey)
    assert found.blank is None
    covered = found.coverage >= 128
    assert (covered & truth).sum() / (covered | truth).sum() > 0.75
    assert found.pen_width == pytest.approx(pen, rel=0.4)  # smoothing away noise widens the pen
    assert len(found.components) == 2


def test_coverage_is_zero_away_from_ink_and_full_within():
    grey, truth = page(6, 20, 60, 200, 5)
    coverage = find_ink(grey).coverage
    assert coverage[:10].max() == 0
    assert np.median(coverage[truth]) > 220
