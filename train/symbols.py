"""Symbol groups against labels: which vocabulary token each group of strokes stands for."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hmerctl.runtime.ink import Ink, Symbol

STRUCTURE_TOKENS = frozenset({"^", "_", "{", "}", "\\limits"})
"""Tokens that no stroke draws."""

_ALIASES = {"\\lt": "<", "\\gt": ">", "\\ge": "\\geq", "\\le": "\\leq", "\\ne": "\\neq", "\\to": "\\rightarrow"}
_ALIASES |= {"'": "\\prime", "COMMA": ",", "\\dots": "\\ldots"}


def name_symbols(ink: Ink, tokens: Sequence[str]) -> tuple[Ink, bool | None]:
    """Give each symbol group the vocabulary token it stands for.

    Ground truth calls a fraction bar ``-``, like a minus. When there are as many ``-`` groups as ``-`` and ``\\frac``
    tokens, those with the most ink right above and below become ``\\frac``, as many as the label has.

    Args:
        ink: with symbol groups as the file labels them.
        tokens: the normalised label.

    Returns:
        the ink with its groups renamed, and whether the groups have exactly the symbols of the label, no stroke in
        two groups and every stroke in one; None if the ink has no groups.
    """
    if not ink.symbols:
        return ink, None
    symbols = [replace(s, label=_ALIASES.get(s.label, s.label)) for s in ink.symbols]
    wanted = Counter(t for t in tokens if t not in STRUCTURE_TOKENS)
    bars = [i for i, s in enumerate(symbols) if s.label == "-" and s.strokes]
    if wanted["\\frac"] and len(bars) == wanted["-"] + wanted["\\frac"]:
        scores = _bar_scores(ink, symbols, bars)
        for i in sorted(bars, key=lambda i: -scores[i])[: wanted["\\frac"]]:
            symbols[i] = replace(symbols[i], label="\\frac")
    used = sorted(k for s in symbols for k in s.strokes)
    match = Counter(s.label for s in symbols) == wanted and used == list(range(len(ink.strokes)))
    return replace(ink, symbols=tuple(symbols)), match


def _bar_scores(ink: Ink, symbols: Sequence[Symbol], bars: Sequence[int]) -> dict[int, float]:
    """How much each horizontal bar looks like a fraction's: ink above times ink below, within its width."""
    boxes = np.array([_box(ink, s) for s in symbols])
    centres = (boxes[:, 0] + boxes[:, 2]) / 2
    middles = (boxes[:, 1] + boxes[:, 3]) / 2
    scores = {}
    for i in bars:
        left, top, right, bottom = boxes[i]
        inside = (centres > left) & (centres < right)
        inside[i] = False
        above, below = inside & (middles < top), inside & (middles > bottom)
        # Width breaks ties: of nested fractions' bars all have both, a minus in a numerator has them by chance.
        both = min(int(above.sum()), int(below.sum()))
        scores[i] = (both > 0) * 1e6 + (right - left) / (np.ptp(boxes[:, [0, 2]]) + 1e-9)
    return scores


def _box(ink: Ink, symbol: Symbol) -> tuple[float, float, float, float]:
    """Left, top, right, bottom; a group without strokes is far outside everything."""
    if not symbol.strokes:
        return (np.inf, np.inf, np.inf, np.inf)
    points = np.concatenate([ink.strokes[k] for k in symbol.strokes])
    return (*points.min(0).tolist(), *points.max(0).tolist())
