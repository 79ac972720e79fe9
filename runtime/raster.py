"""The raster contract for ink: strokes to the normalised grey picture that the encoder reads.

Everything after the first rounding is integer arithmetic, so that every device draws the same bits; the rules
stand in docs/raster.md, golden rasters in tests/runtime.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

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


def blank_raster(spec: RasterSpec, reason: str) -> Raster:
    """The raster of an input with nothing to read: its margins."""
    return Raster(np.zeros((2 * spec.margin, 2 * spec.margin), np.uint8), 1.0, (0.0, 0.0), reason)


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
    return _Lines.of(strokes).drawn(_coverage(pen_width), margin)


@dataclass(frozen=True)
class _Lines:
    """Strokes end to end: their points, x and y float64 (2, points), and where each stroke begins and ends."""

    points: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, strokes: Sequence[np.ndarray]) -> "_Lines":
        lengths = np.array([len(stroke) for stroke in strokes])
        ends = np.cumsum(lengths)
        return cls(np.ascontiguousarray(np.concatenate(strokes).T, np.float64), ends - lengths, ends)

    def scaled(self, factor: float) -> "_Lines":
        return _Lines(self.points * factor, self.begins, self.ends)

    def boxes(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest x and y of each stroke: float64 (2, strokes) each."""
        low = np.minimum.reduceat(self.points, self.begins, axis=1)
        return low, np.maximum.reduceat(self.points, self.begins, axis=1)

    def drawn(self, values: np.ndarray, margin: int) -> np.ndarray:
        """The value of each pixel's distance from the nearest line, see ``_coverage``; uint8 (height, width)."""
        segments = self._segments(margin)
        size = segments.reshape(2, 2, -1).max((0, 2)) // UNIT + 1 + margin
        return _draw_segments(segments, int(size[1]), int(size[0]), values)

    def _segments(self, margin: int) -> np.ndarray:
        """Quantised, thinned segments x0 y0 x1 y1, int64 (4, count); a dot is a segment of length zero."""
        fixed = np.floor((self.points - self.points.min(1, keepdims=True)) * UNIT + 0.5).astype(np.int64)
        fixed += margin * UNIT
        xs, ys = fixed.tolist()
        starts, stops = _thin(xs, ys, zip(self.begins.tolist(), self.ends.tolist(), strict=True))
        return np.concatenate([fixed[:, starts], fixed[:, stops]])


def _thin(xs: list[int], ys: list[int], strokes: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Indices of the points at which the segments to draw start and stop.

    Of each stroke (begin, end) are kept the first point, each at least 3/4 pixel from the one kept before, and the
    last if it is not the same; they are joined in order. A single one is joined to itself.
    """
    starts, stops = [], []
    for begin, end in strokes:
        kept = begin
        x, y = xs[begin], ys[begin]
        left, right, top, bottom = x - 12, x + 12, y - 12, y + 12
        for i in range(begin + 1, end):
            x, y = xs[i], ys[i]
            if left < x < right and top < y < bottom:
                continue
            starts.append(kept)
            stops.append(i)
            kept = i
            left, right, top, bottom = x - 12, x + 12, y - 12, y + 12
        if (x, y) != (xs[kept], ys[kept]) or kept == begin:
            starts.append(kept)
            stops.append(end - 1)
    return starts, stops


_SMALLEST = 1e-9
"""An ink smaller than this, in its own units, is one dot."""

_PIECE = 8 * UNIT
_MAX_PIECES = 100_000
"""Segments, or eighths of long ones; the busiest of CROHME training inks has 1,700."""

_MAX_PAIRS = 50_000
"""Pixels tested at once; bounds the memory and keeps it in the cache, without effect on the result."""

_MAX_STROKES = 20_000


@lru_cache(maxsize=8)
def _coverage(pen_width: float) -> np.ndarray:
    """Coverage of a pixel by its squared distance from a line in 1/16 pixel, rounded down; from the last on 0.

    255 where its centre lies within the pen, falling to 0 over one pixel: uint8 (squared distances,).
    """
    radius = int(pen_width * 128 + 0.5)
    squared = np.arange(-(-((radius + 128) ** 2) // 256))
    # Floor of the square root, exact in float64 for these sizes: distance in 1/256 pixel.
    distance = np.sqrt((squared * 256).astype(np.float64)).astype(np.int64)
    return np.clip(((radius + 128 - distance) * 255 + 128) >> 8, 0, 255).astype(np.uint8)


@lru_cache(maxsize=8)
def _solid(pen_width: float) -> np.ndarray:
    """The same for the question whether a pixel is at least half covered: uint8, 1 throughout."""
    return np.ones(np.count_nonzero(_coverage(pen_width) >= 128), np.uint8)


def _draw_segments(segments: np.ndarray, height: int, width: int, values: np.ndarray) -> np.ndarray:
    """The largest value of every pixel by its distances from all segments: uint8 (height, width).

    A segment is visited in pieces, each with the square of pixels that holds all near it; the distance is always to
    the whole segment, so the pieces do not show in the result. All numbers are whole and exact in float64, which
    processors multiply and divide faster than int64: for a pixel near a segment they stay below 2 ** 53, and further
    away they are only compared.
    """
    reach = math.isqrt(len(values) - 1) + 1
    side = -(-(3 * reach + UNIT // 2) // UNIT)
    x0, y0, x1, y1 = segments
    dx, dy = x1 - x0, y1 - y0
    longer = np.maximum(np.abs(dx), np.abs(dy))
    if (longer // _PIECE + 1).sum() > _MAX_PIECES:
        raise InkError("holds far more ink than an expression; give one expression at a time")
    # A piece as long that ``side`` pixels always reach from one end to the other and beyond.
    count = np.maximum(-(-longer // (side * UNIT - 2 * reach)), 1)
    owner = np.repeat(np.arange(len(count)), count)
    index = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    x0, y0, dx, dy, count = x0[owner], y0[owner], dx[owner], dy[owner], count[owner]
    column = (x0 + dx * (index + (dx < 0)) // count - reach - UNIT // 2) // UNIT + 1
    row = (y0 + dy * (index + (dy < 0)) // count - reach - UNIT // 2) // UNIT + 1
    # A blank border for squares that reach over the edge.
    stride = width + 2 * side
    pixels = np.zeros((height + 2 * side, stride), np.uint8)
    corner = (row + side) * stride + column + side
    steps = np.arange(side)
    square = steps[:, None] * stride + steps
    # Offsets from the segment's start to the pixels' centres.
    px = ((column * UNIT + UNIT // 2 - x0)[:, None] + steps * UNIT).astype(np.float64)
    py = ((row * UNIT + UNIT // 2 - y0)[:, None] + steps * UNIT).astype(np.float64)
    sx, sy = dx[:, None].astype(np.float64), dy[:, None].astype(np.float64)
    chunk = max(1, _MAX_PAIRS // side**2)
    for begin in range(0, len(owner), chunk):
        part = slice(begin, begin + chunk)
        squared = _squared_distance(px[part], py[part], sx[part], sy[part]).reshape(-1)
        near = np.flatnonzero(squared < len(values))
        at = (corner[part, None, None] + square).reshape(-1)[near]
        np.maximum.at(pixels.reshape(-1), at, values[squared[near].astype(np.intp)])
    return np.ascontiguousarray(pixels[side:-side, side:-side])


def _squared_distance(px: np.ndarray, py: np.ndarray, sx: np.ndarray, sy: np.ndarray) -> np.ndarray:
    """Squared distances, not yet rounded down, of squares of pixels from their segments.

    Args:
        px, py: columns' x and rows' y, seen from the segment's start: float64 (segments, side).
        sx, sy: the segment: float64 (segments, 1).

    Returns:
        float64 (segments, rows, columns).
    """

    def sums(of_columns: np.ndarray, of_rows: np.ndarray) -> np.ndarray:
        return of_columns[:, None, :] + of_rows[:, :, None]

    along, across = sums(px * sx, py * sy), sums(px * sy, -py * sx)
    length = (sx * sx + sy * sy)[:, :, None]
    ex, ey = px - sx, py - sy
    # Beyond an end, that end is the nearer one; a dot has nothing between its ends.
    ends = np.minimum(sums(px * px, py * py), sums(ex * ex, ey * ey))
    across *= across
    across /= np.maximum(length, 1)
    return np.where((along > 0) & (along < length), across, ends)


def ink_scale(strokes: Sequence[np.ndarray], spec: RasterSpec) -> float:
    """Raster pixels per ink unit: ordinary components of the drawn ink become ``spec.symbol_extent`` large.

    Pictures show components, not strokes; measuring the same thing on both is what makes them agree. The first
    guess comes from stroke extents; the components are those of the ink drawn at that scale.
    """
    return _scale(_Lines.of(strokes), spec)


def _scale(lines: _Lines, spec: RasterSpec) -> float:
    low, high = lines.boxes()
    whole = high.max(1) - low.min(1)
    if whole.max() < _SMALLEST:
        return 1.0
    # A hundredth of the whole: an ink of dots far apart must not grow without bound.
    typical = max(typical_extent((high - low).max(0)), float(whole.max()) / 100)
    scale = fit_scale(spec.stroke_extent / typical, whole, spec)
    solid = lines.scaled(scale).drawn(_solid(spec.pen_width), spec.margin)
    return fit_scale(refine_scale(solid.view(bool), scale, spec), whole, spec)


def refine_scale(solid: np.ndarray, scale: float, spec: RasterSpec) -> float:
    """The scale that makes ordinary components of ``solid`` (bool, drawn at ``scale``) as large as ``spec`` says."""
    extents = np.maximum(connected_components(solid).extent - spec.pen_width, 0)
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
        return blank_raster(spec, "no strokes")
    try:
        _check(ink)
        lines = _Lines.of(ink.strokes)
        scale = _scale(lines, spec)
        pixels = lines.scaled(scale).drawn(_coverage(spec.pen_width), spec.margin)
    except InkError as error:
        raise InkError(f"{ink.id or 'ink'}: {error}") from None
    low = lines.points.min(1)
    origin = (float(low[0]) - spec.margin / scale, float(low[1]) - spec.margin / scale)
    return Raster(pixels, scale, origin)


def _check(ink: Ink) -> None:
    if len(ink.strokes) > _MAX_STROKES:
        raise InkError(f"has {len(ink.strokes)} strokes; an expression may have {_MAX_STROKES}")
    if not all(map(len, ink.strokes)) or not usable_points(np.concatenate(ink.strokes)).all():
        raise InkError("a stroke has no points, or coordinates that are no number or above 1e9")
