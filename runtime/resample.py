"""Pictures at other sizes: exact area averages downwards, linear interpolation upwards; and erosion by a disc.

Sums, products and comparisons of float64 in a fixed order, no library whose rounding may differ by version.
"""

import numpy as np


def reduce(grey: np.ndarray, most: int) -> tuple[np.ndarray, int]:
    """Average blocks of k by k pixels, k the smallest that leaves ``most`` pixels at most; and k.

    Args:
        grey: uint8 (height, width); the last row and column are repeated to fill the last blocks.
    """
    height, width = grey.shape
    k = 1
    while -(-height // k) * -(-width // k) > most and k < max(height, width):
        k += 1
    if k == 1:
        return grey, 1
    rows, columns = -(-height // k), -(-width // k)
    padded = np.pad(grey, ((0, rows * k - height), (0, columns * k - width)), mode="edge")
    total = np.zeros((rows, columns), np.uint32)
    for dy in range(k):
        for dx in range(k):
            total += padded[dy::k, dx::k]
    return ((total + k * k // 2) // (k * k)).astype(np.uint8), k


def magnify(coverage: np.ndarray, factor: float, most: int) -> tuple[np.ndarray, float]:
    """``coverage`` (uint8) scaled by ``factor``, or less so that ``most`` pixels result; and the factor used.

    Factors from 2/3 to 3/2 leave it as it is.
    """
    height, width = coverage.shape
    factor = min(factor, (most / (height * width)) ** 0.5)
    if 2 / 3 <= factor <= 3 / 2:
        return coverage, 1.0
    shape = (max(1, int(height * factor + 0.5)), max(1, int(width * factor + 0.5)))
    if factor < 1:
        return average(coverage, np.zeros(2), factor, shape), factor
    rows, columns = ((np.arange(n) + 0.5) / factor - 0.5 for n in shape)
    out = _interpolate(_interpolate(coverage.astype(np.float32), rows, 0), columns, 1)
    return (out + 0.5).astype(np.uint8), factor


def average(values: np.ndarray, origin: np.ndarray, scale: float, shape: tuple[int, int]) -> np.ndarray:
    """Area averages of a picture on another grid, as of a picture that is 0 outside: uint8 ``shape``.

    Args:
        values: uint8 (height, width).
        origin: x and y, in pixels of ``values``, of the result's top left corner.
        scale: pixels of the result per pixel of ``values``.
        shape: rows and columns of the result.
    """
    # Sums of bytes are whole numbers, at most 255 times the 8 million pixels of a working picture.
    sums = _sums(values, np.int32, float(origin[1]), scale, shape[0])
    sums = np.ascontiguousarray(_sums(sums.T, np.float64, float(origin[0]), scale, shape[1]).T)
    return np.clip(sums * scale * scale + 0.5, 0, 255).astype(np.uint8)


def _sums(values: np.ndarray, dtype: type, start: float, scale: float, count: int) -> np.ndarray:
    """Sums over the rows from ``start`` + i / ``scale`` to the next such place, i < ``count``: float64."""
    edges = np.clip(start + np.arange(count + 1) / scale, 0, len(values))
    total: np.ndarray = np.zeros((len(values) + 1, values.shape[1]), dtype)
    np.cumsum(values, axis=0, out=total[1:])
    return np.diff(_interpolate(total, edges, 0), axis=0)


def erode(solid: np.ndarray, radius: float) -> np.ndarray:
    """Pixels whose centre is at least ``radius`` (pixels, if positive) inside: uint8, 255 or 0."""
    if radius < 0.5:
        return solid.view(np.uint8) * np.uint8(255)
    height, width = solid.shape
    reach = int(radius)
    hole = np.pad(~solid, reach, constant_values=True)
    total = np.insert(np.cumsum(hole, axis=1, dtype=np.int32), 0, 0, axis=1)
    near = np.zeros(solid.shape, bool)
    for dy in range(-reach, reach + 1):
        half = int((radius * radius - dy * dy) ** 0.5)
        rows = total[reach + dy : reach + dy + height]
        first, last = reach - half, reach + half + 1
        near |= rows[:, last : last + width] > rows[:, first : first + width]
    return (~near).view(np.uint8) * np.uint8(255)


def _interpolate(values: np.ndarray, at: np.ndarray, axis: int) -> np.ndarray:
    """Linear interpolation at fractional indices along ``axis``, held at the ends."""
    last = values.shape[axis] - 1
    at = np.clip(at, 0, last)
    low = at.astype(np.int64)
    high = np.minimum(low + 1, last)
    part = (at - low).astype(np.result_type(values, np.float32)).reshape((-1, 1) if axis == 0 else (1, -1))
    return np.take(values, low, axis) * (1 - part) + np.take(values, high, axis) * part
