"""Tokens to LaTeX: a space only where TeX needs one, and nothing is lost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmerctl.runtime.latex import detokenise
from hmerctl.runtime.vocabulary import CROHME


@pytest.mark.parametrize(
    ("tokens", "latex"),
    [
        (r"\alpha x ^ { 2 }", r"\alpha x^{2}"),
        (r"\frac { a } { b } + \sqrt [ 3 ] { x }", r"\frac{a}{b}+\sqrt[3]{x}"),
        (r"\sin \theta = 2 \cdot 3", r"\sin\theta=2\cdot3"),
        (r"\{ x | x \in R \}", r"\{x|x\in R\}"),
        ("", ""),
    ],
)
def test_examples(tokens: str, latex: str) -> None:
    assert detokenise(tokens.split()) == latex


@given(st.lists(st.sampled_from(CROHME.tokens)))
def test_reading_it_back_gives_the_same_tokens(tokens: list[str]) -> None:
    assert re.findall(r"\\[A-Za-z]+|\\.|\S", detokenise(tokens)) == tokens
