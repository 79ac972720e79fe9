r"""The symbol layout tree of an expression, and how two of them differ: the tree convention of scoring.

A tree has one node for each symbol. The relations from a node to the rows on it are those of symbol-level label
graphs (symLG, CROHME 2019): ``above`` and ``below`` (fractions; scripts of ``\sum``, ``\lim`` and their like),
``sub`` and ``sup`` (all other scripts, also those of ``\int``), ``inside`` and ``index`` (roots); ``right`` leads
from a symbol to the next one of its row. A symbol is known by the relations on the way to it from the first symbol of
the expression. Braces and the order of scripts leave no trace in the tree.
"""

from collections.abc import Iterator, Mapping

from hmerctl.train.latex import GROUP, Row

Layout = dict[str, str]
"""Label of each symbol by its place.

A place reads like ``2 sup 0``: the first symbol (0) in the superscript of the third symbol of the main row; the
numbers count the steps ``right``.
"""

LIMITS = frozenset(
    r"""\sum \prod \coprod \lim \limsup \liminf \max \min \sup \inf \bigcup \bigcap \bigvee \bigwedge \bigoplus
    \bigotimes""".split()
)
"""Operators whose scripts stand above and below them in displayed formulas."""

_ARGUMENT_RELATIONS = {
    "\\frac": ("above", "below"),
    "\\binom": ("above", "below"),
    "\\overset": ("above", "inside"),
    "\\underset": ("below", "inside"),
}


def layout(row: Row) -> Layout:
    """The symbol layout tree of a parsed expression (``hmerctl.train.latex.parse``)."""
    return dict(_symbols(row, ""))


def _symbols(row: Row, place: str) -> Iterator[tuple[str, str]]:
    for number, node in enumerate(row):
        here = f"{place}{number}"
        yield here, node.symbol
        over, under = ("above", "below") if node.symbol in LIMITS else ("sup", "sub")
        relations = _ARGUMENT_RELATIONS.get(node.symbol, ("inside",))
        parts = [
            *zip(relations, node.arguments, strict=False),
            ("index", node.index),
            (under, node.sub),
            (over, node.sup),
        ]
        for relation, child in parts:
            yield from _symbols(child or (), f"{here} {relation} ")


def label_errors(target: Mapping[str, str], predicted: Mapping[str, str]) -> int:
    """Number of label errors between two trees, counted as on label graphs.

    A symbol at the same place in both trees with another label is one error (its node). A symbol whose place exists
    in one tree only is two: its node, and the edge that leads to it; the first symbol of all has no such edge.
    Two trees are equal if and only if the number is 0.
    """
    shared = target.keys() & predicted.keys()
    relabelled = sum(target[place] != predicted[place] for place in shared)
    alone = target.keys() ^ predicted.keys()
    return relabelled + 2 * len(alone) - ("0" in alone)


def same_structure(target: Mapping[str, str], predicted: Mapping[str, str]) -> bool:
    """Whether two trees are equal when the labels of the symbols are ignored."""
    return target.keys() == predicted.keys()


def nesting_depth(row: Row) -> int:
    """How deep rows stand within rows: 0 for a plain line, 1 for ``x ^ { 2 }``, 2 for ``x ^ { y ^ { 2 } }``."""
    children = (
        child for node in row for child in (*node.arguments, node.index, node.sub, node.sup) if child is not None
    )
    return max((nesting_depth(child) + 1 for child in children), default=0)


def symbols(row: Row) -> Iterator[str]:
    """All symbols of an expression; ``_`` and ``^`` stand for a sub- and a superscript."""
    for node in row:
        if node.symbol != GROUP:
            yield node.symbol
        for mark, script in (("_", node.sub), ("^", node.sup)):
            if script is not None:
                yield mark
        for child in (*node.arguments, node.index, node.sub, node.sup):
            yield from symbols(child or ())
