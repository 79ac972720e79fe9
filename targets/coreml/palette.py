"""Palettes: each weight tensor as 64 values and an index an element. Found once a tensor, the same every time."""

import hashlib

import numpy as np

BITS = 6
_ROUNDS = 50
_FOUND: dict[str, tuple[np.ndarray, np.ndarray]] = {}


def palettise(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values that are closest to the weights in the mean square: Lloyd's algorithm in one dimension (Lloyd 1982).

    Results are kept by content: a model's buckets have the same weights, and packages share what is equal.

    Args:
        weight: float, any shape.

    Returns:
        palette float (at most 64,), ascending, padded with its last value to 64; indices uint8, shape of the weight.
    """
    key = hashlib.sha256(np.ascontiguousarray(weight).tobytes()).hexdigest()
    if key not in _FOUND:
        _FOUND[key] = _lloyd(weight)
    return _FOUND[key]


def _lloyd(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values = np.sort(weight.astype(np.float64), axis=None)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    palette = np.quantile(values, (np.arange(2**BITS) + 0.5) / 2**BITS)
    # Quantiles leave no value for the few large weights; they start from equal distances too.
    palette = np.sort((palette + np.linspace(values[0], values[-1], 2**BITS)) / 2)
    for _ in range(_ROUNDS):
        borders = np.searchsorted(values, (palette[1:] + palette[:-1]) / 2)
        borders = np.concatenate([[0], borders, [len(values)]])
        count = np.diff(borders)
        moved = np.where(count > 0, np.diff(sums[borders]) / np.maximum(count, 1), palette)
        if np.allclose(moved, palette, rtol=0, atol=1e-7):
            break
        palette = moved
    palette = np.sort(palette).astype(weight.dtype)
    borders = (palette[1:].astype(np.float64) + palette[:-1]) / 2
    return palette, np.searchsorted(borders, weight.astype(np.float64)).astype(np.uint8).reshape(weight.shape)
