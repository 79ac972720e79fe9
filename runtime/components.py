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

    Works on horizontal runs: runs of neighbouring rows that touch are joined by spreading the smallest label.
    """
    height, width = binary.shape
    padded = np.zeros((height, width + 2), np.int8)
    padded[:, 1:-1] = binary
    steps = np.diff(padded, axis=1)
    row, start = np.nonzero(steps == 1)
    stop = np.nonzero(steps == -1)[1]
    label = np.arange(len(row))
    # Runs are sorted by (row, start); those of the row above that touch run i form one contiguous range.
    stride = width + 2
    first = np.searchsorted(row * stride + stop, (row - 1) * stride + start, side="left")
    last = np.searchsorted(row * stride + start, (row - 1) * stride + stop, side="right")
    first = np.maximum(first, np.searchsorted(row, row - 1, side="left"))
    last = np.minimum(last, np.searchsorted(row, row - 1, side="right"))
    touching = np.maximum(last - first, 0)
    lower = np.repeat(np.arange(len(row)), touching)
    upper = (
        np.arange(touching.sum()) - np.repeat(np.cumsum(touching) - touching, touching) + np.repeat(first, touching)
    )
    while True:
        joined = np.minimum(label[lower], label[upper])
        spread = label.copy()
        np.minimum.at(spread, label[lower], joined)
        np.minimum.at(spread, label[upper], joined)
        spread = spread[spread[label]]
        if np.array_equal(spread, label):
            break
        label = spread
    _, label = np.unique(label, return_inverse=True)
    count = int(label.max()) + 1 if len(label) else 0

    def reduce(ufunc: np.ufunc, values: np.ndarray, initial: int) -> np.ndarray:
        out = np.full(count, initial, np.int64)
        ufunc.at(out, label, values)
        return out

    return Components(
        top=reduce(np.minimum, row, height),
        left=reduce(np.minimum, start, width),
        bottom=reduce(np.maximum, row, -1),
        right=reduce(np.maximum, stop - 1, -1),
        area=reduce(np.add, stop - start, 0),
        run_row=row,
        run_start=start,
        run_stop=stop,
        run_label=label,
    )


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
