"""Centre lines: thinning keeps the topology, tracing gives back what was drawn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hmerctl.runtime.components import connected_components
from hmerctl.runtime.raster import draw
from hmerctl.runtime.trace import thin, trace


def holes(binary: np.ndarray) -> int:
    """4-connected regions of paper, the outside not counted."""
    paper = ~np.pad(binary, 1)
    # 4-connected paper is 8-connected on a grid of twice the size with the diagonal steps left out.
    wide = np.zeros((2 * paper.shape[0] - 1, 2 * paper.shape[1] - 1), bool)
    wide[::2, ::2] = paper
    wide[1::2, ::2] = paper[1:] & paper[:-1]
    wide[::2, 1::2] = paper[:, 1:] & paper[:, :-1]
    labels = connected_components(wide)
    return len(labels) - 1


@given(hnp.arrays(bool, st.tuples(st.integers(1, 14), st.integers(1, 14))))
@settings(max_examples=200)
def test_thinning_keeps_components_and_holes(binary):
    lines = thin(binary)
    assert not (lines & ~binary).any()
    assert len(connected_components(lines)) == len(connected_components(binary))
    assert holes(lines) == holes(binary)
    assert np.array_equal(thin(lines), lines)


def test_columns_in_a_row_of_memory_are_thinned_too():
    binary = draw([np.array([[0.0, 0.0], [40.0, 9.0]])], 8, 5) >= 128
    assert np.array_equal(thin(np.asfortranarray(binary)), thin(binary))


def nearest(points: np.ndarray, to: np.ndarray) -> np.ndarray:
    return np.sqrt(((points[:, None] - to[None]) ** 2).sum(2)).min(1)


@pytest.mark.parametrize("pen", [3, 6, 9])
@pytest.mark.parametrize("end", [(60, 0), (60, 25), (40, 60), (0, 50)])
def test_a_line_is_found_again(pen, end):
    line = np.linspace((0, 0), end, 50)
    found = trace(thin(draw([line], pen, 8) >= 128), pen / 2)
    assert len(found) == 1
    assert nearest(found[0] - 8, line).max() < 1
    assert nearest(line, found[0] - 8).max() < pen / 2 + 1.5


def test_a_ring_is_closed():
    angle = np.linspace(0, 2 * np.pi, 100)
    ring = 20 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    (found,) = trace(thin(draw([ring], 5, 5) >= 128), 3)
    assert (found[0] == found[-1]).all()
    assert nearest(found - 25, ring).max() < 1


def test_a_cross_keeps_its_arms_and_a_bump_is_no_branch():
    arms = [np.array([[0.0, 20], [40, 20]]), np.array([[20.0, 0], [20, 40]])]
    found = np.concatenate(trace(thin(draw(arms, 5, 5) >= 128), 3)) - 5
    for tip in ((1, 20), (39, 20), (20, 1), (20, 39)):
        assert nearest(np.array([tip], float), found).max() < 2.5
    bar = np.zeros((30, 80), bool)
    bar[12:20, 5:75] = True
    bar[9:12, 40:43] = True
    assert len(trace(thin(bar), 0)) == 3
    kept = np.concatenate(trace(thin(bar), 8))
    assert kept[:, 1].min() > 13


@pytest.mark.parametrize("flip", [False, True])
def test_a_staircase_is_one_path(flip):
    steps = np.zeros((8, 9), bool)
    for i in range(8):
        steps[i, i : i + 2] = True
    (found,) = trace(steps[:, ::-1] if flip else steps, 0)
    assert len(found) == 16


def test_dots_and_nothing():
    assert trace(np.zeros((5, 5), bool), 2) == []
    dot = np.zeros((5, 5), bool)
    dot[2, 3] = True
    (found,) = trace(dot, 2)
    assert found.tolist() == [[3.5, 2.5]]


@given(hnp.arrays(bool, st.tuples(st.integers(1, 14), st.integers(1, 14))))
def test_every_line_pixel_is_on_a_path(binary):
    lines = thin(binary)
    paths = trace(lines, 0)
    pixels = np.argwhere(lines)[:, ::-1] + 0.5
    if len(pixels):
        assert nearest(pixels, np.concatenate(paths)).max() <= 1
