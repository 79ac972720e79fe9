"""Hands that write with the glyphs of fonts, and the sizes and places that go with them."""

import math
from collections.abc import Iterable
from pathlib import Path
from random import Random

import numpy as np

from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.train.compose.composer import Composer
from hmerctl.train.compose.hands import Glyph, glyph_of
from hmerctl.train.compose.statistics import LayoutStatistics, Spread
from hmerctl.train.dataset import Origin
from hmerctl.train.fonts.drawn import drawn_glyphs
from hmerctl.train.fonts.formulas import Formulas
from hmerctl.train.fonts.handwriting import Hand, draw_hand, write_glyph
from hmerctl.train.fonts.sources import CAPITAL, Strokes, hershey_glyphs, svg_files, svg_glyphs
from hmerctl.train.inks import SymbolInk

WORDS = {f"\\{word}": word for word in ("sin", "cos", "tan", "log", "lim")}
"""Tokens that are written letter by letter."""

LICENCE = "Apache-2.0"
"""Of expressions composed from the fonts: no font used has a say in what is written with it (docs/fonts.md)."""

_OWN_WAY = 0.75
"""Share of a class's glyphs that a hand writes in its usual way, the rest in a second one."""

_DRAWN_SHARE = 0.6
"""Share of the ways that are taken from the project's own glyphs, where a font has the token too."""

_LETTER_GAP = 3.0


class FontHands:
    """The glyphs of all fonts by token, and hands to write them.

    Args:
        svg_fonts: SVG stroke fonts of your own, files or folders, besides the Hershey fonts and the drawn glyphs.

    Raises:
        ConfigError: the Hershey fonts are not installed.
        DataError: an SVG font cannot be read.
    """

    def __init__(self, svg_fonts: Iterable[Path] = ()) -> None:
        self.drawn = drawn_glyphs()
        self.fonts: dict[str, list[Strokes]] = {}
        for glyphs in (hershey_glyphs(), svg_glyphs(svg_fonts)):
            for token, ways in glyphs.items():
                self.fonts.setdefault(token, []).extend(ways)

    @property
    def tokens(self) -> set[str]:
        """All that can be written."""
        return self.drawn.keys() | self.fonts.keys() | WORDS.keys()

    def ways(self, token: str) -> list[Strokes]:
        """All glyphs of a token (not of a word), drawn ones first."""
        return [*self.drawn.get(token, ()), *self.fonts.get(token, ())]

    def draw(self, rng: Random) -> "FontWriter":
        """Someone to write one expression."""
        return FontWriter(self, rng)

    def statistics(self) -> LayoutStatistics:
        """Figures for the layout: sizes and heights as the fonts have them, gaps set by hand.

        Nothing here is measured on handwriting. Small letters are taken somewhat larger than the fonts draw them.
        """
        statistics = LayoutStatistics(left_gap=dict(_LEFT_GAPS), right_gap=dict(_RIGHT_GAPS))
        for token in sorted(self.tokens):
            boxes = [_box(strokes) for strokes in ([self._word(token)] if token in WORDS else self.ways(token))]
            extent = float(np.median([max((high - low).max(), 1.0) for low, high in boxes]))
            middle = float(np.median([(low[1] + high[1]) / 2 for low, high in boxes]))
            size = math.log(extent / CAPITAL)
            small_letter = len(token) == 1 and token.islower()
            statistics.size[token] = Spread(0.75 * size if small_letter and size < 0 else size, 0.16)
            statistics.offset[token] = Spread((middle - CAPITAL / 2) / CAPITAL, 0.1)
        return statistics

    def _word(self, token: str) -> Strokes:
        return _side_by_side([self.ways(letter)[0] for letter in WORDS[token]])


class FontWriter:
    """One hand: its habits, and its ways to write each token, the same throughout an expression."""

    def __init__(self, hands: FontHands, rng: Random) -> None:
        self.hands, self.rng = hands, rng
        self.noise = np.random.default_rng(rng.getrandbits(64))
        self.hand: Hand = draw_hand(self.noise)
        self.chosen: dict[str, tuple[Strokes, Strokes]] = {}

    def draw(self, name: str) -> Glyph:
        """A glyph of a token, written anew each time."""
        for _ in range(4):
            strokes = self._word(name) if name in WORDS else self._symbol(name)
            glyph = _glyph(strokes, name)
            if glyph is not None:
                return glyph
        glyph = _glyph(self.hands.drawn[name][0], name)
        assert glyph is not None, f"{name}: the first drawn glyph must have its parts where they belong"
        return glyph

    def draw_like(self, name: str, width: float, height: float) -> Glyph:
        """A glyph to be stretched to this box: fonts have one shape, so any will do."""
        return self.draw(name)

    def _symbol(self, name: str) -> Strokes:
        if name not in self.chosen:
            self.chosen[name] = (self._way(name), self._way(name))
        usual, other = self.chosen[name]
        return write_glyph(usual if self.rng.random() < _OWN_WAY else other, self.hand, self.noise)

    def _way(self, name: str) -> Strokes:
        drawn, fonts = self.hands.drawn.get(name, []), self.hands.fonts.get(name, [])
        return self.rng.choice(drawn if drawn and (not fonts or self.rng.random() < _DRAWN_SHARE) else fonts)

    def _word(self, name: str) -> Strokes:
        return _side_by_side([self._symbol(letter) for letter in WORDS[name]])


def font_origin(svg_fonts: Iterable[Path] = ()) -> Origin:
    """What is said of such expressions, and of what is trained on them."""
    others = [file.stem for path in svg_fonts for file in svg_files(path)]
    return Origin(
        f"expressions composed from stroke fonts ({', '.join(['drawn glyphs, Hershey fonts', *others])})", LICENCE
    )


def font_composer(vocabulary: Vocabulary, spec: RasterSpec, svg_fonts: Iterable[Path] = ()) -> Composer:
    """A composer that needs no data: labels by rules, glyphs of fonts, sizes and places set by hand."""
    hands = FontHands(svg_fonts)
    return Composer(Formulas(), hands, hands.statistics(), vocabulary, spec)


def _side_by_side(letters: list[Strokes]) -> Strokes:
    out: Strokes = []
    right = 0.0
    for letter in letters:
        low, high = _box(letter)
        out += [stroke + np.array((right - low[0], 0.0)) for stroke in letter]
        right += high[0] - low[0] + _LETTER_GAP
    return out


def _box(strokes: Strokes) -> tuple[np.ndarray, np.ndarray]:
    points = np.concatenate(strokes)
    return points.min(0), points.max(0)


def _glyph(strokes: Strokes, name: str) -> Glyph | None:
    low, high = _box(strokes)
    return glyph_of(SymbolInk(tuple(s - (low + high) / 2 for s in strokes), high - low), name)


_AIRY = "+ - \\times \\div \\pm \\cdot = < > \\leq \\geq \\neq \\rightarrow \\in".split()
_LEFT_GAPS = {
    **dict.fromkeys(_AIRY, 0.1),
    **dict.fromkeys(") ] \\} ! \\prime".split(), -0.08),
    **dict.fromkeys(", .".split(), -0.15),
    **dict.fromkeys("0123456789", -0.06),
}
_RIGHT_GAPS = {
    **dict.fromkeys(_AIRY, 0.1),
    **dict.fromkeys("( [ \\{".split(), -0.08),
    **dict.fromkeys("0123456789", -0.06),
    ",": 0.12,
    ".": -0.08,
}
"""What a token adds to the gap before and after it, in units of the row; set by hand."""
