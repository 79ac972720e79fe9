"""Connected components of a binary picture, and the one size rule that ink and pictures share."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Components:
    """8-connected components; all arrays int64 of shape (count,).

    Attributes:
        top, left: first row and column.
        bottom, right: last row and column, inclusive.
        area: number of pixels.
        run_row, run_start, run_stop, run_label: the horizontal runs (stop exclusive) and their component.
    """

    top: np.ndarray
    left: np.ndarray
    bottom: np.ndarray
    right: np.ndarray
    area: np.ndarray
    run_row: np.ndarray
    run_start: np.ndarray
    run_stop: np.ndarray
    run_label: np.ndarray

    def __len__(self) -> int:
        return len(self.top)

    @property
    def extent(self) -> np.ndarray:
        """Larger side of each bounding box, in pixels."""
        return np.maximum(self.bottom - self.top, self.right - self.left) + 1


def connected_components(binary: np.ndarray) -> Components:
    """Label the True pixels of ``binary`` (bool, (height, width)) by 8-connectivity.

    Works on horizontal runs. Each joins the first run of the row above that it touches, which makes trees; trees
    that touch elsewhere are joined then.
    """
    height, width = binary.shape
    stride = width + 2
    padded = np.zeros((height, stride), bool)
    padded[:, 1:-1] = binary
    flat = padded.reshape(-1)
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    # A run's first pixel, and the one after its last, counted through all rows; rows lie two apart.
    starts, stops = edges[::2], edges[1::2]
    own = np.arange(len(starts))
    # Runs are in order; those of the row above that touch run i form one contiguous range.
    first = np.searchsorted(stops, starts - stride, side="left")
    last = np.searchsorted(starts, stops - stride, side="right")
    label = _roots(np.where(first < last, first, own))
    again = np.maximum(last - first - 1, 0)
    lower = np.repeat(own, again)
    upper = np.arange(len(lower)) - np.repeat(np.cumsum(again) - again, again) + np.repeat(first + 1, again)
    label = _joined(label, lower, upper)
    heads = label == own
    label = (np.cumsum(heads) - 1)[label]
    row = starts // stride
    start, stop = starts - row * stride, stops - row * stride
    count = np.count_nonzero(heads)

    def reduce(ufunc: np.ufunc, values: np.ndarray, initial: int) -> np.ndarray:
        out = np.full(count, initial, np.int64)
        ufunc.at(out, label, values)
        return out

    return Components(
        top=row[heads],
        left=reduce(np.minimum, start, width),
        bottom=reduce(np.maximum, row, -1),
        right=reduce(np.maximum, stop - 1, -1),
        area=reduce(np.add, stop - start, 0),
        run_row=row,
        run_start=start,
        run_stop=stop,
        run_label=label,
    )


def _roots(parent: np.ndarray) -> np.ndarray:
    """The root of every node's tree; a root is its own parent."""
    while True:
        above = parent[parent]
        if np.array_equal(above, parent):
            return parent
        parent = above


def _joined(label: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Labels after joining the trees of ``lower[i]`` and ``upper[i]``: each run's is the first run it is joined to.

    Args:
        label: root of each run, the first run of its tree: int64 (runs,).
        lower, upper: runs that touch: int64 (pairs,) each.
    """
    while True:
        one, other = label[lower], label[upper]
        apart = one != other
        if not apart.any():
            return label
        lower, upper, one, other = lower[apart], upper[apart], one[apart], other[apart]
        parent = label.copy()
        np.minimum.at(parent, np.maximum(one, other), np.minimum(one, other))
        label = _roots(parent)[label]


def typical_extent(extents: np.ndarray) -> float:
    """The size of an ordinary symbol, from the extents of its parts (strokes or components), any unit.

    Parts smaller than a quarter of the 80th percentile (dots, commas, specks) are ignored; of the rest the lower
    median is taken. Both are nearest-rank (an element of the input, no interpolation), so that every language
    gets the same number. Returns 0.0 for no parts.
    """
    ordered = np.sort(np.asarray(extents, np.float64))
    if not len(ordered):
        return 0.0
    percentile_80 = ordered[(4 * len(ordered) + 4) // 5 - 1]
    kept = ordered[ordered * 4 >= percentile_80]
    return float(kept[(len(kept) - 1) // 2])
