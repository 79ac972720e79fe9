"""The box of a token: the ink under the patch of attention around its peak, in the units of the input."""

import numpy as np

from hmerctl.runtime.boxes import attention_box
from hmerctl.runtime.raster import Raster


def test_ink_under_the_peak_and_its_neighbours() -> None:
    pixels = np.zeros((32, 64), np.uint8)
    pixels[10:14, 12:20] = 255  # cells (1, 1) and (1, 2)
    pixels[3, 60] = 255
    attention = np.zeros((4, 8))
    attention[1, 1], attention[1, 2] = 1.0, 0.5
    attention[0, 7] = 0.9  # strong, but apart from the peak
    attention[3, 1] = 0.2  # weak
    raster = Raster(pixels, scale=2.0, origin=(100.0, -5.0))
    assert attention_box(attention, raster, 8) == (106.0, 0.0, 110.0, 2.0)


def test_cells_without_ink_give_their_own_rectangle_inside_the_raster() -> None:
    raster = Raster(np.zeros((30, 60), np.uint8), scale=1.0, origin=(0.0, 0.0))
    attention = np.zeros((8, 16))  # of a bucket of 64 x 128
    attention[3, 7] = 1.0
    assert attention_box(attention, raster, 8) == (56.0, 24.0, 60.0, 30.0)
