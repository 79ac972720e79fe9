"""Sizes and places of handwritten symbols, measured on a training set.

The model of a row: it has a unit (its writing size) and an axis (its middle height); the extent of a symbol (larger
side of its box) is the unit times a factor of its class, its middle lies on the axis plus the unit times an offset of
its class. Factors, offsets, units and axes are fitted in turn (medians, so that odd inks do not matter). All other
figures are then measured in units of the row: gaps between neighbours, scripts, limits, fractions.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from hmerctl.runtime.components import typical_extent
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.train.compose.alignment import STACKED, Placed, place, symbol_boxes
from hmerctl.train.inks import TrainingInk
from hmerctl.train.latex import LatexError, Row, parse

ELASTIC = frozenset("\\frac \\sqrt \\sum \\int ( ) [ ] \\{ \\} |".split())
"""Symbols whose size follows what they hold; they say nothing about the size of the row."""

_ROUNDS = 8
_FEW = 8
"""So many measurements weigh as much as the general figure they are drawn to."""


@dataclass(frozen=True)
class Spread:
    """Median and standard deviation (from the median deviation) of a measured figure."""

    middle: float
    deviation: float


def _relation_defaults() -> dict[str, Spread]:
    return {name: Spread(*pair) for name, pair in _DEFAULTS.items()}


_DEFAULTS = {
    "sup size": (-0.30, 0.2),
    "sup rise": (-0.05, 0.2),
    "sup gap": (0.1, 0.15),
    "sub size": (-0.35, 0.2),
    "sub rise": (0.1, 0.2),
    "sub gap": (0.05, 0.15),
    "prime size": (-0.8, 0.2),
    "prime rise": (0.1, 0.15),
    "prime gap": (0.1, 0.15),
    "over size": (-0.4, 0.2),
    "over gap": (0.2, 0.1),
    "under size": (-0.4, 0.2),
    "under gap": (0.2, 0.1),
    "numerator size": (-0.1, 0.15),
    "numerator gap": (0.25, 0.12),
    "denominator size": (-0.1, 0.15),
    "denominator gap": (0.25, 0.12),
    "bar overhang": (0.4, 0.25),
    "radicand size": (-0.05, 0.1),
}
"""Log of the size against the parent row; distances in units of the parent row, down and right positive. ``rise`` is
the child's axis against the base's top (sup) or bottom (sub)."""


@dataclass
class LayoutStatistics:
    """What a layout needs to know of handwriting.

    Attributes:
        size: log of a class's extent in units of the row.
        offset: height of a class's middle below the row's axis, in units of the row.
        left_gap, right_gap: what a class adds to the gap before and after it, in units of the row.
        gap: between neighbours.
        relation: sizes and places of rows that hang on symbols; see ``_DEFAULTS``.
        stacked: by operator (``\\sum``, ``\\int``, ``\\lim``), how often its scripts stand above and below it.
        extent: typical extent of an expression's symbols, log pixels.
    """

    size: dict[str, Spread] = field(default_factory=dict)
    offset: dict[str, Spread] = field(default_factory=dict)
    left_gap: dict[str, float] = field(default_factory=dict)
    right_gap: dict[str, float] = field(default_factory=dict)
    gap: Spread = Spread(0.3, 0.2)
    relation: dict[str, Spread] = field(default_factory=_relation_defaults)
    stacked: dict[str, float] = field(default_factory=lambda: {"\\sum": 0.9, "\\int": 0.3, "\\lim": 0.95})
    extent: Spread = Spread(3.0, 0.05)


def measure(inks: Iterable[TrainingInk], vocabulary: Vocabulary) -> LayoutStatistics:
    """Fit the statistics to labelled inks with symbol groups; where there are few, general figures stand in."""
    rows: list[list[Placed]] = []
    extents = []
    for ink in inks:
        boxes = symbol_boxes(ink)
        extents.append(typical_extent(np.maximum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1])))
        tree = tree_of(ink, vocabulary)
        if tree is not None:
            names = [vocabulary.decode([t])[0] if t else "" for t in ink.symbol_token.tolist()]
            rows.append(place(tree, names, boxes))
    statistics = LayoutStatistics()
    if rows:
        statistics.extent = _spread(np.log(np.maximum(extents, 1.0)), statistics.extent)
        _RowFit(rows).fill(statistics)
    return statistics


def tree_of(ink: TrainingInk, vocabulary: Vocabulary) -> Row | None:
    """The label's tree, or None where the label is not well formed."""
    try:
        return parse(vocabulary.decode(ink.tokens.tolist()))
    except LatexError:
        return None


def _spread(values: Sequence[float] | np.ndarray, general: Spread) -> Spread:
    """Median and deviation, drawn to the general figure where there are few values."""
    if not len(values):
        return general
    array = np.asarray(values, np.float64)
    middle = float(np.median(array))
    deviation = 1.4826 * float(np.median(np.abs(array - middle)))
    share = len(array) / (len(array) + _FEW)
    return Spread(share * middle + (1 - share) * general.middle, share * deviation + (1 - share) * general.deviation)


@dataclass(frozen=True)
class _RowSize:
    """Unit (pixels) and axis (y, pixels) of a placed row."""

    unit: float
    axis: float


class _RowFit:
    """The fit of units, axes, factors and offsets, and the figures measured with them."""

    def __init__(self, expressions: list[list[Placed]]) -> None:
        self.rows: list[list[Placed]] = []
        for row in expressions:
            self._collect(row)
        known = [(number, placed) for number, row in enumerate(self.rows) for placed in row if placed.box is not None]
        self.names = sorted({placed.node.symbol for _, placed in known})
        number_of = {name: i for i, name in enumerate(self.names)}
        boxes = np.array([placed.box for _, placed in known]).reshape(-1, 4)
        self.row_of = np.array([number for number, _ in known], int)
        self.class_of = np.array([number_of[placed.node.symbol] for _, placed in known], int)
        sides = np.maximum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1])
        self.extent = np.log(np.maximum(sides, 1.0))
        self.middle = (boxes[:, 1] + boxes[:, 3]) / 2
        self.steady = np.array([name not in ELASTIC for name in self.names], bool)[self.class_of]
        self.size, self.offset = np.zeros(len(self.names)), np.zeros(len(self.names))
        self.unit, self.axis = np.zeros(len(self.rows)), np.zeros(len(self.rows))
        self.count = np.bincount(self.row_of[self.steady], minlength=len(self.rows))
        for _ in range(_ROUNDS):
            self._fit()

    def _collect(self, row: list[Placed]) -> None:
        self.rows.append(row)
        for placed in row:
            for child in placed.rows.values():
                self._collect(child)

    def _fit(self) -> None:
        """One round: rows from classes, then classes from rows of at least two symbols."""
        row, kind = self.row_of[self.steady], self.class_of[self.steady]
        total = np.maximum(self.count, 1)
        logs = self.extent[self.steady] - self.size[kind]
        self.unit = np.bincount(row, logs, len(self.rows)) / total
        heights = self.middle[self.steady] - np.exp(self.unit[row]) * self.offset[kind]
        self.axis = np.bincount(row, heights, len(self.rows)) / total
        enough = self.count[self.row_of] - self.steady >= 1
        weight = np.bincount(self.class_of[enough], minlength=len(self.names))
        for i in range(len(self.names)):
            chosen = enough & (self.class_of == i)
            at = self.row_of[chosen]
            if len(at):
                share = len(at) / (len(at) + 2)
                self.size[i] = share * np.median(self.extent[chosen] - self.unit[at])
                self.offset[i] = share * np.median((self.middle[chosen] - self.axis[at]) / np.exp(self.unit[at]))
        if weight.sum():
            self.size -= (self.size * weight).sum() / weight.sum()
            self.offset -= (self.offset * weight).sum() / weight.sum()

    def fill(self, statistics: LayoutStatistics) -> None:
        """Write everything measured into ``statistics``."""
        enough = self.count[self.row_of] - self.steady >= 1
        for i, name in enumerate(self.names):
            chosen = enough & (self.class_of == i)
            at = self.row_of[chosen]
            size = self.extent[chosen] - self.unit[at]
            offset = (self.middle[chosen] - self.axis[at]) / np.exp(self.unit[at])
            statistics.size[name] = _spread(size, Spread(float(self.size[i]), 0.15))
            statistics.offset[name] = _spread(offset, Spread(float(self.offset[i]), 0.1))
        found: dict[str, list[float]] = defaultdict(list)
        gaps: list[tuple[str, str, float]] = []
        styles: dict[str, list[float]] = defaultdict(list)
        number_of = {id(row): i for i, row in enumerate(self.rows)}

        def size_of(row: list[Placed]) -> _RowSize | None:
            i = number_of[id(row)]
            return _RowSize(float(np.exp(self.unit[i])), float(self.axis[i])) if self.count[i] else None

        for row in self.rows:
            parent = size_of(row)
            if parent is None:
                continue
            gaps += _gaps(row, parent)
            for placed in row:
                if placed.box is not None:
                    for relation, child in placed.rows.items():
                        _relation(placed, relation, child, parent, size_of(child), found, styles)
        for name, values in found.items():
            statistics.relation[name] = _spread(values, statistics.relation[name])
        for name, votes in styles.items():
            statistics.stacked[name] = (sum(votes) + statistics.stacked[name]) / (len(votes) + 1)
        _fit_gaps(gaps, statistics)


def _whole(placed: Placed) -> tuple[float, float, float, float] | None:
    """Box of a symbol with everything on it, or None if any part is unknown."""
    if placed.box is None:
        return None
    boxes = [placed.box]
    for child in placed.rows.values():
        box = _row_box(child)
        if box is None:
            return None
        boxes.append(box)
    return _union(boxes)


def _row_box(row: list[Placed]) -> tuple[float, float, float, float] | None:
    boxes = [_whole(placed) for placed in row]
    known = [box for box in boxes if box is not None]
    return _union(known) if len(known) == len(boxes) else None


def _union(boxes: Sequence[tuple[float, float, float, float]]) -> tuple[float, float, float, float]:
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def _gaps(row: list[Placed], size: _RowSize) -> list[tuple[str, str, float]]:
    """Gaps between known neighbours, in units of the row; out of order (wrongly placed) ones are left out."""
    gaps = []
    for one, two in pairwise(row):
        left, right = _whole(one), _whole(two)
        if left is not None and right is not None:
            gap = (right[0] - left[2]) / size.unit
            if -1 < gap < 3:
                gaps.append((one.node.symbol, two.node.symbol, gap))
    return gaps


def _fit_gaps(gaps: list[tuple[str, str, float]], statistics: LayoutStatistics) -> None:
    """Gap = general + after the left class + before the right class, each drawn to zero where it is rare."""
    if not gaps:
        return
    names = sorted({name for one, two, _ in gaps for name in (one, two)})
    number_of = {name: i for i, name in enumerate(names)}
    left = np.array([number_of[one] for one, _, _ in gaps])
    right = np.array([number_of[two] for _, two, _ in gaps])
    value = np.array([gap for _, _, gap in gaps])
    after, before = np.zeros(len(names)), np.zeros(len(names))
    general = float(np.median(value))
    for _ in range(4):
        rest = value - general - before[right]
        after = np.bincount(left, rest, len(names)) / (np.bincount(left, minlength=len(names)) + _FEW)
        rest = value - general - after[left]
        before = np.bincount(right, rest, len(names)) / (np.bincount(right, minlength=len(names)) + _FEW)
    statistics.gap = _spread(value - after[left] - before[right], statistics.gap)
    statistics.right_gap = dict(zip(names, after.tolist(), strict=True))
    statistics.left_gap = dict(zip(names, before.tolist(), strict=True))


def _relation(
    base: Placed,
    relation: str,
    row: list[Placed],
    parent: _RowSize,
    child: _RowSize | None,
    found: dict[str, list[float]],
    styles: dict[str, list[float]],
) -> None:
    """Measure one row against the symbol on which it hangs."""
    box = _row_box(row)
    if child is None or box is None or base.box is None:
        return
    left, top, right, bottom = base.box
    ratio = float(np.log(child.unit / parent.unit))
    symbol = base.node.symbol
    if symbol == "\\frac":
        name, gap = ("numerator", top - box[3]) if relation == "0" else ("denominator", box[1] - bottom)
        found[f"{name} size"].append(ratio)
        found[f"{name} gap"].append(gap / parent.unit)
        if box[2] - box[0] > 0.5 * (right - left):
            found["bar overhang"].append((right - left - box[2] + box[0]) / parent.unit)
    elif symbol == "\\sqrt" and relation == "0":
        found["radicand size"].append(ratio)
    elif relation in ("sub", "sup"):
        stacked = symbol in STACKED and (box[0] + box[2]) / 2 < right
        if symbol in STACKED:
            styles[symbol].append(float(stacked))
        if stacked:
            name, gap = ("under", box[1] - bottom) if relation == "sub" else ("over", top - box[3])
            found[f"{name} size"].append(ratio)
            found[f"{name} gap"].append(gap / parent.unit)
        else:
            name = "prime" if row[0].node.symbol == "\\prime" else relation
            edge = bottom if relation == "sub" else top
            found[f"{name} size"].append(ratio)
            found[f"{name} rise"].append((child.axis - edge) / parent.unit)
            found[f"{name} gap"].append((box[0] - right) / parent.unit)
