"""The raster contract for pictures: a photo, scan or screenshot to the same raster that ink gives.

Decode safely, make it grey, separate ink from paper (``paper``), find the pen's centre lines (``trace``), apply
the size rule of ink to the components, and draw: the centre lines with the raster's own pen, joined with what
is left of the picture's strokes when the difference between the two pens is taken off.
"""

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from hmerctl.runtime.components import typical_extent
from hmerctl.runtime.errors import InkError, PictureError
from hmerctl.runtime.paper import InkMap, find_ink
from hmerctl.runtime.raster import Raster, RasterSpec, blank_raster, draw, fit_scale, refine_scale
from hmerctl.runtime.resample import average, erode, magnify, reduce
from hmerctl.runtime.trace import thin, trace

MAX_FILE_BYTES = 64 * 2**20
MAX_PIXELS = 64_000_000
"""Larger pictures are refused before they are decoded."""

WORK_PIXELS = 4_000_000
"""Pictures with more pixels are reduced by a whole factor first."""

FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF", "TIFF")

_PEN = 8
"""Pen width, in pixels, at which centre lines are sought."""

_BORDER = 2
"""Blank pixels left around the ink, so that its ends are round."""

_MAX_MARKS = 2000
_MAX_LINE_PIXELS = 200_000
_TOO_MANY_LINES = "too many lines for a single expression"


def rasterise_picture(source: Image.Image | str | Path | bytes, spec: RasterSpec | None = None) -> Raster:
    """Normalise a picture of one expression.

    Args:
        source: an opened picture, a path, or the contents of a PNG, JPEG, BMP, WebP, GIF or TIFF file (of
            several frames, the first). Any mode; ink may be darker or lighter than its ground.
        spec: the raster contract's numbers.

    Returns:
        The raster; ``scale`` and ``origin`` refer to pixels of the upright picture (after EXIF rotation). A
        picture without ink gives a blank raster with the reason.

    Raises:
        PictureError: it cannot be read or decoded, or has more than 64 MiB or 64 million pixels.
    """
    return picture_drawer(source)(spec or RasterSpec())


def picture_drawer(source: Image.Image | str | Path | bytes) -> Callable[[RasterSpec], Raster]:
    """``rasterise_picture`` for several contracts: the picture is read, its ink found and its lines traced, once."""
    grey, reduction = reduce(read_grey(source), WORK_PIXELS)
    return partial(_rasterise, _trace_ink(find_ink(grey)), reduction)


@dataclass(frozen=True)
class _Traced:
    """What a picture shows, in working pixels: those in which its pen is about ``_PEN`` wide.

    Attributes:
        lines: centre lines, float64 (points, 2) each.
        solid: what is ink, bool (height, width).
        pen: width of its strokes.
        extents: of its components less the pen, at least the pen; float64 (components,).
        largest: extent of the largest component with its pen.
        factor: working pixels per pixel of the ink map.
        corner: of the working picture in the ink map, x and y.
    """

    lines: list[np.ndarray]
    solid: np.ndarray
    pen: float
    extents: np.ndarray
    largest: float
    factor: float
    corner: np.ndarray

    @cached_property
    def low(self) -> np.ndarray:
        """Smallest x and y of the lines."""
        return np.min([line.min(0) for line in self.lines], axis=0)

    @cached_property
    def whole(self) -> np.ndarray:
        """Width and height of the lines."""
        return np.max([line.max(0) for line in self.lines], axis=0) - self.low


def _trace_ink(ink: InkMap) -> _Traced | str:
    """The centre lines of an ink map, or why it is no expression."""
    if ink.blank is not None:
        return ink.blank
    if len(ink.components) > _MAX_MARKS:
        return f"more than {_MAX_MARKS} separate marks: no single expression"
    left, top = int(ink.components.left.min()), int(ink.components.top.min())
    right, bottom = int(ink.components.right.max()) + 1, int(ink.components.bottom.max()) + 1
    cropped = np.pad(ink.coverage[top:bottom, left:right], _BORDER)
    coverage, factor = magnify(cropped, _PEN / ink.pen_width, 2 * WORK_PIXELS)
    pen = ink.pen_width * factor
    solid = coverage >= 128
    centre = thin(solid)
    if np.count_nonzero(centre) > _MAX_LINE_PIXELS:
        return _TOO_MANY_LINES
    extent = ink.components.extent
    return _Traced(
        lines=trace(centre, spur=pen / 2),
        solid=solid,
        pen=pen,
        extents=np.maximum(extent - ink.pen_width, ink.pen_width) * factor,
        largest=float(extent.max()) * factor,
        factor=factor,
        corner=np.array((left - _BORDER, top - _BORDER)),
    )


def _rasterise(traced: _Traced | str, reduction: int, spec: RasterSpec) -> Raster:
    if isinstance(traced, str):
        return blank_raster(spec, traced)
    try:
        raster = _draw(traced, spec)
    except InkError:
        return blank_raster(spec, _TOO_MANY_LINES)
    x, y = raster.origin
    return Raster(raster.pixels, raster.scale / reduction, (x * reduction, y * reduction))


def _draw(traced: _Traced, spec: RasterSpec) -> Raster:
    """The raster of what was traced, in pixels of the ink map. Raises InkError if it holds too many lines to draw."""
    low, whole = traced.low, traced.whole

    def render(scale: float) -> np.ndarray:
        pixels = draw([line * scale for line in traced.lines], spec.pen_width, spec.margin)
        surplus = traced.pen / 2 - spec.pen_width / (2 * scale)
        core = average(erode(traced.solid, surplus), low - spec.margin / scale, scale, pixels.shape)
        return np.maximum(pixels, core)

    if whole.max() < traced.pen:
        # One dot: nothing but itself to go by.
        scale = spec.pen_width / traced.largest
    else:
        typical = max(typical_extent(traced.extents), float(whole.max()) / 100)
        scale = fit_scale(spec.symbol_extent / typical, whole, spec)
        scale = fit_scale(refine_scale(render(scale) >= 128, scale, spec), whole, spec)
    origin = (low - spec.margin / scale) / traced.factor + traced.corner
    return Raster(render(scale), scale * traced.factor, (float(origin[0]), float(origin[1])))


def read_grey(source: Image.Image | str | Path | bytes) -> np.ndarray:
    """Brightness of a picture, upright and without transparency: uint8 (height, width)."""
    if isinstance(source, Image.Image):
        return _grey(source, "picture")
    if isinstance(source, bytes):
        return _decode(source, "picture")
    path = Path(source)
    try:
        if not path.is_file():
            raise PictureError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            limit = MAX_FILE_BYTES // 2**20
            raise PictureError(f"{path}: has {size / 2**20:.1f} MiB; a picture may have {limit} MiB at most")
        return _decode(path.read_bytes(), str(path))
    except OSError as error:
        raise PictureError(f"{path}: cannot be read: {error.strerror}") from None


def _decode(data: bytes, where: str) -> np.ndarray:
    try:
        with warnings.catch_warnings():
            # Pillow warns of odd metadata and of sizes that are refused here anyway.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                return _grey(image, where)
    except PictureError:
        raise
    except Image.UnidentifiedImageError:
        reason = "not a PNG, JPEG, BMP, WebP, GIF or TIFF picture"
    except Image.DecompressionBombError:
        reason = f"has far more than {MAX_PIXELS // 1_000_000} million pixels; crop or reduce it"
    except Exception as error:  # a decoder may raise anything on broken data
        lines = str(error).splitlines()
        reason = f"broken or cut off: {lines[0] if lines else type(error).__name__}"
    raise PictureError(f"{where}: {reason}")


def _grey(image: Image.Image, where: str) -> np.ndarray:
    width, height = image.size
    if width * height > MAX_PIXELS:
        limit = MAX_PIXELS // 1_000_000
        raise PictureError(f"{where}: has {width} x {height} pixels, more than {limit} million; crop or reduce it")
    if not width * height:
        raise PictureError(f"{where}: has no pixels")
    image = ImageOps.exif_transpose(image)
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _deep_grey(np.asarray(image))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return _flatten(np.asarray(image.convert("RGBA")))
    return np.asarray(image.convert("RGB" if image.mode not in ("1", "L") else "L").convert("L"))


def _deep_grey(values: np.ndarray) -> np.ndarray:
    """16-bit, 32-bit and float pixels to 8 bits: 16-bit by its range, the others by the values they have."""
    if values.dtype.itemsize == 2:
        return (values >> 8).astype(np.uint8)
    values = values.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros(values.shape, np.uint8)
    low, high = float(values[finite].min()), float(values[finite].max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif low >= 0 and high <= 255:
        low, high = 0.0, 255.0
    elif low >= 0 and high <= 65535:
        low, high = 0.0, 65535.0
    values = np.where(finite, values, np.median(values[finite]))
    return np.clip((values - low) / (high - low) * 255 + 0.5, 0, 255).astype(np.uint8)


def _flatten(rgba: np.ndarray) -> np.ndarray:
    """Lay a transparent picture on the ground it was made for.

    Mostly opaque: the visible part is paper with ink, and continues in its own median shade. Mostly
    transparent: the visible part is the ink, and is laid on white if dark, else on black.
    """
    luma = np.asarray(Image.fromarray(np.ascontiguousarray(rgba[:, :, :3])).convert("L")).astype(np.int64)
    alpha = rgba[:, :, 3].astype(np.int64)
    seen = int(alpha.sum())
    if not seen:
        return np.full(luma.shape, 255, np.uint8)
    if seen * 2 > alpha.size * 255:
        ground = int(np.median(luma[alpha >= 128]))
    else:
        ground = 255 if int((luma * alpha).sum()) < 128 * seen else 0
    return ((luma * alpha + ground * (255 - alpha) + 127) // 255).astype(np.uint8)
