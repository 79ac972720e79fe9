"""A small made-up dataset: sums of digits and letters, each symbol a fixed polyline with a little jitter."""

from pathlib import Path

import numpy as np

from hmerctl.runtime.ink import Ink, Symbol
from hmerctl.train.dataset import Expression, write_dataset

SHAPES: dict[str, list[list[tuple[float, float]]]] = {
    "1": [[(0.5, 0), (0.5, 1)]],
    "7": [[(0, 0), (1, 0), (0.4, 1)]],
    "4": [[(0.1, 0), (0, 0.6), (1, 0.6)], [(0.7, 0.2), (0.7, 1)]],
    "+": [[(0, 0.5), (1, 0.5)], [(0.5, 0), (0.5, 1)]],
    "=": [[(0, 0.35), (1, 0.35)], [(0, 0.65), (1, 0.65)]],
    "x": [[(0, 0), (1, 1)], [(1, 0), (0, 1)]],
}


def ink_of(tokens: list[str], rng: np.random.Generator, name: str) -> Ink:
    """Write tokens side by side."""
    strokes: list[np.ndarray] = []
    symbols = []
    for i, token in enumerate(tokens):
        first = len(strokes)
        for line in SHAPES[token]:
            strokes.append((np.array(line, float) + rng.normal(size=(len(line), 2)) * 0.04 + (1.4 * i, 0)) * 30)
        symbols.append(Symbol(token, tuple(range(first, len(strokes)))))
    return Ink(tuple(strokes), tuple(symbols), id=name)


def make_dataset(path: Path, count: int, seed: int = 0) -> Path:
    """Write ``count`` expressions of 2 to 6 symbols."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        tokens = rng.choice(list(SHAPES), size=rng.integers(2, 7)).tolist()
        rows.append(Expression(f"e{i}", tuple(tokens), ink_of(tokens, rng, f"e{i}"), symbols_match=True))
    write_dataset(path, rows, {})
    return path


TINY = [
    "model.encoder.stem=8",
    "model.encoder.middle=8",
    "model.encoder.middle_blocks=1",
    "model.encoder.top=16",
    "model.encoder.top_blocks=1",
    "model.encoder.channels=16",
    "model.decoder.layers=2",
    "model.decoder.heads=2",
    "model.decoder.width=16",
    "model.decoder.inner=32",
    "train.batch_pixels=60000",
    "train.validate_samples=8",
    "train.precision=fp32",
    "train.composed=0.0",
]
"""Settings that make the edge preset small enough for a test."""
