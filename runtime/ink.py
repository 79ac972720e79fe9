"""Ink: the pen strokes of one expression, as read from a tablet or a file."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Symbol:
    """A group of strokes that form one symbol.

    Attributes:
        label: vocabulary token of the symbol, e.g. ``\\frac`` for a fraction bar; ``""`` if unknown.
        strokes: indices into ``Ink.strokes``.
    """

    label: str
    strokes: tuple[int, ...]


@dataclass(frozen=True)
class Ink:
    """Pen strokes in the order they were written.

    Attributes:
        strokes: each float64 of shape (points, 2), columns x (right) and y (down), any unit; at least one
            point each, all finite.
        symbols: which strokes form which symbol, where known (training data).
        truth: LaTeX annotation exactly as the file holds it, or None.
        id: the file's stem, or what the caller names it.
    """

    strokes: tuple[np.ndarray, ...]
    symbols: tuple[Symbol, ...] = ()
    truth: str | None = None
    id: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What the reader repaired, one short key each (e.g. ``"latin-1"``, ``"dangling-reference"``)."""
