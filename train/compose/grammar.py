"""New labels from the parts of real ones: trees recombined, nested, joined and renamed.

Every part of a drawn label comes from a label of the training set and stands in a place of the same kind (numerator,
radicand, subscript of a sum, exponent of a bracket, operand between two operators ...), so that the result looks like
a formula without being one of the set.
"""

import bisect
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

from hmerctl.train.compose.alignment import STACKED, relations
from hmerctl.train.latex import Node, Row, write

OPENING, CLOSING = ("(", "[", "\\{"), (")", "]", "\\}")
_OPERATORS = "+ - \\times \\div \\pm \\cdot".split()
_RELATIONS = "= < > \\leq \\geq \\neq".split()
_SEPARATORS = frozenset((*_OPERATORS, *_RELATIONS, ",", "\\rightarrow", "\\in"))
_RENAMED_TOGETHER = (
    "a b c e f g h i j k l m n o p q r s t u v w x y z \\alpha \\beta \\gamma \\theta \\phi \\lambda \\mu \\sigma "
    "\\pi".split(),
    "A B C E F G H I L M N P R S T V X Y \\Delta".split(),
)
_RENAMED_APART = ((list("0123456789"), 0.35), (_OPERATORS, 0.15), (_RELATIONS, 0.3))
_FUNCTIONS = frozenset(("\\log", "\\sin", "\\cos", "\\tan"))
_SUPPORTED = frozenset(("\\frac", "\\sqrt"))


@dataclass(frozen=True)
class GrammarConfig:
    """How far a composed label goes from the real one it starts with.

    Attributes:
        longer: probability that the length aimed at is stretched, by a factor of up to ``stretch``.
        stretch: largest factor.
        max_tokens: of a label.
        max_depth: deepest nesting of rows.
        exchange_row: probability that a script or argument is exchanged for another of its kind.
        exchange_operand: the same for an operand of a row.
        nest: probability that a plain symbol becomes a fraction, a root or a symbol with scripts; more where the
            label is still much shorter than it shall be.
        rename: probability that a letter gets another name throughout.
    """

    longer: float = 0.35
    stretch: float = 2.6
    max_tokens: int = 120
    max_depth: int = 5
    exchange_row: float = 0.35
    exchange_operand: float = 0.2
    nest: float = 0.05
    rename: float = 0.25


@dataclass
class _Budget:
    """Tokens that may still be added, and the chance that a plain symbol becomes a structure to use them."""

    tokens: int
    nest: float


class _Pool:
    """Parts of one kind, drawn as often as the data have them."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.lengths: list[int] = []

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.lengths.append(len(write(row)))

    def draw(self, most: int, rng: Random) -> tuple[Row, int] | None:
        """A part of at most so many tokens and its length; None if four tries find none."""
        for _ in range(4):
            i = int(rng.random() * len(self.rows))
            if self.lengths[i] <= most:
                return self.rows[i], self.lengths[i]
        return None


class Grammar:
    """Draws trees in normal form.

    Args:
        trees: trees of the training labels.
        available: tokens that can be drawn; labels with others are left out.
        config: how far to go.

    Raises:
        ValueError: no tree is left.
    """

    def __init__(self, trees: Iterable[Row], available: Collection[str], config: GrammarConfig | None = None) -> None:
        self.config = config or GrammarConfig()
        self.available = frozenset(available)
        usable = sorted((len(write(t)), i, t) for i, t in enumerate(trees) if t and self._drawable(t))
        if not usable:
            raise ValueError("no label has ink for all of its symbols")
        self.trees = [tree for _, _, tree in usable]
        self.lengths = [length for length, _, _ in usable]
        self.pools: dict[str, _Pool] = defaultdict(_Pool)
        self.structures, self.operands, self.separators = _Pool(), _Pool(), _Pool()
        counts: Counter[str] = Counter()
        for tree in self.trees:
            self._learn(tree, counts)
        self.names = {
            name: (group, _weights(group, counts))
            for group in (self._known(g) for g in (*_RENAMED_TOGETHER, *(g for g, _ in _RENAMED_APART)))
            for name in group
        }
        self.chance_apart = {name: chance for group, chance in _RENAMED_APART for name in group}

    def _known(self, group: list[str]) -> list[str]:
        return [name for name in group if name in self.available]

    def _drawable(self, row: Row) -> bool:
        return all(
            node.symbol in self.available
            and (not node.arguments or node.symbol in _SUPPORTED)
            and all(self._drawable(child) for _, child in relations(node))
            for node in row
        )

    def _learn(self, row: Row, counts: Counter[str]) -> None:
        for node in row:
            counts[node.symbol] += 1
            if node.symbol in _SEPARATORS and not node.sub and not node.sup:
                self.separators.add((node,))
            parts = list(relations(node))
            if parts and node.symbol not in CLOSING and node.symbol not in STACKED - {"\\frac"}:
                self.structures.add((node,))
            for name, child in parts:
                self.pools[kind_of(node, name)].add(child)
                self._learn(child, counts)
        for part in _split(row):
            if part[0].symbol not in _SEPARATORS:
                self.operands.add(part)

    def draw(self, rng: Random) -> Row:
        """A new tree. Deterministic in the state of ``rng``."""
        config = self.config
        aim = self.lengths[int(rng.random() * len(self.lengths))]
        if rng.random() < config.longer:
            aim = int(aim * rng.uniform(1.0, config.stretch)) + 1
        aim = min(aim, config.max_tokens)
        high = max(bisect.bisect_right(self.lengths, aim), 1)
        low = min(bisect.bisect_left(self.lengths, int(0.4 * aim)), high - 1)
        start = rng.randrange(low, high)
        missing = aim - self.lengths[start]
        budget = _Budget(missing, config.nest + 0.2 * missing / aim)
        row = self._vary(self.trees[start], budget, 0, rng)
        while budget.tokens > 0.25 * aim:
            longer = self._joined(row, budget, rng)
            if longer is None:
                break
            row = longer
        return self._renamed(row, {}, rng)

    def _joined(self, row: Row, budget: _Budget, rng: Random) -> Row | None:
        """The row with a separator and an operand behind it, or None if nothing fits."""
        sign = self.separators.draw(1, rng) if self.separators.rows else None
        operands = [self.operands.draw(budget.tokens - 1, rng) for _ in range(3)] if self.operands.rows else []
        operand = max((o for o in operands if o is not None), key=lambda o: o[1], default=None)
        if sign is None or operand is None:
            return None
        budget.tokens -= operand[1] + 1
        return row + sign[0] + operand[0]

    def _vary(self, row: Row, budget: _Budget, depth: int, rng: Random) -> Row:
        out: list[Node] = []
        for part in _split(row):
            if part[0].symbol not in _SEPARATORS and rng.random() < self.config.exchange_operand:
                length = len(write(part))
                other = self.operands.draw(budget.tokens + length, rng)
                if other is not None and depth + _depth(other[0]) <= self.config.max_depth:
                    budget.tokens -= other[1] - length
                    part = other[0]
            out.extend(self._node(node, budget, depth, rng) for node in part)
        return tuple(out)

    def _node(self, node: Node, budget: _Budget, depth: int, rng: Random) -> Node:
        parts = list(relations(node))
        if not parts:
            if node.symbol in self.names and node.symbol not in self.chance_apart and self.structures.rows:
                return self._nested(node, budget, depth, rng)
            return node
        rows = {name: self._row(node, name, child, budget, depth + 1, rng) for name, child in parts}
        return replace(
            node,
            arguments=tuple(rows[str(i)] for i in range(len(node.arguments))),
            index=rows.get("index"),
            sub=rows.get("sub"),
            sup=rows.get("sup"),
        )

    def _nested(self, node: Node, budget: _Budget, depth: int, rng: Random) -> Node:
        """A letter, or a structure in its place."""
        if rng.random() < budget.nest:
            found = self.structures.draw(budget.tokens + 1, rng)
            if found is not None and depth + _depth(found[0]) <= self.config.max_depth:
                budget.tokens -= found[1] - 1
                return found[0][0]
        return node

    def _row(self, node: Node, name: str, child: Row, budget: _Budget, depth: int, rng: Random) -> Row:
        """A script or argument, exchanged or varied."""
        if rng.random() < self.config.exchange_row:
            length = len(write(child))
            other = self.pools[kind_of(node, name)].draw(budget.tokens + length, rng)
            if other is not None and depth + _depth(other[0]) <= self.config.max_depth:
                budget.tokens -= other[1] - length
                child = other[0]
        return self._vary(child, budget, depth, rng)

    def _renamed(self, row: Row, names: dict[str, str], rng: Random) -> Row:
        """Letters get other names throughout, digits and signs one by one; none changes its place."""
        out = []
        for node in row:
            symbol = node.symbol
            if symbol in self.names:
                group, weights = self.names[symbol]
                chance = self.chance_apart.get(symbol)
                if chance is not None:
                    symbol = _choose(group, weights, rng) if rng.random() < chance else symbol
                else:
                    if symbol not in names:
                        names[symbol] = _choose(group, weights, rng) if rng.random() < self.config.rename else symbol
                    symbol = names[symbol]
            if node.arguments or node.index or node.sub or node.sup:
                node = Node(
                    symbol,
                    tuple(self._renamed(argument, names, rng) for argument in node.arguments),
                    self._renamed(node.index, names, rng) if node.index else None,
                    self._renamed(node.sub, names, rng) if node.sub else None,
                    self._renamed(node.sup, names, rng) if node.sup else None,
                )
            elif symbol != node.symbol:
                node = Node(symbol)
            out.append(node)
        return tuple(out)


def kind_of(node: Node, relation: str) -> str:
    """Where a row stands: rows of one kind can take each other's place."""
    if relation in ("sub", "sup"):
        if node.symbol in STACKED or node.symbol in _FUNCTIONS:
            return f"{relation} {node.symbol}"
        return f"{relation} bracket" if node.symbol in CLOSING else relation
    return f"{node.symbol} {relation}"


def _split(row: Row) -> Iterator[Row]:
    """Operands and the separators between them; brackets stay whole, with what they hold."""
    part: list[Node] = []
    depth = 0
    for node in row:
        depth += (node.symbol in OPENING) - (node.symbol in CLOSING)
        if node.symbol in _SEPARATORS and depth <= 0:
            if part:
                yield tuple(part)
                part = []
            yield (node,)
        else:
            part.append(node)
    if part:
        yield tuple(part)


def _depth(row: Row) -> int:
    return max((1 + _depth(child) for node in row for _, child in relations(node)), default=0)


def _weights(group: list[str], counts: Counter[str]) -> list[float]:
    """Cumulated square roots of the counts: rare symbols are drawn more often than they occur."""
    total, out = 0.0, []
    for name in group:
        total += counts[name] ** 0.5 + 0.5
        out.append(total)
    return out


def _choose(group: list[str], cumulated: list[float], rng: Random) -> str:
    return group[min(bisect.bisect(cumulated, rng.random() * cumulated[-1]), len(group) - 1)]
