"""Resampling and erosion, against plain definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hmerctl.runtime.resample import average, erode, magnify, reduce

greys = hnp.arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 12)))


def area(values: np.ndarray, top: float, left: float, bottom: float, right: float) -> float:
    """Integral of a picture over a rectangle, pixel by pixel."""
    total = 0.0
    for y in range(values.shape[0]):
        for x in range(values.shape[1]):
            high, wide = min(bottom, y + 1) - max(top, y), min(right, x + 1) - max(left, x)
            if high > 0 and wide > 0:
                total += float(values[y, x]) * high * wide
    return total


@given(greys, st.floats(0.2, 1), st.floats(-3, 3), st.floats(-3, 3))
def test_average_is_the_mean_over_each_pixels_area(values, scale, x, y):
    out = average(values, np.array([x, y]), scale, (4, 5))
    for row in range(4):
        for column in range(5):
            corner = (y + row / scale, x + column / scale)
            mean = area(values, *corner, corner[0] + 1 / scale, corner[1] + 1 / scale) * scale * scale
            assert abs(out[row, column] - mean) <= 0.5 + 1e-6


@given(greys, st.integers(1, 150))
def test_reduce_averages_whole_blocks(values, most):
    out, k = reduce(values, most)
    assert out.size <= most
    assert k == 1 or -(-values.shape[0] // (k - 1)) * -(-values.shape[1] // (k - 1)) > most
    height, width = out.shape
    padded = np.pad(values, ((0, height * k - values.shape[0]), (0, width * k - values.shape[1])), mode="edge")
    means = padded.reshape(height, k, width, k).mean((1, 3))
    assert np.abs(out - means).max() <= 0.5


def test_magnify():
    step = np.zeros((10, 20), np.uint8)
    step[:, 10:] = 200
    assert magnify(step, 1.4, 10**6)[1] == magnify(step, 0.7, 10**6)[1] == 1
    larger, factor = magnify(step, 4, 10**6)
    assert (larger.shape, factor) == ((40, 80), 4)
    # Halfway at the edge, full half a pixel of the original to each side.
    assert larger[5, [37, 38, 39, 40, 41, 42]].tolist() == [0, 25, 75, 125, 175, 200]
    assert magnify(step, 4, 800)[0].shape == (20, 40)
    smaller, factor = magnify(step, 0.5, 10**6)
    assert (smaller.shape, factor) == ((5, 10), 0.5)
    assert smaller[2].tolist() == [0] * 5 + [200] * 5


@given(hnp.arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 12))), st.floats(-1, 4))
def test_erode_takes_off_the_radius(solid, radius):
    holes = np.argwhere(~np.pad(solid, 5)) - 5
    out = erode(solid, radius)
    for y, x in np.ndindex(*solid.shape):
        nearest = ((holes - (y, x)) ** 2).sum(1).min()
        kept = solid[y, x] and (radius < 0.5 or nearest > radius * radius)
        assert out[y, x] == (255 if kept else 0)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1)])
def test_thin_pictures(shape):
    full = np.full(shape, 255, np.uint8)
    assert (average(full, np.zeros(2), 1.0, shape) == 255).all()
    assert magnify(full, 5, 10**6)[0].shape == (shape[0] * 5, shape[1] * 5)
