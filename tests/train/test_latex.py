r"""The normal form of LaTeX: what each rule does, and that it holds for any input."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.latex import (
    LatexError,
    normalise,
    normalise_prediction,
    normalise_truth,
    parse,
    tokenise,
)


def normal(text: str) -> str:
    return " ".join(normalise(text))


def test_tokens_are_control_words_control_symbols_and_characters() -> None:
    assert tokenise(r"$\frac12\{x\ y\!\}$") == ["\\frac", "1", "2", "\\{", "x", "y", "\\!", "\\}"]


def test_a_relation_run_on_into_letters_is_cut_off() -> None:
    assert tokenise(r"M\ltN") == ["M", "\\lt", "N"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$x$", "x"),
        (r"\left( a \right) \left. b \right|", "( a ) b |"),
        (r"\Bigg( \! a\,b\;c \quad d \Bigg)", "( a b c d )"),
        (r"{ { \mbox { x } + C } \gt \text{C} }", "x + C > C"),
        (r"\mathrm dt", "d t"),
        (r"I_\mathrm{S}", "I _ { S }"),
        (r"\operatorname*{max}", "m a x"),
        (r"a \lt b \le c \to d \ne e", r"a < b \leq c \rightarrow d \neq e"),
        (r"1 \dots n \cdots m", r"1 \ldots n \cdots m"),
        (r"\lbrack x \parallel y \rbrack", "[ x | | y ]"),
        ("x^2", "x ^ { 2 }"),
        ("x^{{2}}", "x ^ { 2 }"),
        ("x^2_i", "x _ { i } ^ { 2 }"),
        ("x_{}^{}", "x"),
        ("{ab}^2", "a b ^ { 2 }"),
        ("{x_i}^2", "x _ { i } ^ { 2 }"),
        ("{x^2}^3", "{ x ^ { 2 } } ^ { 3 }"),
        ("a{}^2b", "a ^ { 2 } b"),
        ("a^2{}^3", "a ^ { 2 } { } ^ { 3 }"),
        ("{}^2b", "{ } ^ { 2 } b"),
        (r"\sum\limits_{i}^n", r"\sum _ { i } ^ { n }"),
        (r"\frac12", r"\frac { 1 } { 2 }"),
        (r"{a+b \over c} d", r"\frac { a + b } { c } d"),
        (r"a \over b", r"\frac { a } { b }"),
        (r"x^\frac12", r"x ^ { \frac { 1 } { 2 } }"),
        (r"\sqrt2", r"\sqrt { 2 }"),
        (r"\sqrt[3]x", r"\sqrt [ 3 ] { x }"),
        (r"\sqrt[{]}]x", r"\sqrt [ { ] } ] { x }"),
        (r"[\sqrt{x}]", r"[ \sqrt { x } ]"),
        ("f'", r"f ^ { \prime }"),
        ("f''^2", r"f ^ { \prime \prime 2 }"),
        ("f'_n", r"f _ { n } ^ { \prime }"),
        ("y^{'}", r"y ^ { \prime }"),
        (r"y \prime", r"y \prime"),
        (r"\frac{}{2}", r"\frac { } { 2 }"),
    ],
)
def test_normal_form(text: str, expected: str) -> None:
    assert normal(text) == expected
    assert normal(expected) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x ^ { 2", "'}' is missing"),
        ("x }", "'}' stands where a symbol must"),
        ("x ^", "an argument is missing"),
        (r"\frac { 1 }", "an argument is missing"),
        (r"\sqrt [ 3 { x }", "']' is missing"),
        ("x ^ 2 ^ 3", "two superscripts"),
        ("x _ 2 _ 3", "two subscripts"),
        ("x ^ 2 '", "a prime after a superscript"),
        (r"\begin{matrix}", "not supported"),
        ("{" * 1000, "nested deeper"),
        (r"\sqrt" * 1000, "nested deeper"),
        ("x ABOVE y", "ABOVE without a root"),
    ],
)
def test_malformed_latex_is_an_error_of_one_line(text: str, message: str) -> None:
    with pytest.raises(LatexError, match=message) as error:
        normalise(text)
    assert "\n" not in str(error.value)


def test_a_prediction_that_does_not_parse_keeps_its_fault() -> None:
    assert normalise_prediction(r"x ^ { 2 \lt \limits 3") == ("x", "^", "{", "2", "<", "3")
    assert normalise_prediction("x ^ 2") == ("x", "^", "{", "2", "}")


@pytest.mark.parametrize(
    ("text", "expected", "repair"),
    [
        (r"$2 l o g x + \log y$", r"2 \log x + \log y", "function"),
        ("$ lim _ {x} sin ^ {2} x $", r"\lim _ { x } \sin ^ { 2 } x", "function"),
        (r"$ \lim _ {y}} f $", r"\lim _ { y } f", "brace"),
        (r"$\sqrt {\sqrt {x} ABOVE {n}} ABOVE {m}$", r"\sqrt [ m ] { \sqrt [ n ] { x } }", "ABOVE"),
    ],
)
def test_truths_are_repaired_and_the_repair_is_named(text: str, expected: str, repair: str) -> None:
    tokens, repairs = normalise_truth(text)
    assert " ".join(tokens) == expected
    assert len(repairs) == 1
    assert repair in repairs[0]


def test_letters_that_only_contain_a_function_name_stay_letters() -> None:
    assert normalise_truth("$a_{tan} sinc$") == (normalise("a_{tan} s i n c"), ())


def test_an_empty_truth_is_an_error() -> None:
    with pytest.raises(LatexError, match="empty"):
        normalise_truth("$ $")


def test_the_tree_holds_scripts_and_arguments() -> None:
    fraction, x = parse(r"\frac{1}{2}x_i^2")
    assert fraction.symbol == "\\frac"
    assert [[node.symbol for node in row] for row in fraction.arguments] == [["1"], ["2"]]
    assert x.sub is not None and x.sup is not None
    assert (x.sub[0].symbol, x.sup[0].symbol) == ("i", "2")


symbols = st.sampled_from(["x", "1", "]", "[", "=", "\\sum", "\\prime", "\\lt", "\\left"])
expressions = st.recursive(
    symbols,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: f"{p[0]} {p[1]}"),
        inner.map(lambda p: f"{{ {p} }}"),
        st.tuples(inner, st.sampled_from("_^"), inner).map(lambda p: f"{{ {p[0]} }} {p[1]} {{ {p[2]} }}"),
        st.tuples(inner, inner).map(lambda p: f"{{ {p[0]} }} ' _ {{ {p[1]} }}"),
        st.tuples(st.sampled_from("_^"), inner).map(lambda p: f"{{ }} {p[0]} {{ {p[1]} }}"),
        st.tuples(inner, inner).map(lambda p: f"\\frac {{ {p[0]} }} {{ {p[1]} }}"),
        st.tuples(inner, inner).map(lambda p: f"{{ {p[0]} \\over {p[1]} }}"),
        st.tuples(inner, inner).map(lambda p: f"\\sqrt [ {{ {p[0]} }} ] {{ {p[1]} }}"),
    ),
    max_leaves=12,
)


@given(expressions)
def test_well_formed_latex_always_has_a_normal_form_and_it_is_idempotent(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert parse(once) == parse(text)
    assert normalise(" ".join(once)) == once


@given(expressions)
def test_braces_are_balanced_and_every_script_is_braced(text: str) -> None:
    tokens = normalise(text)
    depth = 0
    for token, following in zip(tokens, (*tokens[1:], ""), strict=False):
        depth += (token == "{") - (token == "}")
        assert depth >= 0
        if token in ("_", "^"):
            assert following == "{"
    assert depth == 0


@given(st.lists(st.sampled_from(CROHME.tokens), max_size=30))
def test_any_prediction_has_an_idempotent_form(tokens: list[str]) -> None:
    once = normalise_prediction(tokens)
    assert normalise_prediction(once) == once


@given(st.text(alphabet=string.printable, max_size=40))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    try:
        tokens, _ = normalise_truth(text)
    except LatexError:
        return
    assert all(not any(character.isspace() for character in token) for token in tokens)
