"""Hands: which symbol inks go together because, as far as the ids tell, one person wrote them."""

import re
from collections import defaultdict
from dataclasses import dataclass
from random import Random

import numpy as np

from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.train.compose.statistics import ELASTIC
from hmerctl.train.inks import InkBank, SymbolInk

_LARGEST_HAND = 120
_CHUNK = 40
_NUMBERS = re.compile(r"^\d+_(?=[A-Za-z])|[-_]?\d+$")


@dataclass(frozen=True)
class Glyph:
    """A symbol ink in the form the layout works with.

    Attributes:
        points: float64 (points, 2), relative to the top left corner of the bounding box, pixels.
        lengths: points of each stroke.
        width, height: of the bounding box, pixels.
        hook: of a root, the x at which its bar begins; 0.0 for all others.
    """

    points: np.ndarray
    lengths: tuple[int, ...]
    width: float
    height: float
    hook: float = 0.0


def hands_of(sources: list[str]) -> dict[str, str]:
    """Name of the hand of each expression id.

    Ids that differ only in a number, before a name or at the end, share a hand (``65_carlos``, ``66_carlos``;
    ``form03-equation01``, ``form03-equation02``). Where very many do, it was not one person: these are cut, in order,
    into pieces, since neighbours were mostly written by one.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for source in dict.fromkeys(sources):
        groups[_NUMBERS.sub("", source)].append(source)
    hands = {}
    for stem, members in groups.items():
        for i, source in enumerate(members):
            hands[source] = stem if len(members) <= _LARGEST_HAND else f"{stem}#{i // _CHUNK}"
    return hands


class Hands:
    """The glyphs of a bank by class and hand.

    Args:
        bank: symbol inks of the training set.
        vocabulary: names the classes.
        fewest: classes with fewer usable inks are left out.
    """

    def __init__(self, bank: InkBank, vocabulary: Vocabulary, fewest: int = 3) -> None:
        hands = hands_of([ink.source for inks in bank.by_class.values() for ink in inks])
        self.all: dict[str, list[Glyph]] = {}
        self.by_hand: dict[str, dict[str, list[Glyph]]] = defaultdict(lambda: defaultdict(list))
        count: dict[str, int] = defaultdict(int)
        for token, inks in sorted(bank.by_class.items()):
            name = vocabulary.decode([token])[0]
            pairs = [(glyph_of(ink, name), hands[ink.source]) for ink in _usual(inks, name)]
            kept = [(glyph, hand) for glyph, hand in pairs if glyph is not None]
            if len(kept) < fewest:
                continue
            self.all[name] = [glyph for glyph, _ in kept]
            for glyph, hand in kept:
                self.by_hand[hand][name].append(glyph)
                count[hand] += 1
        self.names = list(count)
        self.cumulated = np.cumsum([count[name] for name in self.names]).tolist()

    def draw(self, rng: Random) -> "Writer":
        """Someone to write one expression: a hand, drawn by the number of its inks, and a few to help out."""
        chosen = rng.choices(self.names, cum_weights=self.cumulated, k=3)
        return Writer(self, [self.by_hand[name] for name in chosen], rng)


class Writer:
    """The source of glyphs of one expression: the same hand for the same symbol throughout."""

    def __init__(self, hands: Hands, preferred: list[dict[str, list[Glyph]]], rng: Random) -> None:
        self.hands, self.preferred, self.rng = hands, preferred, rng
        self.chosen: dict[str, list[Glyph]] = {}

    def glyphs(self, name: str) -> list[Glyph]:
        """All that this writer has of a class; never empty for a class of the hands."""
        found = self.chosen.get(name)
        if found is None:
            found = next((hand[name] for hand in self.preferred if name in hand), None)
            if found is None:
                found = self.rng.sample(self.hands.all[name], 2)
            self.chosen[name] = found
        return found

    def draw(self, name: str) -> Glyph:
        """A glyph of a class."""
        found = self.glyphs(name)
        return found[int(self.rng.random() * len(found))]

    def draw_like(self, name: str, width: float, height: float) -> Glyph:
        """A glyph of about this shape: the nearest of up to five; four may come from other hands."""
        own, others, rng = self.glyphs(name), self.hands.all[name], self.rng
        some = [own[int(rng.random() * len(own))]] + [others[int(rng.random() * len(others))] for _ in range(4)]
        wanted = (width + 1) / (height + 1)
        return min(
            some,
            key=lambda g: max(wanted * (g.height + 1), (g.width + 1)) / min(wanted * (g.height + 1), g.width + 1),
        )


def glyph_of(ink: SymbolInk, name: str) -> Glyph | None:
    """The glyph of an ink; None for a root without a clear hook."""
    width, height = ink.size.tolist()
    points = np.concatenate(ink.strokes) + ink.size / 2
    glyph = Glyph(points, tuple(len(s) for s in ink.strokes), width, height)
    if name != "\\sqrt":
        return glyph
    hook = _hook(points, width, height)
    return None if hook is None else Glyph(points, glyph.lengths, width, height, hook)


def _hook(points: np.ndarray, width: float, height: float) -> float | None:
    """Where the bar of a root begins: the leftmost point near the top, right of the lowest point."""
    if height < 5:
        return None
    lowest = points[int(points[:, 1].argmax()), 0]
    near_top = points[(points[:, 1] < 0.25 * height) & (points[:, 0] > lowest), 0]
    if not len(near_top) or not 0.08 * width < near_top.min() < 0.65 * width:
        return None
    return float(near_top.min())


def _usual(inks: list[SymbolInk], name: str) -> list[SymbolInk]:
    """Inks of ordinary shape and size: wrong groups stand out by them."""
    sizes = np.array([ink.size for ink in inks])
    large = np.maximum(sizes.max(1), 1.0)
    shape = np.log((sizes[:, 0] + 0.2 * large) / (sizes[:, 1] + 0.2 * large))
    middle = np.median(shape)
    kept = np.abs(shape - middle) <= max(3.5 * float(np.median(np.abs(shape - middle))), 0.35)
    if name not in ELASTIC:
        kept &= large >= 0.4 * np.median(large)
    return [ink for ink, keep in zip(inks, kept, strict=True) if keep]
