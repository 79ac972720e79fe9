"""The raster contract for ink: the specification written as slow code, golden rasters, and what must not matter."""

import hashlib
import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flood import flood_fill
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hmerctl.runtime.errors import InkError
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.raster import CONTRACT_VERSION, RasterSpec, draw, ink_scale, rasterise_ink
from hmerctl.runtime.samples import sample_paths
from hmerctl.runtime.strokes import read_strokes

SPEC = RasterSpec()
GOLDEN = Path(__file__).parent / "golden"


def reference(strokes: list[list[tuple[float, float]]], pen_width: float, margin: int) -> np.ndarray:
    """docs/raster.md, steps 1 to 5, pixel by pixel in Python's own integers."""
    low_x, low_y = min(x for s in strokes for x, _ in s), min(y for s in strokes for _, y in s)
    segments = []
    for stroke in strokes:
        fixed = [
            (math.floor((x - low_x) * 16 + 0.5) + margin * 16, math.floor((y - low_y) * 16 + 0.5) + margin * 16)
            for x, y in stroke
        ]
        kept = [fixed[0]]
        for point in fixed[1:]:
            if max(abs(point[0] - kept[-1][0]), abs(point[1] - kept[-1][1])) >= 12:
                kept.append(point)
        if kept[-1] != fixed[-1]:
            kept.append(fixed[-1])
        segments += list(zip(kept, kept[1:] or kept, strict=False))
    ends = [p for segment in segments for p in segment]
    width, height = max(x for x, _ in ends) // 16 + 1 + margin, max(y for _, y in ends) // 16 + 1 + margin
    radius = int(pen_width * 128 + 0.5)
    pixels = np.zeros((height, width), np.uint8)
    for row in range(height):
        for column in range(width):
            for (x0, y0), (x1, y1) in segments:
                px, py, sx, sy = column * 16 + 8 - x0, row * 16 + 8 - y0, x1 - x0, y1 - y0
                along, length = px * sx + py * sy, sx * sx + sy * sy
                if along <= 0:
                    squared = px * px + py * py
                elif along >= length:
                    squared = (px - sx) ** 2 + (py - sy) ** 2
                else:
                    squared = (px * sy - py * sx) ** 2 // length
                coverage = ((radius + 128 - math.isqrt(squared * 256)) * 255 + 128) >> 8
                pixels[row, column] = max(pixels[row, column], min(max(coverage, 0), 255))
    return pixels


coordinate = st.floats(0, 24) | st.integers(0, 24 * 32).map(lambda n: n / 32)
stroke_lists = st.lists(st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=5), min_size=1, max_size=3)


@given(stroke_lists, st.sampled_from([1.0, 2.0, 2.5, 4.0]), st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_draw_is_the_specification(strokes, pen_width, margin):
    drawn = draw([np.array(s) for s in strokes], pen_width, margin)
    assert np.array_equal(drawn, reference(strokes, pen_width, margin))


def typical(extents: list[float]) -> float:
    """docs/raster.md, 1.3."""
    ordered = sorted(extents)
    kept = [e for e in ordered if e * 4 >= ordered[(4 * len(ordered) + 4) // 5 - 1]]
    return kept[(len(kept) - 1) // 2]


def component_extents(solid: np.ndarray) -> list[int]:
    """Larger sides of the boxes around what is connected, by flood fill."""
    found = flood_fill(solid)
    return [max(max(side) - min(side) for side in zip(*pixels, strict=True)) + 1 for pixels in found]


def reference_scale(strokes: list[list[tuple[float, float]]]) -> float:
    """docs/raster.md, 1.4."""

    def size(points: list[tuple[float, float]]) -> list[float]:
        return [max(p[axis] for p in points) - min(p[axis] for p in points) for axis in (0, 1)]

    whole = size([point for stroke in strokes for point in stroke])
    if max(whole) < 1e-9:
        return 1.0

    def fit(scale: float) -> float:
        return min([scale, *(room / side for room, side in zip((1266, 242), whole, strict=True) if side > 0)])

    first = fit(17 / max(typical([max(size(stroke)) for stroke in strokes]), max(whole) / 100))
    drawn = reference([[(x * first, y * first) for x, y in stroke] for stroke in strokes], 2, 6)
    measured = max(typical([max(extent - 2, 0) for extent in component_extents(drawn >= 128)]), 2.5)
    return fit((first * 20) / measured)


@given(stroke_lists)
@settings(max_examples=30, deadline=None)
def test_the_scale_is_the_specification(strokes):
    # Small strokes far apart make a raster that is too large for slow code.
    assume(max(np.ptp(np.array(stroke), axis=0).max() for stroke in strokes) > 8)
    assert ink_scale([np.array(s) for s in strokes], SPEC) == reference_scale(strokes)


@given(stroke_lists, st.integers(1, 64), st.integers(0, 40))
@settings(max_examples=15, deadline=None)
def test_thick_pens_are_drawn_as_specified(strokes, pen_width, margin):
    drawn = draw([np.array(s) for s in strokes], pen_width, margin)
    assert np.array_equal(drawn, reference(strokes, pen_width, margin))


@pytest.mark.parametrize(
    "line", [[(0, 0), (180, 41.3)], [(0.3, 37), (200, 0)], [(0, 0), (0.5, 160)], [(199, 3), (0, 3)]]
)
def test_long_lines_are_drawn_as_specified(line):
    """A long segment is visited in pieces; nothing of that may show."""
    assert np.array_equal(draw([np.array(line)], 2, 6), reference([line], 2, 6))


def test_a_dot_is_as_round_as_its_pen():
    dot = draw([np.array([[5.0, 5.0]])], 2, 3)
    # On the corner of four pixels: their centres are at 181 / 256 pixels, the next ones at 404 / 256.
    inner = ((256 + 128 - 181) * 255 + 128) >> 8
    assert dot[3, 3] == dot[2, 3] == dot[3, 2] == dot[2, 2] == inner == 202
    assert dot.sum() == 4 * inner


# -------------------------------------------------------------------------------------- golden rasters


def wave(count: int, width: float, height: float) -> np.ndarray:
    x = np.linspace(0, width, count)
    return np.stack([x, height * np.sin(x * (6.28 / 20))], axis=1).round(3)


CASES: dict[str, list] = {
    "dot": [[(3.3, -2.7)]],
    "two-dots": [[(0, 0)], [(0.25, 80)]],
    "horizontal": [[(0, 0), (10, 0)]],
    "vertical": [[(-4, 100), (-4, -100)]],
    "diagonal": [[(0, 0), (30, 17)]],
    "tiny-units": [[(1e-4, 2e-4), (9e-4, 5e-4), (2e-4, 9e-4)]],
    "equals": [[(0, 0), (11, 0.8), (22, 0.3)], [(1, 7), (12, 8), (23, 7.2)]],
    "far-away": [
        [(1e6 + 1, -2e6), (1e6 + 9, -2e6 + 4.5), (1e6 + 3, -2e6 + 12)],
        [(1e6, -2e6 + 6), (1e6 + 11, -2e6 + 6)],
    ],
    "dense-points": [wave(400, 30, 8).tolist()],
    "point-repeated": [[(0, 0), (0, 0), (0, 0), (8, 5), (8, 5), (0, 10), (0, 0)]],
    "cross": [[(0, 0), (20, 20)], [(20, 0), (0, 20)]],
    "fraction": [[(4, 0), (7, -9), (10, 0)], [(0, 4), (15, 4.4)], [(5, 8), (10, 9), (5, 16), (11, 16)]],
    "too-wide": [[(0, 0), (9, 12)], *[[(20 * i, 0), (20 * i + 9, 12)] for i in range(1, 90)]],
    "too-high": [[(0, 30 * i), (12, 30 * i + 4)] for i in range(40)],
}


def rows_of(pixels: np.ndarray) -> list[str]:
    """Two characters a pixel: hexadecimal, with dots for 00."""
    return [row.tobytes().hex(" ").replace("00", "..").replace(" ", "") for row in pixels]


def golden(strokes: list, note: dict) -> dict:
    ink = Ink(tuple(np.array(s, np.float64).reshape(-1, 2) for s in strokes))
    raster = rasterise_ink(ink, SPEC)
    height, width = raster.pixels.shape
    out = {
        **note,
        "contract": CONTRACT_VERSION,
        "scale": raster.scale,
        "height": height,
        "width": width,
        "sha256": hashlib.sha256(raster.pixels.tobytes()).hexdigest(),
    }
    if height * width <= 4000:
        out["rows"] = rows_of(raster.pixels)
    return out


def all_golden() -> dict[str, dict]:
    """Every case by file name; strokes stand in the file, or in the sample it names."""
    made = {name: golden(strokes, {"strokes": strokes}) for name, strokes in CASES.items()}
    for path in sample_paths():
        strokes = [s.tolist() for s in read_strokes(path).strokes]
        made[f"sample-{path.stem}"] = golden(strokes, {"sample": path.name})
    return made


@pytest.mark.skipif("HMERCTL_WRITE_GOLDEN" not in os.environ, reason="writes the golden rasters only when asked to")
def test_write_golden_rasters():
    """HMERCTL_WRITE_GOLDEN=1 pytest tests/runtime/test_raster.py -k write: only after raising CONTRACT_VERSION."""
    GOLDEN.mkdir(exist_ok=True)
    for name, case in all_golden().items():
        (GOLDEN / f"{name}.json").write_text(json.dumps(case, indent=1) + "\n")


@pytest.mark.parametrize("name", [*CASES, *(f"sample-{p.stem}" for p in sample_paths())])
def test_golden_rasters(name):
    stored = json.loads((GOLDEN / f"{name}.json").read_text())
    if "sample" in stored:
        path = next(p for p in sample_paths() if p.name == stored["sample"])
        strokes = [s.tolist() for s in read_strokes(path).strokes]
        assert golden(strokes, {"sample": path.name}) == stored
    else:
        assert golden(stored["strokes"], {"strokes": stored["strokes"]}) == stored


def test_golden_rasters_hold_what_they_say():
    for path in GOLDEN.glob("*.json"):
        case = json.loads(path.read_text())
        if "rows" in case:
            pixels = bytes.fromhex("".join(case["rows"]).replace("..", "00"))
            assert len(pixels) == case["height"] * case["width"]
            assert hashlib.sha256(pixels).hexdigest() == case["sha256"]


# -------------------------------------------------------------------------------- what must not matter


@st.composite
def inks(draw_from: st.DrawFn) -> Ink:
    """A few zigzag strokes of 5 to 60 units, scattered over a page."""
    strokes = []
    for _ in range(draw_from(st.integers(1, 6))):
        at = np.array([draw_from(st.floats(0, 300)), draw_from(st.floats(0, 60))])
        steps = draw_from(st.lists(st.tuples(st.floats(-30, 30), st.floats(-30, 30)), min_size=1, max_size=5))
        strokes.append(at + np.cumsum(np.array([(5.0, 5.0), *steps]), axis=0))
    return Ink(tuple(strokes))


def moved(ink: Ink, factor: float, x: float, y: float) -> Ink:
    return replace(ink, strokes=tuple(s * factor + (x, y) for s in ink.strokes))


@given(inks(), st.integers(-20, 20))
@settings(deadline=None)
def test_other_units_give_the_same_bits(ink, power):
    """Powers of two are exact in floating point, so here invariance is exact."""
    assert np.array_equal(rasterise_ink(ink).pixels, rasterise_ink(moved(ink, 2.0**power, 0, 0)).pixels)


@given(inks(), st.floats(0.01, 100), st.floats(-1e4, 1e4), st.floats(-1e4, 1e4))
@settings(deadline=None)
def test_size_and_place_do_not_matter(ink, factor, x, y):
    """Rounding may move a point by 1/16 pixel: no pixel changes by more than a tenth of its range."""
    one, two = rasterise_ink(ink), rasterise_ink(moved(ink, factor, x, y))
    if not math.isclose(one.scale, two.scale * factor, rel_tol=1e-6):
        return  # such a point joined or parted two components: test_the_scale_jumps_rarely
    height, width = np.minimum(one.pixels.shape, two.pixels.shape)
    assert max(np.abs(np.subtract(one.pixels.shape, two.pixels.shape))) <= 1
    difference = one.pixels[:height, :width].astype(int) - two.pixels[:height, :width]
    assert np.abs(difference).max() <= 26


def test_the_scale_jumps_rarely():
    """Of the samples at 20 sizes and places, none changes its scale by more than rounding."""
    rng = np.random.default_rng(0)
    for path in sample_paths():
        ink = read_strokes(path)
        for factor in np.exp(rng.uniform(-4, 4, 20)):
            other = moved(ink, factor, *rng.uniform(-1e3, 1e3, 2))
            assert math.isclose(ink_scale(other.strokes, SPEC) * factor, ink_scale(ink.strokes, SPEC), rel_tol=1e-9)


@given(inks(), st.randoms())
@settings(deadline=None)
def test_the_order_of_strokes_does_not_matter(ink, random):
    strokes = list(ink.strokes)
    random.shuffle(strokes)
    assert np.array_equal(rasterise_ink(ink).pixels, rasterise_ink(Ink(tuple(strokes))).pixels)


@given(inks())
@settings(deadline=None)
def test_size_limits_and_margins(ink):
    raster = rasterise_ink(ink)
    height, width = raster.pixels.shape
    assert height <= SPEC.max_height
    assert width <= SPEC.max_width
    blank = SPEC.margin - SPEC.pen_width
    for edge in (raster.pixels[:blank], raster.pixels[-blank:], raster.pixels[:, :blank], raster.pixels[:, -blank:]):
        assert not edge.any()
    assert raster.pixels.max() > 100
    assert raster.blank is None


@given(inks())
@settings(deadline=None)
def test_scale_and_origin_lead_from_ink_to_pixels(ink):
    raster = rasterise_ink(ink)
    for stroke in ink.strokes:
        column, row = ((stroke - raster.origin) * raster.scale).T
        assert (raster.pixels[row.round(6).astype(int), column.round(6).astype(int)] > 0).all()


def test_ordinary_symbols_become_twenty_pixels():
    box = np.array([[0.0, 0], [70, 0], [70, 70], [0, 70], [0, 0]])
    raster = rasterise_ink(Ink(tuple(box + np.array([100 * i, 0]) for i in range(4))))
    rows = np.flatnonzero((raster.pixels >= 128).any(1))
    assert rows[-1] - rows[0] + 1 - SPEC.pen_width == pytest.approx(SPEC.symbol_extent, abs=1)


# ------------------------------------------------------------------------------------------ hard cases


def test_no_strokes_is_blank():
    raster = rasterise_ink(Ink(()))
    assert (raster.blank, raster.pixels.shape, raster.pixels.any()) == ("no strokes", (12, 12), False)


@pytest.mark.parametrize(
    "stroke",
    [np.array([[np.nan, 1]]), np.array([[1, np.inf]]), np.array([[1e300, 0], [0, 0]]), np.empty((0, 2))],
)
def test_strokes_that_cannot_be_drawn_are_refused(stroke):
    with pytest.raises(
        InkError, match="page 3: a stroke has no points, or coordinates that are no number or above 1e9"
    ):
        rasterise_ink(Ink((np.array([[0.0, 0.0], [5, 5]]), stroke), id="page 3"))


@pytest.mark.parametrize(
    "strokes",
    [
        [[(7, 7)]],
        [[(7, 7), (7, 7)]],
        [[(0, 0)], [(5e-324, 0)]],
        [[(0, 0), (1e-300, 1e-310)]],
        [[(0, 0), (1e9, -1e9)]],
        [[(-1e9, 0), (1e9, 0)], [(0, 0)]],
        [[(1e9, 1e9), (1e9 - 1e-6, 1e9)]],
        [[(0, 0), (1e-8, 1e9)]],
    ],
)
def test_extreme_inks_give_a_small_raster(strokes):
    raster = rasterise_ink(Ink(tuple(np.array(s, np.float64) for s in strokes)))
    assert raster.pixels.any()
    assert math.isfinite(raster.scale)
    assert np.isfinite(raster.origin).all()
    assert np.less_equal(raster.pixels.shape, (SPEC.max_height, SPEC.max_width)).all()


def test_a_hundred_thousand_points_are_drawn_quickly():
    begin = time.process_time()
    rasterise_ink(Ink((wave(100_000, 300, 9),)))
    assert time.process_time() - begin < 2


def test_far_too_much_ink_is_refused_quickly():
    begin = time.process_time()
    lines = np.random.default_rng(0).uniform(0, 1, (4000, 60, 2)) * [1000, 200]
    marks = [np.array([[5.0 * i, 210.0], [5.0 * i + 2, 212]]) for i in range(200)]
    with pytest.raises(InkError, match="page 4: holds far more ink than an expression"):
        rasterise_ink(Ink((lines.reshape(-1, 2), *marks), id="page 4"))
    with pytest.raises(InkError, match="page 5: has 30000 strokes; an expression may have 20000"):
        rasterise_ink(Ink((np.zeros((1, 2)),) * 30_000, id="page 5"))
    assert time.process_time() - begin < 4
