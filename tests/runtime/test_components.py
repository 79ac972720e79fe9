"""Connected components and the typical extent, against plain definitions."""

import numpy as np
import pytest
from flood import flood_fill
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hmerctl.runtime.components import connected_components, typical_extent

binaries = hnp.arrays(bool, st.tuples(st.integers(0, 12), st.integers(0, 12)))


def flood(binary: np.ndarray) -> set[tuple[int, int, int, int, int]]:
    """Components by flood fill: (top, left, bottom, right, area) of each."""
    boxes = set()
    for found in flood_fill(binary):
        ys, xs = zip(*found, strict=True)
        boxes.add((min(ys), min(xs), max(ys), max(xs), len(found)))
    return boxes


@given(binaries)
def test_components_are_those_of_flood_fill(binary):
    found = connected_components(binary)
    boxes = list(
        zip(*(v.tolist() for v in (found.top, found.left, found.bottom, found.right, found.area)), strict=True)
    )
    assert set(boxes) == flood(binary)
    assert len(found) == len(boxes)


@given(binaries)
def test_components_come_in_the_order_of_their_first_runs(binary):
    found = connected_components(binary)
    first = [found.run_label.tolist().index(label) for label in range(len(found))]
    assert first == sorted(first)
    assert found.run_row[first].tolist() == found.top.tolist()


@given(binaries)
def test_runs_paint_the_picture_again(binary):
    found = connected_components(binary)
    again = np.zeros_like(binary)
    for row, start, stop in zip(found.run_row, found.run_start, found.run_stop, strict=True):
        again[row, start:stop] = True
    assert np.array_equal(again, binary)


def test_a_long_spiral_is_one_component():
    binary = np.zeros((201, 201), bool)
    for k in range(0, 96, 4):
        binary[k, k : 201 - k] = binary[k : 201 - k, 200 - k] = binary[200 - k, k : 201 - k] = True
        binary[k + 4 : 201 - k, k] = True
        binary[k + 4, k : k + 5] = True
    found = connected_components(binary)
    assert found.extent.tolist() == [201]


def test_many_teeth_of_a_comb_are_one_component():
    """Their runs meet in the last row only, where one run touches all of them."""
    binary = np.zeros((40, 999), bool)
    binary[:, ::2] = True
    binary[-1] = True
    assert connected_components(binary).area.tolist() == [np.count_nonzero(binary)]


@pytest.mark.parametrize(
    ("extents", "typical"),
    [
        ([], 0.0),
        ([0.0, 0.0], 0.0),
        ([7], 7),
        ([1, 2], 1),  # the lower median
        ([20, 22, 24, 3, 2, 3], 22),  # three dots are ignored: below 22 / 4
        ([10, 40], 10),  # exactly a quarter counts
        ([10, 40.1], 40.1),
        ([100, 20, 20, 20, 20], 20),  # one long bar is no measure
        ([100, 100, 20, 20, 20], 100),
        ([1] * 10 + [50] * 3, 50),
    ],
)
def test_typical_extent(extents, typical):
    assert typical_extent(np.array(extents)) == typical


@given(st.lists(st.floats(0, 1e6), min_size=1), st.randoms())
def test_typical_extent_is_one_of_them_in_any_order(extents, random):
    typical = typical_extent(np.array(extents))
    assert typical in extents
    shuffled = extents[:]
    random.shuffle(shuffled)
    assert typical_extent(np.array(shuffled)) == typical
