"""The raster contract for ink: strokes to the normalised grey picture that the encoder reads.

Everything after the first rounding is integer arithmetic, so that every device draws the same bits; the rules
stand in docs/raster.md, golden rasters in tests/runtime.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hmerctl.runtime.components import connected_components, typical_extent
from hmerctl.runtime.errors import InkError
from hmerctl.runtime.ink import Ink, usable_points

CONTRACT_VERSION = 1
"""Raised whenever any input could give other bits than before."""

UNIT = 16
"""Coordinates are integers in 1/16 pixel."""


_LIMITS = {
    "symbol_extent": (4, 256),
    "stroke_extent": (4, 256),
    "pen_width": (1, 64),
    "margin": (0, 64),
    "max_height": (160, 4096),
    "max_width": (160, 4096),
}
"""What a contract may ask for: sizes that leave room for ink between the margins, and fit into memory."""


@dataclass(frozen=True)
class RasterSpec:
    """The numbers of the raster contract; they stand in every manifest.

    Attributes:
        symbol_extent: larger side, in pixels, of an ordinary connected component without its pen width.
        stroke_extent: the same for an ordinary stroke; only for the first guess at the scale.
        pen_width: diameter of the round pen, pixels.
        margin: blank border on every side, pixels.
        max_height, max_width: largest raster; larger ink is scaled down to fit.

    Raises:
        ValueError: a number outside its limits.
    """

    symbol_extent: int = 20
    stroke_extent: int = 17
    pen_width: int = 2
    margin: int = 6
    max_height: int = 256
    max_width: int = 1280
    version: int = CONTRACT_VERSION

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise ValueError(f"{name} = {value!r} is not a whole number from {low} to {high}")


@dataclass(frozen=True)
class Raster:
    """A normalised picture of one expression.

    Attributes:
        pixels: uint8 (height, width), ink 255 on 0.
        scale: raster pixels per unit of the input (ink unit or picture pixel).
        origin: input coordinates (x, y) of the raster's top left corner.
        blank: the reason why there is nothing to read, or None.
    """

    pixels: np.ndarray
    scale: float
    origin: tuple[float, float]
    blank: str | None = None


def draw(strokes: Sequence[np.ndarray], pen_width: float, margin: int) -> np.ndarray:
    """Draw strokes with a round, anti-aliased pen.

    Args:
        strokes: float64 (points, 2) each, x and y in pixels.
        pen_width: diameter in pixels; rounded to 1/128.
        margin: blank pixels around the bounding box of the points.

    Returns:
        uint8 (height, width), ink 255 on 0; the smallest x and y of all points lie at ``margin``.

    Raises:
        InkError: drawing would take more than a few seconds.
    """
    segments = _segments(strokes, margin)
    size = segments[:, :4].reshape(-1, 2).max(0) // UNIT + 1 + margin
    return _draw_segments(segments, int(size[1]), int(size[0]), int(pen_width * 128 + 0.5))


def _segments(strokes: Sequence[np.ndarray], margin: int) -> np.ndarray:
    """Quantised, thinned segments x0 y0 x1 y1, int64 (count, 4); a dot is a segment of length zero."""
    lengths = np.array([len(s) for s in strokes])
    points = np.concatenate(strokes)
    fixed = np.floor((points - points.min(0)) * UNIT + 0.5).astype(np.int64) + margin * UNIT
    parts = []
    for stroke in np.split(fixed, np.cumsum(lengths)[:-1]):
        kept = stroke[_thin(stroke)]
        if len(kept) == 1:
            kept = np.repeat(kept, 2, axis=0)
        parts.append(np.concatenate([kept[:-1], kept[1:]], axis=1))
    return np.concatenate(parts)


def _thin(stroke: np.ndarray) -> list[int]:
    """Indices of the points to draw: the first, each at least 3/4 pixel from the one before, and the last."""
    xs, ys = stroke[:, 0].tolist(), stroke[:, 1].tolist()
    kept, last_x, last_y = [0], xs[0], ys[0]
    for i in range(1, len(xs)):
        if max(abs(xs[i] - last_x), abs(ys[i] - last_y)) >= 12:
            kept.append(i)
            last_x, last_y = xs[i], ys[i]
    if kept[-1] != len(xs) - 1 and (xs[-1], ys[-1]) != (last_x, last_y):
        kept.append(len(xs) - 1)
    return kept


_SMALLEST = 1e-9
"""An ink smaller than this, in its own units, is one dot."""

_PIECE = 8 * UNIT
_MAX_PAIRS = 500_000
"""Pixels tested at once; bounds the memory (about 100 MB), not the result."""

_MAX_PIECES = 100_000
"""Segments, or eighths of long ones; the busiest of CROHME training inks has 1,700."""

_MAX_STROKES = 20_000


def _draw_segments(segments: np.ndarray, height: int, width: int, radius: int) -> np.ndarray:
    """Coverage of every pixel: 255 where its centre lies within the pen, falling to 0 over one pixel.

    ``radius`` is in 1/256 pixel. A long segment is visited piece by piece so that only pixels near it are
    tested; the distance is always to the whole segment, so the pieces do not show in the result.
    """
    pixels = np.zeros(height * width, np.uint8)
    reach = (radius + 128 + 255) // 256 * UNIT
    x0, y0, x1, y1 = segments.T
    dx, dy = x1 - x0, y1 - y0
    count = np.maximum(np.abs(dx), np.abs(dy)) // _PIECE + 1
    if count.sum() > _MAX_PIECES:
        raise InkError("holds far more ink than an expression; give one expression at a time")
    owner = np.repeat(np.arange(len(segments)), count)
    index = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    pieces = count[owner]
    ax, ay = x0[owner] + dx[owner] * index // pieces, y0[owner] + dy[owner] * index // pieces
    bx, by = x0[owner] + dx[owner] * (index + 1) // pieces, y0[owner] + dy[owner] * (index + 1) // pieces
    left = np.maximum((np.minimum(ax, bx) - reach) // UNIT - 1, 0)
    right = np.minimum((np.maximum(ax, bx) + reach) // UNIT + 1, width - 1)
    top = np.maximum((np.minimum(ay, by) - reach) // UNIT - 1, 0)
    bottom = np.minimum((np.maximum(ay, by) + reach) // UNIT + 1, height - 1)
    columns = right - left + 1
    area = columns * (bottom - top + 1)
    ends = np.cumsum(area)
    begin = 0
    while begin < len(owner):
        done = ends[begin - 1] if begin else 0
        stop = max(begin + 1, int(np.searchsorted(ends, done + _MAX_PAIRS, side="right")))
        chunk = slice(begin, stop)
        begin = stop
        piece = np.repeat(np.arange(chunk.start, stop), area[chunk])
        offset = np.arange(len(piece)) - (ends[piece] - area[piece] - done)
        row_offset = offset // columns[piece]
        column, row = left[piece] + offset - row_offset * columns[piece], top[piece] + row_offset
        segment = owner[piece]
        # Offsets from the segment's start to the pixel's centre.
        px, py = column * UNIT + UNIT // 2 - x0[segment], row * UNIT + UNIT // 2 - y0[segment]
        sx, sy = dx[segment], dy[segment]
        along, squared_length = px * sx + py * sy, sx * sx + sy * sy
        across = px * sy - py * sx
        ex, ey = px - sx, py - sy
        squared = np.where(
            along <= 0,
            px * px + py * py,
            np.where(along >= squared_length, ex * ex + ey * ey, across * across // np.maximum(squared_length, 1)),
        )
        near = squared <= (reach + UNIT) ** 2
        # Floor of the square root, exact in float64 for these sizes: distance in 1/256 pixel.
        distance = np.sqrt((squared[near] * 256).astype(np.float64)).astype(np.int64)
        coverage = np.clip(((radius + 128 - distance) * 255 + 128) >> 8, 0, 255).astype(np.uint8)
        np.maximum.at(pixels, (row * width + column)[near], coverage)
    return pixels.reshape(height, width)


def ink_scale(strokes: Sequence[np.ndarray], spec: RasterSpec) -> float:
    """Raster pixels per ink unit: ordinary components of the drawn ink become ``spec.symbol_extent`` large.

    Pictures show components, not strokes; measuring the same thing on both is what makes them agree. The first
    guess comes from stroke extents; the components are those of the ink drawn at that scale.
    """
    low = np.array([s.min(0) for s in strokes])
    high = np.array([s.max(0) for s in strokes])
    whole = high.max(0) - low.min(0)
    if whole.max() < _SMALLEST:
        return 1.0
    # A hundredth of the whole: an ink of dots far apart must not grow without bound.
    typical = max(typical_extent((high - low).max(1)), float(whole.max()) / 100)
    scale = fit_scale(spec.stroke_extent / typical, whole, spec)
    drawn = draw([s * scale for s in strokes], spec.pen_width, spec.margin)
    return fit_scale(refine_scale(drawn, scale, spec), whole, spec)


def refine_scale(drawn: np.ndarray, scale: float, spec: RasterSpec) -> float:
    """The scale at which the ordinary components of ``drawn`` (at ``scale``) are ``spec.symbol_extent`` large."""
    extents = np.maximum(connected_components(drawn >= 128).extent - spec.pen_width, 0)
    measured = max(typical_extent(extents), spec.symbol_extent / 8)
    return scale * spec.symbol_extent / measured


def fit_scale(scale: float, whole: np.ndarray, spec: RasterSpec) -> float:
    """``scale``, or less where the ink (width, height in ink units) would not fit the largest raster."""
    room = np.array([spec.max_width, spec.max_height]) - 2 * spec.margin - 2
    limits = [room[i] / whole[i] for i in range(2) if whole[i] > 0]
    return float(min([scale, *limits]))


def rasterise_ink(ink: Ink, spec: RasterSpec | None = None) -> Raster:
    """Normalise and draw an ink. An ink without strokes gives a blank raster with its reason.

    Raises:
        InkError: a stroke has no points, a coordinate is no number or beyond 1e9, or there is far too much ink.
    """
    spec = spec or RasterSpec()
    if not ink.strokes:
        return Raster(np.zeros((2 * spec.margin, 2 * spec.margin), np.uint8), 1.0, (0.0, 0.0), "no strokes")
    try:
        _check(ink)
        scale = ink_scale(ink.strokes, spec)
        pixels = draw([s * scale for s in ink.strokes], spec.pen_width, spec.margin)
    except InkError as error:
        raise InkError(f"{ink.id or 'ink'}: {error}") from None
    low = np.min([s.min(0) for s in ink.strokes], axis=0)
    origin = (float(low[0]) - spec.margin / scale, float(low[1]) - spec.margin / scale)
    return Raster(pixels, scale, origin)


def _check(ink: Ink) -> None:
    if len(ink.strokes) > _MAX_STROKES:
        raise InkError(f"has {len(ink.strokes)} strokes; an expression may have {_MAX_STROKES}")
    for stroke in ink.strokes:
        if not len(stroke) or not usable_points(stroke).all():
            raise InkError("a stroke has no points, or coordinates that are no number or above 1e9")
