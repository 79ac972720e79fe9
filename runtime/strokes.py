"""Strokes JSON: the simplest way to hand over what a pen wrote.

::

    {"strokes": [[[x, y], [x, y], ...], ...],
     "truth": "x ^ { 2 } + 1", "id": "sample-1",
     "symbols": [{"label": "x", "strokes": [0, 1]}, ...]}

or the list of strokes alone. ``x`` grows to the right and ``y`` downwards, in any unit. A point may carry more
numbers (time, pressure, tilt), which are not used, or be an object with ``x`` and ``y``. A stroke may also be an
object of columns, ``{"x": [...], "y": [...]}``. Only ``strokes`` is needed; other keys are passed over.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from hmerctl.runtime.errors import InkError
from hmerctl.runtime.ink import Ink, Symbol, read_limited, usable_points


def read_strokes(source: str | Path | bytes, name: str = "") -> Ink:
    """Read strokes JSON, in the form this module describes.

    Points that are no number, infinite or beyond 1e9 are dropped with the note ``bad-point``, strokes without
    any point with the note ``empty-stroke``.

    Args:
        source: a path, or the document itself.
        name: what to call the ink; by default what the document says, else the file's stem.

    Returns:
        The ink, with at least one stroke.

    Raises:
        InkError: the file is missing, empty, larger than 16 MiB, not JSON of this form, or holds no stroke.
    """
    data, where, stem = read_limited(source, name)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if data.strip() else "the file is empty"
        raise InkError(f"{where}: not JSON: {reason}") from None
    fields = document if isinstance(document, dict) else {"strokes": document}
    if not isinstance(fields.get("strokes"), list):
        raise InkError(f'{where}: expected {{"strokes": [[[x, y], ...], ...]}} or the list of strokes alone')
    notes: list[str] = []
    strokes: list[np.ndarray] = []
    position: dict[int, int] = {}
    for i, stroke in enumerate(fields["strokes"]):
        points = _points(stroke, i, where)
        usable = usable_points(points)
        if not usable.all():
            notes.append("bad-point")
            points = points[usable]
        if not len(points):
            notes.append("empty-stroke")
            continue
        position[i] = len(strokes)
        strokes.append(points)
    if not strokes:
        raise InkError(f"{where}: holds no stroke that can be drawn")
    truth, own_name = fields.get("truth"), fields.get("id")
    return Ink(
        tuple(strokes),
        _symbols(fields.get("symbols", []), position, where),
        truth if isinstance(truth, str) else None,
        own_name if not name and isinstance(own_name, str) else stem,
        tuple(dict.fromkeys(notes)),
    )


def format_strokes(ink: Ink, digits: int = 2) -> str:
    """Strokes JSON of an ink, one stroke a line; coordinates rounded to ``digits`` after the point."""
    head: dict[str, Any] = {"id": ink.id}
    if ink.truth is not None:
        head["truth"] = ink.truth
    if ink.symbols:
        head["symbols"] = [{"label": s.label, "strokes": list(s.strokes)} for s in ink.symbols]
    lines = [f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items()]
    strokes = ",\n".join(json.dumps(s.round(digits).tolist(), separators=(",", ":")) for s in ink.strokes)
    return "{" + "".join(lines) + '"strokes": [\n' + strokes + "\n]}\n"


def _points(stroke: Any, index: int, where: str) -> np.ndarray:
    """X and Y of every point, float64 (points, 2)."""
    try:
        if isinstance(stroke, dict):
            pairs = list(zip(stroke["x"], stroke["y"], strict=True))
        else:
            pairs = [(p["x"], p["y"]) if isinstance(p, dict) else (p[0], p[1]) for p in stroke]
        return np.array([(_number(x), _number(y)) for x, y in pairs], np.float64).reshape(-1, 2)
    except (TypeError, KeyError, IndexError, ValueError):
        raise InkError(f"{where}: stroke {index} is not a list of points [x, y]") from None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _symbols(groups: Any, position: dict[int, int], where: str) -> tuple[Symbol, ...]:
    try:
        found = [
            Symbol(str(group["label"]), tuple(position[i] for i in group["strokes"] if i in position))
            for group in groups
        ]
    except (TypeError, KeyError):
        raise InkError(f'{where}: "symbols" is not a list of {{"label": ..., "strokes": [indices]}}') from None
    return tuple(symbol for symbol in found if symbol.strokes)
