r"""Labels by rules: formulas as school books and first lectures have them, drawn without any data set.

The rules, their weights and the lengths are set by hand. A label is drawn for a number of tokens; each rule hands
what it has left to the rows inside it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from hmerctl.train.latex import Node, Row, write

_LATIN = list("abcdefghijklmnopqrstuvwxyz")
_COMMON = list("xxxxyyyzzaaabbbccnnniiikkmmttpqrfd")
_CAPITALS = list("ABCEFGHILMNPRSTVXY")
_GREEK = r"\alpha \beta \gamma \theta \theta \pi \pi \lambda \mu \sigma \phi \Delta \Pi".split()
_ADDING = "+ + + + + - - - -".split()
_JOINING = r"\times \cdot \div \pm /".split()
_RELATIONS = r"= = = = = < > \leq \geq \neq".split()
_FUNCTIONS = r"\sin \sin \cos \cos \tan \log".split()
_BRACKETS = (("(", ")"),) * 8 + (("[", "]"),) * 2 + (("\\{", "\\}"),) + (("|", "|"),) * 2


@dataclass(frozen=True)
class FormulaConfig:
    """Lengths of labels.

    Attributes:
        median: of the number of tokens aimed at.
        spread: standard deviation of its logarithm.
        max_tokens: of a label.
        max_depth: deepest nesting of rows.
    """

    median: float = 13.0
    spread: float = 0.75
    max_tokens: int = 90
    max_depth: int = 4


class Formulas:
    """Draws labels as trees in normal form."""

    def __init__(self, config: FormulaConfig | None = None) -> None:
        self.config = config or FormulaConfig()

    def draw(self, rng: Random) -> Row:
        """A label. Deterministic in the state of ``rng``."""
        config = self.config
        while True:
            aim = min(config.median * 2.718281828 ** rng.gauss(0.0, config.spread), 0.8 * config.max_tokens)
            row = _Rules(rng, config.max_depth).statement(max(round(aim), 1))
            if row and len(write(row)) <= config.max_tokens:
                return row


class _Rules:
    """The rules; ``room`` is the number of tokens that a row may have, about."""

    def __init__(self, rng: Random, max_depth: int) -> None:
        self.rng, self.max_depth, self.depth = rng, max_depth, 0
        # Few names come again and again in one formula.
        self.names = [self._any_letter() for _ in range(rng.choice((2, 2, 3, 3, 4, 5)))]

    # -- whole labels ----------------------------------------------------------------------------------------------

    def statement(self, room: int) -> Row:
        if room <= 3:
            return self._pick([(self.symbol, 3), (self.number, 2), (self.short, 3)])(room)
        rules: list[tuple[Callable[[int], Row], float]] = [(self.sum_of_terms, 34), (self.equation, 34)]
        if room >= 7:
            rules += [(self.definition, 6), (self.sequence, 6), (self.chain, 5), (self.big, 9), (self.logic, 4)]
            rules += [(self.fraction, 4), (self.limit, 4)]
        return self._pick(rules)(room)

    def symbol(self, room: int) -> Row:
        every = [*_LATIN, *_CAPITALS, *_GREEK, *"0123456789", *r"+ - = < > \infty \sum \int \div \pm \neq".split()]
        every += r"\leq \geq \exists \forall \rightarrow \in \times \{ \} ( ) [ ] | ! , . / \ldots \cdots".split()
        return (Node(self.rng.choice(every)),)

    def short(self, room: int) -> Row:
        return (self.letter(), Node(self.rng.choice(("+", "-", "=", "/"))), *self.atom(1))

    def equation(self, room: int) -> Row:
        left = max(1, min(room - 2, round(room * self.rng.uniform(0.1, 0.7))))
        return (*self.sum_of_terms(left), self._relation(), *self.sum_of_terms(room - left - 1))

    def chain(self, room: int) -> Row:
        third = max(room // 3, 1)
        one, two = self._relation(), self._relation()
        return (*self.sum_of_terms(third), one, *self.sum_of_terms(third), two, *self.sum_of_terms(third))

    def definition(self, room: int) -> Row:
        rng = self.rng
        name = Node(rng.choice("fghFGPSTyx"), sup=(Node("\\prime"),) if rng.random() < 0.2 else None)
        inside: Row = (Node(rng.choice("xxxtyzn")),)
        if rng.random() < 0.25:
            inside += (Node(","), self.letter())
        return (name, Node("("), *inside, Node(")"), Node("="), *self.sum_of_terms(room - 5))

    def sequence(self, room: int) -> Row:
        rng = self.rng
        dots = rng.choice(("\\ldots", "\\cdots"))
        mark = "," if dots == "\\ldots" or rng.random() < 0.3 else rng.choice(("+", "\\times", "\\cdot"))
        letter = rng.choice(_LATIN)
        ends = [Node(d) for d in rng.choice(("12n", "01n", "12k", "23m"))]
        if room < 14 and rng.random() < 0.5:
            items = [(end,) for end in ends]
        else:
            items = [(Node(letter, sub=(end,)),) for end in ends]
        row: Row = (*items[0], Node(mark), *items[1], Node(mark), Node(dots), Node(mark), *items[2])
        if rng.random() < 0.25:
            opening, closing = rng.choice(_BRACKETS)
            row = (Node(opening), *row, Node(closing))
        return (self.letter(), Node("="), *row) if rng.random() < 0.3 else row

    def logic(self, room: int) -> Row:
        rng = self.rng
        first = Node(rng.choice(("\\forall", "\\exists")))
        if rng.random() < 0.3:
            first = Node("\\forall")
            middle: Row = (self.letter(), Node("\\exists"), self.letter())
        else:
            middle = (self.letter(), Node("\\in"), Node(rng.choice(_CAPITALS)))
        head = (first, *middle)
        return head if room < 9 else (*head, Node(","), *self.equation(room - 6))

    # -- rows ------------------------------------------------------------------------------------------------------

    def sum_of_terms(self, room: int) -> Row:
        rng = self.rng
        row: Row = (Node("-"),) if rng.random() < 0.07 and room > 1 else ()
        while True:
            share = room if room <= 4 and rng.random() < 0.6 else max(1, min(room, round(room * rng.uniform(0.2, 1))))
            term = self.term(share)
            row += term
            room -= max(len(write(term)), 1) + 1
            if room < 1:
                return row
            row += (Node(rng.choice(_ADDING if rng.random() < 0.85 else _JOINING)),)

    def term(self, room: int) -> Row:
        """A product of factors, mostly without a sign between them."""
        rng = self.rng
        row: Row = ()
        if room >= 2 and rng.random() < 0.35:
            row = self.number(1 if rng.random() < 0.75 else 2)
            room -= len(row)
        while True:
            share = room if rng.random() < 0.65 else max(1, round(room * rng.uniform(0.3, 0.8)))
            factor = self.factor(share, first=not row)
            row += factor
            room -= len(write(factor))
            if room < 1 or rng.random() < 0.45:
                return row

    def factor(self, room: int, first: bool) -> Row:
        """One factor; numbers come first in a product."""
        rules: list[tuple[Callable[[int], Row], float]] = [(self.atom if first else self.name, 30 if room < 5 else 8)]
        if room >= 4:
            rules += [(self.power, 22), (self.indexed, 14), (self.function, 8)]
        if room >= 4 and self.depth < self.max_depth:
            rules += [(self.root, 9), (self.bracket, 14)]
        if room >= 6 and self.depth < self.max_depth:
            rules += [(self.fraction, 24)]
        if room >= 10 and self.depth < self.max_depth:
            rules += [(self.big, 8), (self.limit, 2)]
        return self._pick(rules)(room)

    def atom(self, room: int) -> Row:
        rng = self.rng
        draw = rng.random()
        if draw < 0.58 or room < 2:
            return (self.letter(),) if rng.random() < 0.7 else self.number(min(room, 2))
        if draw < 0.86:
            return self.number(room)
        if draw < 0.93:
            return (*self.number(1), Node("!")) if rng.random() < 0.5 else (self.letter(), Node("!"))
        return (Node("\\infty"),) if rng.random() < 0.3 else (self.letter(), *self.letters(room - 1))

    def name(self, room: int) -> Row:
        return (self.letter(),)

    def letters(self, room: int) -> Row:
        return tuple(self.letter() for _ in range(min(room, self.rng.choice((1, 1, 2, 3)))))

    def power(self, room: int) -> Row:
        rng = self.rng
        sup = self._small(room - 4) if rng.random() < 0.35 else (Node(rng.choice("222223345nnkmtx")),)
        if rng.random() < 0.06:
            sup = (Node("\\prime"),) * rng.choice((1, 1, 2))
        if rng.random() < 0.2 and room >= 8:
            return (Node(self.letter().symbol, sub=self._index(), sup=sup),)
        base = self.number(1)[0] if rng.random() < 0.15 else self.letter()
        return (Node(base.symbol, sup=sup),)

    def indexed(self, room: int) -> Row:
        sub = self._small(room - 4) if self.rng.random() < 0.2 else self._index()
        return (Node(self.letter().symbol, sub=sub),)

    def function(self, room: int) -> Row:
        rng = self.rng
        name = rng.choice(_FUNCTIONS)
        sub = self._index() if name == "\\log" and rng.random() < 0.5 else None
        sup = (Node("2"),) if name != "\\log" and rng.random() < 0.2 else None
        head = (Node(name, sub=sub, sup=sup),)
        room -= len(write(head))
        if room >= 4 and rng.random() < 0.5:
            return head + self._bracketed(room - 2, "(", ")")
        return head + (self.term(room) if room >= 3 and rng.random() < 0.5 else (self.letter(),))

    def bracket(self, room: int) -> Row:
        rng = self.rng
        opening, closing = rng.choice(_BRACKETS)
        if rng.random() < 0.2 and opening == "(":
            row = (Node(rng.choice("fgFPhuv")), *self._bracketed(min(room - 3, 5), "(", ")"))
        else:
            row = self._bracketed(room - 2, opening, closing)
        if opening != "\\{" and rng.random() < 0.2:
            row = (*row[:-1], Node(row[-1].symbol, sup=(Node(rng.choice("223nk")),)))
        return row

    def root(self, room: int) -> Row:
        rng = self.rng
        index: Row | None = (Node(rng.choice("3345n")),) if rng.random() < 0.12 else None
        return (Node("\\sqrt", (self._inner(room - 3),), index=index),)

    def fraction(self, room: int) -> Row:
        rng = self.rng
        inner = max(room - 5, 2)
        over = max(1, min(inner - 1, round(inner * rng.uniform(0.15, 0.85))))
        return (Node("\\frac", (self._inner(over), self._inner(inner - over))),)

    def big(self, room: int) -> Row:
        """A sum or an integral with what it ranges over."""
        rng = self.rng
        if rng.random() < 0.5:
            index = rng.choice("iiikknjm")
            sub: Row | None = (Node(index), Node("="), Node(rng.choice("0011n")))
            sup: Row | None = (Node(rng.choice(("n", "n", "\\infty", "\\infty", "k", "N", "m"))),)
            if rng.random() < 0.15:
                sub = (Node(index),) if rng.random() < 0.6 else None
            if rng.random() < 0.15 or sub is None:
                sup = None
            head = (Node("\\sum", sub=sub, sup=sup),)
            return head + self.term(max(room - len(write(head)), 1))
        sub, sup = self._bound(("0", "a", "1", "-")), self._bound(("1", "b", "\\infty", "x", "\\pi"))
        if rng.random() < 0.35:
            sub = sup = None
        head = (Node("\\int", sub=sub, sup=sup),)
        variable = Node(rng.choice("xxxtyzur"))
        room -= len(write(head)) + 2
        body = self.sum_of_terms(room) if room > 6 and rng.random() < 0.3 else self.term(max(room, 1))
        return (*head, *body, Node("d"), variable)

    def limit(self, room: int) -> Row:
        rng = self.rng
        goal: Row = (Node(rng.choice(("0", "\\infty", "\\infty", "a", "1", "2", "n"))),)
        if rng.random() < 0.1:
            goal = (Node("-"), *goal)
        head = (Node("\\lim", sub=(Node(rng.choice("xxxnnth")), Node("\\rightarrow"), *goal)),)
        return head + self.term(max(room - len(write(head)), 1))

    # -- pieces ----------------------------------------------------------------------------------------------------

    def letter(self) -> Node:
        return Node(self.rng.choice(self.names) if self.rng.random() < 0.8 else self._any_letter())

    def _any_letter(self) -> str:
        rng = self.rng
        draw = rng.random()
        group = _COMMON if draw < 0.5 else _LATIN if draw < 0.75 else _CAPITALS if draw < 0.87 else _GREEK
        return rng.choice(group)

    def number(self, room: int) -> Row:
        rng = self.rng
        digits = min(max(room, 1), rng.choice((1, 1, 1, 1, 2, 2, 3, 4)))
        first = "11122233456789" if digits > 1 else "111222334567890"
        row = tuple(Node(rng.choice("0123456789" if i else first)) for i in range(digits))
        if room >= 4 and rng.random() < 0.15:
            row += (Node("."), *(Node(rng.choice("0123456789")) for _ in range(rng.choice((1, 2)))))
        return row

    def _index(self) -> Row:
        return (Node(self.rng.choice("0011122223ijknmnabxt")),)

    def _bound(self, choices: tuple[str, ...]) -> Row:
        first = self.rng.choice(choices)
        return (Node("-"), Node(self.rng.choice(("\\infty", "1", "a")))) if first == "-" else (Node(first),)

    def _bracketed(self, room: int, opening: str, closing: str) -> Row:
        return (Node(opening), *self._inner(room), Node(closing))

    def _inner(self, room: int) -> Row:
        """A row inside another."""
        self.depth += 1
        row = self.sum_of_terms(max(room, 1))
        self.depth -= 1
        return row

    def _small(self, room: int) -> Row:
        """A script of more than one symbol."""
        if room < 3 or self.depth >= self.max_depth:
            return (self.letter(), Node(self.rng.choice("+-")), Node(self.rng.choice("12")))
        return self._inner(min(room, 6))

    def _relation(self) -> Node:
        return Node(self.rng.choice(_RELATIONS))

    def _pick(self, rules: list[tuple[Callable[[int], Row], float]]) -> Callable[[int], Row]:
        return self.rng.choices([rule for rule, _ in rules], [weight for _, weight in rules])[0]
