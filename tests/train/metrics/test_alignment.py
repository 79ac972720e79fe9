"""Edit distances worked out on paper, and their alignments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmerctl.train.metrics.alignment import Confusion, align, confusions, edit_distance


@pytest.mark.parametrize(
    ("target", "predicted", "distance"),
    [
        # Nothing to do; everything to add; everything to delete.
        ("", "", 0),
        ("", "a b", 2),
        ("a b", "", 2),
        # The textbook pair: k->s, e->i, insert g at the end.
        ("k i t t e n", "s i t t i n g", 3),
        # Delete S at the front, a->u, r->n, insert d? No: S-a-turday to S-u-nday is: delete a, delete t, r->n.
        ("S a t u r d a y", "S u n d a y", 3),
        # One token, whatever it is spelled: \alpha -> a is one substitution, not six.
        (r"\alpha + 1", "a + 1", 1),
        # x ^ { 2 } against x _ { 2 }: one substitution, ^ -> _.
        ("x ^ { 2 }", "x _ { 2 }", 1),
        # x ^ { 2 } against x 2: the tokens ^ { } are deleted.
        ("x ^ { 2 }", "x 2", 3),
        # \frac { 1 } { 2 } against 1 / 2. Keep 1 and 2: delete \frac and the braces { } { } around them (5 tokens),
        # but one of the two between 1 and 2 can become / instead: 1 + 1 + (1 + 1 substitution) + 1 = 5.
        (r"\frac { 1 } { 2 }", "1 / 2", 5),
        # Swapping neighbours costs two.
        ("a b", "b a", 2),
    ],
)
def test_known_distances(target: str, predicted: str, distance: int) -> None:
    assert edit_distance(target.split(), predicted.split()) == distance


def test_the_alignment_shows_substitution_omission_and_addition() -> None:
    # b is taken for 6, ^ is kept, the last token is missed; in the second, a dot is added.
    assert align("b ^ n".split(), "6 ^".split()) == [("b", "6"), ("^", "^"), ("n", None)]
    assert align("x y".split(), "x . y".split()) == [("x", "x"), (None, "."), ("y", "y")]


def test_confusions_are_counted_over_all_expressions_most_frequent_first() -> None:
    alignments = [align(list("b+b"), list("6+6")), align(list("9b"), list("q")), align(list("x"), list("xy"))]
    # 9 b against q: 9->q and b missed, or 9 missed and b->q: equally short; pairs from the end are preferred.
    assert confusions(alignments) == [
        Confusion("b", "6", 2),
        Confusion(None, "y", 1),
        Confusion("9", None, 1),
        Confusion("b", "q", 1),
    ]


tokens = st.lists(st.sampled_from("abc"), max_size=8)


def reference(a: list[str], b: list[str]) -> int:
    """Levenshtein's recursion, as written in Zhou 2023 (eq. 9)."""
    if not a or not b:
        return len(a) + len(b)
    table = [list(range(len(b) + 1))]
    for i, x in enumerate(a, start=1):
        row = [i]
        for j, y in enumerate(b, start=1):
            row.append(min(table[-1][j] + 1, row[-1] + 1, table[-1][j - 1] + (x != y)))
        table.append(row)
    return table[-1][-1]


@given(tokens, tokens)
def test_the_distance_is_levenshteins_and_the_alignment_costs_as_much(a: list[str], b: list[str]) -> None:
    assert edit_distance(a, b) == reference(a, b) == edit_distance(b, a)
    pairs = align(a, b)
    assert sum(x != y for x, y in pairs) == edit_distance(a, b)
    assert [x for x, _ in pairs if x is not None] == a
    assert [y for _, y in pairs if y is not None] == b
