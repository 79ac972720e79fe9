"""Where on the input a token was read, from the decoder's attention."""

import numpy as np

from hmerctl.runtime.components import connected_components
from hmerctl.runtime.raster import Raster

WITHOUT_INK = frozenset(("{", "}", "^", "_", "\\limits"))
"""Tokens that no stroke stands for; they have no box."""

_SHARE = 0.35
"""Cells belong to a token down to this share of its strongest cell."""

Box = tuple[float, float, float, float]


def attention_box(attention: np.ndarray, raster: Raster, stride: int) -> Box:
    """Box around the ink that a token attends to.

    The cells with at least a third of the largest weight that touch its cell; of them the rectangle around the ink
    they hold, or around the cells themselves if they hold none.

    Args:
        attention: float (rows, columns).
        raster: what the encoder saw.
        stride: raster pixels per cell.

    Returns:
        left, top, right, bottom in the units of the input (ink units or picture pixels).
    """
    peak = np.unravel_index(int(attention.argmax()), attention.shape)
    parts = connected_components(attention >= _SHARE * attention[peak])
    at_peak = (parts.run_row == peak[0]) & (parts.run_start <= peak[1]) & (peak[1] < parts.run_stop)
    part = parts.run_label[at_peak][0]
    height, width = raster.pixels.shape
    top, left = min(int(parts.top[part]) * stride, height), min(int(parts.left[part]) * stride, width)
    bottom = min((int(parts.bottom[part]) + 1) * stride, height)
    right = min((int(parts.right[part]) + 1) * stride, width)
    rows, columns = np.nonzero(raster.pixels[top:bottom, left:right] >= 128)
    if len(rows):
        top, bottom = top + int(rows.min()), top + int(rows.max()) + 1
        left, right = left + int(columns.min()), left + int(columns.max()) + 1
    x, y = raster.origin
    return (x + left / raster.scale, y + top / raster.scale, x + right / raster.scale, y + bottom / raster.scale)
