r"""LaTeX of handwritten expressions: tokens, expression tree, and the one normal form that labels and scores use.

The normal form writes each expression that prints alike with the same tokens (those of the CROHME offline captions):

- spacing, sizing and font commands are dropped (``\left \right \Big \! \, \; \quad \mathrm \mbox \limits`` ...),
  and ``\left.`` with its empty delimiter;
- synonyms take one name: ``\lt`` is ``<``, ``\to`` is ``\rightarrow``, ``\le`` is ``\leq``, ``\ne`` is ``\neq``,
  ``\dots`` is ``\ldots``, ``\parallel`` is ``| |`` ...; ``a \over b`` is ``\frac { a } { b }``;
- ``f''`` is ``f ^ { \prime \prime }``; a prime with nothing to its left, as in ``f ^ {'}``, is ``\prime``;
- arguments and scripts are always braced, the subscript comes first, an empty script vanishes, and all other braces
  go, except where TeX needs them (``{ x ^ { 2 } } ^ { 3 }``).

>>> " ".join(normalise(r"$\mbox{P}'\left(x^{{2}}_i\right) \lt \frac1{2}$"))
'P ^ { \\prime } ( x _ { i } ^ { 2 } ) < \\frac { 1 } { 2 }'
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hmerctl.runtime.errors import DataError

GROUP = "{"
"""Symbol of a node that is a braced group; it stays in a tree only as the base of scripts."""

ARGUMENTS = {
    "\\frac": 2,
    "\\sqrt": 1,
    "\\binom": 2,
    "\\overset": 2,
    "\\underset": 2,
    **dict.fromkeys(
        r"""\overline \underline \overbrace \underbrace \overrightarrow \widehat \widetilde \hat \tilde \bar \vec
        \dot \ddot \mathbb \mathcal \mathscr \mathfrak""".split(),
        1,
    ),
}
"""Commands with arguments, and how many; ``\\sqrt`` may have an index in brackets before its argument."""

DROPPED = frozenset(
    r"""\left \right \middle \big \Big \bigg \Bigg \bigl \bigr \Bigl \Bigr \biggl \biggr \Biggl \Biggr \! \, \: \; \>
    \quad \qquad ~ \thinspace \limits \nolimits \displaystyle \textstyle \scriptstyle \mathrm \mathit \mathbf \mathsf
    \mathnormal \boldsymbol \mbox \hbox \text \textrm \textit \textbf \rm \it \bf \operatorname
    \operatorname*""".split()
)
"""Commands that change spacing, size or font, but not which symbol stands where."""

SYNONYMS = {
    "\\lt": ("<",),
    "\\gt": (">",),
    "\\to": ("\\rightarrow",),
    "\\ne": ("\\neq",),
    "\\le": ("\\leq",),
    "\\ge": ("\\geq",),
    "\\leqslant": ("\\leq",),
    "\\geqslant": ("\\geq",),
    "\\dots": ("\\ldots",),
    "\\dotsc": ("\\ldots",),
    "\\dotsb": ("\\cdots",),
    "\\dfrac": ("\\frac",),
    "\\tfrac": ("\\frac",),
    "\\cfrac": ("\\frac",),
    "\\lbrack": ("[",),
    "\\rbrack": ("]",),
    "\\lbrace": ("\\{",),
    "\\rbrace": ("\\}",),
    "\\vert": ("|",),
    "\\lvert": ("|",),
    "\\rvert": ("|",),
    "\\mid": ("|",),
    "\\parallel": ("|", "|"),
    "\\Vert": ("|", "|"),
    "\\|": ("|", "|"),
}
"""Other names of symbols, and what they print."""

MAX_NESTING = 128
"""Deepest nesting that is read; real labels stay below ten, hostile ones must not exhaust the stack."""

_UNSUPPORTED = frozenset(("\\begin", "\\end", "\\vtop", "\\vbox", "\\atop", "\\choose", "\\\\", "&", "#", "%"))
# Truths that spell out a function, with or without spaces between the letters; no caption does for these four.
_SPELLED = re.compile(r"(?<![A-Za-z\\])(?:l ?o ?g|l ?i ?m|s ?i ?n|c ?o ?s)(?![A-Za-z])")
_ABOVE = "ABOVE"
_TOKEN = re.compile(r"ABOVE|\\operatorname\*|\\[A-Za-z]+|\\.|[^\s$]", re.DOTALL)
# CROHME has truths like "M\ltN": the relation was replaced inside the text without a space after it.
_RUN_ON = re.compile(r"\\([lg]t)(?=[A-Za-z])(?!imes)")


class LatexError(DataError):
    """A LaTeX text is not well formed: the message says what is wrong with it, on one line."""


@dataclass(frozen=True)
class Node:
    """One symbol with everything that hangs on it; its right neighbour is the next node of the row.

    Attributes:
        symbol: the token, such as ``x`` or ``\\frac``; ``GROUP`` for a braced group (``arguments`` = its content).
        arguments: the rows inside: numerator and denominator of a fraction, radicand of a root.
        index: the row in the brackets of a root, or None.
        sub, sup: the rows of the scripts (for big operators: below and above), or None; never empty.
    """

    symbol: str
    arguments: tuple["Row", ...] = ()
    index: "Row | None" = None
    sub: "Row | None" = None
    sup: "Row | None" = None


Row = tuple[Node, ...]
"""Nodes that stand side by side, from left to right."""


def tokenise(text: str) -> list[str]:
    """The tokens of a LaTeX text: control words, control symbols and single characters.

    White space, control spaces and ``$`` are no tokens. Works on captions (tokens between spaces) as on raw truths.
    """
    text = _RUN_ON.sub(r"\\\1 ", text)
    return [token for token in _TOKEN.findall(text) if token not in ("\\", "\\ ") and not token[1:].isspace()]


def parse(source: str | Sequence[str]) -> Row:
    """The expression tree of a text or of tokens, already in normal form (see the module's text).

    Raises:
        LatexError: unbalanced braces, a missing argument, a double script, or a command that is not supported.
    """
    tokens = tokenise(source) if isinstance(source, str) else source
    parser = _Parser(tuple(_lexical(tokens)))
    row = parser.row(closing=None)
    return tuple(row)


def normalise(source: str | Sequence[str]) -> tuple[str, ...]:
    """The normal form of a LaTeX text or of tokens. Idempotent. Raises LatexError where ``parse`` does."""
    return write(parse(source))


def normalise_truth(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    r"""The normal form of a truth annotation as CROHME's files hold it, and what had to be repaired for it.

    Repairs: functions spelled in letters (``l o g``, ``lim`` become ``\log``, ``\lim``); a closing brace that
    nothing opened is dropped; ``\sqrt {x} ABOVE {n}``, the mark of an index in some files, becomes ``\sqrt [n] {x}``.

    Returns:
        The tokens, and one short line for each kind of repair (none for a sound text).

    Raises:
        LatexError: the text is empty, or still not well formed.
    """
    repairs = []
    if (spelled := _SPELLED.sub(lambda match: "\\" + match[0].replace(" ", "") + " ", text)) != text:
        text = spelled
        repairs.append("function spelled in letters")
    tokens = _without_stray_braces(tokenise(text))
    if len(tokens) < len(tokenise(text)):
        repairs.append("closing brace without an opening one")
    if _ABOVE in tokens:
        repairs.append("index of a root written with ABOVE")
    if not (normal := normalise(tokens)):
        raise LatexError("the truth is empty")
    return normal, tuple(repairs)


def _without_stray_braces(tokens: Sequence[str]) -> list[str]:
    """The tokens without closing braces that nothing opened."""
    kept, depth = [], 0
    for token in tokens:
        depth += (token == "{") - (token == "}")
        if depth >= 0:
            kept.append(token)
        depth = max(depth, 0)
    return kept


def normalise_prediction(source: str | Sequence[str]) -> tuple[str, ...]:
    """The normal form where there is one; otherwise the tokens with synonyms and dropped commands replaced only.

    A recogniser may say anything, so this never fails, and never repairs: an unbalanced prediction stays unbalanced.
    """
    try:
        return normalise(source)
    except LatexError:
        return tuple(_lexical(tokenise(source) if isinstance(source, str) else source))


def _lexical(tokens: Sequence[str]) -> Iterator[str]:
    """Tokens with synonyms replaced and without spacing, sizing and font commands."""
    delimiter_follows = False
    for token in tokens:
        null_delimiter = delimiter_follows and token == "."
        delimiter_follows = token in ("\\left", "\\right", "\\middle")
        if not null_delimiter and token not in DROPPED:
            yield from SYNONYMS.get(token, (token,))


class _Parser:
    """Recursive descent over normalised tokens; rows come out with their braces resolved."""

    def __init__(self, tokens: tuple[str, ...]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def row(self, closing: str | None) -> list[Node]:
        """Nodes up to and including the closing token (None: the end of the text)."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise LatexError(f"nested deeper than {MAX_NESTING} levels")
        row: list[Node] = []
        while (token := self.peek()) != closing:
            if token is None:
                raise LatexError(f"'{closing}' is missing")
            if token == "\\over":
                self.at += 1
                row = [Node("\\frac", (tuple(row), tuple(self.row(closing))))]
                break
            if token == _ABOVE:
                row.append(self.indexed(row.pop() if row else None))
            else:
                _extend(row, self.item(token))
        else:
            self.at += 1
        self.depth -= 1
        return row

    def indexed(self, root: Node | None) -> Node:
        """The root just read, with the argument of ABOVE as its index."""
        self.at += 1
        if root is None or root.symbol != "\\sqrt" or root.index is not None:
            raise LatexError("ABOVE without a root")
        return replace(root, index=tuple(self.atom()) or None)

    def item(self, token: str) -> list[Node]:
        """One atom with its scripts; a group may give any number of nodes."""
        if token in ("_", "^"):
            return _scripted([], self.scripts())
        if token == "'":
            self.at += 1
            return _scripted([Node("\\prime")], self.scripts())
        return _scripted(self.atom(), self.scripts())

    def atom(self) -> list[Node]:
        """A symbol, a command with its arguments, or the nodes of a group, without scripts."""
        token = self.peek()
        if token is None or token in ("}", "_", "^") or token == "\\over":
            raise LatexError("an argument is missing" if token is None else f"'{token}' stands where a symbol must")
        if token in _UNSUPPORTED:
            raise LatexError(f"'{token}' is not supported")
        self.at += 1
        if token == "{":
            return self.row("}")
        if token not in ARGUMENTS:
            return [Node("\\prime" if token == "'" else token)]
        index: Row | None = None
        if token == "\\sqrt" and self.peek() == "[":
            self.at += 1
            index = tuple(self.row("]")) or None
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise LatexError(f"nested deeper than {MAX_NESTING} levels")
        arguments = tuple(tuple(self.atom()) for _ in range(ARGUMENTS[token]))
        self.depth -= 1
        return [Node(token, arguments, index)]

    def scripts(self) -> Node:
        """The scripts that follow an atom, as a node without a base."""
        primes, sub, sup = 0, None, None
        while (token := self.peek()) in ("_", "^", "'"):
            self.at += 1
            if token == "'":
                if sup is not None:
                    raise LatexError("a prime after a superscript")
                primes += 1
            elif token == "_":
                if sub is not None:
                    raise LatexError("two subscripts on one symbol")
                sub = tuple(self.atom())
            else:
                if sup is not None:
                    raise LatexError("two superscripts on one symbol")
                sup = tuple(self.atom())
        sup = (Node("\\prime"),) * primes + (sup or ())
        return Node(GROUP, sub=sub or None, sup=sup or None)


def _conflict(node: Node, scripts: Node) -> bool:
    return bool((node.sub and scripts.sub) or (node.sup and scripts.sup))


def _attach(node: Node, scripts: Node) -> Node:
    return replace(node, sub=node.sub or scripts.sub, sup=node.sup or scripts.sup)


def _scripted(base: list[Node], scripts: Node) -> list[Node]:
    """The base's nodes with the scripts on the last one, or on the whole where that one has such a script."""
    if not (scripts.sub or scripts.sup):
        return base
    if not base:
        return [scripts]
    if _conflict(base[-1], scripts):
        return [replace(scripts, arguments=(tuple(base),))]
    return [*base[:-1], _attach(base[-1], scripts)]


def _extend(row: list[Node], nodes: list[Node]) -> None:
    """Append nodes; scripts without a base go to the symbol on their left, where it is free to take them."""
    for node in nodes:
        if node.symbol == GROUP and not node.arguments and row and not _conflict(row[-1], node):
            row[-1] = _attach(row[-1], node)
        else:
            row.append(node)


def write(row: Row) -> tuple[str, ...]:
    """The tokens of a tree in normal form."""
    return tuple(_write(row))


def _write(row: Row) -> Iterator[str]:
    for node in row:
        if node.symbol != GROUP:
            yield node.symbol
        elif not node.arguments:
            yield from "{}"
        if node.index is not None:
            braced = any(child.symbol == "]" for child in node.index)
            yield from ("[", "{") if braced else ("[",)
            yield from _write(node.index)
            yield from ("}", "]") if braced else ("]",)
        for argument in node.arguments:
            yield "{"
            yield from _write(argument)
            yield "}"
        for mark, script in (("_", node.sub), ("^", node.sup)):
            if script is not None:
                yield from (mark, "{")
                yield from _write(script)
                yield "}"
