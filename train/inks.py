"""Training inks: normalised strokes in memory, and the bank of symbol inks that augmentation draws from."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hmerctl.runtime.ink import Ink
from hmerctl.runtime.raster import RasterSpec, ink_scale
from hmerctl.runtime.vocabulary import Vocabulary


@dataclass(frozen=True)
class TrainingInk:
    """One labelled ink, scaled to raster pixels.

    Attributes:
        id: the expression's name.
        tokens: int64 (length,), ids without sos and eos.
        points: float64 (points, 2), x and y in pixels at the raster's normal size; smallest x and y are 0.
        lengths: int64 (strokes,), points of each stroke.
        stroke_symbol: int64 (strokes,), index of the symbol a stroke belongs to; every stroke has one.
        symbol_token: int64 (symbols,), vocabulary id of each symbol, 0 where unknown.
    """

    id: str
    tokens: np.ndarray
    points: np.ndarray
    lengths: np.ndarray
    stroke_symbol: np.ndarray
    symbol_token: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """Width and height of the bounding box, pixels, float64 (2,)."""
        return self.points.max(0)


def prepare(ink: Ink, tokens: Iterable[str], vocabulary: Vocabulary, spec: RasterSpec) -> TrainingInk:
    """Scale an ink to raster pixels and number its symbols. Strokes in no group become symbols without a class."""
    scale = ink_scale(ink.strokes, spec)
    points = np.concatenate(ink.strokes)
    stroke_symbol = np.full(len(ink.strokes), -1)
    classes: list[int] = []
    for symbol in ink.symbols:
        free = [s for s in symbol.strokes if 0 <= s < len(ink.strokes) and stroke_symbol[s] < 0]
        if free:
            stroke_symbol[free] = len(classes)
            classes.append(vocabulary.ids.get(symbol.label, 0))
    for s in np.flatnonzero(stroke_symbol < 0):
        stroke_symbol[s] = len(classes)
        classes.append(0)
    return TrainingInk(
        ink.id,
        np.array(vocabulary.encode(tokens)),
        (points - points.min(0)) * scale,
        np.array([len(s) for s in ink.strokes]),
        stroke_symbol,
        np.array(classes),
    )


@dataclass(frozen=True)
class SymbolInk:
    """The ink of one symbol: strokes moved so that the middle of their bounding box is the origin, pixels.

    Attributes:
        strokes: float64 (points, 2) each.
        size: width and height, float64 (2,).
        source: id of the expression it comes from.
    """

    strokes: tuple[np.ndarray, ...]
    size: np.ndarray
    source: str = ""


class InkBank:
    """All symbol inks of a training set by class, to replace one ink of a class by another."""

    def __init__(self, inks: list[TrainingInk]) -> None:
        self.by_class: dict[int, list[SymbolInk]] = defaultdict(list)
        for ink in inks:
            strokes = np.split(ink.points, np.cumsum(ink.lengths)[:-1])
            members: dict[int, list[np.ndarray]] = defaultdict(list)
            for stroke, symbol in zip(strokes, ink.stroke_symbol.tolist(), strict=True):
                members[symbol].append(stroke)
            for symbol, parts in members.items():
                if ink.symbol_token[symbol]:
                    low = np.min([p.min(0) for p in parts], axis=0)
                    high = np.max([p.max(0) for p in parts], axis=0)
                    middle = (low + high) / 2
                    entry = SymbolInk(tuple(p - middle for p in parts), high - low, ink.id)
                    self.by_class[int(ink.symbol_token[symbol])].append(entry)

    def draw(self, token: int, size: np.ndarray, rng: np.random.Generator) -> list[np.ndarray] | None:
        """An ink of class ``token`` scaled to the extent of ``size`` (width, height), or None.

        Of a few candidates the one whose shape (aspect) is nearest is taken, so that a bar stays a bar.
        """
        inks = self.by_class.get(token)
        if not inks:
            return None
        extent = max(float(size.max()), 1.0)
        shape = np.log((size[0] + 0.2 * extent) / (size[1] + 0.2 * extent))
        best, best_distance = None, 0.7
        for choice in rng.integers(len(inks), size=3).tolist():
            candidate = inks[choice]
            larger = max(float(candidate.size.max()), 1.0)
            distance = abs(np.log((candidate.size[0] + 0.2 * larger) / (candidate.size[1] + 0.2 * larger)) - shape)
            if distance < best_distance:
                best, best_distance = candidate, distance
        if best is None:
            return None
        scale = extent / max(float(best.size.max()), 1.0)
        return [s * scale for s in best.strokes]


_ALIKE = (
    "0 1 2 3 4 5 6 7 8 9",
    r"a c e m n o r s u v w x z \alpha \pi \sigma",
    "b d h k l t",
    r"g j p q y \gamma \beta \mu",
    "A B C E F G H I L M N P R S T V X Y",
    r"+ - \times \div \pm",
    r"= < > \leq \geq \neq",
)
"""Classes of like shape and like place: any of a row can stand where another does."""


class Relabeller:
    """Exchanges whole classes of an expression: new expressions with true labels for nothing."""

    def __init__(self, vocabulary: Vocabulary, bank: InkBank) -> None:
        self.rows: dict[int, list[int]] = {}
        for row in _ALIKE:
            ids = [i for i in vocabulary.encode(row.split()) if len(bank.by_class.get(i, ())) >= 5]
            self.rows.update(dict.fromkeys(ids, ids))

    def draw(self, ink: TrainingInk, rng: np.random.Generator) -> dict[int, int]:
        """Old class to new class, for about half of the exchangeable classes of the expression.

        A class is exchangeable if the label has it as often as the ink: then each token is one of the symbols.
        Distinct classes stay distinct.
        """
        in_label, in_ink = Counter(ink.tokens.tolist()), Counter(ink.symbol_token.tolist())
        exchange: dict[int, int] = {}
        present = set(in_label)
        for token, count in in_label.items():
            row = self.rows.get(token)
            if row and in_ink.get(token) == count and rng.random() < 0.5:
                new = row[rng.integers(len(row))]
                if new not in present:
                    exchange[token] = new
                    present.add(new)
        return exchange
