"""Ink: the pen strokes of one expression, as read from a tablet or a file."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hmerctl.runtime.errors import InkError


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


MAX_FILE_BYTES = 16 * 2**20
"""Largest ink file; the longest of CROHME has 0.4 MB."""

MAX_COORDINATE = 1e9
"""A point with a coordinate beyond this, or one that is no number, is dropped by the readers (note ``bad-point``)."""


def usable_points(points: np.ndarray) -> np.ndarray:
    """Which of the points, float64 (points, 2), can be drawn: bool (points,)."""
    # False for nan too.
    return (np.abs(points) <= MAX_COORDINATE).all(1)


def read_limited(source: str | Path | bytes, name: str = "") -> tuple[bytes, str, str]:
    """Contents, name for messages and id of an ink file; one that is too large is not read.

    Raises:
        InkError: there is no such file, it cannot be read, or it has more than ``MAX_FILE_BYTES``.
    """
    if isinstance(source, bytes):
        where = name or "ink"
        _check_size(len(source), where)
        return source, where, name
    path = Path(source)
    where = str(path)
    try:
        if not path.is_file():
            raise InkError(f"{where}: {'not a file' if path.exists() else 'no such file'}")
        _check_size(path.stat().st_size, where)
        return path.read_bytes(), where, name or path.stem
    except OSError as error:
        raise InkError(f"{where}: cannot be read: {error.strerror}") from None


def _check_size(size: int, where: str) -> None:
    if size > MAX_FILE_BYTES:
        limit = MAX_FILE_BYTES // 2**20
        raise InkError(f"{where}: has {size / 2**20:.1f} MiB; an ink file may have {limit} MiB at most")
