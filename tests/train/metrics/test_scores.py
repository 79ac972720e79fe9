r"""Both scorers on a small set of predictions; every figure is worked out in the comments."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.metrics.expression import score_expression
from hmerctl.train.metrics.scores import Scores, bleu4, perplexity, score

TARGETS = {
    "same": "x ^ { 2 }",
    "order": "x _ { i } ^ { 2 }",
    "label": r"b + \frac { 1 } { 2 }",
    "relation": "x ^ { 2 } + 1",
    "end": "a + b",
    "broken": r"\sqrt { 3 }",
    "missing": "y",
    "limits": r"\sum \limits _ { i } i",
}
PREDICTIONS = {
    "same": "x ^ { 2 }",
    "order": "x ^ 2 _ i",
    "label": r"6 + \frac { 1 } { 2 }",
    "relation": "x _ { 2 } + 1",
    "end": "a +",
    "broken": r"\sqrt { 3",
    "limits": r"\sum _ { i } i",
    "other": "z",
}
# After normalisation:
#   name      target tokens  token distance               label errors
#   same       5             0                            0
#   order      9             0                            0
#   label      9             1 (b -> 6)                   1 (the node b)
#   relation   7             1 (^ -> _)                   4 (node and edge lost, node and edge new)
#   end        3             1 (b missed)                 2 (node and edge)
#   broken     4             1 (} missed)                 none: not well formed
#   missing    1             1, but nothing is right      none
#   limits     6             0                            0
# 44 target tokens, 5 errors.


def split(captions: dict[str, str]) -> dict[str, list[str]]:
    return {name: text.split() for name, text in captions.items()}


@pytest.fixture(scope="module")
def scores() -> Scores:
    return score(split(TARGETS), split(PREDICTIONS))


def test_the_token_convention(scores: Scores) -> None:
    # Right: same, order, limits. Within one: also label, relation, end, broken. "missing" is never right.
    assert (scores.token.exact, scores.token.within_1, scores.token.within_2) == (3 / 8, 7 / 8, 7 / 8)


def test_the_tree_convention(scores: Scores) -> None:
    # Right: same, order, limits. Within one: also label. Within two: also end.
    assert (scores.tree.exact, scores.tree.within_1, scores.tree.within_2) == (3 / 8, 4 / 8, 5 / 8)


def test_without_normalisation_only_equal_spelling_counts(scores: Scores) -> None:
    assert scores.identical == 1 / 8


def test_structure(scores: Scores) -> None:
    # Trees equal without labels: same, order, label, limits.
    assert scores.stru_rate == 4 / 8
    # Structural symbols of the targets: same ^; order _ ^; label \frac; relation ^ (predicted as _); end none;
    # broken \sqrt; missing none; limits \sum _. 7 of these 8 are right.
    assert scores.structural_symbol_rate == 7 / 8
    # All right and none added: all but relation and the missing one.
    assert scores.structure_rate == 6 / 8


def test_distances(scores: Scores) -> None:
    assert scores.edit_distance == 5 / 8
    assert scores.token_error_rate == 5 / 44
    assert scores.edit_similarity == pytest.approx(1 - 5 / 44)


def test_what_could_not_be_scored_is_named(scores: Scores) -> None:
    assert scores.missing == ("missing",)
    assert scores.unknown == ("other",)
    assert scores.not_well_formed == ("broken",)
    assert scores.targets_not_well_formed == ()


def test_confusions_leave_missing_predictions_out(scores: Scores) -> None:
    found = {(item.target, item.predicted, item.count) for item in scores.confusions}
    assert found == {("b", "6", 1), ("^", "_", 1), ("b", None, 1), ("}", None, 1)}


def test_results_by_length_and_structure(scores: Scores) -> None:
    lengths = {group.name: (group.expressions, group.token) for group in scores.by_length}
    assert lengths == {"1-5": (4, 1 / 4), "6-10": (4, 2 / 4)}
    kinds = {group.name: (group.expressions, group.token) for group in scores.by_structure}
    assert kinds == {
        "scripts": (4, 3 / 4),
        "fraction": (1, 0),
        "root": (1, 0),
        "big operator": (1, 1),
        "depth 0": (2, 0),
        "depth 1": (6, 3 / 6),
    }


def test_the_report_is_plain_data_that_says_its_conventions(scores: Scores) -> None:
    report = json.loads(json.dumps(scores.to_dict()))
    assert report["token"]["exact"] == 3 / 8
    assert report["confusions"][0] == {"target": "^", "predicted": "_", "count": 1}
    assert {"token", "tree", "bleu4"} <= set(report["conventions"])


def test_the_interval_holds_the_rate_and_is_reproducible(scores: Scores) -> None:
    assert scores.token.interval.low < 3 / 8 < scores.token.interval.high
    assert score(split(TARGETS), split(PREDICTIONS)) == scores


def test_perfect_predictions_have_perfect_scores() -> None:
    perfect = score(split(TARGETS), split(TARGETS))
    assert (
        perfect.token.exact == perfect.tree.exact == perfect.stru_rate == perfect.structure_rate == perfect.bleu4 == 1
    )
    assert perfect.edit_distance == 0
    assert perfect.confusions == ()


def test_a_target_that_is_not_well_formed_is_named_and_wrong_as_a_tree() -> None:
    scores = score({"a": ["{"], "b": ["x"]}, {"a": ["{"], "b": ["x"]})
    assert scores.targets_not_well_formed == ("a",)
    assert (scores.token.exact, scores.tree.exact) == (1, 0.5)


def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing"):
        score({}, {})


def test_bleu_4_worked_out() -> None:
    # Target a b c d e, prediction a b c d f: n-gram precisions 4/5, 3/4, 2/3, 1/2; equal lengths, so no penalty:
    # (4/5 * 3/4 * 2/3 * 1/2) ** (1/4) = (1/5) ** (1/4).
    assert bleu4([list("abcde")], [list("abcdf")]) == pytest.approx(0.2**0.25)
    # Braces and backslashes are tokens of their own, nothing is split or lower-cased.
    assert bleu4([["\\frac", "{", "A", "}"]], [["\\frac", "{", "a", "}"]]) < 1


def test_perplexity_is_two_to_the_mean_bits_per_token() -> None:
    # Probabilities 1/2, 1/4 and 1/8: 1, 2 and 3 bits, mean 2, perplexity 4, however they are spread over expressions.
    logs = [math.log(1 / 2), math.log(1 / 4), math.log(1 / 8)]
    assert perplexity([logs]) == pytest.approx(4)
    assert perplexity([logs[:1], logs[1:]]) == pytest.approx(4)
    assert score({"a": ["x"]}, {"a": ["x"]}, log_probs=[logs]).perplexity == pytest.approx(4)
    with pytest.raises(ValueError, match="at least one"):
        perplexity([])


tokens = st.lists(st.sampled_from(CROHME.tokens), max_size=20)


@given(tokens, tokens)
def test_any_tokens_can_be_scored(target: list[str], predicted: list[str]) -> None:
    scored = score_expression("any", target, predicted)
    if scored.tree_right():
        assert scored.right()
        assert scored.structure
    assert score_expression("same", target, target).right()
    expected, right, _ = scored.structural
    assert 0 <= right <= expected
