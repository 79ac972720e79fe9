"""Trees of labels against symbol boxes: which ink stands for which node, where there is no doubt."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hmerctl.train.inks import TrainingInk
from hmerctl.train.latex import GROUP, Node, Row

STACKED = frozenset(("\\frac", "\\sum", "\\int", "\\lim"))
"""Symbols with rows above and below them: order from left to right says nothing about such expressions."""


@dataclass(frozen=True)
class Placed:
    """A node of a label with its ink.

    Attributes:
        node: the node.
        box: left, top, right, bottom of its own symbol, or None where it is not known.
        rows: the placed rows that hang on it, by relation: ``sub``, ``sup``, ``index``, ``0`` and ``1`` (arguments).
    """

    node: Node
    box: tuple[float, float, float, float] | None
    rows: dict[str, list["Placed"]]


def relations(node: Node) -> Iterator[tuple[str, Row]]:
    """The rows on a node with their names, in the order in which the normal form writes them."""
    if node.index is not None:
        yield "index", node.index
    for number, argument in enumerate(node.arguments):
        yield str(number), argument
    if node.sub is not None:
        yield "sub", node.sub
    if node.sup is not None:
        yield "sup", node.sup


def drawn_nodes(row: Row) -> Iterator[Node]:
    """All nodes that ink draws (groups are not), in the order of the label's tokens."""
    for node in row:
        if node.symbol != GROUP:
            yield node
        for _, child in relations(node):
            yield from drawn_nodes(child)


def symbol_boxes(ink: TrainingInk) -> np.ndarray:
    """Left, top, right, bottom of every symbol, pixels, float64 (symbols, 4)."""
    starts = np.cumsum(ink.lengths) - ink.lengths
    low, high = np.minimum.reduceat(ink.points, starts), np.maximum.reduceat(ink.points, starts)
    boxes = np.full((len(ink.symbol_token), 4), np.inf)
    boxes[:, 2:] = -np.inf
    np.minimum.at(boxes[:, :2], ink.stroke_symbol, low)
    np.maximum.at(boxes[:, 2:], ink.stroke_symbol, high)
    return boxes


def place(row: Row, names: list[str], boxes: np.ndarray) -> list[Placed]:
    """Give the nodes of a label their boxes.

    A symbol that occurs once in label and ink is certain. Several of a kind are taken from left to right, where the
    expression has nothing stacked and label and ink have equally many; otherwise they stay unknown.

    Args:
        row: the label's tree.
        names: token of each symbol of the ink, "" where unknown.
        boxes: (symbols, 4).
    """
    nodes: dict[str, int] = defaultdict(int)
    for node in drawn_nodes(row):
        nodes[node.symbol] += 1
    inks: dict[str, list[int]] = defaultdict(list)
    for symbol, name in enumerate(names):
        inks[name].append(symbol)
    flat = STACKED.isdisjoint(nodes)
    waiting: dict[str, list[tuple[float, float, float, float]]] = {}
    for name, count in nodes.items():
        members = inks.get(name, [])
        if len(members) == count and (count == 1 or flat):
            waiting[name] = sorted(tuple(boxes[m].tolist()) for m in members)
    return _placed(row, waiting)


def _placed(row: Row, waiting: dict[str, list[tuple[float, float, float, float]]]) -> list[Placed]:
    out = []
    for node in row:
        members = waiting.get(node.symbol)
        box = members.pop(0) if members and node.symbol != GROUP else None
        out.append(Placed(node, box, {name: _placed(child, waiting) for name, child in relations(node)}))
    return out
