"""Symbol groups get the vocabulary's names where label and groups leave no doubt."""

from collections import Counter

import numpy as np
import pytest

from hmerctl.runtime.ink import Ink, Symbol
from hmerctl.train.symbols import drawn_symbols, name_symbols

Box = tuple[str, float, float, float, float]
"""Label, left, top, right, bottom of a symbol that is one diagonal stroke."""


def ink(*boxes: Box) -> Ink:
    strokes = tuple(np.array([[left, top], [right, bottom]], float) for _, left, top, right, bottom in boxes)
    return Ink(strokes, tuple(Symbol(box[0], (i,)) for i, box in enumerate(boxes)))


def names(named: Ink) -> list[str]:
    return [s.label for s in named.symbols]


@pytest.mark.parametrize(
    ("label", "drawn"),
    [
        (r"x ^ { 2 } _ { i }", "x 2 i"),
        (r"\frac { - a } { b }", r"\frac - a b"),
        (r"\sqrt { x }", r"\sqrt x"),
        (r"\sqrt [ 3 ] { [ x ] }", r"\sqrt 3 [ x ]"),
        (r"\sqrt [ { [ a ] } ] { b }", r"\sqrt [ a ] b"),
        (r"\sqrt [ \sqrt [ 2 ] { n } ] { x } [", r"\sqrt \sqrt 2 n x ["),
        (r"\{ a \} ]", r"\{ a \} ]"),
        ("", ""),
    ],
)
def test_what_a_label_draws(label: str, drawn: str) -> None:
    assert drawn_symbols(label.split()) == Counter(drawn.split())


FRACTION = (("a", 4.0, 0.0, 6.0, 3.0), ("-", 0.0, 5.0, 10.0, 5.0), ("b", 4.0, 7.0, 6.0, 9.0))


def test_the_bar_of_a_fraction_is_not_a_minus() -> None:
    named, match = name_symbols(ink(("-", -9, 5, -5, 5), *FRACTION), r"- \frac { a } { b }".split())
    assert names(named) == ["-", "a", r"\frac", "b"]
    assert match is True


def test_a_wide_minus_is_no_bar() -> None:
    named, _ = name_symbols(ink(("-", -30, 5, -5, 5), *FRACTION), r"- \frac { a } { b }".split())
    assert names(named) == ["-", "a", r"\frac", "b"]


def test_of_nested_fractions_all_bars_are_found() -> None:
    outer = (("-", -5.0, 12.0, 15.0, 12.0), ("c", 4.0, 14.0, 6.0, 16.0), ("-", -4.0, 14.5, 0.0, 14.5))
    named, match = name_symbols(ink(*FRACTION, *outer), r"\frac { \frac { a } { b } } { - c }".split())
    assert names(named) == ["a", r"\frac", "b", r"\frac", "c", "-"]
    assert match is True


def test_bars_that_the_reader_has_named_stay() -> None:
    given = ink(("\\frac", 0, 0, 1, 0), ("-", 0, 5, 10, 5), ("a", 4, 0, 6, 3), ("b", 4, 7, 6, 9))
    named, match = name_symbols(given, r"- \frac { a } { b }".split())
    assert (named.symbols, match) == (given.symbols, True)


def test_without_as_many_bars_as_the_label_nothing_is_renamed() -> None:
    given = ink(*FRACTION)
    assert name_symbols(given, r"- \frac { a } { b }".split()) == (given, False)


@pytest.mark.parametrize(
    ("looks", "label", "result"),
    [
        ("a . b", r"a \cdot b", r"a \cdot b"),
        ("a . b . c", r"a \cdot b \cdot c", r"a \cdot b \cdot c"),
        (r"a \ldots b", r"a \cdots b", r"a \cdots b"),
        (r"a \cdots b", r"a \ldots b", r"a \ldots b"),
        ("a . . . b", r"a \cdots b", r"a b \cdots"),
        ("a . . . b . . .", r"a \ldots b \ldots", r"a b \ldots \ldots"),
    ],
)
def test_dots_are_named_by_the_label(looks: str, label: str, result: str) -> None:
    named, match = name_symbols(ink(*((s, i, 0.0, i + 0.5, 1.0) for i, s in enumerate(looks.split()))), label.split())
    assert names(named) == result.split()
    assert match is True


def test_merged_dots_are_neighbours_and_keep_all_strokes() -> None:
    """Written out of order: right, far left ..."""
    places = [("a", 50.0), (".", 90.0), (".", 0.0), (".", 91.0), (".", 1.0), (".", 92.0), (".", 2.0)]
    named, _ = name_symbols(ink(*((s, x, 0.0, x, 1.0) for s, x in places)), r"\cdots a \cdots".split())
    assert [s.strokes for s in named.symbols] == [(0,), (2, 4, 6), (1, 3, 5)]


@pytest.mark.parametrize(("looks", "label"), [("1 . 2 . 3", r"1 . 2 \cdot 3"), ("a b", "a b b"), ("a b", "a")])
def test_doubt_leaves_groups_as_they_are(looks: str, label: str) -> None:
    given = ink(*((s, i, 0.0, i + 0.5, 1.0) for i, s in enumerate(looks.split())))
    assert name_symbols(given, label.split()) == (given, False)


def test_an_ink_without_groups_says_nothing() -> None:
    given = Ink((np.zeros((1, 2)),))
    assert name_symbols(given, ("x",)) == (given, None)
