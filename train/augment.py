"""Augmentation on strokes, before drawing: what a pen could have done otherwise without changing the label."""

from dataclasses import dataclass, replace

import numpy as np

from hmerctl.train.config import AugmentConfig
from hmerctl.train.inks import InkBank, Relabeller, TrainingInk


@dataclass(frozen=True)
class View:
    """The whole-expression distortion of one sample, known before it is drawn (batches are planned from it).

    Attributes:
        matrix: float64 (2, 2), applied to column vectors (x, y): rotation, slant, aspect and scale.
        pen: pen width, pixels.
        seed: of everything else drawn for this sample.
        stretched: the matrix has a stretch of the stepwise views (see train/views.py).
    """

    matrix: np.ndarray
    pen: float
    seed: tuple[int, ...]
    stretched: bool = False

    def extent(self, size: np.ndarray) -> np.ndarray:
        """About the width and height, pixels, of an ink of ``size`` in this view (a bound but for jitter)."""
        return np.abs(self.matrix) @ size

    def stretch(self, matrix: np.ndarray) -> "View":
        """This view, stretched after all its other distortions; float64 (2, 2), the identity for not at all."""
        stretched = not np.array_equal(matrix, np.eye(2))
        return replace(self, matrix=matrix @ self.matrix, stretched=stretched) if stretched else self


def draw_view(config: AugmentConfig | None, seed: tuple[int, ...], pen: float) -> View:
    """Draw the distortion of one sample; without a configuration the undistorted view.

    Args:
        config: ranges, or None.
        seed: names the sample and the epoch; equal seeds give equal samples on every machine.
        pen: pen width without distortion, pixels.
    """
    if config is None:
        return View(np.eye(2), pen, seed)
    rng = np.random.default_rng(seed)
    angle = np.deg2rad(rng.normal() * config.rotation)
    slant, aspect = rng.normal() * config.slant, np.exp(rng.normal() * config.aspect / 2)
    scale = np.exp(rng.uniform(np.log(config.scale_low), np.log(config.scale_high)))
    rotate = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shear = np.array([[1.0, -slant], [0.0, 1.0]])
    stretch = np.diag([scale * aspect, scale / aspect])
    return View(rotate @ shear @ stretch, float(rng.uniform(config.pen_low, config.pen_high)), (*seed, 1))


@dataclass(frozen=True)
class Sample:
    """A distorted ink: strokes in pixels, the class of each stroke's symbol, and the label.

    Attributes:
        strokes: float64 (points, 2) each.
        classes: int64 (strokes,), 0 where unknown.
        tokens: int64 (length,).
        pen: pen width, pixels.
        stretched: see ``View``.
    """

    strokes: list[np.ndarray]
    classes: np.ndarray
    tokens: np.ndarray
    pen: float
    stretched: bool = False


class Augmenter:
    """Turns a training ink and its view into a sample."""

    def __init__(self, config: AugmentConfig | None, bank: InkBank, relabeller: Relabeller) -> None:
        self.config, self.bank, self.relabeller = config, bank, relabeller

    def __call__(self, ink: TrainingInk, view: View) -> Sample:
        """Deterministic: the same ink and view give the same sample."""
        strokes = np.split(ink.points, np.cumsum(ink.lengths)[:-1])
        if self.config is None:
            strokes = [stroke @ view.matrix.T for stroke in strokes]
            return Sample(strokes, ink.symbol_token[ink.stroke_symbol], ink.tokens, view.pen, view.stretched)
        rng = np.random.default_rng(view.seed)
        by_symbol: list[list[np.ndarray]] = [[] for _ in ink.symbol_token]
        for stroke, symbol in zip(strokes, ink.stroke_symbol.tolist(), strict=True):
            by_symbol[symbol].append(stroke)
        exchange = self.relabeller.draw(ink, rng) if rng.random() < self.config.relabel else {}
        drawn = self._symbols(ink, by_symbol, exchange, rng)
        if drawn is None:  # no ink of a new class fits its place: keep the classes as they were
            exchange = {}
            drawn = self._symbols(ink, by_symbol, exchange, rng)
        assert drawn is not None
        out, classes = drawn
        tokens = np.array([exchange.get(t, t) for t in ink.tokens.tolist()], np.int64)
        return Sample(self._distort(out, view, rng), np.array(classes), tokens, view.pen, view.stretched)

    def _symbols(
        self, ink: TrainingInk, by_symbol: list[list[np.ndarray]], exchange: dict[int, int], rng: np.random.Generator
    ) -> tuple[list[np.ndarray], list[int]] | None:
        """All strokes after the changes to single symbols, and their classes; None if an exchange finds no ink."""
        out: list[np.ndarray] = []
        classes: list[int] = []
        for symbol, old_class in enumerate(ink.symbol_token.tolist()):
            new_class = exchange.get(old_class, old_class)
            parts = self._symbol(by_symbol[symbol], old_class, new_class, rng)
            if parts is None:
                return None
            out.extend(parts)
            classes.extend([new_class] * len(parts))
        return out, classes

    def _symbol(
        self, parts: list[np.ndarray], old_class: int, new_class: int, rng: np.random.Generator
    ) -> list[np.ndarray] | None:
        """One symbol's strokes, replaced, moved and resized a little; None if no ink of a new class fits."""
        assert self.config is not None
        points = np.concatenate(parts)
        low, high = points.min(0), points.max(0)
        middle, size = (low + high) / 2, high - low
        centred = None
        if new_class != old_class or (old_class and rng.random() < self.config.replace):
            centred = self.bank.draw(new_class, size, rng)
            if centred is None and new_class != old_class:
                return None
        if centred is None:
            centred = [p - middle for p in parts]
        extent = float(size.max())
        shift = middle + rng.normal(size=2) * self.config.jitter * min(extent, 30.0) / 2
        scale = np.exp(rng.normal() * self.config.jitter)
        return [p * scale + shift for p in centred]

    def _distort(self, strokes: list[np.ndarray], view: View, rng: np.random.Generator) -> list[np.ndarray]:
        """The view's matrix and a smooth warp (a few plane waves of random direction)."""
        assert self.config is not None
        lengths = [len(s) for s in strokes]
        points = np.concatenate(strokes) @ view.matrix.T
        wave = rng.uniform(-1, 1, (3, 2)) / 12
        phase = rng.uniform(0, 2 * np.pi, (3, 2))
        swing = rng.normal(size=(3, 2)) * self.config.warp / np.sqrt(3)
        points = points + (np.sin((points @ wave.T)[:, :, None] + phase) * swing).sum(1)
        return np.split(points, np.cumsum(lengths)[:-1])
