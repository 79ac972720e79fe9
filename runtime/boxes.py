"""Where on the input a token was read, from the decoder's attention."""

import numpy as np

from hmerctl.runtime.components import connected_components
from hmerctl.runtime.raster import Raster

WITHOUT_INK = frozenset(("{", "}", "^", "_", "\\limits"))
"""Tokens that no stroke stands for; they have no box."""

_SHARE = 0.35
"""Cells belong to a token down to this share of its strongest cell."""

Box = tuple[float, float, float, float]


class TokenBoxes:
    """Boxes of the tokens of one raster.

    A token's box goes around the connected piece of ink that gets most of its attention, and around every other
    piece that lies at least half in the cells it attends to (the dot of an i, the second bar of an equals sign).
    Where it attends to no ink, it goes around those cells.

    Args:
        raster: what the encoder saw.
        stride: raster pixels per cell.
    """

    def __init__(self, raster: Raster, stride: int) -> None:
        self._raster, self._stride = raster, stride
        self._pieces = connected_components(raster.pixels >= 128)

    def box(self, attention: np.ndarray) -> Box:
        """Left, top, right, bottom in the units of the input (ink units or picture pixels).

        Args:
            attention: float (rows, columns) of the token.
        """
        pieces = self._pieces
        attended = attention >= _SHARE * attention.max()
        inside = self._ink(attended)
        if not inside.any():
            return self._cells(attended)
        chosen = 2 * inside >= pieces.area
        chosen[int(self._ink(np.where(attended, attention, 0.0)).argmax())] = True
        return self._to_input(
            int(pieces.left[chosen].min()),
            int(pieces.top[chosen].min()),
            int(pieces.right[chosen].max()) + 1,
            int(pieces.bottom[chosen].max()) + 1,
        )

    def _ink(self, weights: np.ndarray) -> np.ndarray:
        """Sum over each piece's pixels of the weight of their cells."""
        pieces, stride = self._pieces, self._stride
        width = self._raster.pixels.shape[1]
        # Running sums along each row of cells, so that a horizontal run costs two look-ups.
        sums = np.zeros((weights.shape[0], width + 1))
        np.cumsum(np.repeat(weights, stride, axis=1)[:, :width], axis=1, out=sums[:, 1:])
        row = pieces.run_row // stride
        per_run = sums[row, pieces.run_stop] - sums[row, pieces.run_start]
        return np.bincount(pieces.run_label, per_run, len(pieces))

    def _cells(self, attended: np.ndarray) -> Box:
        """The rectangle of the cells, cut off where the raster ends."""
        rows, columns = np.nonzero(attended)
        height, width = self._raster.pixels.shape
        sides = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        left, top, right, bottom = (int(side) * self._stride for side in sides)
        return self._to_input(min(left, width), min(top, height), min(right, width), min(bottom, height))

    def _to_input(self, left: int, top: int, right: int, bottom: int) -> Box:
        x, y = self._raster.origin
        scale = self._raster.scale
        return (x + left / scale, y + top / scale, x + right / scale, y + bottom / scale)
