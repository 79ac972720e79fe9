r"""Symbol layout trees, and label errors counted by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmerctl.train.latex import normalise, parse
from hmerctl.train.metrics.layout import label_errors, layout, nesting_depth, same_structure, symbols


def errors(target: str, predicted: str) -> int:
    return label_errors(layout(parse(target)), layout(parse(predicted)))


def test_the_tree_of_each_relation() -> None:
    assert layout(parse("a+b")) == {"0": "a", "1": "+", "2": "b"}
    assert layout(parse("x_i^2")) == {"0": "x", "0 sub 0": "i", "0 sup 0": "2"}
    assert layout(parse(r"\frac{1}{2a}")) == {
        "0": "\\frac",
        "0 above 0": "1",
        "0 below 0": "2",
        "0 below 1": "a",
    }
    assert layout(parse(r"\sqrt[3]{x}")) == {"0": "\\sqrt", "0 index 0": "3", "0 inside 0": "x"}
    assert layout(parse(r"\sum_i^n")) == {"0": "\\sum", "0 below 0": "i", "0 above 0": "n"}
    assert layout(parse(r"\int_0^1")) == {"0": "\\int", "0 sub 0": "0", "0 sup 0": "1"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x^2_i", "x _ { i } ^ { 2 }"),
        ("{x}^{{2}}", "x^2"),
        (r"\frac12", r"{1 \over 2}"),
        (r"\left( a \right)", "(a)"),
        (r"\sum\limits_i", r"\sum_{i}"),
    ],
)
def test_trees_are_equal_whatever_braces_and_script_order(one: str, other: str) -> None:
    assert errors(one, other) == 0


@pytest.mark.parametrize(
    ("target", "predicted", "expected"),
    [
        # b is read as 6: one node has another label.
        ("b+1", "6+1", 1),
        # A missed symbol at the end: its node and its edge.
        ("a+b", "a+", 2),
        # The 2 comes down from the superscript: the place "0 sup 0" is lost (node, edge), "1" is new (node, edge).
        ("x^2", "x2", 4),
        # Sub for sup: the same count, though the tokens differ in one only.
        ("x^2", "x_2", 4),
        # A symbol missed at the front shifts its row: a->b at place 0, place 1 is lost with its edge.
        ("ab", "b", 3),
        # \sum and \int: the label is wrong (1), and i hangs below one but is a subscript of the other (2 + 2).
        (r"\sum_i", r"\int_i", 5),
        # Fraction against a plain slash, 1 / 2: \frac -> 1 at place 0 (1); the places "0 above 0" and "0 below 0" are
        # lost (4); the places "1" and "2" are new (4).
        (r"\frac{1}{2}", "1/2", 9),
        # An empty prediction of one symbol: only its node, the first symbol has no edge.
        ("x", "", 1),
        # An empty prediction of two symbols: two nodes and an edge.
        ("xy", "", 3),
    ],
)
def test_label_errors_counted_by_hand(target: str, predicted: str, expected: int) -> None:
    assert errors(target, predicted) == errors(predicted, target) == expected


def test_structure_ignores_labels_only() -> None:
    def same(one: str, other: str) -> bool:
        return same_structure(layout(parse(one)), layout(parse(other)))

    assert same("b^2+1", "6^z-l")
    assert not same("b^2", "b_2")
    assert not same("b^2", "b2")


@pytest.mark.parametrize(
    ("text", "depth"), [("", 0), ("a+b", 0), ("x^2", 1), (r"\frac{x^2}{y}", 2), (r"\sqrt{\frac{1}{x_{i_j}}}", 4)]
)
def test_nesting_depth(text: str, depth: int) -> None:
    assert nesting_depth(parse(text)) == depth


def test_symbols_of_a_tree_name_scripts() -> None:
    assert sorted(symbols(parse(r"\frac{x^2}{y_1}"))) == ["1", "2", "\\frac", "^", "_", "x", "y"]


rows = st.recursive(
    st.sampled_from(["x", "y", "\\sum"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(" ".join),
        st.tuples(inner, inner).map(lambda p: f"{{ {p[0]} }} ^ {{ {p[1]} }}"),
        st.tuples(inner, inner).map(lambda p: f"{{ {p[0]} }} _ {{ {p[1]} }}"),
        st.tuples(inner, inner).map(lambda p: f"\\frac {{ {p[0]} }} {{ {p[1]} }}"),
    ),
    max_leaves=5,
)


@given(rows, rows)
def test_trees_are_equal_exactly_where_normal_forms_are(one: str, other: str) -> None:
    assert (errors(one, other) == 0) == (normalise(one) == normalise(other))
