"""The box of a token: the whole pieces of ink that it attends to, in the units of the input."""

import numpy as np
import pytest

from hmerctl.runtime.boxes import TokenBoxes
from hmerctl.runtime.raster import Raster


def test_one_end_of_a_bar_gives_the_whole_bar() -> None:
    pixels = np.zeros((32, 64), np.uint8)
    pixels[20:22, 4:60] = 255  # a fraction bar
    pixels[4:12, 20:30] = 255  # a digit above it
    bar, digit = np.zeros((4, 8)), np.zeros((4, 8))
    bar[2, 0] = 0.9
    digit[1, 2] = digit[0, 3] = 0.4
    digit[2, 2] = 0.1  # too weak to count
    boxes = TokenBoxes(Raster(pixels, scale=2.0, origin=(100.0, -5.0)), 8)
    assert boxes.box(bar) == (102.0, 5.0, 130.0, 6.0)
    assert boxes.box(digit) == (110.0, -3.0, 115.0, 1.0)


def test_pieces_that_lie_half_in_the_attended_cells_belong_to_it() -> None:
    pixels = np.zeros((32, 64), np.uint8)
    pixels[10, 18:30] = pixels[14, 18:30] = 255  # an equals sign
    pixels[12, 30:60] = 255  # a neighbour that reaches in by two pixels
    attention = np.zeros((4, 8))
    attention[1, 2:4] = 0.5
    box = TokenBoxes(Raster(pixels, 1.0, (0.0, 0.0)), 8).box(attention)
    assert box == (18.0, 10.0, 30.0, 15.0)


def test_the_most_attended_piece_wins_over_a_larger_one() -> None:
    pixels = np.zeros((16, 32), np.uint8)
    pixels[0:8, 0:20] = 255
    pixels[10:14, 18:22] = 255
    attention = np.zeros((2, 4))
    attention[0, 2], attention[1, 2] = 0.3, 0.7
    assert TokenBoxes(Raster(pixels, 1.0, (0.0, 0.0)), 8).box(attention) == (18.0, 10.0, 22.0, 14.0)


@pytest.mark.parametrize("ink", [0, 255])
def test_without_ink_the_cells_themselves_inside_the_raster(ink: int) -> None:
    pixels = np.zeros((30, 60), np.uint8)
    pixels[2, 2] = ink
    attention = np.zeros((8, 16))  # of a bucket of 64 x 128
    attention[3, 7] = 1.0
    assert TokenBoxes(Raster(pixels, 1.0, (0.0, 0.0)), 8).box(attention) == (56.0, 24.0, 60.0, 30.0)
