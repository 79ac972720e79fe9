"""Locality of attention: diagonality, windows by Algorithm 1, contribution lost, on matrices with known answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmerctl.train.locality import (
    axis_profile,
    by_offset,
    chosen_window,
    contribution_lost,
    cumulative_diagonality,
    diagonality,
    diagonality_curve,
    needed_window,
)

SHAPE = (6, 20)
CELLS = SHAPE[0] * SHAPE[1]


def local(reach: tuple[int, int], shape: tuple[int, int] = SHAPE) -> np.ndarray:
    """Every cell takes equal parts from the cells within reach."""
    y, x = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
    near = (np.abs(y - y[:, None]) <= reach[0]) & (np.abs(x - x[:, None]) <= reach[1])
    return near / near.sum(1, keepdims=True)


def spread(shape: tuple[int, int] = SHAPE) -> np.ndarray:
    cells = shape[0] * shape[1]
    return np.full((cells, cells), 1 / cells)


def test_a_window_as_large_as_the_reach_loses_nothing() -> None:
    matrix = local((1, 3))
    assert contribution_lost(matrix, SHAPE, (3, 7)) == pytest.approx(0, abs=1e-12)
    assert contribution_lost(matrix, SHAPE, (3, 5)) > 0.2
    assert contribution_lost(matrix, SHAPE, (1, 7)) > 0.5


@given(st.integers(0, 5), st.integers(0, 19), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_diagonality_is_the_definition(high: int, wide: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).dirichlet(np.ones(CELLS), CELLS)
    inside = local((high, wide)) > 0
    expected = (matrix * inside).sum() / CELLS
    assert diagonality(matrix, SHAPE, (2 * high + 1, 2 * wide + 1)) == pytest.approx(expected)


def test_curves_end_at_one_and_order_layers_by_locality() -> None:
    """The identity has area 1; attention spread over everything is far below; local attention between them."""
    areas = [cumulative_diagonality(m, SHAPE) for m in (np.eye(CELLS), local((1, 2)), local((2, 6)), spread())]
    assert areas[0] == pytest.approx(1) and areas == sorted(areas, reverse=True) and areas[-1] < 0.7
    curve = diagonality_curve(spread(), SHAPE)
    assert (np.diff(curve) >= -1e-12).all() and curve[-1] == pytest.approx(1) and curve[0] == pytest.approx(1 / CELLS)


@pytest.mark.parametrize("reach", [(0, 0), (0, 4), (1, 2), (2, 5)])
def test_algorithm_1_finds_the_reach_on_each_axis(reach: tuple[int, int]) -> None:
    assert needed_window(local(reach), SHAPE) == (2 * reach[0] + 1, 2 * reach[1] + 1)


def test_algorithm_1_steps_over_a_gap_shorter_than_a_tenth_of_the_axis() -> None:
    """20 columns: the walk ends after two diagonals in a row below the threshold, not after one."""
    near, far = np.eye(CELLS) * 0.6, np.zeros((CELLS, CELLS))
    x = np.arange(CELLS) % 20
    for i in range(CELLS):
        if x[i] >= 2:
            far[i, i - 2] = 0.4
    assert needed_window(near + far, SHAPE) == (1, 5)
    gap = near.copy()
    for i in range(CELLS):
        if x[i] >= 4:
            gap[i, i - 4] = 0.4
    assert needed_window(gap, SHAPE) == (1, 1)


def test_windows_do_not_grow_with_the_cells_across() -> None:
    """A line of a map gathers what many cells give: even attention, above 0.015 on every row and column, is local
    nowhere; and a neighbour matters as much on a map of 6 rows as in a single one."""
    assert needed_window(spread(), SHAPE) == (1, 1)
    one_row, six_rows = local((0, 1), (1, 20)), local((0, 1), SHAPE)
    assert needed_window(one_row, (1, 20)) == needed_window(six_rows, SHAPE) == (1, 3)
    assert np.allclose(axis_profile(by_offset(one_row, (1, 20)), 1), axis_profile(by_offset(six_rows, SHAPE), 1))


def test_a_few_pairs_far_away_do_not_weigh_as_much_as_all_pairs_nearby() -> None:
    """All cells take a little from one corner: each far offset has few pairs, and their mean alone would be large."""
    matrix = np.eye(CELLS) * 0.9
    matrix[:, 0] += 0.1
    assert by_offset(matrix, SHAPE)[0, 0] == pytest.approx(0.1)
    assert needed_window(matrix, SHAPE) == (1, 1)


def test_the_threshold_decides_what_matters() -> None:
    matrix = local((0, 2)) * 0.95 + local((0, 8)) * 0.05
    assert needed_window(matrix, SHAPE, threshold=0.015) == (1, 5)
    assert needed_window(matrix, SHAPE, threshold=0.001) == (1, 17)


def test_a_layers_window_is_mean_plus_deviation_made_odd() -> None:
    assert chosen_window([(3, 5), (3, 5)]) == (3, 5)
    assert chosen_window([(1, 5), (5, 5)]) == (5, 5)
    assert chosen_window([(1, 3), (3, 7)]) == (3, 7)
    assert chosen_window([(1, 3), (1, 3), (1, 9)]) == (1, 9)


def test_by_offset_tells_what_comes_from_where() -> None:
    matrix = np.zeros((CELLS, CELLS))
    for i in range(CELLS):
        matrix[i, i - 1 if i % 20 else i] = 1.0
    table = by_offset(matrix, SHAPE)
    assert table[5, 18] == pytest.approx(1) and table[5, 19] == pytest.approx(1 / 20)
    assert table.sum() == pytest.approx(1 + 1 / 20)
