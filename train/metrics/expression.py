"""One prediction against its target, under both conventions of scoring."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hmerctl.train.latex import LatexError, Row, normalise_prediction, parse
from hmerctl.train.metrics.alignment import Pair, align
from hmerctl.train.metrics.layout import LIMITS, label_errors, layout, nesting_depth, same_structure, symbols

STRUCTURAL = LIMITS | {"\\frac", "\\sqrt", "^", "_", "\\int"}
"""Symbols that say where others stand, for the structure rate of Zhou 2023 (section 3 there, not listed in full)."""


@dataclass(frozen=True)
class ScoredExpression:
    """What one prediction is worth.

    Attributes:
        name: the id of the expression.
        target, predicted: tokens in normal form; ``predicted`` as far as it has one, empty where it is missing.
        missing: there is no prediction; then nothing counts as right, not even within two errors.
        identical: the tokens are equal as given, before normalisation.
        alignment: the tokens of both, aligned at the cost of the edit distance.
        target_tree: the parsed target, or None where it is not well formed.
        tree_errors: label errors between the layout trees (``layout.label_errors``); None where one does not parse.
        structure: the trees are equal when labels are ignored.
        well_formed: the prediction parses.
    """

    name: str
    target: tuple[str, ...]
    predicted: tuple[str, ...]
    missing: bool
    identical: bool
    alignment: tuple[Pair, ...]
    target_tree: Row | None
    tree_errors: int | None
    structure: bool
    well_formed: bool

    @cached_property
    def distance(self) -> int:
        """Token edit distance after normalisation."""
        return sum(target != predicted for target, predicted in self.alignment)

    def right(self, errors: int = 0) -> bool:
        """Token convention: within so many token errors of the target."""
        return not self.missing and self.distance <= errors

    def tree_right(self, errors: int = 0) -> bool:
        """Tree convention: both trees exist and differ by at most so many label errors."""
        return self.tree_errors is not None and self.tree_errors <= errors

    @cached_property
    def structural(self) -> tuple[int, int, int]:
        """Structural symbols of the target, how many of them are predicted right, how many others are predicted."""
        expected = sum(target in STRUCTURAL for target, _ in self.alignment)
        right = sum(target in STRUCTURAL for target, predicted in self.alignment if target == predicted)
        return expected, right, sum(predicted in STRUCTURAL for _, predicted in self.alignment) - right

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """What the target holds, for results by structure: a name for each kind, and its nesting depth."""
        if self.target_tree is None:
            return ("not well formed",)
        held = set(symbols(self.target_tree))
        depth = nesting_depth(self.target_tree)
        kinds = (
            ("scripts", held & {"_", "^"}),
            ("fraction", "\\frac" in held),
            ("root", "\\sqrt" in held),
            ("big operator", held & (LIMITS | {"\\int"})),
        )
        return (*(name for name, present in kinds if present), f"depth {depth}" if depth < 3 else "depth 3+")


def score_expression(name: str, target: Sequence[str], predicted: Sequence[str] | None) -> ScoredExpression:
    """Score one prediction; None (no prediction) is wrong, and so is anything that does not parse as a tree."""
    normal_target = normalise_prediction(target)
    normal_predicted = normalise_prediction(predicted or ())
    target_tree, predicted_tree = _tree(target), None if predicted is None else _tree(predicted)
    errors, structure = None, False
    if target_tree is not None and predicted_tree is not None:
        expected, found = layout(target_tree), layout(predicted_tree)
        errors, structure = label_errors(expected, found), same_structure(expected, found)
    return ScoredExpression(
        name=name,
        target=normal_target,
        predicted=normal_predicted,
        missing=predicted is None,
        identical=predicted is not None and tuple(target) == tuple(predicted),
        alignment=tuple(align(normal_target, normal_predicted)),
        target_tree=target_tree,
        tree_errors=errors,
        structure=structure,
        well_formed=predicted_tree is not None,
    )


def _tree(tokens: Sequence[str]) -> Row | None:
    try:
        return parse(tokens)
    except LatexError:
        return None
