"""From a font's glyph to one that a hand could have written.

A hand has its habits (slant, roundness, tremor, care), drawn once; each glyph, and each stroke of it, then goes its
own way: strokes are smoothed, bent, turned, moved and lifted too early or too late, and some are joined.
"""

from dataclasses import dataclass

import numpy as np

from hmerctl.train.fonts.sources import Strokes

_STEP = 1.6
"""Distance between points of a stroke in the fonts' measure, where capitals are 20 high."""

_MOST_POINTS = 26


@dataclass(frozen=True)
class Hand:
    """Habits of one hand; lengths in parts of the glyph's size.

    Attributes:
        slant: shear to the right.
        stretch: log of width against height.
        roundness: deviation of the smoothing along a stroke, points.
        wobble: deviation of a stroke from its course.
        bend: warp of a glyph's plane.
        carelessness: deviation of a stroke's place; its size and turn follow.
        lift: by how much a stroke's ends are cut or drawn on.
        join: probability that two strokes that nearly meet are written without lifting the pen.
    """

    slant: float
    stretch: float
    roundness: float
    wobble: float
    bend: float
    carelessness: float
    lift: float
    join: float


def draw_hand(rng: np.random.Generator) -> Hand:
    """Draw the habits of a hand."""
    return Hand(
        slant=float(rng.normal(0.05, 0.16)),
        stretch=float(rng.normal(0.0, 0.14)),
        roundness=float(rng.uniform(0.3, 1.6)),
        wobble=float(rng.uniform(0.008, 0.035)),
        bend=float(rng.uniform(0.03, 0.12)),
        carelessness=float(rng.uniform(0.015, 0.06)),
        lift=float(rng.uniform(0.02, 0.09)),
        join=float(rng.uniform(0.0, 0.5)),
    )


def write_glyph(strokes: Strokes, hand: Hand, rng: np.random.Generator) -> Strokes:
    """The glyph as a hand writes it this time: float64 (points, 2) strokes in the fonts' measure.

    Deterministic in the state of ``rng``.
    """
    points = np.concatenate(strokes)
    low, high = points.min(0), points.max(0)
    size = max(float((high - low).max()), 1.0)
    written = [_stroke(_even(stroke), size, hand, rng) for stroke in strokes]
    if len(written) > 1:
        written = _joined(written, size, hand, rng)
    return _bent(written, (low + high) / 2, size, hand, rng)


def _even(stroke: np.ndarray) -> np.ndarray:
    """Points at even distances along a stroke."""
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(stroke, axis=0).T))])
    count = int(np.clip(round(along[-1] / _STEP), 2, _MOST_POINTS))
    at = np.linspace(0.0, along[-1], count + 1)
    return np.stack([np.interp(at, along, stroke[:, 0]), np.interp(at, along, stroke[:, 1])], 1)


def _stroke(stroke: np.ndarray, size: float, hand: Hand, rng: np.random.Generator) -> np.ndarray:
    """One stroke: rounded, trembling, ends too early or too late, a little off its place."""
    count = len(stroke)
    if count > 4:
        stroke = _rounded(stroke, hand.roundness * float(rng.uniform(0.5, 1.3)))
    sides = np.ptp(stroke, axis=0)
    own = max(float(sides.max()), 0.15 * size)
    # Slow waves along the stroke: sines of one half to two and a half periods. Bars are drawn straighter.
    wobble = hand.wobble * own * (0.5 if sides.min() < 0.15 * sides.max() else 1.0)
    phase = np.linspace(0.0, 1.0, count)[:, None] * rng.uniform(0.5, 2.5, 3) * 2 * np.pi + rng.uniform(0, 6.3, 3)
    stroke = stroke + np.sin(phase) @ rng.normal(0.0, wobble, (3, 2))
    if count > 3:
        ends = rng.normal(0.0, hand.lift, 2)
        at = np.linspace(-ends[0], 1.0 + ends[1], count) * (count - 1)
        stroke = _at(stroke, at)
    middle = (stroke.min(0) + stroke.max(0)) / 2
    turn, scale = rng.normal(0.0, 1.8 * hand.carelessness), np.exp(rng.normal(0.0, 2.0 * hand.carelessness, 2))
    rotate = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    moved = rng.normal(0.0, hand.carelessness, 2) * size
    return (stroke - middle) * scale @ rotate.T + middle + moved


def _rounded(stroke: np.ndarray, deviation: float) -> np.ndarray:
    """A stroke smoothed by a Gaussian along its points; its ends stay."""
    reach = 3
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / max(deviation, 0.1)) ** 2)
    kernel /= kernel.sum()
    # Reflected through its end points, a straight stroke stays straight.
    before = 2 * stroke[:1] - stroke[reach:0:-1]
    after = 2 * stroke[-1:] - stroke[-2 : -reach - 2 : -1]
    padded = np.concatenate([before, stroke, after])
    return np.stack([np.convolve(padded[:, k], kernel, "valid") for k in (0, 1)], 1)


def _at(stroke: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Points at fractional indices; beyond its ends a stroke goes straight on."""
    last = len(stroke) - 1
    first = np.clip(np.floor(at).astype(int), 0, last - 1)
    return stroke[first] + (stroke[first + 1] - stroke[first]) * (at - first)[:, None]


def _joined(strokes: Strokes, size: float, hand: Hand, rng: np.random.Generator) -> Strokes:
    """Strokes whose ends nearly meet, without lifting the pen between them, as often as the hand does so."""
    out = [strokes[0]]
    for stroke in strokes[1:]:
        near = np.hypot(*(stroke[0] - out[-1][-1])) < 0.25 * size
        if near and len(stroke) > 3 and rng.random() < hand.join:
            out[-1] = np.concatenate([out[-1], stroke])
        else:
            out.append(stroke)
    return out


def _bent(strokes: Strokes, middle: np.ndarray, size: float, hand: Hand, rng: np.random.Generator) -> Strokes:
    """All strokes through one smooth map of the plane: a quadratic warp, then stretch, slant and turn."""
    lengths = np.cumsum([len(s) for s in strokes])[:-1]
    u = (np.concatenate(strokes) - middle) * (2 / size)
    flat = np.ptp(u, axis=0).min() < 0.3
    terms = np.stack([u[:, 0] ** 2, u[:, 0] * u[:, 1], u[:, 1] ** 2], 1)
    u = u + terms @ rng.normal(0.0, hand.bend * (0.4 if flat else 1.0), (3, 2))
    stretch = np.exp((hand.stretch + rng.normal(0.0, 0.08)) / 2)
    slant, turn = hand.slant + rng.normal(0.0, 0.06), rng.normal(0.0, 0.05)
    shape = np.array([[stretch, -slant / stretch], [0.0, 1 / stretch]])
    rotate = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return np.split(u @ (rotate @ shape).T * (size / 2) + middle, lengths)
