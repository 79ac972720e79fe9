"""Symbol groups against labels: which vocabulary token each group of strokes stands for."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from hmerctl.runtime.ink import Ink, Symbol

STRUCTURE_TOKENS = frozenset({"^", "_", "{", "}"})
"""Tokens that no stroke draws."""

_DOTS = ("\\cdots", "\\ldots")


def drawn_symbols(tokens: Sequence[str]) -> Counter[str]:
    """How often each symbol is drawn in an expression: no scripts, no braces, no brackets of a root's index."""
    drawn = Counter(token for token in tokens if token not in STRUCTURE_TOKENS)
    indices = sum(pair == ("\\sqrt", "[") for pair in pairwise(tokens))
    return drawn - Counter({"[": indices, "]": indices})


def name_symbols(ink: Ink, tokens: Sequence[str]) -> tuple[Ink, bool | None]:
    """Give each symbol group the vocabulary token it stands for, where label and groups leave no doubt.

    Ground truth names some symbols by their look. Where the counts agree with the label, these are renamed: ``-`` to
    ``\\frac`` (the bars with ink above and below, widest first, as many as the label has), ``.`` to ``\\cdot``,
    ``\\ldots`` to ``\\cdots``, and three ``.`` in a row become one group ``\\cdots`` or ``\\ldots``.

    Args:
        ink: with symbol groups as the reader gives them.
        tokens: the normalised label.

    Returns:
        the ink with its groups renamed, and whether the groups have exactly the symbols that the label draws;
        None if the ink has no groups.
    """
    if not ink.symbols:
        return ink, None
    wanted = drawn_symbols(tokens)
    symbols = _name_dots(ink, _name_bars(ink, ink.symbols, wanted), wanted)
    return replace(ink, symbols=tuple(symbols)), _count(symbols) == wanted


def _count(symbols: Sequence[Symbol]) -> Counter[str]:
    return Counter(symbol.label for symbol in symbols)


def _name_bars(ink: Ink, symbols: Sequence[Symbol], wanted: Counter[str]) -> list[Symbol]:
    """Tell minus from fraction bar where both together are as many as the label has."""
    named = list(symbols)
    bars = [i for i, s in enumerate(named) if s.label in ("-", "\\frac")]
    fractions = wanted["\\frac"]
    if len(bars) != wanted["-"] + fractions or _count(named)["\\frac"] == fractions:
        return named
    scores = _bar_scores(ink, named, bars)
    for rank, i in enumerate(sorted(bars, key=lambda i: -scores[i])):
        named[i] = replace(named[i], label="\\frac" if rank < fractions else "-")
    return named


def _bar_scores(ink: Ink, symbols: Sequence[Symbol], bars: Sequence[int]) -> dict[int, float]:
    """How much each bar looks like a fraction's: 1 if symbols lie above and below it, plus its share of the width."""
    boxes = np.array([_box(ink, s) for s in symbols])
    middle_x, middle_y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    whole = max(float(np.ptp(boxes[:, [0, 2]])), 1e-9)
    scores = {}
    for i in bars:
        left, top, right, bottom = boxes[i]
        inside = (middle_x > left) & (middle_x < right)
        both = (inside & (middle_y < top)).any() and (inside & (middle_y > bottom)).any()
        scores[i] = float(both) + (right - left) / (2 * whole)
    return scores


def _box(ink: Ink, symbol: Symbol) -> tuple[float, float, float, float]:
    """Left, top, right, bottom."""
    points = np.concatenate([ink.strokes[k] for k in symbol.strokes])
    return (*points.min(0).tolist(), *points.max(0).tolist())


def _name_dots(ink: Ink, symbols: list[Symbol], wanted: Counter[str]) -> list[Symbol]:
    """Tell the kinds of dots apart where the label has one kind only."""
    missing, surplus = wanted - _count(symbols), _count(symbols) - wanted
    for look in (".", *_DOTS):
        for name in ("\\cdot", *_DOTS):
            if wanted[look] or not missing[name]:
                continue
            if surplus[look] == missing[name]:
                return [replace(s, label=name) if s.label == look else s for s in symbols]
            if look == "." and name in _DOTS and surplus[look] == 3 * missing[name]:
                return _merge_dots(ink, symbols, name)
    return symbols


def _merge_dots(ink: Ink, symbols: list[Symbol], name: str) -> list[Symbol]:
    """Three ``.`` groups, from left to right, become one group."""
    dots = sorted((s for s in symbols if s.label == "."), key=lambda s: _box(ink, s)[0])
    triples = (dots[i : i + 3] for i in range(0, len(dots), 3))
    merged = [Symbol(name, tuple(k for dot in triple for k in dot.strokes)) for triple in triples]
    return [s for s in symbols if s.label != "."] + merged
