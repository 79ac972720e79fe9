"""How local self-attention over a map is, and how large a window it needs (Alastruey et al. 2022, arXiv 2204.09028).

All functions take contribution matrices C (cells, cells), row by row of a map of ``shape`` (rows, columns), rows
summing to 1, as ``models.self_attention.contributions`` gives them. The source has a sequence, where window and
diagonal are numbers; on a map they are pairs: rows and columns **(reading)**.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Shape = tuple[int, int]


def by_offset(contributions: Floats, shape: Shape) -> Floats:
    """Mean contribution at each offset, over the cells that have a cell there.

    Returns:
        float64 (2 rows - 1, 2 columns - 1); entry [dy + rows - 1, dx + columns - 1] is what a cell takes on average
        from the cell dy below and dx to the right of it.
    """
    sums, counts = _offset_sums(contributions, shape)
    return sums / counts


def diagonality(contributions: Floats, shape: Shape, window: Shape) -> float:
    """Part of all contributions that comes from within the window (eq. 6): ``D(w) = 1/N sum_i sum_(j in w) C_ij``.

    Args:
        window: rows and columns, odd; larger than twice the map means all of it.
    """
    return within(by_offset(contributions, shape), window)


def within(offsets: Floats, window: Shape) -> float:
    """``diagonality`` from the table of ``by_offset``, which is all that it needs of the matrix."""
    rows, columns = (offsets.shape[0] + 1) // 2, (offsets.shape[1] + 1) // 2
    high, wide = min(window[0] // 2, rows - 1), min(window[1] // 2, columns - 1)
    inside = slice(rows - 1 - high, rows + high), slice(columns - 1 - wide, columns + wide)
    return float((offsets * _pairs(offsets))[inside].sum())


def axis_profile(offsets: Floats, axis: int) -> Floats:
    """The most that any offset adds to D, by its part along an axis.

    An offset (dy, dx) is what a diagonal is on a sequence: the pairs of cells that lie so to each other. It adds its
    mean contribution to D, taken over all cells, 0 for those that have no cell there: the few pairs of a far offset
    weigh less than the many of a near one.

    Args:
        offsets: table of ``by_offset``.
        axis: 0 rows, 1 columns.

    Returns:
        float64 (2 n - 1,), offset 0 in the middle: at each offset along the axis the largest over those along the
        other.
    """
    return np.asarray((offsets * _pairs(offsets)).max(1 - axis), np.float64)


def contribution_lost(contributions: Floats, shape: Shape, window: Shape) -> float:
    """``CL = 1 - D(w)``: what attention in the window leaves out."""
    return 1.0 - diagonality(contributions, shape, window)


def diagonality_curve(contributions: Floats, shape: Shape) -> Floats:
    """D over windows of growing size, from the cell alone to the whole map, as the source's figure 2.

    Window k reaches the share k / steps of each axis **(reading: both axes grow together)**; float64 (steps + 1,), a
    step for each cell of the longer axis beyond the first.
    """
    rows, columns = shape
    steps = max(rows, columns) - 1
    reach = [
        (round(k * (rows - 1) / max(steps, 1)), round(k * (columns - 1) / max(steps, 1))) for k in range(steps + 1)
    ]
    offsets = by_offset(contributions, shape)
    return np.array([within(offsets, (2 * y + 1, 2 * x + 1)) for y, x in reach])


def cumulative_diagonality(contributions: Floats, shape: Shape) -> float:
    """CCD: the area under the diagonality curve, window sizes from 0 to 1 (trapezes); 1 if each cell is its own."""
    curve = diagonality_curve(contributions, shape)
    return float(np.trapezoid(curve, dx=1 / (len(curve) - 1))) if len(curve) > 1 else float(curve[0])


def needed_window(contributions: Floats, shape: Shape, threshold: float = 0.015) -> Shape:
    """Algorithm 1 on each axis: the smallest odd window with every diagonal that matters.

    From the cell itself outwards, the window grows to i rows whenever any diagonal i rows up or down, at whatever
    offset in columns, exceeds the threshold, and to i columns likewise **(reading)**. The walk ends after a tenth of
    the axis' length in offsets below it in a row. What is held against the threshold is thus one cell's contribution
    to one other, as in the source, and depends on how many cells a map has, not on how many rows.
    """
    return needed_by_offset(by_offset(contributions, shape), threshold)


def needed_by_offset(offsets: Floats, threshold: float) -> Shape:
    """``needed_window`` from the table of ``by_offset``."""
    rows, columns = (_needed(axis_profile(offsets, axis), threshold) for axis in (0, 1))
    return rows, columns


def chosen_window(windows: Sequence[Shape]) -> Shape:
    """The window of a layer from those of many samples: mean plus standard deviation, made odd (section 4)."""
    sides = np.asarray(windows, np.float64)
    wanted = np.ceil(sides.mean(0) + sides.std(0) - 1e-9).astype(int)
    height, width = (wanted + 1 - wanted % 2).tolist()
    return height, width


def _pairs(offsets: Floats) -> Floats:
    """Cell pairs at each offset of a table of ``by_offset``, as a share of the cells."""
    rows, columns = (offsets.shape[0] + 1) // 2, (offsets.shape[1] + 1) // 2
    pairs = np.outer(rows - np.abs(np.arange(1 - rows, rows)), columns - np.abs(np.arange(1 - columns, columns)))
    return pairs / (rows * columns)


def _offset_sums(contributions: Floats, shape: Shape) -> tuple[Floats, Floats]:
    """Sum of contributions and number of cell pairs for each offset, both (2 rows - 1, 2 columns - 1)."""
    rows, columns = shape
    y, x = np.divmod(np.arange(rows * columns), columns)
    offset = (y - y[:, None] + rows - 1) * (2 * columns - 1) + (x - x[:, None] + columns - 1)
    size = (2 * rows - 1, 2 * columns - 1)
    count = size[0] * size[1]
    sums = np.bincount(offset.ravel(), np.asarray(contributions, np.float64).ravel(), count)
    pairs = np.bincount(offset.ravel(), minlength=count).astype(np.float64)
    return np.asarray(sums, np.float64).reshape(size), pairs.reshape(size)


def _needed(profile: Floats, threshold: float) -> int:
    middle = len(profile) // 2
    window, below = 1, 0
    for i in range(middle + 1):
        if below > 0 and below >= (middle + 1) / 10:
            break
        if max(profile[middle + i], profile[middle - i]) > threshold:
            window, below = 2 * i + 1, 0
        else:
            below += 1
    return window
