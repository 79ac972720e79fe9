"""Well-formed LaTeX, and the decoding constraint that produces nothing else."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmerctl.runtime.grammar import GrammarConstraint, malformed
from hmerctl.runtime.vocabulary import CROHME, EOS, PAD, SOS


@pytest.mark.parametrize(
    "text",
    [
        "",
        r"x ^ { 2 } + y _ { i } ^ { 2 }",
        r"\frac { a } { b } ^ { 2 }",
        r"\sqrt [ 3 ] { [ a , b ) } ]",
        r"\sqrt { \sqrt [ n ] { x } }",
        r"{ x ^ { 2 } } ^ { 3 }",
        r"\sum \limits _ { i = 1 } ^ { n } i",
        r"\{ a \} ] [",
        r"^ { a } b",
    ],
)
def test_well_formed(text: str) -> None:
    assert malformed(text.split()) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{ a", "left open"),
        ("a }", "never opened"),
        (r"\frac { a }", "argument in braces is missing"),
        (r"\frac { a } b", "argument in braces is missing"),
        (r"\sqrt 2", "argument in braces is missing"),
        (r"\sqrt [ 3 ]", "argument in braces is missing"),
        (r"\sqrt [ 3 { x }", "left open"),
        (r"\sqrt [ 3 } ]", "inside the index"),
        (r"\sqrt [ ] { x }", "empty"),
        ("x ^ { }", "empty"),
        ("x ^ 2", "argument in braces is missing"),
        ("x ^ { a } ^ { b }", r"second \^"),
        ("x ^ { a } _ { b } ^ { c }", r"second \^"),
        ("x ^", "argument in braces is missing"),
    ],
)
def test_malformed(text: str, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        assert malformed(text.split()) is None, malformed(text.split())


@given(st.data())
def test_whatever_the_constraint_allows_ends_well_formed(data: st.DataObject) -> None:
    constraint = GrammarConstraint(CROHME)
    state, ids = constraint.start(), []
    for _ in range(40):
        allowed = constraint.allowed(state)
        assert allowed.shape == (len(CROHME),) and allowed.any()
        assert not allowed[PAD] and not allowed[SOS]
        # Structure often, so that deep nesting is reached.
        likely = [i for i in CROHME.encode(["{", "}", "[", "]", "^", "_", "\\frac", "\\sqrt", "a"]) if allowed[i]]
        token = data.draw(st.sampled_from(likely))
        ids.append(token)
        state = constraint.advance(state, token)
        tokens = CROHME.decode(ids)
        assert constraint.allowed(state)[EOS] == (malformed(tokens) is None)


@pytest.mark.parametrize("name", ["caption_train.txt", "caption_2014.txt"])
def test_every_label_of_crohme_is_allowed(crohme: Path, name: str) -> None:
    constraint = GrammarConstraint(CROHME)
    for line in (crohme / name).read_text().splitlines():
        state = constraint.start()
        for token in CROHME.encode(line.split("\t")[1].split()):
            assert constraint.allowed(state)[token], line
            state = constraint.advance(state, token)
        assert constraint.allowed(state)[EOS], line
    assert np.count_nonzero(constraint.allowed(constraint.start())) > 100
