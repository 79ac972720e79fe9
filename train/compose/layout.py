"""A small box layout: where the symbols of a tree go, as a hand would put them.

Everything is placed in pixels, y down, each row with its axis at y = 0; boxes are those of the real glyphs, so the
size of the result is known before a point is computed.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np

from hmerctl.train.compose.alignment import STACKED
from hmerctl.train.compose.grammar import CLOSING, OPENING
from hmerctl.train.compose.hands import Glyph
from hmerctl.train.compose.statistics import LayoutStatistics, Spread
from hmerctl.train.latex import Node, Row

_SMALLEST = 0.42
"""Scripts of scripts do not shrink below this part of the main row's size."""

_NEUTRAL = Spread(0.0, 0.15)


class GlyphSource(Protocol):
    """Someone who writes an expression."""

    def draw(self, name: str) -> Glyph:
        """A glyph of a class."""
        ...

    def draw_like(self, name: str, width: float, height: float) -> Glyph:
        """A glyph of about this shape."""
        ...


@dataclass
class Placement:
    """A symbol's glyph and the box that it fills.

    Attributes:
        name: the symbol's token.
        glyph: its ink.
        left, top, right, bottom: the box, pixels.
        hook: width of a root's part left of its bar; 0.0 for all others.
    """

    name: str
    glyph: Glyph
    left: float
    top: float
    right: float
    bottom: float
    hook: float = 0.0

    def points(self) -> np.ndarray:
        """The glyph's points stretched into the box, float64 (points, 2)."""
        glyph = self.glyph
        scale = (
            (self.right - self.left) / glyph.width if glyph.width else 0.0,
            (self.bottom - self.top) / glyph.height if glyph.height else 0.0,
        )
        points = glyph.points * scale
        if self.hook:
            ends, places = (0.0, glyph.hook, glyph.width), (0.0, self.hook, self.right - self.left)
            points[:, 0] = np.interp(glyph.points[:, 0], ends, places)
        points += np.array((self.left, self.top))
        return points


class Block:
    """Placements that move together, and their common box."""

    __slots__ = ("bottom", "left", "placements", "right", "top")

    def __init__(self, placements: list[Placement]) -> None:
        self.placements = placements
        self.left = min(p.left for p in placements)
        self.top = min(p.top for p in placements)
        self.right = max(p.right for p in placements)
        self.bottom = max(p.bottom for p in placements)

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    def shift(self, x: float, y: float) -> "Block":
        """Move everything; returns itself."""
        for p in self.placements:
            p.left += x
            p.right += x
            p.top += y
            p.bottom += y
        self.left += x
        self.right += x
        self.top += y
        self.bottom += y
        return self


def joined(blocks: Iterable[Block]) -> Block:
    """One block of several, in their order."""
    return Block([p for block in blocks for p in block.placements])


class Layout:
    """Lays out one expression of one writer; make a new one for the next.

    What varies from writer to writer (spacing, size of scripts, how a class is sized) is drawn once, the rest for
    each symbol.

    Args:
        statistics: measured figures.
        writer: gives the glyphs.
        rng: of all that varies.
        sloppiness: factor on every deviation.
    """

    def __init__(
        self, statistics: LayoutStatistics, writer: GlyphSource, rng: Random, sloppiness: float = 1.0
    ) -> None:
        self.statistics, self.writer, self.rng = statistics, writer, rng
        self.sloppiness = sloppiness
        self.habits: dict[str, float] = {}
        self.spacing = math.exp(self._noise(0.25))
        self.smallest = 0.0

    def expression(self, row: Row, unit: float) -> Block:
        """The whole expression, placements in the order of the label's symbols.

        Args:
            row: its tree; all symbols must be among the writer's.
            unit: size of the main row, pixels.
        """
        self.smallest = _SMALLEST * unit
        return self.row(row, unit)

    def row(self, row: Row, unit: float) -> Block:
        """Nodes side by side, around the axis y = 0; starts at x = 0."""
        blocks = self._blocks(row, unit)
        right, drift = 0.0, 0.0
        for i, (node, block) in enumerate(zip(row, blocks, strict=True)):
            drift = 0.8 * drift + self._noise(0.05 * unit)
            gap = self._gap(row[i - 1].symbol, node.symbol) * unit if i else 0.0
            block.shift(right + gap - block.left, drift)
            right = max(block.right, right)
        return joined(blocks)

    # -- figures ---------------------------------------------------------------------------------------------------

    def _noise(self, deviation: float) -> float:
        return min(max(self.rng.gauss(0.0, 1.0), -2.2), 2.2) * deviation * self.sloppiness

    def _figure(self, key: str, spread: Spread) -> float:
        """A measured figure: the writer's habit, and a part that is new every time."""
        habit = self.habits.get(key)
        if habit is None:
            habit = self.habits[key] = self._noise(0.7 * spread.deviation)
        return spread.middle + habit + self._noise(0.6 * spread.deviation)

    def _relation(self, name: str) -> float:
        return self._figure(name, self.statistics.relation[name])

    def _gap(self, left: str, right: str) -> float:
        s = self.statistics
        gap = s.gap.middle + s.right_gap.get(left, 0.0) + s.left_gap.get(right, 0.0)
        return max(gap * self.spacing + self._noise(0.6 * s.gap.deviation), -0.12)

    def _smaller(self, unit: float, name: str) -> float:
        """Unit of a row that hangs on one of ``unit``."""
        return max(unit * math.exp(min(self._relation(f"{name} size"), 0.1)), self.smallest)

    # -- symbols ---------------------------------------------------------------------------------------------------

    def _extent(self, name: str, unit: float) -> float:
        return unit * math.exp(self._figure(f"size {name}", self.statistics.size.get(name, _NEUTRAL)))

    def _symbol(self, name: str, unit: float) -> Block:
        """A symbol in its own shape, at x = 0."""
        glyph = self.writer.draw(name)
        scale = self._extent(name, unit) / max(glyph.width, glyph.height, 1.0)
        offset = self._figure(f"offset {name}", self.statistics.offset.get(name, _NEUTRAL)) * unit
        width, height = glyph.width * scale, glyph.height * scale
        return Block([Placement(name, glyph, 0.0, offset - height / 2, width, offset + height / 2)])

    def _tall(self, name: str, unit: float, top: float, bottom: float, reach: float) -> Block:
        """A bracket or integral, stretched where what it holds (``top`` to ``bottom``) is tall."""
        block = self._symbol(name, unit)
        needed = (bottom - top) * reach
        if needed <= block.height:
            return block
        plain = block.placements[0]
        glyph = self.writer.draw_like(name, plain.right - plain.left, needed)
        scale = block.height / max(glyph.height, 1.0)
        width = glyph.width * scale * (needed / block.height) ** 0.4
        middle = (top + bottom) / 2 + self._noise(0.06 * needed)
        return Block([Placement(name, glyph, 0.0, middle - needed / 2, width, middle + needed / 2)])

    def _blocks(self, row: Row, unit: float) -> list[Block]:
        """Blocks of all nodes with their scripts; brackets and big operators last, they hold the others."""
        cores: list[Block | None] = [
            None if _waits(node.symbol) else self._scripted(node, self._core(node, unit), unit) for node in row
        ]
        for i in reversed(range(len(row))):
            if row[i].symbol in ("\\int", "\\sum"):
                held = [block for block in cores[i + 1 : i + 4] if block is not None]
                cores[i] = self._scripted(row[i], self._operator(row[i].symbol, unit, held), unit)
        for first, last in _pairs(row):
            held = [block for block in cores[first + 1 : last] if block is not None]
            for i in (first, last):
                cores[i] = self._scripted(row[i], self._bracket(row[i].symbol, unit, held), unit)
        return [
            block if block is not None else self._scripted(node, self._symbol(node.symbol, unit), unit)
            for node, block in zip(row, cores, strict=True)
        ]

    def _bracket(self, name: str, unit: float, held: list[Block]) -> Block:
        if not held:
            return self._symbol(name, unit)
        top, bottom = min(b.top for b in held), max(b.bottom for b in held)
        return self._tall(name, unit, top, bottom, 1.05 + self._noise(0.08))

    def _operator(self, name: str, unit: float, held: list[Block]) -> Block:
        if not held:
            return self._symbol(name, unit)
        top, bottom = min(b.top for b in held), max(b.bottom for b in held)
        return self._tall(name, unit, top, bottom, (0.95 if name == "\\int" else 0.65) + self._noise(0.12))

    def _core(self, node: Node, unit: float) -> Block:
        if node.symbol == "\\frac":
            return self._fraction(node, unit)
        if node.symbol == "\\sqrt":
            return self._root(node, unit)
        return self._symbol(node.symbol, unit)

    def _fraction(self, node: Node, unit: float) -> Block:
        over = self.row(node.arguments[0], self._smaller(unit, "numerator"))
        under = self.row(node.arguments[1], self._smaller(unit, "denominator"))
        width = max(over.width, under.width) + max(self._relation("bar overhang"), 0.05) * unit
        glyph = self.writer.draw_like("\\frac", width, 0.05 * width)
        scale = width / max(glyph.width, 1.0)
        # A longer bar is not thrown up and down as much.
        height = min(glyph.height * min(scale, math.sqrt(scale)), 0.35 * unit)
        middle = self._figure("bar", Spread(self.statistics.offset.get("\\frac", _NEUTRAL).middle, 0.1)) * unit
        bar = Placement("\\frac", glyph, 0.0, middle - height / 2, width, middle + height / 2)
        rise = max(self._relation("numerator gap"), 0.08) * unit
        fall = max(self._relation("denominator gap"), 0.08) * unit
        free = (width - over.width) / 2, (width - under.width) / 2
        over.shift(free[0] * (1 + self._noise(0.3)) - over.left, bar.top - rise - over.bottom)
        under.shift(free[1] * (1 + self._noise(0.3)) - under.left, bar.bottom + fall - under.top)
        return joined((Block([bar]), over, under))

    def _root(self, node: Node, unit: float) -> Block:
        inner = self.row(node.arguments[0], self._smaller(unit, "radicand"))
        top = inner.top - max(0.22 + self._noise(0.1), 0.05) * unit
        bottom = inner.bottom + self._noise(0.12) * unit + 0.05 * unit
        height = bottom - top
        space = max(0.1 + self._noise(0.12), -0.1) * unit
        behind = max(0.15 + self._noise(0.15), -0.15) * unit
        glyph = self.writer.draw_like("\\sqrt", inner.width + 0.6 * unit, height)
        hook = min(max(glyph.hook * height / glyph.height, 0.25 * unit), 0.9 * unit)
        left = inner.left - space - hook
        root = Placement("\\sqrt", glyph, left, top, max(inner.right + behind, left + 1.3 * hook), bottom, hook)
        blocks = [Block([root]), inner]
        if node.index is not None:
            index = self.row(node.index, self._smaller(unit, "sup"))
            end = left + hook * (0.6 + self._noise(0.15))
            index.shift(end - index.right, top + (0.4 + self._noise(0.1)) * height - index.bottom)
            blocks.insert(1, index)
        return joined(blocks)

    # -- scripts ---------------------------------------------------------------------------------------------------

    def _scripted(self, node: Node, core: Block, unit: float) -> Block:
        """A block with the node's scripts beside it, or above and below it."""
        if node.sub is None and node.sup is None:
            return core
        blocks = [core]
        stacked = node.symbol in STACKED and node.symbol != "\\frac" and self._stacks(node.symbol)
        for name, row in (("sub", node.sub), ("sup", node.sup)):
            if row is not None:
                blocks.append(self._limit(name, row, core, unit) if stacked else self._script(name, row, core, unit))
        if len(blocks) == 3 and not stacked:
            overlap = blocks[2].bottom - blocks[1].top + 0.05 * unit
            if overlap > 0:
                blocks[1].shift(0.0, overlap / 2)
                blocks[2].shift(0.0, -overlap / 2)
        return joined(blocks)

    def _stacks(self, name: str) -> bool:
        """The writer's habit: limits above and below, or beside."""
        key = f"stacked {name}"
        if key not in self.habits:
            self.habits[key] = float(self.rng.random() < self.statistics.stacked[name])
        return bool(self.habits[key])

    def _limit(self, name: str, row: Row, core: Block, unit: float) -> Block:
        place = "under" if name == "sub" else "over"
        block = self.row(row, self._smaller(unit, place))
        gap = max(self._relation(f"{place} gap"), 0.03) * unit
        x = (core.left + core.right - block.left - block.right) / 2 + self._noise(0.15 * unit)
        y = core.bottom + gap - block.top if name == "sub" else core.top - gap - block.bottom
        return block.shift(x, y)

    def _script(self, name: str, row: Row, core: Block, unit: float) -> Block:
        kind = "prime" if row[0].symbol == "\\prime" else name
        block = self.row(row, self._smaller(unit, kind))
        gap = max(self._relation(f"{kind} gap"), -0.1) * unit
        rise = self._relation(f"{kind} rise") * unit
        if name == "sup":
            y = min(core.top, -0.35 * unit) + rise
            # A tall script, such as a fraction, stays above the middle of its base.
            y = min(y, core.top + 0.45 * min(core.height, unit) - block.bottom)
        else:
            y = max(core.bottom, 0.35 * unit) + rise
            y = max(y, core.bottom - 0.45 * min(core.height, unit) - block.top)
        return block.shift(core.right + gap - block.left, y)


def _waits(symbol: str) -> bool:
    return symbol in ("|", "\\int", "\\sum") or symbol in OPENING or symbol in CLOSING


def _pairs(row: Row) -> list[tuple[int, int]]:
    """Brackets that belong together, inner ones first; bars in the order in which they come."""
    pairs, opened, bar = [], [], -1
    for i, node in enumerate(row):
        if node.symbol in OPENING:
            opened.append(i)
        elif node.symbol in CLOSING and opened:
            pairs.append((opened.pop(), i))
        elif node.symbol == "|":
            if bar >= 0:
                pairs.append((bar, i))
            bar = -1 if bar >= 0 else i
    return sorted(pairs, key=lambda pair: pair[1] - pair[0])
