"""Composed training inks: a grammar's labels in a writer's glyphs."""

import math
from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np

from hmerctl.runtime.components import typical_extent
from hmerctl.runtime.errors import DataError
from hmerctl.runtime.ink import Ink, Symbol
from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.train.compose.grammar import Grammar, GrammarConfig
from hmerctl.train.compose.hands import Hands
from hmerctl.train.compose.layout import GlyphSource, Layout, Placement
from hmerctl.train.compose.statistics import LayoutStatistics, measure, tree_of
from hmerctl.train.dataset import Expression
from hmerctl.train.inks import InkBank, TrainingInk
from hmerctl.train.latex import Row, write

_UNIT = 20.0
_TRIES = 8
_MOST_SHRINKING = 0.7


@dataclass(frozen=True)
class Composition:
    """A composed expression before its points are computed.

    Attributes:
        id: its name, made of the seed.
        tokens: the label, in normal form.
        placements: its symbols in the order of the label's drawn tokens, in pixels of the layout.
        origin: top left corner of all boxes, in pixels of the layout.
        scale: raster pixels per pixel of the layout.
        size: width and height, raster pixels, float64 (2,).
    """

    id: str
    tokens: tuple[str, ...]
    placements: list[Placement]
    origin: tuple[float, float]
    scale: float
    size: np.ndarray


class Labels(Protocol):
    """Where labels come from."""

    def draw(self, rng: Random) -> Row:
        """A label's tree."""
        ...


class Writers(Protocol):
    """Where glyphs come from."""

    def draw(self, rng: Random) -> GlyphSource:
        """Someone to write one expression."""
        ...


class Composer:
    """Composes expressions.

    Args:
        labels: draws trees whose symbols the writers have.
        writers: draws who writes an expression.
        statistics: sizes and places of symbols.
        vocabulary: of the labels.
        spec: raster contract; what would not fit its largest raster is drawn anew.
    """

    def __init__(
        self,
        labels: Labels,
        writers: Writers,
        statistics: LayoutStatistics,
        vocabulary: Vocabulary,
        spec: RasterSpec,
    ) -> None:
        self.labels, self.writers, self.statistics = labels, writers, statistics
        self.vocabulary, self.spec = vocabulary, spec

    def compose(self, seed: tuple[int, ...]) -> Composition:
        """Draw a label, a writer and a layout. Equal seeds give equal compositions."""
        name = "composed-" + "-".join(map(str, seed))
        rng = Random(name)
        room = np.array([self.spec.max_width, self.spec.max_height]) - 2 * self.spec.margin - 2.0
        best: Composition | None = None
        for _ in range(_TRIES):
            composition = self._attempt(name, rng)
            fits = float((room / composition.size).min())
            if fits >= 1:
                return composition
            if best is None or fits > float((room / best.size).min()):
                best = composition
            if fits >= _MOST_SHRINKING:
                break
        assert best is not None
        fits = float((room / best.size).min())
        return Composition(best.id, best.tokens, best.placements, best.origin, best.scale * fits, best.size * fits)

    def _attempt(self, name: str, rng: Random) -> Composition:
        row = self.labels.draw(rng)
        layout = Layout(self.statistics, self.writers.draw(rng), rng, sloppiness=rng.uniform(0.6, 1.2))
        block = layout.expression(row, _UNIT)
        sides = [max(p.right - p.left, p.bottom - p.top) for p in block.placements]
        extent = self.statistics.extent
        wanted = math.exp(extent.middle + rng.gauss(0.0, 1.0) * extent.deviation)
        scale = wanted / max(typical_extent(np.array(sides)), 1.0)
        size = np.maximum(np.array([block.width, block.height]) * scale, 1.0)
        return Composition(name, write(row), block.placements, (block.left, block.top), scale, size)

    def ink(self, composition: Composition) -> TrainingInk:
        """The points of a composition, one symbol after the other."""
        placements = composition.placements
        points = np.concatenate([p.points() for p in placements])
        lengths = [n for p in placements for n in p.glyph.lengths]
        owners = [i for i, p in enumerate(placements) for _ in p.glyph.lengths]
        return TrainingInk(
            composition.id,
            np.array(self.vocabulary.encode(composition.tokens)),
            (points - composition.origin) * composition.scale,
            np.array(lengths),
            np.array(owners),
            np.array(self.vocabulary.encode(p.name for p in placements)),
        )

    def expression(self, seed: tuple[int, ...]) -> Expression:
        """A composed expression as a row of a dataset."""
        composition = self.compose(seed)
        ink = self.ink(composition)
        strokes = np.split(ink.points, np.cumsum(ink.lengths)[:-1])
        owners = ink.stroke_symbol.tolist()
        members = [[s for s, owner in enumerate(owners) if owner == i] for i in range(len(composition.placements))]
        symbols = (Symbol(p.name, tuple(m)) for p, m in zip(composition.placements, members, strict=True))
        return Expression(
            composition.id, composition.tokens, Ink(tuple(strokes), tuple(symbols), id=composition.id), None, True
        )


def learned_composer(
    inks: list[TrainingInk],
    bank: InkBank,
    vocabulary: Vocabulary,
    spec: RasterSpec,
    grammar: GrammarConfig | None = None,
) -> Composer:
    """A composer that has its labels, glyphs and layout figures from a training set.

    Args:
        inks: labelled inks with symbol groups.
        bank: their symbol inks.
        vocabulary: of the inks' labels.
        spec: raster contract.
        grammar: how far labels go from real ones.

    Raises:
        DataError: there are no inks with symbol groups to compose from.
    """
    hands = Hands(bank, vocabulary)
    trees = (tree_of(ink, vocabulary) for ink in inks)
    try:
        labels = Grammar((tree for tree in trees if tree), hands.all, grammar)
    except ValueError as error:
        raise DataError(f"nothing to compose from: {error}; the dataset needs inks with symbol groups") from error
    return Composer(labels, hands, measure(inks, vocabulary), vocabulary, spec)
