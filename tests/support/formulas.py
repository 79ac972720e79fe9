"""Made-up training inks with structure: every figure of their layout is known, so that it can be measured again."""

import numpy as np

from hmerctl.runtime.vocabulary import CROHME, Vocabulary
from hmerctl.train.inks import TrainingInk
from hmerctl.train.latex import Node, Row, parse, write

UNIT, SCRIPT, GAP = 20.0, 0.6, 6.0
HEIGHTS = {"a": 0.7, "x": 0.7, "b": 1.2, "1": 1.0, "2": 1.0, "+": 0.7, "=": 0.5, "(": 1.3, ")": 1.3, "n": 0.7}
WIDTHS = {"1": 0.2, "(": 0.4, ")": 0.4, "+": 0.7, "=": 0.8}
LABELS = [
    "a + b",
    "x ^ { 2 } + 1",
    "x _ { 1 } = b",
    "\\frac { a + 1 } { b } = 2",
    "\\sqrt { x + 1 } + b",
    "( a + b ) ^ { 2 }",
    "\\sum _ { n = 1 } ^ { 2 } x _ { n }",
    "a ^ { b ^ { 2 } } = 1",
    "\\frac { 1 } { \\sqrt { b } } + x",
    "n + 1 = x _ { a } ^ { 2 }",
]


def formula(text: str, rng: np.random.Generator, name: str = "", vocabulary: Vocabulary = CROHME) -> TrainingInk:
    """Draw a label in strict proportions, with a little noise on the points."""
    row = parse(text)
    strokes: list[tuple[str, list[np.ndarray]]] = []
    _row(row, 0.0, 0.0, UNIT, strokes)
    lines = [line + rng.normal(size=line.shape) * 0.1 for _, symbol in strokes for line in symbol]
    points = np.concatenate(lines)
    return TrainingInk(
        name,
        np.array(vocabulary.encode(write(row))),
        points - points.min(0),
        np.array([len(line) for line in lines]),
        np.array([i for i, (_, symbol) in enumerate(strokes) for _ in symbol]),
        np.array(vocabulary.encode(symbol for symbol, _ in strokes)),
    )


def training_set(copies: int = 6, seed: int = 0) -> list[TrainingInk]:
    """Some of every label, by two hands."""
    rng = np.random.default_rng(seed)
    return [
        formula(text, rng, f"hand{copy % 2}-formula{copy * 100 + i}")
        for copy in range(copies)
        for i, text in enumerate(LABELS)
    ]


def _row(row: Row, x: float, axis: float, unit: float, out: list) -> float:
    """Write a row from x on; returns its right end."""
    for i, node in enumerate(row):
        x = _node(node, x + (GAP if i else 0.0), axis, unit, out)
    return x


def _node(node: Node, x: float, axis: float, unit: float, out: list) -> float:
    if node.symbol == "\\frac":
        at = len(out)
        above, below = (
            _row(a, x + 3, axis + side * 25, unit * 0.9, out) for a, side in zip(node.arguments, (-1, 1), strict=True)
        )
        right = max(above, below) + 3
        out.insert(at, ("\\frac", [np.array([(x, axis), ((x + right) / 2, axis), (right, axis)])]))
        return right
    if node.symbol == "\\sqrt":
        at = len(out)
        right = _row(node.arguments[0], x + 12, axis, unit, out) + 3
        line = [(x, axis), (x + 4, axis + 14), (x + 9, axis - 16), (right, axis - 16)]
        out.insert(at, ("\\sqrt", [np.array(line)]))
        return right
    tall = 1.6 if node.symbol == "\\sum" else HEIGHTS[node.symbol]
    height, width = tall * unit, WIDTHS.get(node.symbol, 0.6) * unit
    low, high = axis + height / 2, axis - height / 2
    out.append((node.symbol, [np.array([(x, high), (x + width, high), (x, low), (x + width, low)])]))
    right = x + width
    ends = [right]
    for sign, script in ((1, node.sub), (-1, node.sup)):
        if script and node.symbol == "\\sum":
            ends.append(_row(script, x, axis + sign * (height / 2 + 12), unit * SCRIPT, out))
        elif script:
            ends.append(_row(script, right + 3, axis + sign * height / 2, unit * SCRIPT, out))
    return max(ends)
